package arrowsource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/internal/arrowipc/flatbuf"
	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/source/driver"
)

// Limits of metadata.
const (
	maxMetaBytes   = 16 << 20 // of a message
	maxFooterBytes = 64 << 20
	maxNodes       = 1 << 14 // columns, including nested ones
	maxDepth       = 40
	maxRows        = 1 << 40 // of a record batch
	maxListSize    = 1 << 30
	maxName        = 4 << 10
	blockBytes     = 24 // size of an entry in the footer's list of record batches
)

func damaged(format string, a ...any) error {
	return fmt.Errorf("%w: %s", arrowipc.ErrFormat, fmt.Sprintf(format, a...))
}

// schema describes the columns of a file.
type schema struct {
	columns []*columns.Node
	nodes   int
	buffers int
	// features is the metadata of `datasets` about the columns, "" for none.
	features string
}

// String returns the columns with their types, for comparison.
func (s *schema) String() string {
	var out []string
	for _, n := range s.columns {
		out = append(out, fmt.Sprintf("%q: %s", n.Name, n.Typ))
	}
	return strings.Join(out, ", ")
}

// span is a range of bytes of a file.
type span struct{ off, size int64 }

// batch is the metadata of a record batch. Its spans are relative to the body and within it.
type batch struct {
	rows    int64
	nodes   []struct{ rows, nulls int64 }
	buffers []span
	codec   codec
}

// messageSize returns the size of a message's metadata including the eight bytes before it. It is 0 for the end
// marker of a stream.
func messageSize(prefix []byte) (int64, error) {
	if len(prefix) < 8 || binary.LittleEndian.Uint32(prefix) != 0xFFFFFFFF {
		return 0, damaged("expected a message")
	}
	n := int64(int32(binary.LittleEndian.Uint32(prefix[4:])))
	if n < 0 || n > maxMetaBytes {
		return 0, damaged("metadata of %d bytes, the limit is %d", n, maxMetaBytes)
	}
	if n == 0 {
		return 0, nil
	}
	return n + 8, nil
}

// message is the metadata of a message without the eight bytes before it.
type message struct {
	kind   flatbuf.MessageHeader
	body   int64
	header flatbuffers.Table
}

func readMessage(b []byte) (m message, err error) {
	if len(b) < 8 {
		return m, damaged("metadata of %d bytes", len(b))
	}
	err = arrowipc.Guard("metadata", func() error {
		msg := flatbuf.GetRootAsMessage(b, 0)
		m.kind, m.body = msg.HeaderType(), msg.BodyLength()
		if !msg.Header(&m.header) {
			return damaged("a message has no header")
		}
		if m.body < 0 {
			return damaged("a body of %d bytes", m.body)
		}
		return nil
	})
	return m, err
}

// parseSchemaMessage parses the first message of a stream.
func parseSchemaMessage(b []byte) (*schema, error) {
	m, err := readMessage(b)
	if err != nil {
		return nil, err
	}
	if m.kind != flatbuf.MessageHeaderSchema {
		return nil, damaged("it does not begin with a schema")
	}
	var s *schema
	err = arrowipc.Guard("schema", func() error {
		in := new(flatbuf.Schema)
		in.Init(m.header.Bytes, m.header.Pos)
		s, err = parseSchema(in)
		return err
	})
	return s, err
}

// parseFooter parses a footer: the schema, and the positions of the record batches.
func parseFooter(b []byte) (s *schema, blocks []arrowipc.Block, err error) {
	if len(b) < 8 {
		return nil, nil, damaged("a footer of %d bytes", len(b))
	}
	err = arrowipc.Guard("footer", func() error {
		footer := flatbuf.GetRootAsFooter(b, 0)
		in := footer.Schema(nil)
		if in == nil {
			return damaged("a footer without a schema")
		}
		if s, err = parseSchema(in); err != nil {
			return err
		}
		count := footer.RecordBatchesLength()
		if count < 0 || count > len(b)/blockBytes {
			return damaged("a footer with a list of %d record batches", count)
		}
		blocks = make([]arrowipc.Block, count)
		var block flatbuf.Block
		for i := range blocks {
			footer.RecordBatches(&block, i)
			blocks[i] = arrowipc.Block{Offset: block.Offset(), MetaBytes: block.MetaDataLength(), BodyBytes: block.BodyLength()}
		}
		return nil
	})
	return s, blocks, err
}

func parseSchema(in *flatbuf.Schema) (*schema, error) {
	if in.Endianness() != flatbuf.EndiannessLittle {
		return nil, errors.New("its numbers are big-endian, which is not read")
	}
	s := &schema{}
	n := in.FieldsLength()
	if n < 1 || n > maxNodes {
		return nil, damaged("a schema of %d columns", n)
	}
	for i := range n {
		var f flatbuf.Field
		in.Fields(&f, i)
		c, err := s.field(&f, maxDepth)
		if err != nil {
			return nil, err
		}
		s.columns = append(s.columns, c)
	}
	for i := range min(in.CustomMetadataLength(), maxNodes) {
		var kv flatbuf.KeyValue
		in.CustomMetadata(&kv, i)
		if string(kv.Key()) == "huggingface" {
			s.features = string(kv.Value())
		}
	}
	return s, nil
}

