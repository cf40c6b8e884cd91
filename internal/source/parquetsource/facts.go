package parquetsource

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/source/blockcache"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/internal/source/parquet"
	"github.com/stokerdata/stoker/store"
)

// reader reads the units of a track in order. It is not safe for concurrent use.
type reader struct {
	s    *source
	t    *track
	file int // number of the open file
	o    store.Object
	buf  []byte
	dec  parquet.Decoder
	mem  *arena.Bump // memory of the unit
	of   *arena.Bump // memory of the dictionary
	dict int32       // current dictionary, -1 for none
	page *parquet.Page
}

func (s *source) reader(t *track) *reader {
	return &reader{s: s, t: t, file: -1, dict: -1, mem: arena.NewBump(blockcache.Budget, arena.PurposeRead), of: arena.NewBump(blockcache.Budget, arena.PurposeRead)}
}

func (r *reader) close() {
	if r.o != nil {
		_ = r.o.Close()
	}
	r.mem.Release()
	r.of.Release()
}

// read reads bytes of a file. The next read overwrites them.
func (r *reader) read(ctx context.Context, file int, off, size int64) ([]byte, error) {
	if r.file != file {
		if r.o != nil {
			_ = r.o.Close()
			r.o = nil
		}
		o, err := r.s.list.Open(ctx, file)
		if err != nil {
			return nil, err
		}
		r.o, r.file = o, file
	}
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	return r.buf[:size], r.o.ReadAt(ctx, r.buf[:size], off)
}

// unit decodes a unit. The page is valid until the next call.
func (r *reader) unit(ctx context.Context, u *unit) (*parquet.Page, error) {
	g := r.s.groups[u.group]
	fail := func(off int64, err error) error {
		return r.s.at(int(g.file), fmt.Sprintf(", row group %d, column %q, page at byte %d", g.number, r.t.leaf.Path, off), err)
	}
	r.dec.Leaf, r.dec.Codec, r.dec.Dict = r.t.leaf, u.codec, nil
	if u.dict >= 0 {
		d := r.t.dicts[u.dict]
		if r.dict != u.dict {
			b, err := r.read(ctx, int(g.file), d.off, d.size)
			if err != nil {
				return nil, err
			}
			r.of.Reset()
			r.dec.Alloc = r.of.Alloc
			if r.page, err = unpackDict(&r.dec, b); err != nil {
				return nil, fail(d.off, err)
			}
			r.dict = u.dict
		}
		r.dec.Dict = r.page
	}
	b, err := r.read(ctx, int(g.file), u.off, u.size)
	if err != nil {
		return nil, err
	}
	r.mem.Reset()
	r.dec.Alloc = r.mem.Alloc
	p, err := unpack(&r.dec, b, u)
	if err != nil {
		return nil, fail(u.off, err)
	}
	return p, nil
}

// unpackDict decodes the dictionary at the start of b.
func unpackDict(d *parquet.Decoder, b []byte) (*parquet.Page, error) {
	raw, err := parquet.Pages(b, true)
	if err != nil {
		return nil, err
	}
	return d.Dictionary(raw[0])
}

// unpack decodes a unit.
func unpack(d *parquet.Decoder, b []byte, u *unit) (*parquet.Page, error) {
	raw, err := parquet.Pages(b, false)
	if err != nil {
		return nil, err
	}
	return d.Data(raw, int64(u.rows))
}

// each calls f for the pages of some units of a track, in order.
func (s *source) each(ctx context.Context, t *track, units []unit, f func(u *unit, p *parquet.Page) error) error {
	r := s.reader(t)
	defer r.close()
	for i := range units {
		p, err := r.unit(ctx, &units[i])
		if err != nil {
			return err
		}
		if err := f(&units[i], p); err != nil {
			return err
		}
	}
	return nil
}

// groupOf returns the units of row group n.
func (t *track) groupOf(n int) []unit { return t.units[t.begin[n]:t.begin[n+1]] }

// all calls f for all pages of a track. Several row groups run concurrently.
func (s *source) all(ctx context.Context, t *track, f func(u *unit, p *parquet.Page) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for n := range s.groups {
		// A row group is split into parts. Each part reads its dictionary.
		units := t.groupOf(n)
		const part = 16
		for len(units) > 0 {
			some := units[:min(part, len(units))]
			units = units[len(some):]
			g.Go(func() error { return s.each(gctx, t, some, f) })
		}
	}
	return g.Wait()
}

