package parquetsource

import (
	"errors"
	"fmt"
	"sync"

	"github.com/stokerdata/stoker/internal/source/blockcache"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/parquet"
	"github.com/stokerdata/stoker/source/driver"
)

// index has the positions of the values in a page, so that they can be read alone.
type index struct {
	page  *parquet.Page  // without values
	parts *parquet.Parts // nil if the page can only be decompressed as a whole
}

// unitOf returns the unit of a record's value, and the row in the unit.
func (t *track) unitOf(id int64) (n int, row int64) {
	lo, hi := 0, len(t.units)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; t.units[mid].first <= id {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, id - t.units[lo].first
}

// lies is the position of a value that is read alone.
type lies struct {
	parts  *parquet.Parts
	off    int64 // offset of its page in the file
	lo, hi int64 // range in the decompressed page
	valid  bool
}

// single returns the position of a row's value. ok is false if its page must be decompressed as a whole. It calls
// missing for pages that must be learnt first.
func (t *track) single(n int, row int64, missing func(off, size int64, n int32, dict bool)) (at lies, ok bool, err error) {
	u := &t.units[n]
	if !t.parts || u.codec != parquet.None && u.codec != parquet.Snappy {
		return at, false, nil
	}
	var dict *index
	if u.dict >= 0 {
		if dict = t.dictIndex[u.dict].Load(); dict == nil {
			missing(t.dicts[u.dict].off, t.dicts[u.dict].size, u.dict, true)
		}
	}
	x := t.index[n].Load()
	if x == nil {
		missing(u.off, u.size, int32(n), false)
	}
	if x == nil || u.dict >= 0 && dict == nil {
		return at, true, nil
	}
	p := x.page
	switch {
	case x.parts == nil:
		return at, false, nil
	case !p.Has(row):
		return lies{}, true, nil
	case p.Index == nil:
		_, lo, hi := p.Range(row)
		return lies{x.parts, u.off, p.Base + lo, p.Base + hi, true}, true, nil
	case dict == nil || dict.parts == nil:
		return at, false, nil
	}
	k := p.Number(row)
	if k >= int64(dict.page.Rows) {
		return at, true, fmt.Errorf("page at byte %d: %w: value %d of a dictionary of %d", u.off, parquet.ErrFormat, k, dict.page.Rows)
	}
	lo, hi := dict.page.String(k)
	return lies{dict.parts, t.dicts[u.dict].off, lo, hi, true}, true, nil
}

// Locate requests the values of a row in the order of the fields. Held values and empty values need no extents.
// Values that are read alone have one. All others need their page, after the page of its dictionary.
func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(k int, id int64) {
		begin, learn := len(g.Extents), len(g.Missing)
		for i := range s.info.Fields {
			if s.quick[i] || !g.Wants(i) {
				continue
			}
			if err := s.locate(g, k, i, id); err != nil {
				g.Records[k].Err = s.wrong(id, i, err)
				g.Extents, g.Missing = g.Extents[:begin], g.Missing[:learn]
				return
			}
		}
		if len(g.Missing) > learn {
			g.Extents = g.Extents[:begin]
		}
	})
}

// locate requests a value.
func (s *source) locate(g *driver.Group, k, i int, id int64) error {
	f := &s.info.Fields[i]
	if s.files.Has(i, id) {
		n, size, err := s.files.Locate(i, id)
		if err == nil && size > driver.MaxArrayBytes {
			err = tooLarge(size)
		}
		if err != nil || size == 0 {
			return err
		}
		e := driver.Extent{Object: n + int64(s.list.Len()), Size: size, Field: -1, Tail: column.IsDecoded(f.Kind)}
		if !e.Tail && s.columns[i].Direct(f) {
			e.Field = int32(i)
		}
		g.Extents = append(g.Extents, e)
		return nil
	}
	t := s.tracks[s.track[i]]
	if t.held != nil {
		return nil
	}
	n, row := t.unitOf(id)
	u := &t.units[n]
	object := s.file(u)
	at, ok, err := t.single(n, row, func(off, size int64, n int32, dict bool) {
		g.Missing = append(g.Missing, driver.Missing{K: k, Extent: driver.Extent{Object: object, Offset: off, Size: size, Field: -1}})
		s.mu.Lock()
		s.missing[[2]int64{object, off}] = blockcache.Key{Column: int32(s.track[i]), N: n, Dict: dict}
		s.mu.Unlock()
	})
	switch {
	case err != nil:
		return err
	case !ok:
		if u.dict >= 0 {
			d := t.dicts[u.dict]
			g.Extents = append(g.Extents, driver.Extent{Object: object, Offset: d.off, Size: d.size, Field: -1})
		}
		g.Extents = append(g.Extents, driver.Extent{Object: object, Offset: u.off, Size: u.size, Field: -1})
	case at.hi-at.lo > driver.MaxArrayBytes:
		return tooLarge(at.hi - at.lo)
	case at.lo < at.hi:
		from, to := at.parts.Range(at.lo, at.hi)
		e := driver.Extent{Object: object, Offset: at.off + from, Size: to - from, Field: -1}
		if at.parts.At == nil {
			if e.Tail = column.IsDecoded(f.Kind); !e.Tail && s.columns[i].Direct(f) {
				e.Field = int32(i)
			}
		}
		g.Extents = append(g.Extents, e)
	}
	return nil
}

