// Package codec decodes the pieces that formats of large arrays are stored in: what
// HDF5 calls filters and Zarr calls codecs. Each is told how many bytes come out, and
// writes no others; what does not fit is an error.
package codec

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/stokerdata/stoker/internal/inflate"
)

// Codec is a step that bytes went through when they were written.
type Codec interface {
	// Name is what the format calls it.
	Name() string
	// Size is how many bytes n bytes become when they are written, -1 where that is
	// not known before.
	Size(n int64) int64
	// Decode fills dst with what src stands for. dst and src do not overlap.
	Decode(dst, src []byte) error
}

// Pipeline is what bytes went through, the first step first.
type Pipeline []Codec

// MaxSteps bounds a pipeline.
const MaxSteps = 32

// Check says whether pieces of n bytes can be decoded: how large they are between
// two steps must be known.
func (p Pipeline) Check(n int64) error {
	if len(p) > MaxSteps {
		return fmt.Errorf("%d steps, the limit is %d", len(p), MaxSteps)
	}
	_, err := p.sizes(n, 0, nil)
	return err
}

// sizes appends how many bytes there are in front of each step that mask does not
// leave out.
func (p Pipeline) sizes(n int64, mask uint32, out []int64) ([]int64, error) {
	unknown := ""
	for i, c := range p {
		if mask>>i&1 != 0 {
			continue
		}
		_, view := c.(viewer)
		if n < 0 && !view {
			return nil, fmt.Errorf("%s after %s: how large the data is between them is not known, so it is not read", c.Name(), unknown)
		}
		out = append(out, n)
		if n < 0 {
			continue // still not known
		}
		if n = c.Size(n); n < 0 {
			unknown = c.Name()
		}
	}
	return append(out, n), nil
}

// Decode fills dst with what src stands for, without the steps that have a bit in
// mask. alloc gives memory that is used until Decode returns, and its error is that of
// Decode.
func (p Pipeline) Decode(dst, src []byte, mask uint32, alloc func(n int) ([]byte, error)) error {
	var room [MaxSteps + 1]int64
	sizes, err := p.sizes(int64(len(dst)), mask, room[:0])
	if err != nil {
		return err
	}
	if last := sizes[len(sizes)-1]; last >= 0 && last != int64(len(src)) {
		return fmt.Errorf("it has %d bytes, it should have %d", len(src), last)
	}
	left := len(sizes) - 1
	if left == 0 {
		copy(dst, src)
		return nil
	}
	for i := len(p) - 1; i >= 0; i-- {
		if mask>>i&1 != 0 {
			continue
		}
		left--
		to := dst
		if left > 0 {
			if v, ok := p[i].(viewer); ok {
				if src, err = v.View(src); err != nil {
					return fmt.Errorf("%s: %w", p[i].Name(), err)
				}
				continue
			}
			if to, err = alloc(int(sizes[left])); err != nil {
				return err
			}
		}
		if err := p[i].Decode(to, src); err != nil {
			return fmt.Errorf("%s: %w", p[i].Name(), err)
		}
		src = to
	}
	return nil
}

// viewer is a codec whose data lies in what is stored.
type viewer interface {
	View(src []byte) ([]byte, error)
}

var (
	errSize     = errors.New("it does not have the size that it should have")
	errData     = errors.New("it is damaged")
	errChecksum = errors.New("its checksum is wrong: it is damaged")
)

// Deflate is zlib's format.
type Deflate struct{}

// Name implements Codec.
func (Deflate) Name() string { return "gzip" }

// Size implements Codec.
func (Deflate) Size(int64) int64 { return -1 }

// Decode implements Codec.
func (Deflate) Decode(dst, src []byte) error { return inflate.Zlib(dst, src) }

// Gzip is the format of gzip files.
type Gzip struct{ Deflate }

// Decode implements Codec.
func (Gzip) Decode(dst, src []byte) error { return inflate.Gzip(dst, src) }

// Bzip2 is the format of bzip2 files.
type Bzip2 struct{}

// Name implements Codec.
func (Bzip2) Name() string { return "bz2" }

