package volumesource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
)

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(k int, id int64) {
		begin := len(g.Extents)
		if s.bad.Len() > 0 {
			n, _ := s.place(id)
			if err := s.bad.Of(n); err != nil {
				g.Records[k].Err = s.located(n, err)
				return
			}
		}
		for i := range s.columns {
			c := &s.columns[i]
			if !g.Wants(c.field) {
				continue
			}
			n, box, err := s.part(g, k, c.field)
			v := &c.volumes[n]
			if err == nil {
				err = s.small(c, v, &box)
			}
			if err != nil {
				g.Records[k].Err = fmt.Errorf("%s: %w", c.names[n], err)
				g.Extents = g.Extents[:begin]
				return
			}
			if v.gz {
				g.Extents = append(g.Extents, driver.Extent{Object: c.first + int64(v.blocks[0].file), Size: c.list.Size(int(v.blocks[0].file)), Field: -1})
				continue
			}
			at := len(g.Extents)
			if g.Extents = v.locate(g.Extents, &box, c.first); len(g.Extents) == at+1 && s.plain(c, v) {
				g.Extents[at].Field = s.stored(c, v, &box)
			}
		}
	})
}

// small returns an error if a part of a volume exceeds the size limit of a single read.
func (s *source) small(c *column, v *volume, box *driver.Box) error {
	n := int64(s.info.Fields[c.field].DType.Size()) * int64(v.lead())
	for _, side := range box.Size {
		n *= int64(side)
	}
	if v.gz {
		n = max(n, v.bytes())
	}
	if n > driver.MaxArrayBytes {
		return fmt.Errorf("%d bytes of voxels exceed the limit of %d for one read: read parts of it, with volume.RandSpatialCrop first in the list, or as patches, ?patch=64", n, driver.MaxArrayBytes)
	}
	return nil
}

// stored returns the column's field if the bytes of a part are one piece of the file without
// other bytes, else -1.
func (s *source) stored(c *column, v *volume, box *driver.Box) int32 {
	if shape := v.spatial(); v.lead() > 1 && box.Size != shape || box.Size[1] != shape[1] && box.Size[0] > 1 || box.Size[2] != shape[2] {
		return -1
	}
	return int32(c.field)
}

// plain reports whether voxels can be used without conversion.
func (s *source) plain(c *column, v *volume) bool {
	return v.asStored(s.info.Fields[c.field].DType) && v.codec == nil && !v.gz
}

func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil || id < 0 || id >= s.info.Len {
			continue
		}
		n, at := s.place(id)
		if s.affine >= 0 {
			if rec.Values[s.affine].Bytes = s.affineOf(n); rec.Values[s.affine].Bytes == nil {
				rec.Values[s.affine].Bytes = noAffine
			}
		}
		if s.origin >= 0 {
			rec.Values[s.origin].Bytes = ints(at.At)
		}
		extents, parts := g.Of(k)
		for i := range s.columns {
			c := &s.columns[i]
			if !g.Wants(c.field) {
				continue
			}
			end := c.first + int64(c.list.Len())
			own := 0
			for own < len(extents) && extents[own].Object < end {
				own++
			}
			_, box, err := s.part(g, k, c.field)
			if err == nil {
				err = s.value(g, k, c, n, &box, extents[:own], parts[:own])
			}
			if no := new(driver.MemoryError); errors.As(err, &no) {
				return fmt.Errorf("no memory for %s: %w", c.names[n], no.Err)
			}
			if err != nil {
				rec.Err = fmt.Errorf("%s: %w", c.names[n], err)
				break
			}
			extents, parts = extents[own:], parts[own:]
		}
	}
	return nil
}

// value sets the value of a column.
func (s *source) value(g *driver.Group, k int, c *column, n int, box *driver.Box, extents []driver.Extent, parts [][]byte) error {
	v, val, f := &c.volumes[n], &g.Records[k].Values[c.field], &s.info.Fields[c.field]
	val.Depth, val.Height, val.Width = int32(box.Size[0]), int32(box.Size[1]), int32(box.Size[2])
	if len(extents) == 1 && extents[0].Field >= 0 {
		val.Bytes = parts[0]
		return nil
	}
	shape := v.shape
	out, err := g.Take(k, c.field, shapeBytes(f.DType, slices.Concat(shape[:len(shape)-3], box.Size[:])))
	if err != nil {
		return err
	}
	val.Bytes = out
	if v.gz {
		return s.unpacked(g, c, n, box, parts[0], out, f.DType)
	}
	var block []byte
	return v.read(out, box, f.DType, parts, func(n int) ([]byte, error) {
		if cap(block) < n {
			if block, err = g.Alloc(n); err != nil {
				return nil, &driver.MemoryError{Err: err}
			}
		}
		return block[:n], nil
	})
}

// ints returns the value of a field of three int64.
func ints(v [3]int) []byte {
	b := make([]byte, 0, 24)
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}
