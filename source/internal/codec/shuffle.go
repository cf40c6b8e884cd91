package codec

import (
	"encoding/binary"
	"errors"
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
	unshuffle(dst, src, c.Element)
	return nil
}

// unshuffle is the reverse of shuffling. Bytes behind the last whole element stay
// where they are.
func unshuffle(dst, src []byte, element int) {
	n := len(src) / element
	copy(dst[n*element:], src[n*element:])
	switch element {
	case 1:
		copy(dst, src)
	case 2:
		a, b := src[:n], src[n:2*n]
		dst = dst[:2*n]
		for i := range a {
			dst[2*i] = a[i]
			dst[2*i+1] = b[i]
		}
	case 4:
		a, b, c, d := src[:n], src[n:2*n], src[2*n:3*n], src[3*n:4*n]
		i := 0
		for ; i+8 <= n; i += 8 {
			out := dst[4*i : 4*i+32 : 4*i+32]
			w, x := binary.LittleEndian.Uint64(a[i:]), binary.LittleEndian.Uint64(b[i:])
			y, z := binary.LittleEndian.Uint64(c[i:]), binary.LittleEndian.Uint64(d[i:])
			for k := 0; k < 32; k += 8 {
				u := spread(w) | spread(x)<<8 | spread(y)<<16 | spread(z)<<24
				binary.LittleEndian.PutUint64(out[k:], u)
				w, x, y, z = w>>16, x>>16, y>>16, z>>16
			}
		}
		for ; i < n; i++ {
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(a[i])|uint32(b[i])<<8|uint32(c[i])<<16|uint32(d[i])<<24)
		}
	case 8:
		p := [8][]byte{}
		for k := range p {
			p[k] = src[k*n : (k+1)*n]
		}
		for i := range n {
			binary.LittleEndian.PutUint64(dst[8*i:], uint64(p[0][i])|uint64(p[1][i])<<8|uint64(p[2][i])<<16|uint64(p[3][i])<<24|
				uint64(p[4][i])<<32|uint64(p[5][i])<<40|uint64(p[6][i])<<48|uint64(p[7][i])<<56)
		}
	default:
		for k := range element {
			p := src[k*n : (k+1)*n]
			for i, v := range p {
				dst[i*element+k] = v
			}
		}
	}
}

// spread puts the two lowest bytes of x into the lowest of each half.
func spread(x uint64) uint64 { return x&0xFF | x&0xFF00<<24 }

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
