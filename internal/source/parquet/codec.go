package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// check returns an error if a codec is not supported.
func (c Codec) check() error {
	switch c {
	case None, Snappy, Gzip, Zstd, LZ4, LZ4Raw, Brotli:
		return nil
	case LZO:
		return unsupported("it is compressed with LZO, which is not read: write the file with the codec zstd or snappy")
	}
	return damaged("codec %d", c)
}

// decompress decompresses src into dst, whose size must be exact.
func (c Codec) decompress(dst, src []byte) error {
	if len(dst) == 0 {
		return nil // an empty page is not checked
	}
	n := 0
	switch c {
	case None:
		if len(src) != len(dst) {
			return damaged("its page has %d bytes, expected %d", len(src), len(dst))
		}
		copy(dst, src)
		return nil
	case Snappy:
		if size, err := s2.DecodedLen(src); err != nil || size != len(dst) {
			return damaged("its Snappy data is not of %d bytes", len(dst))
		}
		out, err := s2.Decode(dst, src)
		if err != nil {
			return damaged("its Snappy data: %v", err)
		}
		n = len(out)
	case LZ4Raw:
		var err error
		if n, err = lz4.UncompressBlock(src, dst); err != nil {
			return damaged("its LZ4 data: %v", err)
		}
	case LZ4:
		var err error
		if n, err = hadoopLZ4(dst, src); err != nil {
			return damaged("its LZ4 data: %v", err)
		}
	case Gzip:
		z, _ := gzips.Get().(*gzip.Reader)
		if z == nil {
			z = new(gzip.Reader)
		}
		defer gzips.Put(z)
		err := z.Reset(bytes.NewReader(src))
		if err == nil {
			n, err = readAll(dst, z)
		}
		if err != nil {
			return damaged("its gzip data: %v", err)
		}
	case Brotli:
		z, _ := brotlis.Get().(*brotli.Reader)
		if z == nil {
			z = new(brotli.Reader)
		}
		defer brotlis.Put(z)
		err := z.Reset(bytes.NewReader(src))
		if err == nil {
			n, err = readAll(dst, z)
		}
		if err != nil {
			return damaged("its Brotli data: %v", err)
		}
	case Zstd:
		z, _ := zstds.Get().(*zstd.Decoder)
		if z == nil {
			var err error
			if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(MaxUnit)); err != nil {
				return err
			}
		}
		defer zstds.Put(z)
		// The decoder stops at the capacity of its buffer.
		out, err := z.DecodeAll(src, dst[:0:len(dst)])
		if err != nil {
			return damaged("its zstd data: %v", err)
		}
		if n = len(out); n == len(dst) && &out[0] != &dst[0] {
			copy(dst, out)
		}
	default:
		return fmt.Errorf("codec %d", c)
	}
	if n != len(dst) {
		return damaged("it decompresses to %d bytes, expected %d", n, len(dst))
	}
	return nil
}

var gzips, brotlis, zstds sync.Pool

// readAll fills dst from r, which must end there.
func readAll(dst []byte, r io.Reader) (int, error) {
	n, err := io.ReadFull(r, dst)
	if err != nil {
		return n, err
	}
	var one [1]byte
	if k, _ := io.ReadFull(r, one[:]); k > 0 {
		err = errors.New("it is too long")
	}
	return n, err
}

// hadoopLZ4 decompresses the deprecated LZ4 codec: frames of two sizes and a block, as Hadoop writes
// them. Old versions of Arrow wrote a block without a frame.
func hadoopLZ4(dst, src []byte) (int, error) {
	n := 0
	for rest := src; len(rest) > 0; {
		if len(rest) < 8 {
			return lz4.UncompressBlock(src, dst)
		}
		size, packed := int64(binary.BigEndian.Uint32(rest)), int64(binary.BigEndian.Uint32(rest[4:]))
		if rest = rest[8:]; size > int64(len(dst)-n) || packed > int64(len(rest)) {
			return lz4.UncompressBlock(src, dst)
		}
		k, err := lz4.UncompressBlock(rest[:packed], dst[n:n+int(size)])
		if err != nil || int64(k) != size {
			return lz4.UncompressBlock(src, dst)
		}
		rest = rest[packed:]
		n += k
	}
	return n, nil
}