// field parses a column, and counts its nodes and buffers.
func (s *schema) field(f *flatbuf.Field, depth int) (*columns.Node, error) {
	if s.nodes == maxNodes || depth == 0 {
		return nil, damaged("a schema of more than %d columns, or %d within each other", maxNodes, maxDepth)
	}
	if len(f.Name()) > maxName {
		return nil, damaged("a column with a name of %d bytes", len(f.Name()))
	}
	n := &columns.Node{Name: driver.ValidName(string(f.Name())), At: s.nodes, Buffer: s.buffers}
	s.nodes++
	buffers, ok := describe(n, f)
	if !ok {
		return nil, fmt.Errorf("column %q has the type %s, which is not read: write the file without such columns", n.Name, n.Typ)
	}
	s.buffers += buffers
	if f.Dictionary(nil) != nil {
		// The record batches have dictionary indexes instead of the values.
		s.buffers += 2 - buffers
		n.Class, n.Typ = columns.Other, "dictionary<"+n.Typ+">"
		return n, nil
	}
	children := f.ChildrenLength()
	if children > maxNodes-s.nodes {
		return nil, damaged("column %q has %d columns within it", n.Name, children)
	}
	if (n.Class == columns.List || n.Class == columns.FixedList) && children != 1 {
		return nil, damaged("column %q is a list of %d kinds of elements", n.Name, children)
	}
	var types []string
	long := 0
	for i := range children {
		var child flatbuf.Field
		f.Children(&child, i)
		c, err := s.field(&child, depth-1)
		if err != nil {
			return nil, err
		}
		n.Children = append(n.Children, c)
		switch long += len(c.Name) + len(c.Typ); {
		case long > 2*maxName:
		case n.Class == columns.List || n.Class == columns.FixedList:
			types = append(types, c.Typ)
		default:
			types = append(types, c.Name+": "+c.Typ)
		}
	}
	if children > 0 {
		n.Typ += "<" + strings.Join(types, ", ") + ">"
	}
	if n.Class == columns.FixedList {
		n.Typ += fmt.Sprintf("[%d]", n.Size)
	}
	if len(n.Typ) > maxName {
		n.Typ = n.Typ[:maxName] // a hostile schema can nest types deeply
	}
	return n, nil
}

// layout describes how the values of a type are stored. Its number of buffers is without those of its children.
type layout struct {
	class   columns.Class
	name    string
	wide    bool
	buffers int
}

// layouts has the types without parameters that matter here.
var layouts = map[flatbuf.Type]layout{
	flatbuf.TypeNull:            {columns.Nothing, "null", false, 0},
	flatbuf.TypeBool:            {columns.Boolean, "bool", false, 2},
	flatbuf.TypeUtf8:            {columns.Text, "utf8", false, 3},
	flatbuf.TypeLargeUtf8:       {columns.Text, "large_utf8", true, 3},
	flatbuf.TypeBinary:          {columns.Binaries, "binary", false, 3},
	flatbuf.TypeLargeBinary:     {columns.Binaries, "large_binary", true, 3},
	flatbuf.TypeList:            {columns.List, "list", false, 2},
	flatbuf.TypeLargeList:       {columns.List, "large_list", true, 2},
	flatbuf.TypeFixedSizeList:   {columns.FixedList, "fixed_size_list", false, 1},
	flatbuf.TypeStruct_:         {columns.Structs, "struct", false, 1},
	flatbuf.TypeMap:             {columns.Other, "map", false, 2},
	flatbuf.TypeDecimal:         {columns.Other, "decimal", false, 2},
	flatbuf.TypeInterval:        {columns.Other, "interval", false, 2},
	flatbuf.TypeFixedSizeBinary: {columns.Other, "fixed_size_binary", false, 2},
}

// describe sets the type of a column and returns the number of its buffers, without those of its children. ok is
// false for types whose number of buffers is unknown.
func describe(n *columns.Node, f *flatbuf.Field) (buffers int, ok bool) {
	var t flatbuffers.Table
	if !f.Type(&t) {
		n.Typ = "nothing"
		return 0, false
	}
	if n.DType, n.Typ = number(f.TypeType(), &t); n.DType != "" {
		n.Class = columns.Number
		return 2, true
	}
	if n.Typ != "" {
		return 0, false
	}
	if f.TypeType() == flatbuf.TypeFixedSizeList {
		var in flatbuf.FixedSizeList
		in.Init(t.Bytes, t.Pos)
		n.Size = int64(in.ListSize())
		if n.Size < 1 || n.Size > maxListSize {
			n.Typ = fmt.Sprintf("fixed_size_list of %d elements", n.Size)
			return 0, false
		}
	}
	l, ok := layouts[f.TypeType()]
	if !ok {
		n.Typ = typeName(f.TypeType())
		return 0, false
	}
	n.Class, n.Typ, n.Wide = l.class, l.name, l.wide
	return l.buffers, true
}