func tooLarge(n int64) error {
	return fmt.Errorf("it has %d bytes, the limit is %d", n, int64(driver.MaxArrayBytes))
}

func (s *source) wrong(id int64, field int, err error) error {
	return fmt.Errorf("%s: column %q: %w", s.Name(id), s.columns[field].Name, err)
}

// Learn implements driver.Learner: it indexes a page whose values are read alone.
func (s *source) Learn(e driver.Extent, b []byte) error {
	at := [2]int64{e.Object, e.Offset}
	s.mu.Lock()
	k, ok := s.missing[at]
	s.mu.Unlock()
	if !ok {
		return nil // another goroutine has learnt it
	}
	t := s.tracks[k.Column]
	err := t.learn(k, b, s.decoder())
	if err != nil {
		return s.at(int(e.Object), fmt.Sprintf(", column %q, page at byte %d", t.leaf.Path, e.Offset), err)
	}
	s.mu.Lock()
	delete(s.missing, at)
	s.mu.Unlock()
	return nil
}

// anyDictionary is a placeholder while only indexes into a dictionary are needed.
var anyDictionary = &parquet.Page{Rows: 1 << 30}

func (t *track) learn(k blockcache.Key, b []byte, d *parquet.Decoder) error {
	raw, err := parquet.Pages(b, k.Dict)
	if err != nil {
		return err
	}
	x := &index{}
	d.Leaf, d.Index, d.Alloc, d.Dict = t.leaf, true, heap, anyDictionary
	if k.Dict {
		d.Codec = t.codecOf(k.N)
		x.page, err = d.Dictionary(raw[0])
	} else {
		d.Codec = t.units[k.N].codec
		if len(raw) > 1 || !raw[0].IsPlain() && (!raw[0].Encoded() || t.leaf.Width > 0) {
			t.index[k.N].Store(x) // decompressed as a whole
			return nil
		}
		x.page, err = d.Data(raw, int64(t.units[k.N].rows))
	}
	if err != nil {
		return err
	}
	if x.page.Stored {
		x.parts = parquet.FindParts(d.Codec, raw[0])
	} else if x.page.Index != nil {
		x.parts = &parquet.Parts{} // the parts are those of the dictionary
	}
	if k.Dict {
		t.dictIndex[k.N].Store(x)
	} else {
		t.index[k.N].Store(x)
	}
	return nil
}

// codecOf returns the codec of a dictionary: the one of its row group.
func (t *track) codecOf(dict int32) parquet.Codec {
	return t.groupOf(int(t.dicts[dict].group))[0].codec
}

// decoder returns a decoder for the exclusive use of the caller.
func (s *source) decoder() *parquet.Decoder { return &parquet.Decoder{} }

var scratches sync.Pool // of [parquet.PartBytes]byte

// Parse extracts the values of records.
func (s *source) Parse(g *driver.Group) error {
	slow := false
	for i, c := range s.columns {
		switch {
		case !g.Wants(i):
		case s.quick[i]:
			t := s.tracks[s.track[i]]
			c.Numbers(g, i, &s.info.Fields[i], t.held, t.valid, func(id int64, err error) error { return s.wrong(id, i, err) })
		default:
			slow = true
		}
	}
	if !slow {
		return nil
	}
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		_, parts := g.Of(k)
		for i := range s.info.Fields {
			if s.quick[i] || !g.Wants(i) {
				continue
			}
			err := s.value(g, k, i, id, &parts)
			if err == nil {
				continue
			}
			var m *driver.MemoryError
			if errors.As(err, &m) {
				return fmt.Errorf("no memory for %q of %s: %w", s.info.Fields[i].Name, s.Name(id), m.Err)
			}
			rec.Err = s.wrong(id, i, err)
			break
		}
	}
	return nil
}

// next removes and returns the first part.
func next(parts *[][]byte) []byte {
	b := (*parts)[0]
	*parts = (*parts)[1:]
	return b
}

