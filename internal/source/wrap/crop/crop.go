// Package crop wraps a source of volumes so that random crops read only the parts that they need.
// It uses the partial reads of the format. The parts differ per epoch.
package crop

import (
	"slices"
	"sync"

	"github.com/stokerdata/stoker/source/driver"
)

// Field describes the parts of a field.
type Field struct {
	// Sides returns the smallest and largest sides of parts, from the smallest and largest sides of
	// volumes.
	Sides func(least, most [3]int) (lo, hi [3]int)
	// Part returns the part of a record in an epoch, for a volume with the given sides.
	Part func(epoch, record int64, sides [3]int) (at, size [3]int)
}

// Source is a source of parts.
type Source struct {
	driver.Mapped
	cutter driver.Cutter
	fields map[int]Field
	info   driver.Info
	spare  sync.Pool
}

// Open returns a source of parts of the given fields, by field index, and takes ownership of base.
// The caller must make sure that base is a driver.Cutter that can cut these fields.
func Open(base driver.Source, fields map[int]Field) *Source {
	s := &Source{fields: fields, info: *base.Info()}
	s.Base = base
	s.Record = func(id int64) int64 { _, n := driver.OfEpoch(id); return n }
	s.Field = func(field int) (int, bool) { _, cut := fields[field]; return field, !cut }
	// A part is cut once, chunks are read as a whole, and the epoch takes the bits of the variant.
	s.Without = []any{(*driver.Cutter)(nil), (*driver.Chunker)(nil), (*driver.Varied)(nil)}
	s.cutter, _ = driver.As[driver.Cutter](base)
	s.info.Fields = slices.Clone(s.info.Fields)
	for i, of := range fields {
		f := &s.info.Fields[i]
		least, most := f.Least, f.Most
		if len(f.Shape) > 0 {
			least, most = f.Shape, f.Shape
		}
		n := len(most) - 3
		lo, hi := of.Sides([3]int(least[n:]), [3]int(most[n:]))
		f.Shape, f.Least, f.Most = nil, slices.Concat(least[:n], lo[:]), slices.Concat(most[:n], hi[:])
		if lo == hi {
			f.Shape, f.Least, f.Most = f.Most, nil, nil
		}
		f.MaxBytes, f.Stats = int64(f.DType.Size()), nil
		for _, side := range slices.Concat(most[:n], hi[:]) {
			f.MaxBytes *= int64(side)
		}
	}
	s.spare.New = func() any {
		g := &group{}
		g.inner.Box = func(k, field int) (driver.Box, bool) {
			f, ok := s.fields[field]
			if !ok || g.ids[k] < 0 || g.ids[k] >= s.info.Len {
				return driver.Box{}, false
			}
			at, size := f.Part(g.epochs[k], g.ids[k], s.cutter.Sides(g.ids[k], field))
			return driver.Box{At: at, Size: size}, true
		}
		return g
	}
	return s
}

// group is the state of a group while the base processes it.
type group struct {
	inner       driver.Group
	ids, epochs []int64
}

func (s *Source) begin(g *driver.Group) *group {
	w := s.spare.Get().(*group)
	w.ids, w.epochs = w.ids[:0], w.epochs[:0]
	for _, id := range g.IDs {
		epoch, n := driver.OfEpoch(id)
		w.ids, w.epochs = append(w.ids, n), append(w.epochs, epoch)
	}
	w.inner.Want = g.Want
	w.inner.BeginIn(g, w.ids, len(s.info.Fields))
	return w
}

func (s *Source) end(w *group) {
	w.inner.Release()
	s.spare.Put(w)
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// EpochRecords implements driver.Epochs.
func (s *Source) EpochRecords() {}

// Locate implements driver.Source.
func (s *Source) Locate(g *driver.Group) {
	w := s.begin(g)
	s.Base.Locate(&w.inner)
	g.Hand(&w.inner, nil)
	s.end(w)
}

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error {
	w := s.begin(g)
	in := &w.inner
	in.HandBytes(g, nil)
	in.Place = g.Place
	err := s.Base.Parse(in)
	if err == nil {
		for k := range g.Records {
			g.Records[k].Err = in.Records[k].Err
			copy(g.Records[k].Values, in.Records[k].Values)
		}
	}
	s.end(w)
	return err
}
