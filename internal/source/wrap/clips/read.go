package clips

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
)

// work is the state of a group while the table processes it.
type work struct {
	s       *source
	ids     []int64
	want    []bool
	inner   driver.Group
	outer   *driver.Group
	where   func(k, field int, n int64) []byte
	missing []bool // by record: the table must learn an index first
	plan    video.Plan
}

func newWork(s *source) *work {
	w := &work{s: s, want: make([]bool, len(s.place))}
	w.where = func(k, field int, n int64) []byte {
		if to := s.place[field]; to >= 0 && s.of[to] == nil {
			return w.outer.Place(k, to, n)
		}
		return nil
	}
	return w
}

// begin returns the group of rows, with the columns that are fields without change.
func (w *work) begin(g *driver.Group) *driver.Group {
	s := w.s
	w.ids = w.ids[:0]
	for _, n := range g.IDs {
		epoch, id := s.split(n)
		if epoch < 0 {
			id = n
		}
		w.ids = append(w.ids, id)
	}
	clear(w.want)
	for field, c := range s.of {
		w.want[s.from[field]] = c == nil && g.Wants(field)
	}
	in := &w.inner
	in.Want = w.want
	in.BeginIn(g, w.ids, len(w.want))
	for k := range g.Records {
		if (w.ids[k] < 0 || w.ids[k] >= s.info.Len) && in.Records[k].Err == nil {
			in.Records[k].Err = fmt.Errorf("record %d is out of range: there are %d records in %s", g.IDs[k], s.info.Len, s.info.URL)
		}
	}
	w.outer = g
	return in
}

func (w *work) end() {
	w.inner.Release()
	w.outer = nil
	w.s.spare.Put(w)
}

// Locate implements driver.Source: the extents of the table come first, then the extents of the
// videos in the order of their fields.
func (s *source) Locate(g *driver.Group) {
	w := s.spare.Get().(*work)
	defer w.end()
	in := w.begin(g)
	s.Base.Locate(in)
	w.missing = append(w.missing[:0], make([]bool, len(g.IDs))...)
	for _, m := range in.Missing {
		w.missing[m.K] = true
	}
	g.Missing = append(g.Missing, in.Missing...)
	for k := range g.IDs {
		rec := &g.Records[k]
		rec.Err = in.Records[k].Err
		if rec.Err == nil && !w.missing[k] {
			w.locate(g, k)
		}
		g.Next()
	}
}

// locate appends the extents of record k.
func (w *work) locate(g *driver.Group, k int) {
	s, in := w.s, &w.inner
	begin := len(g.Extents)
	for _, e := range in.Extents[in.First[k]:in.First[k+1]] {
		if e.Field >= 0 {
			e.Field = int32(s.place[e.Field])
		}
		g.Extents = append(g.Extents, e)
	}
	for i, c := range s.clips {
		if !g.Wants(c.field) {
			continue
		}
		v, err := s.plan(&w.plan, c, g.IDs[k])
		if err != nil {
			g.Records[k].Err = fmt.Errorf("%s: %w", s.Name(g.IDs[k]), err)
			g.Extents = g.Extents[:begin]
			return
		}
		n, _, _ := s.files.Locate(i, int64(v))
		for _, p := range w.plan.Pieces {
			g.Extents = append(g.Extents, driver.Extent{Object: s.Base.Info().Objects + n, Offset: p.Offset, Size: p.Size, Field: -1})
		}
	}
}

// Parse implements driver.Source.
func (s *source) Parse(g *driver.Group) error {
	w := s.spare.Get().(*work)
	defer w.end()
	in := w.begin(g)
	for k := range g.IDs {
		extents, data := g.Of(k)
		own := 0 // the number of video extents
		for _, c := range s.clips {
			if g.Records[k].Err == nil && g.Wants(c.field) {
				if _, err := s.plan(&w.plan, c, g.IDs[k]); err == nil {
					own += len(w.plan.Pieces)
				}
			}
		}
		for i := range max(len(extents)-own, 0) {
			e := extents[i]
			if e.Field >= 0 {
				e.Field = int32(s.from[e.Field])
			}
			in.Extents, in.Bytes = append(in.Extents, e), append(in.Bytes, data[i])
		}
		in.Next()
	}
	in.Alloc = g.Alloc
	if g.Place != nil {
		in.Place = w.where
	}
	if err := s.Base.Parse(in); err != nil {
		return err
	}
	for k := range g.IDs {
		rec := &g.Records[k]
		if rec.Err = in.Records[k].Err; rec.Err != nil {
			continue
		}
		for field, c := range s.of {
			if c == nil {
				rec.Values[field] = in.Records[k].Values[s.from[field]]
			}
		}
		if err := w.clips(g, k, int(in.First[k+1]-in.First[k])); err != nil {
			return err
		}
	}
	return nil
}

// clips makes the clips of record k. Their bytes come after the bytes of the table.
func (w *work) clips(g *driver.Group, k, skip int) error {
	s, rec := w.s, &g.Records[k]
	_, data := g.Of(k)
	data = data[skip:]
	for _, c := range s.clips {
		if !g.Wants(c.field) {
			continue
		}
		v, err := s.plan(&w.plan, c, g.IDs[k])
		if err != nil {
			rec.Err = fmt.Errorf("%s: %w", s.Name(g.IDs[k]), err)
			return nil
		}
		x, p := c.videos[v], &w.plan
		out, err := g.Take(k, c.field, x.Size(p.Spans, p.Frames))
		if err != nil {
			return fmt.Errorf("no memory for a clip of %s: %w", s.pathOf(c, v), err)
		}
		if err := x.Append(out, c.ids[v], p.Spans, p.Frames, p.Pieces, data[:len(p.Pieces)]); err != nil {
			rec.Err = fmt.Errorf("%s: %s: %w", s.Name(g.IDs[k]), s.pathOf(c, v), err)
			return nil
		}
		rec.Values[c.field].Bytes, data = out, data[len(p.Pieces):]
	}
	return nil
}
