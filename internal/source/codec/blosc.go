package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Blosc decodes a frame of c-blosc 1. It has blocks, whose bytes or bits are shuffled. A block is compressed as a
// whole or split into one piece per byte of an element.
type Blosc struct{}

// Name implements Codec.
func (Blosc) Name() string { return "blosc" }

// Size implements Codec.
func (Blosc) Size(int64) int64 { return -1 }

const (
	bloscHead = 16
	// Flags of a frame. The highest bits are the inner codec.
	bloscShuffle    = 1
	bloscStored     = 2
	bloscBitshuffle = 4
	bloscWhole      = 16
	// A block is split into pieces if its element has at most maxSplits bytes and each piece at least minPiece.
	maxSplits = 16
	minPiece  = 128
)

// bloscInner are the inner codecs by number.
var bloscInner = []Codec{bloscLZ{}, LZ4{}, Snappy{}, Deflate{}, Zstd{}}

// Decode implements Codec.
func (Blosc) Decode(dst, src []byte) error {
	if len(src) < bloscHead {
		return errData
	}
	if v := src[0]; v < 1 || v > 2 {
		return fmt.Errorf("unsupported version %d of a frame (supported: 1, 2)", v)
	}
	flags, element := src[2], int(src[3])
	size, block, packed := binary.LittleEndian.Uint32(src[4:]), int64(binary.LittleEndian.Uint32(src[8:])), binary.LittleEndian.Uint32(src[12:])
	if int64(size) != int64(len(dst)) {
		return errSize
	}
	if int64(packed) != int64(len(src)) {
		return errData
	}
	if len(dst) == 0 {
		return nil
	}
	if flags&bloscStored != 0 {
		if len(src)-bloscHead != len(dst) {
			return errData
		}
		copy(dst, src[bloscHead:])
		return nil
	}
	if int(flags>>5) >= len(bloscInner) {
		return fmt.Errorf("unknown inner codec %d", flags>>5)
	}
	inner := bloscInner[flags>>5]
	if block < 1 || block > int64(len(dst)) || element < 1 {
		return errData
	}
	count := (int64(len(dst)) + block - 1) / block
	if count > int64(len(src)-bloscHead)/4 {
		return errData
	}
	shuffled := element > 1 && flags&bloscShuffle != 0
	bits := !shuffled && flags&bloscBitshuffle != 0 && block >= int64(element)
	var room []byte
	if shuffled || bits {
		room = make([]byte, block) // at most the size of dst
	}
	for b := range count {
		out := dst[b*block : min((b+1)*block, int64(len(dst)))]
		at := int64(binary.LittleEndian.Uint32(src[bloscHead+4*b:]))
		if at < bloscHead || at > int64(len(src)) {
			return errData
		}
		pieces := 1
		if flags&bloscWhole == 0 && element <= maxSplits && block/int64(element) >= minPiece && int64(len(out)) == block {
			pieces = element
		}
		to := out
		if room != nil {
			to = room[:len(out)]
		}
		if err := bloscBlock(to, src[at:], pieces, inner); err != nil {
			return err
		}
		switch {
		case shuffled:
			cdec.Unshuffle(out, to, element)
		case bits:
			n := len(out) / element
			if n%8 != 0 {
				copy(out, to)
				continue
			}
			n *= element
			unbitshuffle(out[:n], to[:n], element)
			copy(out[n:], to[n:])
		}
	}
	return nil
}

// bloscBlock decodes the pieces of a block.
func bloscBlock(dst, src []byte, pieces int, inner Codec) error {
	size := len(dst) / pieces
	for p := range pieces {
		out := dst[p*size : (p+1)*size : (p+1)*size]
		if p == pieces-1 {
			out = dst[p*size:]
		}
		if len(src) < 4 {
			return errData
		}
		n := int64(int32(binary.LittleEndian.Uint32(src)))
		if src = src[4:]; n < 0 || n > int64(len(src)) {
			return errData
		}
		if int(n) == len(out) {
			copy(out, src)
		} else if err := inner.Decode(out, src[:n]); err != nil {
			return fmt.Errorf("%s: %w", inner.Name(), err)
		}
		src = src[n:]
	}
	return nil
}

// bloscLZ is blosc's own codec.
type bloscLZ struct{}

func (bloscLZ) Name() string     { return "blosclz" }
func (bloscLZ) Size(int64) int64 { return -1 }

// farthest is the maximum distance of a short match.
const farthest = 8191

func (bloscLZ) Decode(dst, src []byte) error {
	if len(src) == 0 {
		return errData
	}
	n, at := 0, 1
	for c := int(src[0]) & 31; ; {
		if c < 32 {
			c++
			if c > len(src)-at || c > len(dst)-n {
				return errData
			}
			copy(dst[n:], src[at:at+c])
			at, n = at+c, n+c
		} else {
			size, far := c>>5-1, c&31<<8
			for more := size == 6; more; at++ {
				if at == len(src) {
					return errData
				}
				if size += int(src[at]); size > len(dst) {
					return errData
				}
				more = src[at] == 255
			}
			if at == len(src) {
				return errData
			}
			near := int(src[at])
			at++
			back := far + near + 1
			if near == 255 && far == 31<<8 {
				if len(src)-at < 2 {
					return errData
				}
				back = int(src[at])<<8 + int(src[at+1]) + farthest + 1
				at += 2
			}
			if size += 3; back > n || size > len(dst)-n {
				return errData
			}
			repeat(dst, n, back, size)
			n += size
		}
		if at == len(src) {
			break
		}
		c = int(src[at])
		at++
	}
	if n != len(dst) {
		return errSize
	}
	return nil
}
