package arrowipc

import (
	"encoding/binary"
	"math"
	"runtime"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/stokerdata/stoker/internal/arrowipc/flatbuf"
)

// Limits of what the reader accepts, far above what the writer makes.
const (
	maxColumns   = 1 << 10
	maxChildren  = 1 << 12 // of all columns together
	maxDepth     = 40
	maxMetaBytes = 1 << 20
	maxPairs     = 1 << 6
	maxRows      = 1 << 24
	maxNameBytes = 1 << 12
	maxBlocks    = 1 << 24
)

// Guard calls read, in which generated code looks into bytes from anywhere. It
// indexes slices without looking at offsets first, so that an offset that leads
// outside ends in a panic of Go's own checks: that is damage, found.
func Guard(what string, read func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(runtime.Error); !ok {
				panic(p)
			}
			err = damaged("%s: an offset leads outside of it", what)
		}
	}()
	return read()
}

// Layout says where the leaves of a record batch lie in its message. All spans
// are inside of the message; offsets have been checked to be as many as there
// are rows but not yet read.
type Layout struct {
	Rows      int
	MetaBytes int64
	BodyBytes int64
	Leaves    []Place
}

// Place is where a leaf lies.
type Place struct {
	Offsets Span // zero for a leaf without
	Values  Span
	// Items is the number of rows, or of what the offsets count.
	Items int64
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
func ParseBatch(b []byte, total int64, cols []ColumnType) (*Layout, error) {
	meta, err := MetaSize(b)
	if err != nil {
		return nil, err
	}
	if meta > int64(len(b)) {
		return nil, damaged("message metadata of %d bytes in %d", meta, len(b))
	}
	l := &Layout{MetaBytes: meta, BodyBytes: total - meta}
	return l, Guard("message metadata", func() error { return l.parse(b[8:meta], cols) })
}

func (l *Layout) parse(b []byte, cols []ColumnType) error {
	msg := flatbuf.GetRootAsMessage(b, 0)
	var t flatbuffers.Table
	if msg.HeaderType() != flatbuf.MessageHeaderRecordBatch || !msg.Header(&t) {
		return damaged("not a record batch")
	}
	batch := new(flatbuf.RecordBatch)
	batch.Init(t.Bytes, t.Pos)
	if n := msg.BodyLength(); n < 0 || n != l.BodyBytes {
		return damaged("body of %d bytes where %d are", n, l.BodyBytes)
	}
	rows := batch.Length()
	if rows < 0 || rows > maxRows {
		return damaged("%d rows", rows)
	}
	if batch.Compression(nil) != nil {
		return damaged("compressed, which packs never are")
	}
	l.Rows = int(rows)
	w := walker{l: l, batch: batch}
	for i := range cols {
		if err := w.column(&cols[i], cols[i].Name, rows); err != nil {
			return err
		}
	}
	if n := batch.NodesLength(); n != w.node {
		return damaged("%d columns where %d are expected", n, w.node)
	}
	if n := batch.BuffersLength(); n != w.buffer {
		return damaged("%d buffers where %d are expected", n, w.buffer)
	}
	return nil
}

// walker goes through the nodes and buffers of a record batch.
type walker struct {
	l            *Layout
	batch        *flatbuf.RecordBatch
	node, buffer int
	offsets      Span // of the list around the elements that are walked
}

func (w *walker) column(c *ColumnType, name string, rows int64) error {
	var node flatbuf.FieldNode
	if !w.batch.Nodes(&node, w.node) || w.node >= w.batch.NodesLength() {
		return damaged("%d columns are too few", w.node)
	}
	w.node++
	n := node.Length()
	if rows >= 0 && n != rows || node.NullCount() != 0 || n < 0 {
		return damaged("column %s has %d rows and %d nulls, not %d and 0", name, n, node.NullCount(), rows)
	}
	if _, err := w.next(name, 0); err != nil { // validity
		return err
	}
	var offsets Span
	var err error
	if width := c.Type.offsetWidth(); width > 0 {
		if offsets, err = w.next(name, width*(n+1)); err != nil {
			return err
		}
	}
	switch c.Type {
	case Struct:
		for i := range c.Children {
			if err := w.column(&c.Children[i], name+"."+c.Children[i].Name, n); err != nil {
				return err
			}
		}
		return nil
	case FixedList:
		if n > math.MaxInt64/int64(c.Size)/8 {
			return damaged("column %s: %d rows of %d elements", name, n, c.Size)
		}
		err := w.column(&c.Children[0], name, n*int64(c.Size))
		w.items(n)
		return err
	case List, LargeList:
		w.offsets = offsets
		err := w.column(&c.Children[0], name, -1)
		w.offsets = Span{}
		return err
	}
	at := Place{Offsets: offsets, Items: n}
	if w.offsets != (Span{}) {
		at.Offsets = w.offsets
	}
	width := int64(c.Type.Width())
	if width > 0 && n > w.l.BodyBytes/width {
		return damaged("column %s: %d values of %d bytes in %d", name, n, width, w.l.BodyBytes)
	}
	if at.Values, err = w.next(name, n*width); err != nil {
		return err
	}
	if width == 0 {
		at.Items = at.Values.Len
	}
	w.l.Leaves = append(w.l.Leaves, at)
	return nil
}

// items sets the number of items of the leaf that was walked last: rows of a
// list of one size count, and not what they consist of.
func (w *walker) items(n int64) {
	if k := len(w.l.Leaves); k > 0 {
		w.l.Leaves[k-1].Items = n
	}
}

// next takes the next buffer.
func (w *walker) next(name string, atLeast int64) (Span, error) {
	var buf flatbuf.Buffer
	if w.buffer >= w.batch.BuffersLength() || !w.batch.Buffers(&buf, w.buffer) {
		return Span{}, damaged("%d buffers are too few", w.buffer)
	}
	w.buffer++
	off, n := buf.Offset(), buf.Length()
	if off < 0 || n < 0 || off > w.l.BodyBytes || n > w.l.BodyBytes-off {
		return Span{}, damaged("column %s lies outside of its record batch", name)
	}
	if n < atLeast {
		return Span{}, damaged("column %s has %d bytes and needs %d", name, n, atLeast)
	}
	return Span{w.l.MetaBytes + off, n}, nil
}

// CheckOffsets checks the offsets of a leaf, each of width bytes: they must
// begin at 0 or above, never fall, and count no more than the items there are.
func CheckOffsets(offsets []byte, width int64, rows int, items int64) error {
	if int64(len(offsets)) < width*int64(rows+1) {
		return damaged("%d bytes of offsets for %d rows", len(offsets), rows)
	}
	last := uint64(0)
	for i := 0; i <= rows; i++ {
		var v uint64
		if width == 4 {
			v = uint64(binary.LittleEndian.Uint32(offsets[4*i:]))
		} else {
			v = binary.LittleEndian.Uint64(offsets[8*i:])
		}
		if v < last || width == 4 && v > math.MaxInt32 {
			return damaged("offset %d of row %d after %d", int64(v), i, last)
		}
		last = v
	}
	if last > uint64(items) {
		return damaged("values end at %d of %d", last, items)
	}
	return nil
}

// HeaderLimit is more than any header of a shard needs.
const HeaderLimit = maxMetaBytes + 16

// ParseHeader reads magic and schema from the beginning of a file. b must hold
// all of it; HeaderLimit bytes always do.
func ParseHeader(b []byte) (cols []ColumnType, err error) {
	if len(b) < 16 || string(b[:6]) != Magic {
		return nil, damaged("not an Arrow file")
	}
	meta, err := MetaSize(b[8:])
	if err != nil {
		return nil, err
	}
	if meta+8 > int64(len(b)) {
		return nil, damaged("the schema ends after the end of the file")
	}
	err = Guard("schema", func() error {
		msg := flatbuf.GetRootAsMessage(b[16:8+meta], 0)
		var t flatbuffers.Table
		if msg.HeaderType() != flatbuf.MessageHeaderSchema || !msg.Header(&t) {
			return damaged("no schema")
		}
		schema := new(flatbuf.Schema)
		schema.Init(t.Bytes, t.Pos)
		cols, err = parseSchema(schema)
		return err
	})
	return cols, err
}

// ParseFooter reads the footer from the tail of a file, which must hold all of
// it, and whose whole size is fileBytes.
func ParseFooter(tail []byte, fileBytes int64) (cols []ColumnType, blocks []Block, err error) {
	n, err := FooterSize(tail, fileBytes)
	if err != nil {
		return nil, nil, err
	}
	if n > int64(len(tail)) {
		return nil, nil, damaged("footer of %d bytes in %d", n, len(tail))
	}
	b := tail[int64(len(tail))-n : len(tail)-10]
	err = Guard("footer", func() error {
		footer := flatbuf.GetRootAsFooter(b, 0)
		schema := footer.Schema(nil)
		if schema == nil {
			return damaged("footer without a schema")
		}
		if cols, err = parseSchema(schema); err != nil {
			return err
		}
		count := footer.RecordBatchesLength()
		if count > maxBlocks || 24*count > len(b) {
			return damaged("footer with a list of %d record batches", count)
		}
		blocks = make([]Block, count)
		var block flatbuf.Block
		for i := range blocks {
			footer.RecordBatches(&block, i)
			blocks[i] = Block{Offset: block.Offset(), MetaBytes: block.MetaDataLength(), BodyBytes: block.BodyLength()}
		}
		return nil
	})
	return cols, blocks, err
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

func parseSchema(s *flatbuf.Schema) ([]ColumnType, error) {
	n := s.FieldsLength()
	if n > maxColumns {
		return nil, damaged("schema of %d columns", n)
	}
	left := maxChildren
	cols := make([]ColumnType, n)
	for i := range cols {
		var f flatbuf.Field
		s.Fields(&f, i)
		if err := parseField(&f, &cols[i], maxDepth, &left); err != nil {
			return nil, err
		}
	}
	_, err := Leaves(cols)
	return cols, err
}

// parseField reads a field; left bounds the number of fields of the schema.
func parseField(f *flatbuf.Field, c *ColumnType, depth int, left *int) error {
	if *left--; *left < 0 || depth == 0 {
		return damaged("schema of too many columns within columns")
	}
	name := f.Name()
	if len(name) > maxNameBytes {
		return damaged("schema, column with a name of %d bytes", len(name))
	}
	c.Name = string(name)
	if !parseType(f, c) {
		return damaged("schema, column %s has a type that packs do not use", c.Name)
	}
	children := f.ChildrenLength()
	switch c.Type {
	case Struct:
	case List, LargeList, FixedList:
		if children != 1 {
			return damaged("schema, column %s is a list of %d kinds of elements", c.Name, children)
		}
	default:
		if children != 0 {
			return damaged("schema, column %s has %d columns within it", c.Name, children)
		}
	}
	if children > *left {
		return damaged("schema, column %s has %d columns within it", c.Name, children)
	}
	for i := range children {
		var child flatbuf.Field
		var out ColumnType
		f.Children(&child, i)
		if err := parseField(&child, &out, depth-1, left); err != nil {
			return err
		}
		c.Children = append(c.Children, out)
	}
	pairs := f.CustomMetadataLength()
	if pairs > maxPairs {
		return damaged("schema, column %s has %d entries of metadata", c.Name, pairs)
	}
	for i := range pairs {
		var kv flatbuf.KeyValue
		f.CustomMetadata(&kv, i)
		k, v := kv.Key(), kv.Value()
		if len(k) > maxNameBytes || len(v) > maxNameBytes {
			return damaged("schema, column %s has metadata of %d bytes", c.Name, len(v))
		}
		c.Meta = append(c.Meta, KeyValue{string(k), string(v)})
	}
	return nil
}

// parseType reads the type of a field, false for one that packs do not use.
func parseType(f *flatbuf.Field, c *ColumnType) bool {
	var t flatbuffers.Table
	if !f.Type(&t) {
		return false
	}
	switch f.TypeType() {
	case flatbuf.TypeUtf8:
		c.Type = UTF8
	case flatbuf.TypeBinary:
		c.Type = Binary
	case flatbuf.TypeLargeUtf8:
		c.Type = LargeUTF8
	case flatbuf.TypeLargeBinary:
		c.Type = LargeBinary
	case flatbuf.TypeList:
		c.Type = List
	case flatbuf.TypeLargeList:
		c.Type = LargeList
	case flatbuf.TypeStruct_:
		c.Type = Struct
	case flatbuf.TypeFixedSizeList:
		var list flatbuf.FixedSizeList
		list.Init(t.Bytes, t.Pos)
		if c.Size = list.ListSize(); c.Size > 0 {
			c.Type = FixedList
		}
	case flatbuf.TypeFloatingPoint:
		var number flatbuf.FloatingPoint
		number.Init(t.Bytes, t.Pos)
		for _, want := range []Type{Float16, Float32, Float64} {
			if number.Precision() == precision(want) {
				c.Type = want
			}
		}
	case flatbuf.TypeInt:
		var number flatbuf.Int
		number.Init(t.Bytes, t.Pos)
		for want := Int8; want <= Uint64; want++ {
			if number.BitWidth() == int32(8*want.Width()) && number.IsSigned() == (want <= Int64) {
				c.Type = want
			}
		}
	}
	return c.Type != 0
}
