package codec

import (
	"errors"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Shuffle puts the first bytes of all elements of Element bytes in front of all
// second ones, and so on.
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

// unbitshuffle is the reverse of putting all first bits in front of all second ones,
// and so on. The number of elements is a multiple of 8.
func unbitshuffle(dst, src []byte, element int) {
	n := len(src) / element
	row := n / 8
	for k := range element {
		planes := src[k*n : (k+1)*n]
		for i := range row {
			// Eight bits each of eight elements, transposed.
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

// transpose turns a square of 8 x 8 bits.
func transpose(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00AA00AA00AA00AA
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000CCCC0000CCCC
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000F0F0F0F0
	return x ^ t ^ t<<28
}

// Bitshuffle is HDF5's filter 32008: bits of blocks of elements, compressed with
// Inner, nil for none.
type Bitshuffle struct {
	Element int
	// Block is how many elements a block has, 0 for the library's choice.
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

var errElement = errors.New("its elements have another size than it says")

// Decode implements Codec.
func (c Bitshuffle) Decode(dst, src []byte) error {
	if c.Element < 1 || c.Element > 1<<16 {
		return errElement
	}
	unit := 8 * c.Element // what blocks are multiples of
	if c.Inner != nil {
		var shuffled []byte
		return blocks(dst, src, func(int) int { return unit }, func(dst, src []byte) error {
			if len(shuffled) < len(dst) {
				shuffled = make([]byte, len(dst)) // never more than dst
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
