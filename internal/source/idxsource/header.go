package idxsource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/source/driver"
)

// Header is the header of an IDX file.
type Header struct {
	// DType is the type of the elements. They are big-endian in the file.
	DType driver.DType
	Shape []int64
	// Offset is the offset of the elements, Bytes their total size.
	Offset, Bytes int64
}

const (
	maxAxes = 4
	// maxHeader is the maximum size of a header.
	maxHeader = 4 + 4*maxAxes
)

// types maps the type numbers of the format to element types.
var types = map[byte]driver.DType{
	0x08: driver.Uint8, 0x09: driver.Int8, 0x0B: driver.Int16, 0x0C: driver.Int32, 0x0D: driver.Float32, 0x0E: driver.Float64,
}

// ErrFormat is wrapped by the errors for files that are not IDX files.
var ErrFormat = errors.New("not a valid IDX file")

// ParseHeader parses the header at the start of b: two zero bytes, the element type, the number of axes, and their
// lengths.
func ParseHeader(b []byte) (*Header, error) {
	if len(b) < 4 || b[0] != 0 || b[1] != 0 {
		return nil, fmt.Errorf("%w: it does not begin with two zero bytes", ErrFormat)
	}
	t, ok := types[b[2]]
	if !ok {
		return nil, fmt.Errorf("%w: unknown element type 0x%02x at byte 2", ErrFormat, b[2])
	}
	axes := int(b[3])
	if axes < 1 || axes > maxAxes {
		return nil, fmt.Errorf("%w: %d axes at byte 3, expected 1 to %d", ErrFormat, axes, maxAxes)
	}
	h := &Header{DType: t, Offset: int64(4 + 4*axes), Bytes: int64(t.Size())}
	if int64(len(b)) < h.Offset {
		return nil, fmt.Errorf("%w: it ends in its header", ErrFormat)
	}
	for i := range axes {
		side := int64(binary.BigEndian.Uint32(b[4+4*i:]))
		if side > 0 && h.Bytes > math.MaxInt64/2/side {
			return nil, fmt.Errorf("%w: an array with %d elements on axis %d", ErrFormat, side, i)
		}
		h.Bytes *= side
		h.Shape = append(h.Shape, side)
	}
	return h, nil
}

// row returns the shape and the size of a row.
func (h *Header) row() (shape []int, size int64, err error) {
	for _, n := range h.Shape[1:] {
		shape = append(shape, int(n))
	}
	size, err = driver.ArrayBytes(h.DType, shape)
	return shape, size, err
}