// Size implements Codec.
func (Bzip2) Size(int64) int64 { return -1 }

// Decode implements Codec.
func (Bzip2) Decode(dst, src []byte) error {
	r := bzip2.NewReader(bytes.NewReader(src))
	if _, err := io.ReadFull(r, dst); err != nil {
		return err
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return errSize
	}
	return nil
}

// Zstd is a frame of zstd.
type Zstd struct{}

// Name implements Codec.
func (Zstd) Name() string { return "zstd" }

// Size implements Codec.
func (Zstd) Size(int64) int64 { return -1 }

var zstds = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(1<<31))
	if err != nil {
		panic(err) // the options are these
	}
	return d
}}

// Decode implements Codec.
func (Zstd) Decode(dst, src []byte) error {
	d := zstds.Get().(*zstd.Decoder)
	defer zstds.Put(d)
	out, err := d.DecodeAll(src, dst[:0:len(dst)])
	if err != nil {
		return err
	}
	return same(dst, out)
}

// same checks that out is dst, filled.
func same(dst, out []byte) error {
	if len(out) != len(dst) {
		return errSize
	}
	if len(dst) > 0 && &out[0] != &dst[0] {
		copy(dst, out)
	}
	return nil
}

// Snappy is a block of snappy.
type Snappy struct{}

// Name implements Codec.
func (Snappy) Name() string { return "snappy" }

// Size implements Codec.
func (Snappy) Size(int64) int64 { return -1 }

// Decode implements Codec.
func (Snappy) Decode(dst, src []byte) error {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return err
	}
	if n != len(dst) {
		return errSize
	}
	out, err := snappy.Decode(dst, src)
	if err != nil {
		return err
	}
	return same(dst, out)
}

// LZ4 is a block of lz4.
type LZ4 struct{}

// Name implements Codec.
func (LZ4) Name() string { return "lz4" }

// Size implements Codec.
func (LZ4) Size(int64) int64 { return -1 }

// Decode implements Codec.
func (LZ4) Decode(dst, src []byte) error {
	if len(dst) == 0 {
		return nil
	}
	n, err := lz4.UncompressBlock(src, dst)
	if err != nil {
		return err
	}
	if n != len(dst) {
		return errSize
	}
	return nil
}

// SizedLZ4 is a block of lz4 behind its size, as numcodecs writes it.
type SizedLZ4 struct{ LZ4 }

// Decode implements Codec.
func (SizedLZ4) Decode(dst, src []byte) error {
	if len(src) < 4 {
		return errData
	}
	if int64(binary.LittleEndian.Uint32(src)) != int64(len(dst)) {
		return errSize
	}
	return LZ4{}.Decode(dst, src[4:])
}

// BlockLZ4 are blocks of lz4 as HDF5's filter 32004 writes them.
type BlockLZ4 struct{ LZ4 }

// Decode implements Codec.
func (BlockLZ4) Decode(dst, src []byte) error {
	return blocks(dst, src, func(int) int { return 1 }, LZ4{}.Decode)
}

// blocks decodes blocks that stand behind the size of all, that of a block, and each
// its own. Those that could not be made smaller are there as they are.
func blocks(dst, src []byte, whole func(size int) int, decode func(dst, src []byte) error) error {
	if len(src) < 12 {
		return errData
	}
	if binary.BigEndian.Uint64(src) != uint64(len(dst)) {
		return errSize
	}
	size := int(binary.BigEndian.Uint32(src[8:]))
	if size < 1 {
		return errData
	}
	src = src[12:]
	for len(dst) > 0 {
		n := min(size, len(dst))
		if unit := whole(n); unit > 1 {
			if n -= n % unit; n == 0 { // what is left is not compressed
				if len(src) != len(dst) {
					return errData
				}
				copy(dst, src)
				return nil
			}
		}
		if len(src) < 4 {
			return errData
		}
		packed := int(binary.BigEndian.Uint32(src))
		if src = src[4:]; packed < 0 || packed > len(src) {
			return errData
		}
		if packed == n {
			copy(dst[:n], src)
		} else if err := decode(dst[:n:n], src[:packed]); err != nil {
			return err
		}
		dst, src = dst[n:], src[packed:]
	}
	return nil
}

