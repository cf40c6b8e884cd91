package mask

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A stack is any number of masks of one image, such as one for each object in it. Each mask is the length of its runs
// in four bytes, little-endian, followed by the runs, of uint8.

// AppendToStack appends a mask of uint8 to a stack.
func AppendToStack(dst []byte, m *Mask) []byte {
	at := len(dst)
	dst = AppendRuns(append(dst, 0, 0, 0, 0), m)
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// MaxStacked returns the maximum size of a mask of so many pixels in a stack.
func MaxStacked(pixels int64) int64 { return min(2*pixels+pixels/4+1<<16, math.MaxUint32) }

// Stacked returns the number of masks in a stack, as far as it can be read.
func Stacked(b []byte) (n int64) {
	for len(b) >= 4 {
		size := int64(binary.LittleEndian.Uint32(b))
		if size > int64(len(b)-4) {
			break
		}
		b = b[4+size:]
		n++
	}
	return n
}

var errStack = errors.New("its masks are damaged: one of them ends after the last one")

// Stack takes a stack apart: the runs of its masks, which are width x height pixels.
func Stack(b []byte, all [][]byte) (masks [][]byte, width, height int, err error) {
	masks = all[:0]
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, 0, 0, errStack
		}
		size := int64(binary.LittleEndian.Uint32(b))
		if size > int64(len(b)-4) {
			return nil, 0, 0, errStack
		}
		runs := b[4 : 4+size : 4+size]
		w, h, bytes, err := RunsInfo(runs)
		switch {
		case err != nil:
			return nil, 0, 0, err
		case bytes != 1 || len(masks) > 0 && (w != width || h != height):
			return nil, 0, 0, fmt.Errorf("mask %d is %d x %d of %d bytes, and the first one %d x %d of 1", len(masks), w, h, bytes, width, height)
		}
		masks, width, height = append(masks, runs), w, h
		b = b[4+size:]
	}
	return masks, width, height, nil
}
