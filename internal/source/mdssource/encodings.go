package mdssource

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/offsetshards"
	"github.com/stokerdata/stoker/source/driver"
)

// decoder returns the decoder of an encoding, by its name in the index.
func decoder(encoding string) (offsetshards.Decode, error) {
	name, config, configured := strings.Cut(encoding, ":")
	if configured && name != "ndarray" {
		return nil, fmt.Errorf("unknown encoding %.40q", encoding)
	}
	switch name {
	case "bytes", "jpeg", "png":
		return offsetshards.StringsOf(column.Bytes), nil
	case "str", "str_decimal":
		return offsetshards.StringsOf(column.Text), nil
	case "json":
		return offsetshards.StringsOf(column.JSON), nil
	case "int":
		return offsetshards.Number(driver.Int64), nil
	case "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64":
		return offsetshards.Number(driver.DType(name)), nil
	case "str_int", "str_float":
		return written(name == "str_float"), nil
	case "pil":
		return func(w *offsetshards.Work, off, size int) (dynvalue.Value, error) { return w.Picture(off, size) }, nil
	case "ndarray":
		return arrays(config)
	case "jpeg_array", "jpegarray", "list[pil]", "list[jpeg]", "list[png]":
		return offsetshards.Unread("is a list of images"), nil
	case "pkl":
		return offsetshards.Unread("is pickled (unpickling can run any code)"), nil
	}
	return nil, fmt.Errorf("unknown encoding %.40q", encoding)
}

// written decodes numbers written as text.
func written(float bool) offsetshards.Decode {
	return func(w *offsetshards.Work, off, size int) (dynvalue.Value, error) {
		const most = 400
		if size > most {
			return dynvalue.Value{}, fmt.Errorf("a number of %d characters", size)
		}
		b, err := w.View.Get(off, size)
		if err != nil {
			return dynvalue.Value{}, err
		}
		w.Spare = w.Spare[:0]
		if float {
			x, err := strconv.ParseFloat(string(b), 64)
			if err != nil {
				return dynvalue.Value{}, fmt.Errorf("expected a number, got %.40q", b)
			}
			w.Spare = binary.LittleEndian.AppendUint64(w.Spare, math.Float64bits(x))
			v, err := offsetshards.Elements(driver.Float64, w.Spare)
			v.Temp = true
			return v, err
		}
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			return dynvalue.Value{}, fmt.Errorf("expected a 64-bit integer, got %.40q", b)
		}
		w.Spare = binary.LittleEndian.AppendUint64(w.Spare, uint64(n))
		v, err := offsetshards.Elements(driver.Int64, w.Spare)
		v.Temp = true
		return v, err
	}
}

// types maps the type numbers of the format to element types.
var types = map[byte]driver.DType{
	8: driver.Uint8, 9: driver.Int8, 16: driver.Uint16, 17: driver.Int16, 18: driver.Float16, 32: driver.Uint32, 33: driver.Int32,
	34: driver.Float32, 64: driver.Uint64, 65: driver.Int64, 66: driver.Float64,
}

// arrays decodes ndarray, ndarray:float32 and ndarray:float32:3,4. A type or shape that the
// encoding does not state is stored before the elements. The type is a byte with its number. The
// shape is a byte with the number of axes and the logarithm of the size of a side, and then the
// sides.
func arrays(config string) (offsetshards.Decode, error) {
	name, sides, shaped := strings.Cut(config, ":")
	t := driver.DType(name)
	if name != "" && (t.Size() == 0 || t == driver.Bool) {
		return nil, fmt.Errorf("unsupported element type %.20q of its arrays", name)
	}
	var fixed []int
	if shaped {
		for side := range strings.SplitSeq(sides, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(side))
			if err != nil || n < 1 || n > driver.MaxArrayBytes || len(fixed) == driver.MaxAxes {
				return nil, fmt.Errorf("invalid shape %.40q of its arrays", sides)
			}
			fixed = append(fixed, n)
		}
	}
	return func(w *offsetshards.Work, off, size int) (dynvalue.Value, error) {
		const most = 2 + 8*63 // size limit of the header
		head, err := w.View.Get(off, min(size, most))
		if err != nil {
			return dynvalue.Value{}, err
		}
		at := 0
		is, shape := t, fixed
		if is == "" {
			if at+1 > len(head) || types[head[at]] == "" {
				return dynvalue.Value{}, fmt.Errorf("an array has an unknown element type")
			}
			is = types[head[at]]
			at++
		}
		if !shaped {
			if at+1 > len(head) {
				return dynvalue.Value{}, fmt.Errorf("an array of %d bytes has no shape", size)
			}
			axes, wide := int(head[at]>>2), 1<<(head[at]&3)
			at++
			if axes > driver.MaxAxes || at+axes*wide > len(head) {
				return dynvalue.Value{}, fmt.Errorf("an array of %d axes in %d bytes", axes, size)
			}
			shape = w.Shape[:0]
			for range axes {
				var side [8]byte
				copy(side[:], head[at:at+wide])
				n := binary.LittleEndian.Uint64(side[:])
				if n > driver.MaxArrayBytes {
					return dynvalue.Value{}, fmt.Errorf("an array with a side of %d", n)
				}
				shape = append(shape, int(n))
				at += wide
			}
			w.Shape = shape
		}
		return w.Array(is, shape, off+at, size-at)
	}, nil
}
