// Package variants wraps a pack that has several variants of each record. Each record appears once,
// and the order of records selects the variant to read (driver.Varied).
package variants

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/source/driver"
)

// Base lists the abilities that packs have.
type Base interface {
	driver.Source
	driver.Sizer
	driver.Shaper
	driver.Indexer
	driver.Finder
	driver.Chunker
}

// Source is a source of records with variants.
type Source struct {
	driver.Wrapper
	driver.Chunker // of the base: a chunk holds all variants
	base           Base
	n              int
	info           driver.Info
	// of has the index in the base of each field, by variant. place is the reverse, with -1 for the
	// fields of other variants.
	of, place [][]int
	spare     sync.Pool
}

// Open returns a source of the n variants of base, and takes ownership of base. merge adds the
// statistics of one field to another.
func Open(base Base, n int, merge func(to, from *driver.FieldStats, named bool)) (*Source, error) {
	s := &Source{Wrapper: driver.Wrapper{Base: base}, Chunker: base, base: base, n: n, info: *base.Info()}
	in := base.Info().Fields
	s.info.Fields = nil
	names, err := Fields(in, n)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.info.URL, err)
	}
	s.of, s.place = make([][]int, n), make([][]int, n)
	for v := range n {
		s.place[v] = slices.Repeat([]int{-1}, len(in))
	}
	for _, name := range names {
		var f driver.Field
		for v := range n {
			i := slices.IndexFunc(in, func(f driver.Field) bool {
				of, at, ok := driver.CutVariant(f.Name)
				return f.Name == name || ok && of == name && at == v
			})
			s.place[v][i] = len(s.of[v])
			s.of[v] = append(s.of[v], i)
			switch {
			case v == 0:
				f = in[i]
				f.Name = name
				if of, _, ok := driver.CutVariant(f.Boxes); ok {
					f.Boxes = of
				}
				if in[i].Name != name && f.Stats != nil {
					f.Stats = &driver.FieldStats{}
					merge(f.Stats, in[i].Stats, f.Classes != nil)
				}
			case in[i].Name != name:
				join(&f, &in[i], merge)
			}
		}
		s.info.Fields = append(s.info.Fields, f)
	}
	s.spare.New = func() any { return s.newWork() }
	return s, nil
}

// Fields returns the names of the fields that have n variants, in order. It fails if a variant is
// missing, or if variants differ in more than their values.
func Fields(in []driver.Field, n int) ([]string, error) {
	var names []string
	found := map[string][]*driver.Field{}
	for i := range in {
		name := in[i].Name
		if of, v, ok := driver.CutVariant(name); ok {
			if v != len(found[of]) {
				return nil, fmt.Errorf("field %q is out of order: %d variants of %q come before it", name, len(found[of]), of)
			}
			if found[of] = append(found[of], &in[i]); v > 0 {
				continue
			}
			name = of
		}
		if slices.Contains(names, name) {
			return nil, fmt.Errorf("field %q exists both with and without variants", name)
		}
		names = append(names, name)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no field has %d variants", n)
	}
	for of, all := range found {
		if len(all) != n {
			return nil, fmt.Errorf("field %q has %d variants, expected %d", of, len(all), n)
		}
		for _, f := range all[1:] {
			if f.Kind != all[0].Kind || f.DType != all[0].DType || !slices.Equal(f.Shape, all[0].Shape) || f.Format != all[0].Format {
				return nil, fmt.Errorf("fields %q and %q are of different types", all[0].Name, f.Name)
			}
		}
	}
	return names, nil
}

// join widens the limits of a field to include another variant.
func join(f, o *driver.Field, merge func(to, from *driver.FieldStats, named bool)) {
	f.MaxBytes = max(f.MaxBytes, o.MaxBytes)
	f.MaxWidth, f.MaxHeight = max(f.MaxWidth, o.MaxWidth), max(f.MaxHeight, o.MaxHeight)
	if f.Width != o.Width || f.Height != o.Height {
		f.Width, f.Height = 0, 0
	}
	if f.Channels != o.Channels {
		f.Channels = 0
	}
	if f.Stats != nil && o.Stats != nil {
		merge(f.Stats, o.Stats, f.Classes != nil)
	}
}

// work is the state of one record while the base processes it.
type work struct {
	s     *Source
	inner driver.Group
	id    [1]int64
	want  []bool
	outer *driver.Group
	k, v  int
	where func(k, field int, n int64) []byte
}

