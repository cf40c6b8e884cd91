package ndarray

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
)

// Locate implements driver.Source: for each field in their order its values, what it
// is assembled of, or the chunks that have it.
func (s *Source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		i, r := s.place(id)
		for k, f := range s.fields {
			if !g.Wants(k) {
				continue
			}
			a := s.files[i].arrays[k]
			kind := s.info.Fields[k].Kind
			direct := int32(-1)
			if f.direct && kind != driver.KindInt && kind != driver.KindFloat && kind != driver.KindLabel {
				direct = int32(k)
			}
			from := len(g.Extents)
			if a.values != nil {
				if object, offset, size := a.values.at(r); size > 0 {
					g.Extents = append(g.Extents, driver.Extent{Object: object, Offset: offset, Size: size, Field: direct})
				}
			} else {
				lo, hi := a.span(r)
				a.locate(g, lo, hi, direct)
				if f.narrow(a) && len(g.Extents) > from {
					e := &g.Extents[from]
					e.Offset, e.Size = e.Offset+f.typ.At, f.typ.Size
				}
			}
			if kind == driver.KindImage || kind == driver.KindMask || kind == driver.KindAudio {
				for j := from; j < len(g.Extents); j++ {
					g.Extents[j].Tail, g.Extents[j].Field = true, -1
				}
			}
		}
	})
}

// narrow says whether only some bytes of a row are read: a member of its one element.
func (f *field) narrow(a *Array) bool {
	return f.count == 1 && f.typ.Size != f.elem && !f.typ.Rows && a.Held == nil && !a.decoded()
}

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error {
	p := parser{s: s, g: g}
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil || id < 0 || id >= s.info.Len {
			continue
		}
		i, r := s.place(id)
		extents, parts := g.Of(k)
		for n := range s.fields {
			if !g.Wants(n) {
				continue
			}
			a := s.files[i].arrays[n]
			used, err := p.field(k, n, a, r, extents, parts)
			if err != nil {
				var none *driver.MemoryError
				if errors.As(err, &none) {
					return err
				}
				rec.Err = fmt.Errorf("%s, field %q: %w", s.Name(id), s.info.Fields[n].Name, err)
				break
			}
			extents, parts = extents[used:], parts[used:]
		}
	}
	return nil
}

// scratch is memory of the source for a chunk on its way to a row. Who has one never
// waits for another one, only for chunks that are being decoded by others who have
// one, too.
type scratch struct {
	mem  []byte
	used int
}

// take gives n bytes of it.
func (c *scratch) take(n int) ([]byte, error) {
	if n < 0 || n > len(c.mem)-c.used {
		return nil, &driver.MemoryError{Err: fmt.Errorf("a step takes %d bytes, there are %d", n, len(c.mem)-c.used)}
	}
	b := c.mem[c.used : c.used+n : c.used+n]
	c.used += (n + 63) &^ 63
	return b, nil
}

const (
	// scratchBytes is what all scratch together may have beside the first.
	scratchBytes = 128 << 20
	// largestScratch is what one may have.
	largestScratch = 1 << 30
)

// makeScratch takes the memory that putting rows together needs.
func (s *Source) makeScratch() error {
	need := int64(0)
	for k, f := range s.fields {
		if f.typ.refers() {
			continue
		}
		for _, file := range s.files {
			a := file.arrays[k]
			n := a.scratch()
			if f.typ.Size != f.elem && !f.typ.Rows {
				n += (a.row + 63) &^ 63
			}
			need = max(need, n)
		}
	}
	if need == 0 {
		return nil
	}
	if need > largestScratch {
		return fmt.Errorf("%s: decoding its chunks takes %d bytes, the limit is %d: write it with smaller chunks", s.info.URL, need, int64(largestScratch))
	}
	count := max(min(int64(runtime.GOMAXPROCS(0))+1, scratchBytes/need), 1)
	mem, err := s.mem.Take(count * need)
	if err != nil {
		return err
	}
	s.held += count * need
	s.scratch = make(chan *scratch, count)
	for i := range count {
		s.scratch <- &scratch{mem: mem[i*need : (i+1)*need]}
	}
	return nil
}

