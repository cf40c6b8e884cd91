package codec

import (
	"errors"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Shuffle reverses HDF5's byte shuffle: first the first bytes of all elements of Element bytes, then all second
// bytes, and so on.
type Shuffle struct{ Element int }

// Name implements Codec.
func (Shuffle) Name() string { return "shuffle" }

// Size implements Codec.
func (Shuffle) Size(n int64) int64 { return n }

// Decode implements Codec.
func (c Shuffle) Decode(dst, src []byte) error {
	if len(dst) != len(src) || c.Element < 1 {
		return errSize
	}
	cdec.Unshuffle(dst, src, c.Element)
	return nil
}

// unbitshuffle reverses the bit shuffle: first the first bits of all elements, then all second bits, and so on. The
// number of elements is a multiple of 8.
func unbitshuffle(dst, src []byte, element int) {
	n := len(src) / element
	row := n / 8
	for k := range element {
		planes := src[k*n : (k+1)*n]
		for i := range row {
			// Transpose eight bits of each of eight elements.
			var x uint64
			for b := range 8 {
				x |= uint64(planes[b*row+i]) << (8 * b)
			}
			x = transpose(x)
			at := i*8*element + k
			for range 8 {
				dst[at] = byte(x)
				x >>= 8
				at += element
			}
		}
	}
}

// transpose transposes a matrix of 8 x 8 bits.
func transpose(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00AA00AA00AA00AA
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000CCCC0000CCCC
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000F0F0F0F0
	return x ^ t ^ t<<28
}

// Bitshuffle decodes HDF5's filter 32008: bit-shuffled blocks of elements, compressed with Inner (nil for none).
type Bitshuffle struct {
	Element int
	// Block is the number of elements per block, 0 for the library's default.
	Block int
	Inner Codec
}

// Name implements Codec.
func (Bitshuffle) Name() string { return "bitshuffle" }

// Size implements Codec.
func (c Bitshuffle) Size(n int64) int64 {
	if c.Inner != nil {
		return -1
	}
	return n
}

var errElement = errors.New("invalid element size")

// Decode implements Codec.
func (c Bitshuffle) Decode(dst, src []byte) error {
	if c.Element < 1 || c.Element > 1<<16 {
		return errElement
	}
	unit := 8 * c.Element // blocks are multiples of it
	if c.Inner != nil {
		var shuffled []byte
		return blocks(dst, src, func(int) int { return unit }, func(dst, src []byte) error {
			if len(shuffled) < len(dst) {
				shuffled = make([]byte, len(dst)) // at most the size of dst
			}
			if err := c.Inner.Decode(shuffled[:len(dst)], src); err != nil {
				return err
			}
			unbitshuffle(dst, shuffled[:len(dst)], c.Element)
			return nil
		})
	}
	if len(dst) != len(src) {
		return errSize
	}
	block := c.Block * c.Element
	if block == 0 {
		block = max(8192/c.Element/8*8, 128) * c.Element
	}
	if block < 0 || block%unit != 0 {
		return errElement
	}
	for len(dst) >= unit {
		n := min(block, len(dst)-len(dst)%unit)
		unbitshuffle(dst[:n], src[:n], c.Element)
		dst, src = dst[n:], src[n:]
	}
	copy(dst, src)
	return nil
}