func (s *Source) newWork() *work {
	w := &work{s: s, want: make([]bool, len(s.Base.Info().Fields))}
	w.where = func(_, field int, n int64) []byte {
		if to := s.place[w.v][field]; to >= 0 {
			return w.outer.Place(w.k, to, n)
		}
		return nil
	}
	return w
}

// split splits the number of a record into the variant and the number in the base.
func (s *Source) split(n int64) (v int, id int64) {
	epoch, id := driver.OfEpoch(n)
	if epoch < 0 || epoch >= int64(s.n) {
		return 0, -1
	}
	return int(epoch), id
}

// begin returns a group with only record k, and the fields of its variant.
func (w *work) begin(g *driver.Group, k int) *driver.Group {
	s := w.s
	w.outer, w.k = g, k
	w.v, w.id[0] = s.split(g.IDs[k])
	clear(w.want)
	for to, i := range s.of[w.v] {
		w.want[i] = g.Wants(to)
	}
	in := &w.inner
	in.Want, in.Unproven = w.want, g.Unproven
	in.Begin(w.id[:], len(w.want))
	in.Records[0].Err = g.Records[k].Err
	if w.id[0] < 0 && in.Records[0].Err == nil {
		in.Records[0].Err = fmt.Errorf("record %d is out of range: there are %d records in %s", g.IDs[k], s.info.Len, s.info.URL)
	}
	return in
}

func (w *work) end() {
	w.inner.Release()
	w.outer = nil
	w.s.spare.Put(w)
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// Variants implements driver.Varied.
func (s *Source) Variants() int { return s.n }

// Varies implements driver.Varied.
func (s *Source) Varies(field int) bool { return s.of[0][field] != s.of[1][field] }

// Locate implements driver.Source.
func (s *Source) Locate(g *driver.Group) {
	w := s.spare.Get().(*work)
	for k := range g.IDs {
		in := w.begin(g, k)
		s.Base.Locate(in)
		for _, e := range in.Extents {
			if e.Field >= 0 {
				e.Field = int32(s.place[w.v][e.Field])
			}
			g.Extents = append(g.Extents, e)
		}
		for _, m := range in.Missing {
			m.K = k
			g.Missing = append(g.Missing, m)
		}
		g.Records[k].Err = in.Records[0].Err
		g.Next()
	}
	w.end()
}

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error {
	w := s.spare.Get().(*work)
	defer w.end()
	for k := range g.IDs {
		in := w.begin(g, k)
		extents, data := g.Of(k)
		in.First = append(in.First[:0], 0, int32(len(extents)))
		for _, e := range extents {
			if e.Field >= 0 {
				e.Field = int32(s.of[w.v][e.Field])
			}
			in.Extents = append(in.Extents, e)
		}
		in.Bytes = append(in.Bytes[:0], data...)
		in.Alloc = g.Alloc
		if g.Place != nil {
			in.Place = w.where
		}
		if err := s.Base.Parse(in); err != nil {
			return err
		}
		rec := &g.Records[k]
		if rec.Err = in.Records[0].Err; rec.Err != nil {
			continue
		}
		for to, i := range s.of[w.v] {
			rec.Values[to] = in.Records[0].Values[i]
		}
	}
	return nil
}

// Sizes implements driver.Sizer.
func (s *Source) Sizes(field int, ids, sizes []int64) bool {
	for i, n := range ids {
		v, id := s.split(n)
		one := [1]int64{id}
		if id < 0 || !s.base.Sizes(s.of[v][field], one[:], sizes[i:i+1]) {
			return false
		}
	}
	return true
}

// Shapes implements driver.Shaper.
func (s *Source) Shapes(field int, ids []int64, shapes []driver.Shape) bool {
	for i, n := range ids {
		v, id := s.split(n)
		one := [1]int64{id}
		if id < 0 || !s.base.Shapes(s.of[v][field], one[:], shapes[i:i+1]) {
			return false
		}
	}
	return true
}

// Name implements driver.Source.
func (s *Source) Name(n int64) string {
	_, id := s.split(n)
	return s.Base.Name(id)
}

// Find implements driver.Finder.
func (s *Source) Find(ctx context.Context, n int64) string {
	v, id := s.split(n)
	name := s.base.Find(ctx, id)
	if id >= 0 && !strings.HasSuffix(name, ")") {
		return fmt.Sprintf("%s, variant %d", name, v)
	}
	return name
}

// Origin implements driver.Deriver.
func (s *Source) Origin(n int64, field int) (driver.Source, int64, int) {
	v, id := s.split(n)
	return s.Base, id, s.of[v][field]
}
