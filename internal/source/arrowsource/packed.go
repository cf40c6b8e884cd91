package arrowsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/stokerdata/stoker/internal/source/blockcache"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Buffers of record batches may be compressed, each on its own. Validity bits and offsets are decompressed when the
// file is opened. Buffers of values are decompressed when one of their rows is needed, and cached up to the memory
// budget.

// codec is the compression of buffers.
type codec uint8

const (
	stored codec = iota
	lz4Frame
	zstdFrames
)

const (
	// maxBuffer is the size limit of a decompressed buffer.
	maxBuffer = 1 << 30
	// A buffer that decompresses to more than ratioFrom bytes and more than ratio times its size is an attack on
	// memory, not data.
	ratio     = 4000
	ratioFrom = 16 << 20
)

// packed is a compressed buffer of values.
type packed struct {
	codec     codec
	off, size int64 // in the file, after the decompressed size
	plain     int64 // decompressed size
	n         int32 // number within the source
}

// span returns the position of a buffer in the file. packed is nil if the buffer is not compressed.
func (x *indexer) span(ctx context.Context, n int) (at span, p *packed, err error) {
	at = x.b.buffers[n]
	at.off += x.body
	if x.b.codec == stored || at.size == 0 {
		return at, nil, nil
	}
	const head = 8
	if at.size < head {
		return at, nil, damaged("a compressed buffer of %d bytes", at.size)
	}
	var b [head]byte
	if err := x.o.ReadAt(ctx, b[:], at.off); err != nil {
		return at, nil, err
	}
	at.off, at.size = at.off+head, at.size-head
	plain := int64(binary.LittleEndian.Uint64(b[:]))
	switch {
	case plain == -1:
		return at, nil, nil
	case plain < 0 || plain > ratioFrom && plain > ratio*at.size:
		return at, nil, damaged("a buffer of %d bytes decompresses to %d", at.size, plain)
	case plain > maxBuffer:
		return at, nil, fmt.Errorf("a buffer has %d bytes decompressed, the limit is %d: write the file with smaller record batches, or without compression", plain, maxBuffer)
	}
	return span{at.off, plain}, &packed{codec: x.b.codec, off: at.off, size: at.size, plain: plain}, nil
}

// load reads and decompresses a buffer.
func (p *packed) load(ctx context.Context, o store.Object) ([]byte, error) {
	b := make([]byte, p.size)
	if err := o.ReadAt(ctx, b, p.off); err != nil {
		return nil, err
	}
	out := make([]byte, p.plain)
	return out, p.unpack(out, b)
}

// unpack decompresses a buffer into dst, whose size must be exact.
func (p *packed) unpack(dst, src []byte) error {
	var n int
	var err error
	switch p.codec {
	case lz4Frame:
		z, _ := lz4s.Get().(*lz4.Reader)
		if z == nil {
			z = lz4.NewReader(nil)
		}
		z.Reset(bytes.NewReader(src))
		n, err = io.ReadFull(z, dst)
		lz4s.Put(z)
	case zstdFrames:
		z, _ := zstds.Get().(*zstd.Decoder)
		if z == nil {
			if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxBuffer)); err != nil {
				return err
			}
		}
		var out []byte
		if out, err = z.DecodeAll(src, dst[:0:len(dst)]); err == nil {
			if n = len(out); n == len(dst) && n > 0 && &out[0] != &dst[0] {
				copy(dst, out)
			}
		}
		zstds.Put(z)
	}
	if err == nil && n != len(dst) {
		err = errors.New("wrong size after decompression")
	}
	if err != nil {
		return damaged("the compressed buffer at byte %d: %v", p.off, err)
	}
	return nil
}

var lz4s, zstds sync.Pool

// bytes reads bytes lo to hi of the file or of the part's compressed buffer.
func (p *part) bytes(ctx context.Context, o store.Object, lo, hi int64) ([]byte, error) {
	if p.packed == nil {
		b := make([]byte, hi-lo)
		return b, o.ReadAt(ctx, b, lo)
	}
	all, err := p.packed.load(ctx, o)
	if err != nil {
		return nil, err
	}
	return all[lo:hi], nil
}

// unpacked sets a value from the compressed buffer src.
func (s *source) unpacked(g *driver.Group, k, i int, p *part, row int64, src []byte) error {
	f, c := &s.info.Fields[i], s.columns[i]
	e, err := s.cache.Get(blockcache.Key{N: p.packed.n}, func(e *blockcache.Entry) error {
		b, err := e.Alloc(int(p.packed.plain))
		if err != nil {
			return err
		}
		e.What = b
		return p.packed.unpack(b, src)
	})
	if err != nil {
		return err
	}
	defer s.cache.Put(e)
	off, size := s.extent(i, p, row)
	raw := e.What.([]byte)[off : off+size : off+size]
	// The buffer may be evicted before the value is used, so copy it.
	switch {
	case column.IsDecoded(f.Kind):
		if raw, err = g.Alloc(int(size)); err != nil {
			return &driver.MemoryError{Err: err}
		}
		copy(raw, e.What.([]byte)[off:])
	case c.Direct(f):
		if raw, err = g.Take(k, i, size); err != nil {
			return err
		}
		copy(raw, e.What.([]byte)[off:])
	}
	return c.Make(g, k, i, f, s.stored(i, p, row, true, raw))
}

// Held implements driver.Holder: the limit of the buffer cache.
func (s *source) Held() int64 {
	if s.plain == 0 {
		return 0
	}
	return s.cache.Limit()
}

// Useful implements driver.Cacher.
func (s *source) Useful() int64 { return s.plain }

// Keep implements driver.Cacher.
func (s *source) Keep(n int64) { s.cache.Keep(n) }