// number returns the element type and the name of a type of numbers. A type that is not supported has no element type,
// and a type of other values no name either.
func number(typ flatbuf.Type, t *flatbuffers.Table) (d driver.DType, name string) {
	switch typ {
	case flatbuf.TypeInt:
		var in flatbuf.Int
		in.Init(t.Bytes, t.Pos)
		if name = fmt.Sprintf("int%d", in.BitWidth()); !in.IsSigned() {
			name = "u" + name
		}
		if d = driver.DType(name); d.Size() == 0 {
			d = ""
		}
		return d, name
	case flatbuf.TypeFloatingPoint:
		var in flatbuf.FloatingPoint
		in.Init(t.Bytes, t.Pos)
		switch in.Precision() {
		case flatbuf.PrecisionHALF:
			return driver.Float16, "halffloat"
		case flatbuf.PrecisionSINGLE:
			return driver.Float32, "float"
		case flatbuf.PrecisionDOUBLE:
			return driver.Float64, "double"
		}
	case flatbuf.TypeTimestamp:
		return driver.Int64, "timestamp"
	case flatbuf.TypeDuration:
		return driver.Int64, "duration"
	case flatbuf.TypeDate: // the generated code does not cover the units of days and times
		if o := t.Offset(4); o != 0 && t.GetInt16(t.Pos+flatbuffers.UOffsetT(o)) == 0 { // days
			return driver.Int32, "date32"
		}
		return driver.Int64, "date64"
	case flatbuf.TypeTime:
		if o := t.Offset(6); o != 0 && t.GetInt32(t.Pos+flatbuffers.UOffsetT(o)) == 64 { // bits
			return driver.Int64, "time64"
		}
		return driver.Int32, "time32"
	}
	return "", ""
}

// typeName returns the name of an unsupported type.
func typeName(t flatbuf.Type) string {
	switch t {
	case flatbuf.TypeUnion:
		return "union"
	case 22:
		return "run_end_encoded"
	case 23:
		return "binary_view"
	case 24:
		return "utf8_view"
	case 25:
		return "list_view"
	case 26:
		return "large_list_view"
	}
	return fmt.Sprintf("number %d", t)
}

// parseBatch parses the metadata of a record batch with a body of size bytes.
func parseBatch(m message, size int64, s *schema) (*batch, error) {
	if m.kind != flatbuf.MessageHeaderRecordBatch {
		return nil, damaged("not a record batch")
	}
	out := &batch{}
	return out, arrowipc.Guard("metadata", func() error {
		in := new(flatbuf.RecordBatch)
		in.Init(m.header.Bytes, m.header.Pos)
		var c flatbuf.BodyCompression
		if in.Compression(&c) != nil {
			t := c.Table()
			kind, method := int8(0), int8(0) // not covered by the generated code
			if o := t.Offset(4); o != 0 {
				kind = t.GetInt8(t.Pos + flatbuffers.UOffsetT(o))
			}
			if o := t.Offset(6); o != 0 {
				method = t.GetInt8(t.Pos + flatbuffers.UOffsetT(o))
			}
			switch {
			case method != 0 || kind < 0 || kind > 1:
				return fmt.Errorf("its record batches have compression %d, method %d, which is not read", kind, method)
			case kind == 0:
				out.codec = lz4Frame
			default:
				out.codec = zstdFrames
			}
		}
		out.rows = in.Length()
		if out.rows < 0 || out.rows > maxRows {
			return damaged("%d rows", out.rows)
		}
		if n := in.NodesLength(); n != s.nodes {
			return damaged("it has %d columns, the schema %d", n, s.nodes)
		}
		if n := in.BuffersLength(); n != s.buffers {
			return damaged("it has %d buffers, the schema %d", n, s.buffers)
		}
		out.nodes = make([]struct{ rows, nulls int64 }, s.nodes)
		var node flatbuf.FieldNode
		for i := range out.nodes {
			in.Nodes(&node, i)
			rows, nulls := node.Length(), node.NullCount()
			if rows < 0 || rows > maxRows || nulls < 0 || nulls > rows {
				return damaged("a column of %d rows, %d of them null", rows, nulls)
			}
			out.nodes[i].rows, out.nodes[i].nulls = rows, nulls
		}
		out.buffers = make([]span, s.buffers)
		var buf flatbuf.Buffer
		for i := range out.buffers {
			in.Buffers(&buf, i)
			at := span{buf.Offset(), buf.Length()}
			if at.off < 0 || at.size < 0 || at.off > size || at.size > size-at.off {
				return damaged("bytes %d to %d of a body of %d", at.off, at.off+at.size, size)
			}
			out.buffers[i] = at
		}
		return nil
	})
}
