package volumesource

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/stokerdata/stoker/internal/source/blockcache"
	"github.com/stokerdata/stoker/source/driver"
)

// Held, Useful and Keep cache the unpacked .gz volumes while parts are cut out of them.
func (s *source) Held() int64 {
	if !s.gz {
		return 0
	}
	return s.cache.Limit()
}

func (s *source) Useful() int64 {
	if !s.gz {
		return 0
	}
	return s.useful
}

func (s *source) Keep(n int64) { s.cache.Keep(n) }

// unpacked cuts a part out of a compressed file.
func (s *source) unpacked(g *driver.Group, c *column, n int, box *driver.Box, file, out []byte, to driver.DType) error {
	v := &c.volumes[n]
	if all := v.spatial(); s.first == nil && g.Box == nil && box.Size == all {
		raw := out
		if !v.asStored(to) {
			var err error
			if raw, err = g.Alloc(int(v.bytes())); err != nil {
				return &driver.MemoryError{Err: err}
			}
		}
		if err := v.unpack(raw, file); err != nil || &raw[0] == &out[0] {
			return err
		}
		v.convert(out, raw, to, v.slope, v.inter)
		return nil
	}
	e, err := s.cache.Get(blockcache.Key{Column: int32(c.field), N: int32(n)}, func(e *blockcache.Entry) error {
		raw, err := e.Alloc(int(v.bytes()))
		if err != nil {
			return err
		}
		e.What = raw
		return v.unpack(raw, file)
	})
	if err != nil {
		return err
	}
	defer s.cache.Put(e)
	raw := e.What.([]byte)
	v.each(box, func(p *piece) {
		from := p.offset - v.blocks[0].offset
		v.rows(out, raw[from:from+p.size], box, p, to)
	})
	return nil
}

// unpack writes the voxels of a compressed file to out.
func (v *volume) unpack(out, file []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return fmt.Errorf("it is not a gzip file: %w", err)
	}
	if _, err := io.CopyN(io.Discard, r, v.blocks[0].offset); err == nil {
		_, err = io.ReadFull(r, out)
		if err == nil {
			// Reading to the end verifies the checksum. Long trailing data is not read.
			_, err = io.CopyN(io.Discard, r, 1<<20)
			if errors.Is(err, io.EOF) {
				return nil
			}
		}
		if err != nil {
			return unpackError(err, v)
		}
		return nil
	}
	return unpackError(io.ErrUnexpectedEOF, v)
}

func unpackError(err error, v *volume) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("its header says %d bytes of voxels, unpacked it has less: the file is cut off", v.bytes())
	}
	return fmt.Errorf("it cannot be unpacked: %w", err)
}