// value sets a value of a record from the parts that Locate requested.
func (s *source) value(g *driver.Group, k, i int, id int64, parts *[][]byte) error {
	f, c := &s.info.Fields[i], s.columns[i]
	if s.files.Has(i, id) {
		of := columns.Stored{Valid: true}
		if _, size, _ := s.files.Locate(i, id); size > 0 { // checked in Locate
			of.Raw = next(parts)
		}
		return c.Make(g, k, i, f, &of)
	}
	t := s.tracks[s.track[i]]
	if t.held != nil {
		w := int64(t.leaf.Width)
		return c.Make(g, k, i, f, &columns.Stored{Raw: t.held[id*w : (id+1)*w : (id+1)*w], Valid: columns.Bit(t.valid, id)})
	}
	n, row := t.unitOf(id)
	at, ok, err := t.single(n, row, func(int64, int64, int32, bool) {})
	if err != nil {
		return err
	}
	if !ok {
		return s.unpacked(g, k, i, n, row, parts)
	}
	of := columns.Stored{Valid: at.valid}
	if at.lo < at.hi {
		if of.Raw = next(parts); at.parts.At != nil {
			src := of.Raw
			if of.Raw, err = s.take(g, k, i, at.hi-at.lo); err != nil {
				return err
			}
			scratch, _ := scratches.Get().(*[parquet.PartBytes]byte)
			if scratch == nil {
				scratch = new([parquet.PartBytes]byte)
			}
			err := at.parts.Extract(of.Raw, src, at.lo, scratch[:])
			scratches.Put(scratch)
			if err != nil {
				return fmt.Errorf("page at byte %d: %w", at.off, err)
			}
		}
	}
	return c.Make(g, k, i, f, &of)
}

// take allocates memory for a value: in the batch, or in the group for values that a decoder will read.
func (s *source) take(g *driver.Group, k, field int, n int64) (p []byte, err error) {
	switch s.info.Fields[field].Kind {
	case driver.KindImage, driver.KindMask:
		if p, err = g.Alloc(int(n)); err != nil {
			return nil, &driver.MemoryError{Err: err}
		}
		return p, nil
	}
	return g.Take(k, field, n)
}

// unpacked sets a value from a page that is decompressed as a whole.
func (s *source) unpacked(g *driver.Group, k, i, n int, row int64, parts *[][]byte) error {
	f, c, t := &s.info.Fields[i], s.columns[i], s.tracks[s.track[i]]
	u := &t.units[n]
	var dict []byte
	if u.dict >= 0 {
		dict = next(parts)
	}
	body := next(parts)
	e, err := s.cache.Get(blockcache.Key{Column: int32(s.track[i]), N: int32(n)}, func(e *blockcache.Entry) error { return s.fill(e, t, u, dict, body) })
	if err != nil {
		return err
	}
	defer s.cache.Put(e)
	p := e.What.(*parquet.Page)
	of := columns.Stored{Valid: p.Has(row), Elems: p.Elems}
	in, lo, hi := p.Range(row)
	of.Raw = in.Values[lo:hi:hi]
	if p.Elems != nil {
		of.First = p.First(row)
	}
	// The page may be evicted before the value is used, so copy it.
	switch f.Kind {
	case driver.KindInt, driver.KindFloat, driver.KindLabel:
	case driver.KindText, driver.KindBytes, driver.KindJSON, driver.KindImage, driver.KindMask, driver.KindAudio, driver.KindArray, driver.KindRagged, driver.KindTokens, driver.KindMultiLabel:
		if lo == hi || t.leaf.Width > 0 && !c.Direct(f) {
			break // empty, or copied by Make
		}
		raw, err := s.take(g, k, i, hi-lo)
		if err != nil {
			return err
		}
		copy(raw, of.Raw)
		of.Raw = raw
	}
	return c.Make(g, k, i, f, &of)
}

// fill decodes the page of a cache entry.
func (s *source) fill(e *blockcache.Entry, t *track, u *unit, dict, body []byte) error {
	d, _ := s.decoders.Get().(*parquet.Decoder)
	if d == nil {
		d = &parquet.Decoder{}
	}
	d.Leaf, d.Codec, d.Dict = t.leaf, u.codec, nil
	var err error
	if u.dict >= 0 {
		e.Other, err = s.cache.Get(blockcache.Key{Column: e.Column, N: u.dict, Dict: true}, func(e *blockcache.Entry) error {
			of := &parquet.Decoder{Leaf: t.leaf, Codec: u.codec, Alloc: e.Alloc}
			p, err := unpackDict(of, dict)
			if err != nil {
				return fmt.Errorf("page at byte %d: %w", t.dicts[u.dict].off, err)
			}
			e.What = p
			return nil
		})
		if err != nil {
			return err
		}
		d.Dict = e.Other.What.(*parquet.Page)
	}
	d.Alloc = e.Alloc
	p, err := unpack(d, body, u)
	if err != nil {
		return fmt.Errorf("page at byte %d: %w", u.off, err)
	}
	e.What = p
	d.Alloc, d.Dict = nil, nil
	if d.Small() {
		s.decoders.Put(d)
	}
	return nil
}
