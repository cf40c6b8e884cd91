package offsetshards

import (
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/source/driver"
)

// Elements returns the value of one number of type t.
func Elements(t driver.DType, b []byte) (dynvalue.Value, error) {
	if len(b) != t.Size() {
		return dynvalue.Value{}, fmt.Errorf("expected a %[2]s, got %[1]d bytes", len(b), t)
	}
	return dynvalue.Value{Form: column.Number, DType: t, Bytes: b, Size: int64(len(b))}, nil
}

// Array returns the value of an array whose elements are size bytes from off on. The elements are not read if they
// are not needed.
func (w *Work) Array(t driver.DType, shape []int, off, size int) (dynvalue.Value, error) {
	n := int64(t.Size())
	for _, side := range shape {
		if side < 0 || side > 0 && n > driver.MaxArrayBytes/int64(side) {
			return dynvalue.Value{}, fmt.Errorf("an array of shape %v is too large", shape)
		}
		n *= int64(side)
	}
	if n != int64(size) {
		return dynvalue.Value{}, fmt.Errorf("expected a %[2]s array of shape %[3]v, got %[1]d bytes", size, t, shape)
	}
	v := dynvalue.Value{Form: column.List, DType: t, Shape: shape, Size: n}
	var err error
	// The maximum of a list of integers is needed, because it may be a list of tokens.
	if !w.Head || size <= column.HeadBytes || len(shape) == 1 && !t.Type().Floating() {
		v.Bytes, err = w.View.Get(off, size)
	}
	return v, err
}

// Strings returns a string of size bytes from off on, or its beginning if w.Head is set.
func (w *Work) Strings(f column.Form, off, size int) (dynvalue.Value, error) {
	n := size
	if w.Head {
		n = min(n, column.HeadBytes)
	}
	b, err := w.View.Get(off, n)
	return dynvalue.Value{Form: f, Bytes: b, Size: int64(size)}, err
}

// Picture returns an image in the format of Pillow's tobytes: width, height, the length of the mode, the mode, the
// pixels.
func (w *Work) Picture(off, size int) (dynvalue.Value, error) {
	const maxMode = 16
	if size < 12 {
		return dynvalue.Value{}, fmt.Errorf("an image of %d bytes is too small for its header", size)
	}
	b, err := w.View.Get(off, min(size, 12+maxMode))
	if err != nil {
		return dynvalue.Value{}, err
	}
	width, height, n := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), int(binary.LittleEndian.Uint32(b[8:]))
	if n < 0 || n > len(b)-12 {
		return dynvalue.Value{}, fmt.Errorf("an image whose mode has %d letters", n)
	}
	v := dynvalue.Value{Form: column.Pixels, Width: int32(width), Height: int32(height), Channels: 1}
	switch mode := string(b[12 : 12+n]); mode {
	case "L":
	case "RGB":
		v.Channels = 3
	default:
		return dynvalue.Value{Form: column.Other, Why: fmt.Sprintf("has images of Pillow's mode %.8q (supported: L, RGB)", mode)}, nil
	}
	const maxSide = 1 << 24
	if width == 0 || height == 0 || width > maxSide || height > maxSide || int64(width)*int64(height)*int64(v.Channels) != int64(size-12-n) {
		return dynvalue.Value{}, fmt.Errorf("an image of %d x %d x %d with %d bytes of pixels", width, height, v.Channels, size-12-n)
	}
	if v.Size = int64(size - 12 - n); !w.Head {
		v.Bytes, err = w.View.Get(off+12+n, size-12-n)
	}
	return v, err
}

// Decode decodes the value at an offset of a record.
type Decode = func(w *Work, off, size int) (dynvalue.Value, error)

// StringsOf decodes bytes unchanged.
func StringsOf(f column.Form) Decode {
	return func(w *Work, off, size int) (dynvalue.Value, error) { return w.Strings(f, off, size) }
}

// Unread decodes nothing. why is the reason for messages.
func Unread(why string) Decode {
	return func(*Work, int, int) (dynvalue.Value, error) {
		return dynvalue.Value{Form: column.Other, Why: why}, nil
	}
}

// Number decodes a single number.
func Number(t driver.DType) Decode {
	return func(w *Work, off, size int) (dynvalue.Value, error) {
		b, err := w.View.Get(off, size)
		if err != nil {
			return dynvalue.Value{}, err
		}
		return Elements(t, b)
	}
}