// facts collects the statistics of a column. It holds the column in memory if it has single numbers.
func (s *source) facts(ctx context.Context, n int, c *columns.Column, u *column.Seen) error {
	t := s.tracks[n]
	single := t.leaf.MaxRep == 0 && t.leaf.Width > 0
	if single {
		size := s.info.Len * int64(t.leaf.Width)
		bits := int64(0)
		if t.nulls {
			bits = (s.info.Len + 7) / 8
		}
		if s.memory.Total()+size+bits <= maxHeld {
			var err error
			if t.held, err = s.memory.Take(size); err == nil && bits > 0 {
				t.valid, err = s.memory.Take(bits)
			}
			if err != nil {
				return err
			}
		} else if !t.nulls {
			return nil
		}
	}
	stored := true
	var mu sync.Mutex
	err := s.all(ctx, t, func(unit *unit, p *parquet.Page) error {
		of := c.Seen()
		of.Uneven = p.Uneven
		for i, side := range p.Sides {
			of.Side(i, side)
		}
		switch {
		case single && p.Valid == nil:
		case single:
			for row := range int64(p.Rows) {
				if !p.Has(row) {
					of.Count[column.Missing]++
				}
			}
			if c.Bounded(of) {
				for b := p.Values; len(b) >= t.leaf.Width; b = b[t.leaf.Width:] {
					c.Bound(of, b)
				}
			}
		default:
			count(of, c, t.leaf, p)
		}
		if t.held != nil {
			w := int64(t.leaf.Width)
			copy(t.held[unit.first*w:], p.Values)
		}
		mu.Lock()
		defer mu.Unlock()
		if t.valid != nil {
			for row := range int64(p.Rows) {
				if at := unit.first + row; p.Has(row) {
					t.valid[at>>3] |= 1 << (at & 7)
				}
			}
		}
		u.Merge(of)
		stored = stored && (p.Stored || p.Index != nil && t.leaf.Width == 0)
		return nil
	})
	if err != nil {
		return err
	}
	t.parts = t.parts && stored
	if t.leaf.MaxRep > 0 { // counted in numbers so far
		row := c.Row(u) / c.Unit()
		u.Least, u.Most = u.Least/row, u.Most/row
	}
	return nil
}

// count counts the values of a page.
func count(u *column.Seen, c *columns.Column, l *parquet.Leaf, p *parquet.Page) {
	w := int64(max(l.Width, 1))
	for row := range int64(p.Rows) {
		_, lo, hi := p.Range(row)
		switch {
		case !p.Has(row):
			u.Count[column.Missing]++
		case c.Elem == nil:
			u.Size.Add(hi - lo)
		default:
			u.Rows(column.List, (hi-lo)/w, hi-lo)
		}
	}
}

// lookAt adds what the first values of a column of bytes look like.
func (s *source) lookAt(ctx context.Context, field int, u *column.Seen) error {
	t := s.tracks[s.track[field]]
	left, units := column.LookAt, t.units
	for ; left > 0 && len(units) > 0; units = units[1:] {
		err := s.each(ctx, t, units[:1], func(_ *unit, p *parquet.Page) error {
			for row := int64(0); row < int64(p.Rows) && left > 0; row++ {
				if in, lo, hi := p.Range(row); lo < hi {
					u.Look(in.Values[lo:min(hi, lo+column.MaskBytes)], hi-lo)
					left--
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// findFiles finds the files of rows whose bytes are not in the table.
func (s *source) findFiles(ctx context.Context, paths []int) error {
	for i, c := range s.columns {
		field := &s.info.Fields[i]
		wanted, only := columns.Wanted(c, field)
		t := s.tracks[s.track[i]]
		if !wanted || !only && !t.nulls {
			continue
		}
		from := t
		if only {
			field.MaxBytes, field.Stats = 0, nil
		} else {
			from = s.tracks[paths[i]]
		}
		s.files.Begin(i)
		for n := range s.groups {
			var ids []int64
			var names []string
			skip := make([]byte, (s.groups[n].rows+7)/8) // rows with bytes
			if !only {
				err := s.each(ctx, t, t.groupOf(n), func(u *unit, p *parquet.Page) error {
					for row := range int64(p.Rows) {
						if at := u.first - s.first[n] + row; p.Has(row) {
							skip[at>>3] |= 1 << (at & 7)
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			err := s.each(ctx, from, from.groupOf(n), func(u *unit, p *parquet.Page) error {
				for row := range int64(p.Rows) {
					id := u.first + row
					if columns.Bit(skip, id-s.first[n]) {
						continue
					}
					in, lo, hi := p.Range(row)
					if lo == hi {
						if only {
							s.files.None(i, id)
						}
						continue
					}
					ids, names = append(ids, id), append(names, string(in.Values[lo:hi]))
				}
				return nil
			})
			if err != nil {
				return err
			}
			if err := s.files.Add(ctx, i, field, ids, names); err != nil {
				return err
			}
		}
		if only {
			if err := s.files.Check(i); err != nil {
				return fmt.Errorf("%s: column %q %w", s.list.Store, c.Name, err)
			}
		}
	}
	return nil
}

// file returns the file of a unit.
func (s *source) file(u *unit) int64 { return int64(s.groups[u.group].file) }
