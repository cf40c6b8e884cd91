package arrowipc

import (
	"encoding/binary"
	"math"
	"strings"
)

// Limits of what the reader accepts, far above what the writer makes.
const (
	maxColumns   = 64
	maxMetaBytes = 1 << 20
	maxRows      = 1 << 24
	maxNameBytes = 1 << 12
	maxBlocks    = 1 << 24
)

// Span is a range of bytes, counted from the beginning of a message.
type Span struct{ Off, Len int64 }

// Layout says where the columns of a record batch lie in its message. All
// spans are inside of the message; offsets have been checked to be in range
// for their lengths but not yet read.
type Layout struct {
	Rows      int
	MetaBytes int64
	BodyBytes int64
	Values    []Span
	Offsets   []Span // zero for fixed-width columns
}

// MetaSize reads the size of a message's metadata, including the eight bytes
// it is read from.
func MetaSize(prefix []byte) (int64, error) {
	if len(prefix) < 8 || binary.LittleEndian.Uint32(prefix) != continuation {
		return 0, damaged("no message begins here")
	}
	n := int64(int32(binary.LittleEndian.Uint32(prefix[4:])))
	if n <= 0 || n > maxMetaBytes || n%8 != 0 {
		return 0, damaged("message metadata of %d bytes", n)
	}
	return n + 8, nil
}