// LZF is the format of LibLZF.
type LZF struct{}

// Name implements Codec.
func (LZF) Name() string { return "lzf" }

// Size implements Codec.
func (LZF) Size(int64) int64 { return -1 }

// Decode implements Codec.
func (LZF) Decode(dst, src []byte) error {
	n := 0
	for at := 0; at < len(src); {
		c := int(src[at])
		at++
		if c < 32 {
			c++
			if c > len(src)-at || c > len(dst)-n {
				return errData
			}
			copy(dst[n:], src[at:at+c])
			at, n = at+c, n+c
			continue
		}
		size := c >> 5
		if size == 7 {
			if at == len(src) {
				return errData
			}
			size += int(src[at])
			at++
		}
		if at == len(src) {
			return errData
		}
		back := c&31<<8 + int(src[at]) + 1
		at++
		if size += 2; back > n || size > len(dst)-n {
			return errData
		}
		repeat(dst, n, back, size)
		n += size
	}
	if n != len(dst) {
		return errSize
	}
	return nil
}

// repeat copies size bytes that stand back bytes in front of dst[n], of which there
// may be fewer: they repeat.
func repeat(dst []byte, n, back, size int) {
	for size > 0 {
		k := copy(dst[n:n+min(size, back)], dst[n-back:n])
		n, size, back = n+k, size-k, back+k
	}
}

// Fletcher32 is HDF5's checksum behind the data.
type Fletcher32 struct{}

// Name implements Codec.
func (Fletcher32) Name() string { return "fletcher32" }

// Size implements Codec.
func (Fletcher32) Size(n int64) int64 { return n + 4 }

// View returns the data, compared with its checksum.
func (Fletcher32) View(src []byte) ([]byte, error) {
	if len(src) < 4 {
		return nil, errData
	}
	p := src[:len(src)-4]
	got, want := fletcher32(p), binary.LittleEndian.Uint32(src[len(p):])
	// Versions before 1.6.3 wrote each half the other way round.
	if turned := got>>8&0x00FF00FF | got&0x00FF00FF<<8; got != want && turned != want {
		return nil, errChecksum
	}
	return p, nil
}

// Decode implements Codec.
func (c Fletcher32) Decode(dst, src []byte) error { return view(c, dst, src) }

func view(c viewer, dst, src []byte) error {
	p, err := c.View(src)
	if err != nil {
		return err
	}
	if len(p) != len(dst) {
		return errSize
	}
	copy(dst, p)
	return nil
}

func fletcher32(p []byte) uint32 {
	var a, b uint32
	fold := func() {
		a = a&0xFFFF + a>>16
		b = b&0xFFFF + b>>16
	}
	for words := len(p) / 2; words > 0; {
		n := min(words, 360)
		words -= n
		for _, q := 0, p[:2*n]; len(q) >= 2; q = q[2:] {
			a += uint32(q[0])<<8 | uint32(q[1])
			b += a
		}
		p = p[2*n:]
		fold()
	}
	if len(p) == 1 {
		a += uint32(p[0]) << 8
		b += a
		fold()
	}
	fold()
	return b<<16 | a
}

// CRC32C is Zarr's checksum behind the data.
type CRC32C struct{}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Name implements Codec.
func (CRC32C) Name() string { return "crc32c" }

// Size implements Codec.
func (CRC32C) Size(n int64) int64 { return n + 4 }

// View returns the data, compared with its checksum.
func (CRC32C) View(src []byte) ([]byte, error) {
	if len(src) < 4 {
		return nil, errData
	}
	p := src[:len(src)-4]
	if crc32.Checksum(p, castagnoli) != binary.LittleEndian.Uint32(src[len(p):]) {
		return nil, errChecksum
	}
	return p, nil
}

// Decode implements Codec.
func (c CRC32C) Decode(dst, src []byte) error { return view(c, dst, src) }
