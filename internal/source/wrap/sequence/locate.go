package sequence

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// scratch is the working memory of Locate and Parse for one sequence.
type scratch struct {
	pieces []piece
	parts  []part
	// extents hold the pieces.
	extents []driver.Extent
	ids     []int64
	g       driver.Group // of the documents of the sequence
	whole   driver.Group // of the documents that the source must parse
	bytes   [][]byte     // by extent
	tokens  [][]byte     // by piece
}

// part describes the bytes of a piece: extents first to last, last excluded. If cut is set, the
// piece is a part of one extent and starts at offset off. Otherwise the extents are the whole
// document, which the source must parse.
type part struct {
	first, last int
	cut         bool
	off         int64
}

// Locate implements driver.Source.
func (s *Source) Locate(g *driver.Group) {
	c := s.scratch.Get().(*scratch)
	defer s.scratch.Put(c)
	for k := range g.IDs {
		if rec := &g.Records[k]; rec.Err == nil {
			if rec.Err = s.locate(c, g.IDs[k]); rec.Err == nil {
				g.Extents = append(g.Extents, c.extents...)
				for _, m := range c.g.Missing {
					g.Missing = append(g.Missing, driver.Missing{K: k, Extent: m.Extent})
				}
			}
		}
		g.Next()
	}
}

// locate finds the pieces of a sequence and their extents. Parse calls it again and gets the same
// result.
func (s *Source) locate(c *scratch, id int64) error {
	epoch, n := driver.OfEpoch(id)
	c.extents, c.parts = c.extents[:0], c.parts[:0]
	c.g.Missing = c.g.Missing[:0]
	if id < 0 || n >= s.info.Len {
		return fmt.Errorf("record %d is out of range: there are %d sequences in %s", id, s.info.Len, s.info.URL)
	}
	c.pieces = s.index.pieces(c.pieces[:0], epoch, n)
	c.ids = c.ids[:0]
	for _, p := range c.pieces {
		c.ids = append(c.ids, p.doc)
	}
	g := &c.g
	g.Want = s.want
	g.Begin(c.ids, len(s.want))
	if err := recordread.LocateOnce(s.Base, g); err != nil || len(g.Missing) > 0 {
		return err
	}
	for i, p := range c.pieces {
		if err := g.Records[i].Err; err != nil {
			return err
		}
		of := g.Extents[g.First[i]:g.First[i+1]]
		if len(of) != 1 || of[0].Field != int32(s.docs.field) {
			c.parts = append(c.parts, part{first: len(c.extents), last: len(c.extents) + len(of)})
			c.extents = append(c.extents, of...)
			continue
		}
		e := of[0]
		if whole := s.docs.length(p.doc) * s.unit; e.Size != whole {
			return fmt.Errorf("%s has %d bytes, and had %d when the source was opened: open it again", s.Base.Name(p.doc), e.Size, whole)
		}
		e.Offset += p.from * s.unit
		e.Size = (p.n + p.extra) * s.unit
		e.Field = -1
		if i > 0 && c.parts[i-1].cut {
			// Adjacent ranges become one extent.
			if l := &c.extents[len(c.extents)-1]; l.Object == e.Object && l.Offset+l.Size == e.Offset {
				c.parts = append(c.parts, part{first: len(c.extents) - 1, last: len(c.extents), cut: true, off: l.Size})
				l.Size += e.Size
				continue
			}
		}
		c.parts = append(c.parts, part{first: len(c.extents), last: len(c.extents) + 1, cut: true})
		c.extents = append(c.extents, e)
	}
	return nil
}

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error {
	c := s.scratch.Get().(*scratch)
	defer s.scratch.Put(c)
	for k := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		if rec.Err = s.locate(c, g.IDs[k]); rec.Err != nil {
			continue
		}
		_, b := g.Of(k)
		if len(b) != len(c.extents) {
			rec.Err = fmt.Errorf("internal error: %s is located in %d extents and then in %d", s.info.URL, len(b), len(c.extents))
			continue
		}
		var err error
		if rec.Err, err = s.read(c, g, b); err == nil && rec.Err == nil {
			err = s.make(c, g, k)
		}
		clear(c.tokens) // keeps no references to the bytes
		c.bytes = nil
		if err != nil {
			return err
		}
	}
	return nil
}