// ParseBatch reads the metadata of a record batch message that begins with b
// (which need not hold all of the body) and whose whole length is total.
func ParseBatch(b []byte, total int64, cols []Column) (*Layout, error) {
	meta, err := MetaSize(b)
	if err != nil {
		return nil, err
	}
	if meta > int64(len(b)) {
		return nil, damaged("message metadata of %d bytes in %d", meta, len(b))
	}
	f := fb{b: b[8:meta]}
	msg, ok := f.root()
	header, ok2 := f.table(msg, 2)
	if !ok || !ok2 || f.u8(msg, 1) != headerRecordBatch {
		return nil, damaged("not a record batch")
	}
	bodyBytes := f.i64(msg, 3)
	if bodyBytes < 0 || bodyBytes != total-meta {
		return nil, damaged("body of %d bytes where %d are", bodyBytes, total-meta)
	}
	rows := f.i64(header, 0)
	if rows < 0 || rows > maxRows {
		return nil, damaged("%d rows", rows)
	}
	if _, ok := f.field(header, 3, 4); ok {
		return nil, damaged("compressed, which packs never are")
	}
	nodes, nNodes, ok := f.vector(header, 1, 16)
	if !ok || nNodes != countNodes(cols) {
		return nil, damaged("%d columns where %d are expected", nNodes, countNodes(cols))
	}
	want := 0
	for i := range cols {
		c := &cols[i]
		want += c.buffers()
		expect := rows
		for range c.nodes() {
			n := int64(binary.LittleEndian.Uint64(f.b[nodes:]))
			nulls := int64(binary.LittleEndian.Uint64(f.b[nodes+8:]))
			nodes += 16
			if n != expect || nulls != 0 {
				return nil, damaged("column %s has %d rows and %d nulls, not %d and 0", c.Name, n, nulls, expect)
			}
			expect = rows * int64(c.Size) // below 2^24 x 2^31
		}
	}
	bufs, nBufs, ok := f.vector(header, 2, 16)
	if !ok || nBufs != want {
		return nil, damaged("%d buffers where %d are expected", nBufs, want)
	}
	l := &Layout{Rows: int(rows), MetaBytes: meta, BodyBytes: bodyBytes, Values: make([]Span, len(cols)), Offsets: make([]Span, len(cols))}
	k := 0
	next := func(col string, atLeast int64) (Span, error) {
		off := int64(binary.LittleEndian.Uint64(f.b[bufs+16*k:]))
		n := int64(binary.LittleEndian.Uint64(f.b[bufs+16*k+8:]))
		k++
		if off < 0 || n < 0 || off > bodyBytes || n > bodyBytes-off {
			return Span{}, damaged("column %s lies outside of its record batch", col)
		}
		if n < atLeast {
			return Span{}, damaged("column %s has %d bytes and needs %d", col, n, atLeast)
		}
		return Span{meta + off, n}, nil
	}
	for i := range cols {
		c := &cols[i]
		for range c.nodes() {
			if _, err := next(c.Name, 0); err != nil {
				return nil, err
			}
		}
		if w := c.OffsetWidth(); w > 0 {
			if l.Offsets[i], err = next(c.Name, w*(rows+1)); err != nil {
				return nil, err
			}
		}
		if w := c.Width(); w > 0 && rows > bodyBytes/w {
			return nil, damaged("column %s: %d rows of %d bytes in %d", c.Name, rows, w, bodyBytes)
		}
		if l.Values[i], err = next(c.Name, c.Width()*rows); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// CheckOffsets checks the offsets of a UTF8 or Binary column against the size
// of its values: they must begin at 0 or above, never fall, and end inside.
func CheckOffsets(offsets []byte, rows int, valueBytes int64) error {
	if len(offsets) < 4*(rows+1) {
		return damaged("%d bytes of offsets for %d rows", len(offsets), rows)
	}
	last := uint32(0)
	for i := 0; i <= rows; i++ {
		v := binary.LittleEndian.Uint32(offsets[4*i:])
		if v < last || v > math.MaxInt32 {
			return damaged("offset %d of row %d after %d", int32(v), i, last)
		}
		last = v
	}
	if int64(last) > valueBytes {
		return damaged("values end at %d of %d", last, valueBytes)
	}
	return nil
}

// CheckLargeOffsets is CheckOffsets for a LargeBinary column.
func CheckLargeOffsets(offsets []byte, rows int, valueBytes int64) error {
	if len(offsets) < 8*(rows+1) {
		return damaged("%d bytes of offsets for %d rows", len(offsets), rows)
	}
	last := uint64(0)
	for i := 0; i <= rows; i++ {
		v := binary.LittleEndian.Uint64(offsets[8*i:])
		if v < last || v > math.MaxInt64 {
			return damaged("offset %d of row %d after %d", int64(v), i, last)
		}
		last = v
	}
	if last > uint64(valueBytes) {
		return damaged("values end at %d of %d", last, valueBytes)
	}
	return nil
}

// ParseHeader reads magic and schema from the beginning of a file. b must hold
// all of it; HeaderLimit bytes always do.
func ParseHeader(b []byte) ([]Column, error) {
	if len(b) < 16 || string(b[:6]) != Magic {
		return nil, damaged("not an Arrow file")
	}
	meta, err := MetaSize(b[8:])
	if err != nil {
		return nil, err
	}
	if meta+8 > int64(len(b)) {
		return nil, damaged("the schema ends behind the file")
	}
	f := fb{b: b[16 : 8+meta]}
	msg, ok := f.root()
	schema, ok2 := f.table(msg, 2)
	if !ok || !ok2 || f.u8(msg, 1) != headerSchema {
		return nil, damaged("no schema")
	}
	return f.schema(schema)
}

// HeaderLimit is more than any header of a shard needs.
const HeaderLimit = maxMetaBytes + 16

// ParseFooter reads the footer from the tail of a file, which must hold all of
// it, and whose whole size is fileBytes.
func ParseFooter(tail []byte, fileBytes int64) ([]Column, []Block, error) {
	n, err := FooterSize(tail, fileBytes)
	if err != nil {
		return nil, nil, err
	}
	if n > int64(len(tail)) {
		return nil, nil, damaged("footer of %d bytes in %d", n, len(tail))
	}
	f := fb{b: tail[int64(len(tail))-n : len(tail)-10]}
	root, ok := f.root()
	schema, ok2 := f.table(root, 1)
	if !ok || !ok2 {
		return nil, nil, damaged("footer without a schema")
	}
	cols, err := f.schema(schema)
	if err != nil {
		return nil, nil, err
	}
	vec, count, ok := f.vector(root, 3, 24)
	if !ok || count > maxBlocks {
		return nil, nil, damaged("footer without a list of record batches")
	}
	blocks := make([]Block, count)
	for i := range blocks {
		p := f.b[vec+24*i:]
		blocks[i] = Block{
			Offset:    int64(binary.LittleEndian.Uint64(p)),
			MetaBytes: int32(binary.LittleEndian.Uint32(p[8:])),
			BodyBytes: int64(binary.LittleEndian.Uint64(p[16:])),
		}
	}
	return cols, blocks, nil
}

// FooterSize is the size of the footer with the ten bytes behind it, read from
// the last ten bytes of a file.
func FooterSize(tail []byte, fileBytes int64) (int64, error) {
	if len(tail) < 10 || string(tail[len(tail)-6:]) != Magic {
		return 0, damaged("no Arrow footer at the end: the file is cut off or not an Arrow file")
	}
	n := int64(int32(binary.LittleEndian.Uint32(tail[len(tail)-10:])))
	if n <= 0 || n+10 > fileBytes || n > maxBlocks*24+maxMetaBytes {
		return 0, damaged("footer of %d bytes", n)
	}
	return n + 10, nil
}

// fb reads FlatBuffers with every access checked. Positions are offsets in b.
type fb struct{ b []byte }

func (f fb) u32at(p int) (uint32, bool) {
	if p < 0 || p > len(f.b)-4 {
		return 0, false
	}
	return binary.LittleEndian.Uint32(f.b[p:]), true
}

func (f fb) root() (int, bool) { return f.follow(0) }

// follow follows the unsigned offset stored at p.
func (f fb) follow(p int) (int, bool) {
	v, ok := f.u32at(p)
	if !ok || int64(v) > int64(len(f.b)) {
		return 0, false
	}
	t := p + int(v)
	return t, t <= len(f.b)-4
}

// field returns the position of slot i of the table at t, whose value has the
// given size; false when the table does not have it.
func (f fb) field(t, i, size int) (int, bool) {
	s, ok := f.u32at(t)
	if !ok {
		return 0, false
	}
	vt := t - int(int32(s))
	if vt < 0 || vt > len(f.b)-4 {
		return 0, false
	}
	n := int(binary.LittleEndian.Uint16(f.b[vt:]))
	e := 4 + 2*i
	if e+2 > n || vt+e+2 > len(f.b) {
		return 0, false
	}
	o := int(binary.LittleEndian.Uint16(f.b[vt+e:]))
	if o == 0 || t+o > len(f.b)-size {
		return 0, false
	}
	return t + o, true
}

func (f fb) u8(t, i int) uint8 {
	if p, ok := f.field(t, i, 1); ok {
		return f.b[p]
	}
	return 0
}

func (f fb) i32(t, i int) int32 {
	if p, ok := f.field(t, i, 4); ok {
		return int32(binary.LittleEndian.Uint32(f.b[p:]))
	}
	return 0
}

func (f fb) i16(t, i int) int16 {
	if p, ok := f.field(t, i, 2); ok {
		return int16(binary.LittleEndian.Uint16(f.b[p:]))
	}
	return 0
}

func (f fb) i64(t, i int) int64 {
	if p, ok := f.field(t, i, 8); ok {
		return int64(binary.LittleEndian.Uint64(f.b[p:]))
	}
	return 0
}

func (f fb) table(t, i int) (int, bool) {
	p, ok := f.field(t, i, 4)
	if !ok {
		return 0, false
	}
	return f.follow(p)
}

// vector returns the position of the first element and the number of elements
// of a vector whose elements have the given size.
func (f fb) vector(t, i, size int) (int, int, bool) {
	p, ok := f.table(t, i)
	if !ok {
		return 0, 0, false
	}
	n, _ := f.u32at(p)
	if int64(n)*int64(size) > int64(len(f.b)-p-4) {
		return 0, 0, false
	}
	return p + 4, int(n), true
}

func (f fb) schema(t int) ([]Column, error) {
	vec, n, ok := f.vector(t, 1, 4)
	if !ok || n > maxColumns {
		return nil, damaged("schema of %d columns", n)
	}
	cols := make([]Column, n)
	for i := range cols {
		field, ok := f.follow(vec + 4*i)
		if !ok {
			return nil, damaged("schema, column %d", i)
		}
		name, ln, ok := f.vector(field, 0, 1)
		if !ok || ln > maxNameBytes {
			return nil, damaged("schema, name of column %d", i)
		}
		cols[i].Name = string(f.b[name : name+ln])
		cols[i].Type = f.typeOf(field)
		if cols[i].Type == FixedList && !f.tensor(field, &cols[i]) {
			return nil, damaged("schema, column %s is a list that packs do not use", cols[i].Name)
		}
		if cols[i].Type == 0 {
			return nil, damaged("schema, column %s has a type that packs do not use", cols[i].Name)
		}
	}
	return cols, nil
}

// typeOf is the type of a field, 0 for one that packs do not use.
func (f fb) typeOf(field int) Type {
	typ, _ := f.table(field, 3)
	kind := f.u8(field, 2)
	switch kind {
	case typeUTF8:
		return UTF8
	case typeBinary:
		return Binary
	case typeLargeBinary:
		return LargeBinary
	case typeFixedList:
		return FixedList
	}
	for t := range typeNames {
		k, signed := t.number()
		switch {
		case t.Width() == 0 || k != kind:
		case kind == typeInt && f.i32(typ, 0) == int32(8*t.Width()) && (f.u8(typ, 1) != 0) == signed:
			return t
		case kind == typeFloat && f.i16(typ, 0) == int16(t.Width()/4):
			return t
		}
	}
	return 0
}

// tensor reads elements and shape of a field of the type FixedList.
func (f fb) tensor(field int, c *Column) bool {
	typ, ok := f.table(field, 3)
	children, n, ok2 := f.vector(field, 5, 4)
	if !ok || !ok2 || n != 1 {
		return false
	}
	child, ok := f.follow(children)
	if !ok {
		return false
	}
	c.Size, c.Elem = f.i32(typ, 0), f.typeOf(child)
	if c.Size < 1 || c.Elem.Width() == 0 {
		return false
	}
	meta, n, ok := f.vector(field, 6, 4)
	if !ok || n > maxColumns {
		return false
	}
	for i := range n {
		pair, ok := f.follow(meta + 4*i)
		if !ok {
			return false
		}
		k, kn, ok := f.vector(pair, 0, 1)
		v, vn, ok2 := f.vector(pair, 1, 1)
		if !ok || !ok2 || vn > maxNameBytes {
			return false
		}
		if string(f.b[k:k+kn]) == "ARROW:extension:metadata" {
			text := string(f.b[v : v+vn])
			text, ok := strings.CutPrefix(text, `{"shape":`)
			text, ok2 := strings.CutSuffix(text, "}")
			c.Shape = text
			return ok && ok2
		}
	}
	return false
}
