package ndarray

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
)

// Locate implements driver.Source. For each field, in order, it adds the extents of the value, of
// its parts, or of its chunks.
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

// narrow reports whether only a part of a row is read: one member of its single element.
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

// scratch is memory for decoding a chunk and assembling a row. A goroutine that holds a scratch
// never waits for another scratch. It waits only for chunks that other holders decode.
type scratch struct {
	mem  []byte
	used int
}

// take returns n bytes of the scratch.
func (c *scratch) take(n int) ([]byte, error) {
	if n < 0 || n > len(c.mem)-c.used {
		return nil, &driver.MemoryError{Err: fmt.Errorf("a step takes %d bytes, there are %d", n, len(c.mem)-c.used)}
	}
	b := c.mem[c.used : c.used+n : c.used+n]
	c.used += (n + 63) &^ 63
	return b, nil
}

const (
	// scratchBytes limits all scratches together. A single one may exceed it.
	scratchBytes = 128 << 20
	// largestScratch limits a single scratch.
	largestScratch = 1 << 30
)

// makeScratch allocates the memory for decoding chunks and assembling rows.
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

// parser parses a group.
type parser struct {
	s *Source
	g *driver.Group
}

// field sets the value of field n of record k, which is record r of a. It returns the number of
// extents of the value.
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
	case a.Held != nil: // lives as long as the source
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
	// Assemble the row.
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

// assembled assembles the rows from lo to hi from their chunks. It returns how many of the chunks
// were written, which is the number of parts it used.
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

// part decodes chunk n and copies its share of the rows to dst. part is the number of that share in
// a row. The first row of dst is row at of the chunk.
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
