package imagecodec

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// LZMA in TIFF is a file of xz: one block with the filters delta, of neighbours that are
// some bytes apart, and LZMA2.

const (
	xzMagic     = "\xfd7zXZ\x00"
	xzHeader    = 12
	filterDelta = 3
	filterLZMA2 = 0x21
	// minDictionary is the smallest dictionary of LZMA.
	minDictionary = 4096
)

var errXZ = errors.New("its LZMA data has no valid header")

// unpackLZMA fills dst.
func unpackLZMA(dst, src []byte) error {
	if len(src) < xzHeader+8 || string(src[:6]) != xzMagic {
		return errXZ
	}
	header := src[xzHeader:]
	size := 4 * (int(header[0]) + 1)
	if header[0] == 0 || size > len(header) {
		return errXZ
	}
	distance, err := xzFilters(header[1 : size-4])
	if err != nil {
		return err
	}
	c := lzma.Reader2Config{DictCap: max(len(dst), minDictionary)} // no match reaches further
	in, err := c.NewReader2(bytes.NewReader(header[size:]))
	if err != nil {
		return err
	}
	if n, err := io.ReadFull(in, dst); err != nil {
		return fmt.Errorf("it has %d bytes of pixels instead of %d: %w", n, len(dst), err)
	}
	for i := distance; distance > 0 && i < len(dst); i++ {
		dst[i] += dst[i-distance]
	}
	return nil
}

// xzFilters reads which filters a block has, and returns the distance of delta, 0 for none.
func xzFilters(b []byte) (distance int, err error) {
	r := xzReader{b: b}
	flags := r.number()
	for _, bit := range []uint64{0x40, 0x80} { // sizes
		if flags&bit != 0 {
			r.number()
		}
	}
	for range flags&3 + 1 {
		id, n := r.number(), r.number()
		if n > uint64(len(r.b)) {
			return 0, errXZ
		}
		switch {
		case id == filterDelta && n == 1:
			distance = int(r.b[0]) + 1
		case id != filterLZMA2:
			return 0, fmt.Errorf("its LZMA data has the filter %#x; delta and LZMA2 are read", id)
		}
		r.b = r.b[n:]
	}
	return distance, nil
}

// xzReader reads numbers of 7 bits a byte.
type xzReader struct{ b []byte }

func (r *xzReader) number() (v uint64) {
	for i := 0; len(r.b) > 0 && i < 9; i++ {
		c := r.b[0]
		r.b = r.b[1:]
		if v |= uint64(c&0x7f) << (7 * i); c < 0x80 {
			break
		}
	}
	return v
}
