// Package codec decodes the chunks of array formats: HDF5 filters and Zarr codecs. The caller gives the exact size
// of the output. Any other size is an error.
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
	"github.com/stokerdata/stoker/source/driver"
)

// Codec is an encoding step that Decode reverses.
type Codec interface {
	// Name is the name in the format.
	Name() string
	// Size returns the encoded size of n bytes, or -1 if it depends on the data.
	Size(n int64) int64
	// Decode decodes src into dst, which it fills. They must not overlap.
	Decode(dst, src []byte) error
}

// Pipeline is a list of encoding steps, in the order of writing.
type Pipeline []Codec

// MaxSteps is the maximum length of a pipeline.
const MaxSteps = 32

// Check returns an error if chunks of n bytes cannot be decoded, because the size between two steps is unknown.
func (p Pipeline) Check(n int64) error {
	if len(p) > MaxSteps {
		return fmt.Errorf("%d steps, the limit is %d", len(p), MaxSteps)
	}
	_, err := p.sizes(n, 0, nil)
	return err
}

// sizes appends the size before each step that mask does not skip, and the final size.
func (p Pipeline) sizes(n int64, mask uint32, out []int64) ([]int64, error) {
	unknown := ""
	for i, c := range p {
		if mask>>i&1 != 0 {
			continue
		}
		_, view := c.(viewer)
		if n < 0 && !view {
			return nil, fmt.Errorf("%s after %s is not supported: the size of the data between them is unknown", c.Name(), unknown)
		}
		out = append(out, n)
		if n < 0 {
			continue // still unknown
		}
		if n = c.Size(n); n < 0 {
			unknown = c.Name()
		}
	}
	return append(out, n), nil
}

// Decode decodes src into dst. It skips the steps that have a bit in mask. alloc returns memory that is used until
// Decode returns. An error of alloc is returned.
func (p Pipeline) Decode(dst, src []byte, mask uint32, alloc func(n int) ([]byte, error)) error {
	var room [MaxSteps + 1]int64
	sizes, err := p.sizes(int64(len(dst)), mask, room[:0])
	if err != nil {
		return err
	}
	if last := sizes[len(sizes)-1]; last >= 0 && last != int64(len(src)) {
		return fmt.Errorf("it has %d bytes, expected %d", len(src), last)
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
					return driver.Damaged(fmt.Errorf("%s: %w", p[i].Name(), err))
				}
				continue
			}
			if to, err = alloc(int(sizes[left])); err != nil {
				return err
			}
		}
		if err := p[i].Decode(to, src); err != nil {
			return driver.Damaged(fmt.Errorf("%s: %w", p[i].Name(), err))
		}
		src = to
	}
	return nil
}

// viewer is a codec whose decoded data is a part of the encoded data.
type viewer interface {
	View(src []byte) ([]byte, error)
}

var (
	errSize     = errors.New("wrong size after decoding: it is damaged")
	errData     = errors.New("it is damaged")
	errChecksum = errors.New("its checksum is wrong: it is damaged")
)

// Deflate decodes zlib's format.
type Deflate struct{}

// Name implements Codec.
func (Deflate) Name() string { return "gzip" }

// Size implements Codec.
func (Deflate) Size(int64) int64 { return -1 }

// Decode implements Codec.
func (Deflate) Decode(dst, src []byte) error { return inflate.Zlib(dst, src) }

// Gzip decodes the format of gzip files.
type Gzip struct{ Deflate }

// Decode implements Codec.
func (Gzip) Decode(dst, src []byte) error { return inflate.Gzip(dst, src) }

// Bzip2 decodes the format of bzip2 files.
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

// Zstd decodes a zstd frame.
type Zstd struct{}

// Name implements Codec.
func (Zstd) Name() string { return "zstd" }

// Size implements Codec.
func (Zstd) Size(int64) int64 { return -1 }

var zstds = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(1<<31))
	if err != nil {
		panic(err) // the options above are valid
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

// same checks that out is dst, filled. If zstd or snappy returned other memory, it is copied.
func same(dst, out []byte) error {
	if len(out) != len(dst) {
		return errSize
	}
	if len(dst) > 0 && &out[0] != &dst[0] {
		copy(dst, out)
	}
	return nil
}

// Snappy decodes a snappy block.
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

// LZ4 decodes an lz4 block.
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

// SizedLZ4 decodes an lz4 block after its size, as written by numcodecs.
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

// BlockLZ4 decodes lz4 blocks as written by HDF5's filter 32004.
type BlockLZ4 struct{ LZ4 }

// Decode implements Codec.
func (BlockLZ4) Decode(dst, src []byte) error {
	return blocks(dst, src, func(int) int { return 1 }, LZ4{}.Decode)
}

// blocks decodes a header with the total size and the block size, followed by blocks with their encoded sizes.
// Blocks that do not compress are stored raw.
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
			if n -= n % unit; n == 0 { // the rest is stored raw
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

// LZF decodes LibLZF's format.
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

// repeat appends size bytes at dst[n], copied from back bytes before. If size is larger than back, they repeat.
func repeat(dst []byte, n, back, size int) {
	for size > 0 {
		k := copy(dst[n:n+min(size, back)], dst[n-back:n])
		n, size, back = n+k, size-k, back+k
	}
}

// Fletcher32 verifies HDF5's checksum after the data.
type Fletcher32 struct{}

// Name implements Codec.
func (Fletcher32) Name() string { return "fletcher32" }

// Size implements Codec.
func (Fletcher32) Size(n int64) int64 { return n + 4 }

// View returns the data after verifying the checksum.
func (Fletcher32) View(src []byte) ([]byte, error) {
	if len(src) < 4 {
		return nil, errData
	}
	p := src[:len(src)-4]
	got, want := fletcher32(p), binary.LittleEndian.Uint32(src[len(p):])
	// Versions before 1.6.3 swapped the bytes of each half.
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

// CRC32C verifies Zarr's checksum after the data.
type CRC32C struct{}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Name implements Codec.
func (CRC32C) Name() string { return "crc32c" }

// Size implements Codec.
func (CRC32C) Size(n int64) int64 { return n + 4 }

// View returns the data after verifying the checksum.
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