// read finds the tokens of the pieces. bad is an error of the sequence, err means that memory ran
// out.
func (s *Source) read(c *scratch, g *driver.Group, b [][]byte) (bad, err error) {
	c.tokens, c.bytes = c.tokens[:0], b
	for i, p := range c.pieces {
		part := &c.parts[i]
		n := (p.n + p.extra) * s.unit
		if part.cut {
			c.tokens = append(c.tokens, b[part.first][part.off:part.off+n])
			continue
		}
		w := &c.whole
		w.Want, w.Alloc, w.Place, w.Unproven = s.want, g.Alloc, nil, g.Unproven
		w.Begin(c.ids[i:i+1], len(s.want))
		w.Extents = append(w.Extents, c.extents[part.first:part.last]...)
		w.Bytes = append(w.Bytes, b[part.first:part.last]...)
		w.Next()
		if err := s.Base.Parse(w); err != nil {
			return nil, err
		}
		if err := w.Records[0].Err; err != nil {
			return err, nil
		}
		v := w.Records[0].Values[s.docs.field].Bytes
		if whole := s.docs.length(p.doc) * s.unit; int64(len(v)) != whole {
			return fmt.Errorf("%s has %d bytes, and had %d when the source was opened: open it again", s.Base.Name(p.doc), len(v), whole), nil
		}
		c.tokens = append(c.tokens, v[p.from*s.unit:][:n])
	}
	return nil, nil
}

// make makes the values of record k from its pieces.
func (s *Source) make(c *scratch, g *driver.Group, k int) error {
	rec := &g.Records[k]
	if err := s.makeTokens(c, g, k); err != nil || rec.Err != nil {
		return err
	}
	length := int(s.opt.Length)
	numbers := func(field, n int) ([]byte, error) {
		if field < 0 || !g.Wants(field) {
			return nil, nil
		}
		b, err := g.Take(k, field, int64(n))
		rec.Values[field].Bytes = b
		return b, err
	}
	positions, err := numbers(s.positions, 4*length)
	if err != nil {
		return err
	}
	ids, err := numbers(s.ids, 4*length)
	if err != nil {
		return err
	}
	mask, err := numbers(s.mask, length)
	if err != nil {
		return err
	}
	at, docs := 0, 0
	for _, p := range c.pieces {
		n := int(p.n)
		if n == 0 {
			continue
		}
		if positions != nil {
			for i, b := 0, positions[4*at:]; i < n; i++ {
				binary.LittleEndian.PutUint32(b[4*i:], uint32(i))
			}
		}
		if ids != nil {
			fill(ids[4*at:4*(at+n)], uint32(docs))
		}
		if mask != nil {
			m := mask[at : at+n]
			for i := range m {
				m[i] = 1
			}
			if s.opt.NoShift {
				m[0] = 0
			} else {
				m[n-1] = byte(p.extra)
			}
		}
		at += n
		docs++
	}
	if positions != nil {
		clear(positions[4*at:])
	}
	if ids != nil {
		fill(ids[4*at:], math.MaxUint32) // -1
	}
	if mask != nil {
		clear(mask[at:])
	}
	bounds := docs + 1
	if at < length {
		bounds++
	}
	b, err := numbers(s.bounds, 4*bounds)
	if b == nil || err != nil {
		return err
	}
	at, docs = 0, 1
	binary.LittleEndian.PutUint32(b, 0)
	for _, p := range c.pieces {
		if p.n > 0 {
			at += int(p.n)
			binary.LittleEndian.PutUint32(b[4*docs:], uint32(at))
			docs++
		}
	}
	binary.LittleEndian.PutUint32(b[4*(bounds-1):], uint32(length))
	return nil
}

func fill(b []byte, v uint32) {
	for ; len(b) > 0; b = b[4:] {
		binary.LittleEndian.PutUint32(b, v)
	}
}

