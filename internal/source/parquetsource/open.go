package parquetsource

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/parquet"
	"github.com/stokerdata/stoker/store"
)

const (
	// tailBytes is the size of the first read at the end of a file. It covers most footers.
	tailBytes = 64 << 10
	// headBytes is the size of the first read of a page. It covers most headers.
	headBytes = 512
	// smallChunk is the read size while page headers are scanned.
	smallChunk = 64 << 10
	// maxIndex is the maximum size of a read of page indexes.
	maxIndex = 16 << 20
	// lookThreads is the maximum number of row groups of a file scanned concurrently.
	lookThreads = 8
)

// unit is a page, or several if a row continues in the next page.
type unit struct {
	off, size int64
	first     int64 // its first record
	rows      int32
	group     int32
	dict      int32 // dictionary of the track, -1 for none
	codec     parquet.Codec
}

// place is the position of a dictionary.
type place struct {
	off, size int64
	group     int32
}

// track is a column with values that are needed, over all files.
type track struct {
	leaf  *parquet.Leaf
	at    int // number of the leaf
	units []unit
	dicts []place
	// begin is the first unit of each row group, and the end.
	begin []int32
	// nulls is true if there may be nulls.
	nulls bool
	// plain is the decompressed size of all pages.
	plain int64
	// parts is true if single values are read if their page allows it. index and dictIndex are the known indexes of
	// units and dictionaries.
	parts     bool
	index     []atomic.Pointer[index]
	dictIndex []atomic.Pointer[index]
	// held are the values of a column of numbers in memory, valid their validity bits.
	held, valid []byte

	mu      sync.Mutex
	refused error // the first reason why it is not read, and its place
}

// refuse notes why the track is not read.
func (t *track) refuse(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused == nil {
		t.refused = err
	}
}

// group is a row group.
type group struct {
	file   int32
	number int32
	row    int64 // first row in the file
	rows   int64
}

// footer reads the metadata of a file.
func (s *source) footer(ctx context.Context, o store.Object) (*parquet.Meta, error) {
	size := o.Size()
	b := make([]byte, min(size, tailBytes))
	if err := o.ReadAt(ctx, b, size-int64(len(b))); err != nil {
		return nil, err
	}
	n, err := parquet.FooterSize(b, size)
	if err != nil {
		return nil, err
	}
	if whole := n + parquet.TailBytes; whole > int64(len(b)) {
		b = make([]byte, whole)
		if err := o.ReadAt(ctx, b, size-whole); err != nil {
			return nil, err
		}
	}
	end := int64(len(b)) - parquet.TailBytes
	return parquet.ParseMeta(b[end-n:end], size)
}

// opened is the result of scanning a file.
type opened struct {
	meta   *parquet.Meta
	groups [][]chunk // by row group and track
}

// chunk is the result of scanning a track in a row group.
type chunk struct {
	units []unit // first is relative to the row group, dict is 0 or -1
	dict  place
	nulls bool
	plain int64
}

