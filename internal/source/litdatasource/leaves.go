package litdatasource

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/offsetshards"
	"github.com/stokerdata/stoker/source/driver"
)

// torchTypes and numpyTypes map the type numbers of the format to element types.
var (
	torchTypes = map[uint32]driver.DType{
		0: driver.Float32, 1: driver.Float32, 2: driver.Float64, 3: driver.Float64, 8: driver.Float16, 9: driver.Float16, 11: driver.Uint8, 12: driver.Int8,
		13: driver.Int16, 14: driver.Int16, 15: driver.Int32, 16: driver.Int32, 17: driver.Int64, 18: driver.Int64, 19: driver.Bool, 20: driver.Uint16,
	}
	numpyTypes = map[uint32]driver.DType{
		0: driver.Int8, 1: driver.Int16, 2: driver.Int32, 3: driver.Int64, 4: driver.Uint8, 5: driver.Uint16, 6: driver.Uint32, 7: driver.Uint64,
		8: driver.Float16, 9: driver.Float32, 10: driver.Float64, 13: driver.Bool,
	}
)

// decoder returns the decoder of a leaf, by the name of its serializer in the index.
func decoder(format string) (offsetshards.Decode, error) {
	name, config, _ := strings.Cut(format, ":")
	switch name {
	case "bytes", "jpeg", "image", "audio", "video", "file", "tifffile", "nifti", "mesh", "pdf":
		return offsetshards.StringsOf(column.Bytes), nil
	case "str", "text":
		return offsetshards.StringsOf(column.Text), nil
	case "int":
		return offsetshards.Number(driver.Int64), nil
	case "float":
		return offsetshards.Number(driver.Float64), nil
	case "bool":
		return offsetshards.Number(driver.Bool), nil
	case "pil":
		return func(w *offsetshards.Work, off, size int) (dynvalue.Value, error) { return w.Picture(off, size) }, nil
	case "tensor":
		return arrays(torchTypes, binary.BigEndian), nil
	case "numpy":
		return arrays(numpyTypes, binary.LittleEndian), nil
	case "no_header_tensor", "no_header_numpy":
		types := torchTypes
		if name == "no_header_numpy" {
			types = numpyTypes
		}
		n, err := strconv.ParseUint(config, 10, 32)
		if err != nil || types[uint32(n)] == "" {
			return nil, fmt.Errorf("unsupported element type %.40q", format)
		}
		return list(types[uint32(n)]), nil
	case "jpeg_array":
		return offsetshards.Unread("is a list of images"), nil
	case "json":
		return offsetshards.Unread("is stored as LitData's nested lists and dicts"), nil
	case "pickle", "graph":
		return offsetshards.Unread("is pickled (unpickling can run any code)"), nil
	}
	return nil, fmt.Errorf("unknown serializer %.40q", format)
}

// list decodes elements without a header, as an array with one axis.
func list(t driver.DType) offsetshards.Decode {
	return func(w *offsetshards.Work, off, size int) (dynvalue.Value, error) {
		if size%t.Size() != 0 {
			return dynvalue.Value{}, fmt.Errorf("%d bytes are not a multiple of the element size %d", size, t.Size())
		}
		w.Shape = append(w.Shape[:0], size/t.Size())
		return w.Array(t, w.Shape, off, size)
	}
}

// arrays decodes arrays with a header: the number of the type, the number of axes, and the sides.
func arrays(types map[uint32]driver.DType, order binary.ByteOrder) offsetshards.Decode {
	return func(w *offsetshards.Work, off, size int) (dynvalue.Value, error) {
		const most = 4 * (2 + driver.MaxAxes)
		head, err := w.View.Get(off, min(size, most))
		if err != nil {
			return dynvalue.Value{}, err
		}
		if len(head) < 8 {
			return dynvalue.Value{}, fmt.Errorf("an array of %d bytes is too small for its header", size)
		}
		t, axes := types[order.Uint32(head)], order.Uint32(head[4:])
		if t == "" {
			return dynvalue.Value{}, fmt.Errorf("an array has the unsupported type number %d", order.Uint32(head))
		}
		if int64(axes) > int64(len(head)/4-2) {
			return dynvalue.Value{}, fmt.Errorf("an array of %d axes in %d bytes", axes, size)
		}
		w.Shape = w.Shape[:0]
		for i := range int(axes) {
			n := order.Uint32(head[8+4*i:])
			if n > driver.MaxArrayBytes {
				return dynvalue.Value{}, fmt.Errorf("an array with a side of %d", n)
			}
			w.Shape = append(w.Shape, int(n))
		}
		at := 8 + 4*int(axes)
		return w.Array(t, w.Shape, off+at, size-at)
	}
}
