package transform

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/item"
)

// Input describes the pixels that a program starts from. The zero value is RGB of u8 of any size, or u8 with one
// channel if the output is a mask.
type Input struct {
	// DType is item.U8, item.U16 or item.F32, Channels from 1 to 4. With a DType, Channels 0 means planes: rows of
	// shape [H, W] instead of [H, W, C].
	DType    item.DType
	Channels int
	// W and H are the size of all images, 0 when they differ or are not known.
	W, H int
	// Mask reports whether values are class numbers, as in Output.Mask.
	Mask bool
	// AsIs reports whether values are not converted: ToDtype and Normalize do nothing.
	AsIs bool
}

// modes are the values of Output.Mode, as Pillow names them, and their channels.
var modes = map[string]int{"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}

// Image is the input of an output that is made from stored images of w x h
// pixels (0: of any size), as its mode and depth ask for.
func (o *Output) Image(w, h int) (Input, error) {
	in := Input{DType: item.U8, Channels: 3, W: w, H: h, Mask: o.Mask}
	switch o.Depth {
	case 0, 8:
	case 16:
		in.DType = item.U16
	case 32:
		in.DType = item.F32
	default:
		return in, fmt.Errorf("output %q: depth is %d, must be 8, 16 or 32", o.Name, o.Depth)
	}
	switch c, known := modes[o.Mode]; {
	case o.Mask && o.Mode != "":
		return in, fmt.Errorf("output %q: mode is %q, but a mask has class numbers and no mode; leave it out", o.Name, clip(o.Mode))
	case o.Mask:
		in.Channels = 0
	case known:
		in.Channels = c
	case o.Mode != "":
		return in, fmt.Errorf("output %q: mode is %q, must be \"L\", \"LA\", \"RGB\" or \"RGBA\"", o.Name, clip(o.Mode))
	}
	return in, nil
}

func (in *Input) flat() bool { return in.DType != 0 && in.Channels == 0 }

// pixels is the type of the input of an output, and whether it is a mask.
func (in *Input) pixels(out *Output) (t item.PixelType, mask bool, err error) {
	mask = in.Mask || out.Mask
	t = item.PixelType{DType: in.DType, Channels: int32(in.Channels)}
	switch {
	case t == item.PixelType{} && mask:
		t = item.PixelType{DType: item.U8, Channels: 1}
	case t == item.PixelType{}:
		t = item.RGB
	case t.Channels == 0:
		t.Channels = 1
	}
	switch {
	case t.DType != item.U8 && t.DType != item.U16 && t.DType != item.F32:
		err = fmt.Errorf("operations work on uint8, uint16 and float32, not on %s", t.DType)
	case in.Channels < 0 || in.Channels > item.MaxChannels:
		err = fmt.Errorf("operations work on 1 to %d channels, not on %d", item.MaxChannels, in.Channels)
	case mask && (t.Channels != 1 || t.DType == item.F32):
		err = fmt.Errorf("a mask is uint8 or uint16 with 1 channel, not %s", t)
	}
	return t, mask, err
}

// maxValue returns the largest value of a pixel, which is white.
func maxValue(t item.DType) float64 {
	switch t {
	case item.U8:
		return 255
	case item.U16:
		return 65535
	}
	return 1
}

// encodePixel is a pixel of type t and the given colour; fractions of integers
// are cut off.
func encodePixel(fill Fill, t item.PixelType) (b [4 * item.MaxChannels]byte) {
	for c, v := range fill[:t.Channels] {
		switch t.DType {
		case item.U8:
			b[c] = byte(v)
		case item.U16:
			binary.LittleEndian.PutUint16(b[2*c:], uint16(v))
		default:
			binary.LittleEndian.PutUint32(b[4*c:], math.Float32bits(v))
		}
	}
	return b
}
