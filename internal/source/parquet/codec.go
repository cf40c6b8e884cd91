package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// check returns an error if a codec is not supported.
func (c Codec) check() error {
	switch c {
	case None, Snappy, Gzip, Zstd, LZ4Raw:
		return nil
	case LZ4:
		return unsupported("it is compressed with Hadoop's LZ4, which is not read: write the file with the codec LZ4_RAW, zstd or snappy")
	case Brotli:
		return unsupported("it is compressed with Brotli, which is not read: write the file with the codec zstd or snappy")
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
	case Gzip:
		z, _ := gzips.Get().(*gzip.Reader)
		if z == nil {
			z = new(gzip.Reader)
		}
		defer gzips.Put(z)
		err := z.Reset(bytes.NewReader(src))
		if err == nil {
			if n, err = io.ReadFull(z, dst); err == nil {
				var one [1]byte
				if k, _ := z.Read(one[:]); k > 0 {
					err = errors.New("it is too long")
				}
			}
		}
		if err != nil {
			return damaged("its gzip data: %v", err)
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

var gzips, zstds sync.Pool