// look finds the pages of file f.
func (s *source) look(ctx context.Context, f int, out *opened) error {
	o, err := s.list.Open(ctx, f)
	if err != nil {
		return err
	}
	defer o.Close()
	m := out.meta
	if m == nil {
		if m, err = s.footer(ctx, o); err != nil {
			return s.at(f, "", err)
		}
		if !m.Schema.Same(s.meta.Schema) {
			return fmt.Errorf("%s has different columns, %.1000s, than %s: %.1000s", s.list.Path(f), m.Schema, s.list.Path(0), s.meta.Schema)
		}
		out.meta = m
	}
	out.groups = make([][]chunk, len(m.Groups))
	for i := range out.groups {
		out.groups[i] = make([]chunk, len(s.tracks))
	}
	indexes, err := s.indexes(ctx, f, o, m)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(lookThreads)
	for i := range m.Groups {
		if m.Groups[i].Rows == 0 {
			continue
		}
		for k, t := range s.tracks {
			c := &m.Groups[i].Chunks[t.at]
			g.Go(func() error {
				to := &out.groups[i][k]
				to.nulls = t.leaf.MaxDef > 0 && c.Nulls != 0
				to.plain = c.Plain
				err := c.Supported()
				if err == nil {
					err = s.pages(gctx, o, t, c, m.Groups[i].Rows, indexes, to)
				}
				err = s.at(f, fmt.Sprintf(", row group %d, column %q", i, t.leaf.Path), err)
				if errors.Is(err, parquet.ErrUnsupported) {
					t.refuse(err)
					return nil
				}
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	m.Groups = clearChunks(m.Groups)
	return store.Check(ctx, o)
}

// clearChunks drops the metadata that is no longer needed.
func clearChunks(in []parquet.Group) []parquet.Group {
	out := make([]parquet.Group, len(in))
	for i := range in {
		out[i].Rows = in[i].Rows
	}
	return out
}

// span is a range of bytes of a file.
type span struct {
	off int64
	b   []byte
}

func (x span) of(off, n int64) []byte {
	if off < x.off || off-x.off > int64(len(x.b)) || n > int64(len(x.b))-(off-x.off) {
		return nil
	}
	return x.b[off-x.off:][:n]
}

// indexes reads the page indexes of the tracks with one read, because they are usually adjacent.
func (s *source) indexes(ctx context.Context, f int, o store.Object, m *parquet.Meta) (span, error) {
	lo, hi := int64(math.MaxInt64), int64(0)
	for i := range m.Groups {
		for _, t := range s.tracks {
			if c := &m.Groups[i].Chunks[t.at]; c.IndexBytes > 0 && m.Groups[i].Rows > 0 {
				lo, hi = min(lo, c.Index), max(hi, c.Index+c.IndexBytes)
			}
		}
	}
	if hi-lo > maxIndex || hi <= lo {
		return span{}, nil // each is read separately
	}
	out := span{lo, make([]byte, hi-lo)}
	return out, s.at(f, "", o.ReadAt(ctx, out.b, lo))
}

// pages finds the pages of a chunk.
func (s *source) pages(ctx context.Context, o store.Object, t *track, c *parquet.Chunk, rows int64, indexes span, to *chunk) error {
	to.dict.size = 0
	start := c.Start()
	if c.IndexBytes > 0 {
		b := indexes.of(c.Index, c.IndexBytes)
		if b == nil {
			b = make([]byte, c.IndexBytes)
			if err := o.ReadAt(ctx, b, c.Index); err != nil {
				return err
			}
		}
		places, err := parquet.ParseIndex(b, c, rows)
		if err != nil {
			return err
		}
		dict := int32(-1)
		if places[0].Off > start {
			to.dict, dict = place{off: start, size: places[0].Off - start}, 0
		}
		for i, p := range places {
			end := rows
			if i+1 < len(places) {
				end = places[i+1].Row
			}
			if end > p.Row {
				to.units = append(to.units, unit{off: p.Off, size: p.Bytes, first: p.Row, rows: int32(end - p.Row), dict: dict, codec: c.Codec})
			}
		}
		return nil
	}
	return s.walk(ctx, o, t, c, rows, to)
}

// seen is a page found by walk.
type seen struct {
	off, size int64
	rows      int64 // rows that begin in it
	within    bool  // it continues the last row of the previous page
	encoded   bool  // it needs the dictionary
}

// walk finds the pages by reading all page headers.
func (s *source) walk(ctx context.Context, o store.Object, t *track, c *parquet.Chunk, rows int64, to *chunk) error {
	at, end := c.Start(), c.Start()+c.Bytes
	have := span{}
	read := func(n int64) ([]byte, error) {
		n = min(n, end-at)
		if b := have.of(at, n); b != nil {
			return b, nil
		}
		have = span{at, make([]byte, max(n, min(end-at, headBytes)))}
		if end-at <= smallChunk {
			have.b = make([]byte, end-at)
		}
		if err := o.ReadAt(ctx, have.b, at); err != nil {
			return nil, err
		}
		return have.of(at, n), nil
	}
	var pages []seen
	total := int64(0)
	dec := &parquet.Decoder{Leaf: t.leaf, Codec: c.Codec, Alloc: heap}
	for at < end && total < c.Values {
		var h *parquet.Header
		for n := int64(headBytes); ; n *= 4 {
			b, err := read(min(n, parquet.MaxHeaderBytes))
			if err != nil {
				return err
			}
			if h, err = parquet.ParseHeader(b); err == nil {
				break
			}
			if !errors.Is(err, parquet.ErrShort) || n >= parquet.MaxHeaderBytes || int64(len(b)) == end-at {
				return fmt.Errorf("page at byte %d: %w", at, err)
			}
		}
		size := h.Size + h.Bytes
		if size > end-at {
			return fmt.Errorf("page at byte %d: %w: its %d bytes end after the column", at, parquet.ErrFormat, size)
		}
		switch {
		case h.IsDict() && len(pages) == 0 && to.dict.size == 0:
			to.dict = place{off: at, size: size}
		case h.IsData():
			p := seen{off: at, size: size, rows: h.Rows, encoded: h.Encoded()}
			switch {
			case h.Rows >= 0:
			case t.leaf.MaxRep == 0:
				p.rows = h.Values
			default:
				b, err := read(size)
				if err != nil {
					return err
				}
				if p.rows, p.within, err = dec.Starting(parquet.Raw{Header: h, Body: b[h.Size:size]}); err != nil {
					return fmt.Errorf("page at byte %d: %w", at, err)
				}
			}
			total += h.Values
			pages = append(pages, p)
		}
		at += size
	}
	if total != c.Values {
		return fmt.Errorf("%w: its pages have %d values, expected %d", parquet.ErrFormat, total, c.Values)
	}
	row := int64(0)
	for i, p := range pages {
		if p.rows == 0 {
			continue
		}
		u := unit{off: p.off, size: p.size, first: row, rows: int32(min(p.rows, math.MaxInt32)), dict: -1, codec: c.Codec}
		encoded := p.encoded
		for k := i + 1; k < len(pages) && pages[k].within; k++ {
			u.size = pages[k].off + pages[k].size - u.off
			if encoded = encoded || pages[k].encoded; pages[k].rows > 0 {
				break
			}
		}
		if encoded && to.dict.size > 0 {
			u.dict = 0
		}
		to.units = append(to.units, u)
		row += p.rows
	}
	if row != rows {
		return fmt.Errorf("%w: its pages have %d rows, expected %d", parquet.ErrFormat, row, rows)
	}
	return nil
}

func heap(n int) ([]byte, error) { return make([]byte, n), nil }

// join concatenates the files.
func (s *source) join(files []opened) {
	for f := range files {
		row := int64(0)
		for i := range files[f].meta.Groups {
			rows := files[f].meta.Groups[i].Rows
			if rows == 0 {
				continue
			}
			n := int32(len(s.groups))
			s.groups = append(s.groups, group{int32(f), int32(i), row, rows})
			s.first = append(s.first, s.info.Len)
			for k, t := range s.tracks {
				c := &files[f].groups[i][k]
				t.begin = append(t.begin, int32(len(t.units)))
				for _, u := range c.units {
					u.first += s.info.Len
					u.group = n
					if u.dict >= 0 {
						u.dict = int32(len(t.dicts))
					}
					t.units = append(t.units, u)
				}
				if c.dict.size > 0 {
					c.dict.group = n
					t.dicts = append(t.dicts, c.dict)
				}
				t.nulls = t.nulls || c.nulls
				t.plain += c.plain
				*c = chunk{}
			}
			s.info.Len += rows
			row += rows
		}
	}
	for _, t := range s.tracks {
		t.begin = append(t.begin, int32(len(t.units)))
		t.index = make([]atomic.Pointer[index], len(t.units))
		t.dictIndex = make([]atomic.Pointer[index], len(t.dicts))
	}
}

// at prefixes an error with the file and the position in it.
func (s *source) at(f int, what string, err error) error {
	if err == nil {
		return nil
	}
	return filelist.ErrPlace(s.list, int64(f), what, err)
}