// parser makes the values of a group.
type parser struct {
	s *Source
	g *driver.Group
}

// field makes the value of a field. It returns how many extents it had.
func (p *parser) field(k, n int, a *Array, r int64, extents []driver.Extent, parts [][]byte) (int, error) {
	s, g, f := p.s, p.g, p.s.fields[n]
	lo, hi := a.span(r)
	switch {
	case a.values != nil:
		if _, _, size := a.values.at(r); size == 0 {
			return 0, s.value(g, k, n, nil, false)
		}
		return 1, s.value(g, k, n, parts[0], false)
	case lo == hi:
		return 0, s.value(g, k, n, nil, false)
	case a.Held != nil: // which lives as long as the source
		return 0, s.value(g, k, n, a.Held[lo*a.row:hi*a.row], false)
	case a.Chunk == nil && a.Whole.Size > 0:
		return 1, s.value(g, k, n, parts[0], false)
	case a.Chunk != nil && !a.decoded() && a.parts == 1 && (a.slice == a.row || f.narrow(a)) && lo/a.Chunk[0] == (hi-1)/a.Chunk[0]:
		if len(parts) > 0 {
			if _, ok := a.Find(lo / a.Chunk[0]); ok {
				return 1, s.value(g, k, n, parts[0], false)
			}
		}
	}
	// The row is put together.
	var c *scratch
	gather := f.typ.Size != f.elem
	if gather && !f.typ.Rows || a.decoded() {
		c = <-s.scratch
		c.used = 0
		defer func() { s.scratch <- c }()
	}
	var raw []byte
	var err error
	if gather && !f.typ.Rows {
		raw, err = c.take(int(a.row))
	} else {
		raw, err = s.take(g, k, n, (hi-lo)*a.row, f.plain() && !gather)
	}
	if err != nil {
		return 0, err
	}
	used := 0
	if a.Chunk == nil {
		a.copy(raw, nil)
	} else if used, err = a.assembled(raw, lo, hi, parts, c); err != nil {
		return 0, err
	}
	return used, s.value(g, k, n, raw, true)
}

// assembled puts the rows from lo to hi together of the chunks that they lie in, and says
// how many of these were written.
func (a *Array) assembled(dst []byte, lo, hi int64, parts [][]byte, c *scratch) (used int, err error) {
	err = a.bands(lo, hi, func(b band) error {
		to := dst[(b.lo-lo)*a.row : (b.hi-lo)*a.row]
		for n := range a.parts {
			place, ok := a.Find(b.first + n)
			if !ok {
				a.assembleRows(to, n, nil)
				continue
			}
			src := parts[used]
			used++
			if !a.decoded() {
				a.assembleRows(to, n, src)
				continue
			}
			if err := a.part(to, b.first+n, n, b.at, place, src, c); err != nil {
				return err
			}
		}
		return nil
	})
	return used, err
}

// part decodes chunk n, the part-th of its rows, and copies what it has of those that dst
// is for, from row at of it on.
func (a *Array) part(dst []byte, n, part, at int64, place Place, src []byte, c *scratch) error {
	before := c.used
	defer func() { c.used = before }()
	decode := func(to []byte) error {
		err := a.decode(to, src, place.Mask, c.take)
		var me *driver.MemoryError
		if err == nil || errors.As(err, &me) {
			return err
		}
		return a.wrong(n, place, err)
	}
	if a.cache == nil && a.parts == 1 && a.row == a.chunk {
		return decode(dst)
	}
	from, to := at*a.slice, (at+int64(len(dst))/a.row)*a.slice
	if a.cache != nil {
		slot, err := a.cache.get(a, n, decode)
		if err != nil {
			return err
		}
		if slot != nil {
			a.assembleRows(dst, part, slot.mem[from:to])
			a.cache.put(slot)
			return nil
		}
	}
	chunk, err := c.take(int(a.chunk))
	if err != nil {
		return err
	}
	if err := decode(chunk); err != nil {
		return err
	}
	a.assembleRows(dst, part, chunk[from:to])
	return nil
}