// makeTokens makes the inputs, and the targets shifted by one token.
func (s *Source) makeTokens(c *scratch, g *driver.Group, k int) error {
	rec := &g.Records[k]
	input := g.Wants(s.input)
	target := s.target >= 0 && g.Wants(s.target)
	if whole, ok := s.asRead(c); ok {
		n := s.opt.Length * s.unit
		if input {
			rec.Values[s.input].Bytes = whole[:n]
		}
		if target {
			rec.Values[s.target].Bytes = whole[s.unit : s.unit+n]
		}
		return nil
	}
	size := s.to.Size()
	take := func(field int, wanted bool) ([]byte, error) {
		if !wanted {
			return nil, nil
		}
		b, err := g.Take(k, field, s.opt.Length*int64(size))
		rec.Values[field].Bytes = b
		return b, err
	}
	in, err := take(s.input, input)
	if err != nil {
		return err
	}
	out, err := take(s.target, target)
	if err != nil {
		return err
	}
	at := 0
	for i, p := range c.pieces {
		b, n := c.tokens[i], int(p.n)
		if in != nil && !convert(s.to, in[at*size:], s.from, b[:p.n*s.unit]) {
			rec.Err = fmt.Errorf("%s has a token that does not fit %s", s.Base.Name(p.doc), s.to)
			return nil
		}
		if out != nil {
			// The targets of a piece are its tokens from the second one on. Its first token is the
			// last target of the piece before it if documents follow each other.
			skip := 1
			if s.opt.Packing == Stream && at > 0 {
				skip = 0
			}
			if from := min(int64(skip)*s.unit, int64(len(b))); !convert(s.to, out[(at-1+skip)*size:], s.from, b[from:]) {
				rec.Err = fmt.Errorf("%s has a token that does not fit %s", s.Base.Name(p.doc), s.to)
				return nil
			}
			if s.opt.Packing == BestFit && p.extra == 0 {
				copy(out[(at+n-1)*size:], s.pad)
			}
		}
		at += n
	}
	for ; at < int(s.opt.Length); at++ {
		if in != nil {
			copy(in[at*size:], s.pad)
		}
		if out != nil {
			copy(out[at*size:], s.pad)
		}
	}
	return nil
}

// asRead returns the bytes of a whole sequence if they were read in one piece and need no
// conversion.
func (s *Source) asRead(c *scratch) ([]byte, bool) {
	if s.from != s.to || s.opt.Packing != Stream && len(c.pieces) > 1 {
		return nil, false
	}
	need := s.opt.Length * s.unit
	if s.target >= 0 {
		need += s.unit
	}
	b := c.tokens[0]
	if len(c.pieces) > 1 {
		// Pieces that were read as one extent are adjacent.
		for i := range c.parts {
			if p := &c.parts[i]; !p.cut || p.first > 0 {
				return nil, false
			}
		}
		b = c.bytes[0]
	}
	return b, int64(len(b)) == need
}

// put writes a token. It returns false if the type cannot hold the number.
func put(t dtype.Type, b []byte, v int64) bool {
	switch t {
	case dtype.U8:
		b[0] = byte(v)
		return v >= 0 && v <= math.MaxUint8
	case dtype.I8:
		b[0] = byte(v)
		return v >= math.MinInt8 && v <= math.MaxInt8
	case dtype.U16:
		binary.LittleEndian.PutUint16(b, uint16(v))
		return v >= 0 && v <= math.MaxUint16
	case dtype.I16:
		binary.LittleEndian.PutUint16(b, uint16(v))
		return v >= math.MinInt16 && v <= math.MaxInt16
	case dtype.U32:
		binary.LittleEndian.PutUint32(b, uint32(v))
		return v >= 0 && v <= math.MaxUint32
	case dtype.I32:
		binary.LittleEndian.PutUint32(b, uint32(v))
		return v >= math.MinInt32 && v <= math.MaxInt32
	case dtype.U64:
		binary.LittleEndian.PutUint64(b, uint64(v))
		return v >= 0
	case dtype.I64:
		binary.LittleEndian.PutUint64(b, uint64(v))
		return true
	}
	return false
}

// convert converts tokens to another type. It returns false if one does not fit.
func convert(to dtype.Type, out []byte, from dtype.Type, in []byte) bool {
	if to == from {
		copy(out, in)
		return true
	}
	size := from.Size()
	n := len(in) / size
	switch {
	case from == dtype.U16 && to == dtype.I64:
		out = out[:8*n]
		for i := 0; i < n; i++ {
			binary.LittleEndian.PutUint64(out[8*i:], uint64(binary.LittleEndian.Uint16(in[2*i:])))
		}
	case from == dtype.U16 && to == dtype.I32:
		out = out[:4*n]
		for i := 0; i < n; i++ {
			binary.LittleEndian.PutUint32(out[4*i:], uint32(binary.LittleEndian.Uint16(in[2*i:])))
		}
	case from == dtype.U32 && to == dtype.I64:
		out = out[:8*n]
		for i := 0; i < n; i++ {
			binary.LittleEndian.PutUint64(out[8*i:], uint64(binary.LittleEndian.Uint32(in[4*i:])))
		}
	default:
		wide := to.Size()
		for i := 0; i < n; i++ {
			b := in[i*size:]
			if from == dtype.U64 && from.Bits(b) > math.MaxInt64 || !put(to, out[i*wide:], from.Int(b)) {
				return false
			}
		}
	}
	return true
}
