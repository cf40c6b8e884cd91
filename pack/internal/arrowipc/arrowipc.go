// Package arrowipc writes and reads the part of the Arrow IPC file format that
// packs use: columns of numbers, of arrays of one shape, of UTF-8 and binary, no
// nulls, no compression, no dictionaries.
//
// It is written by hand and not with arrow-go for three reasons: buffers begin
// at multiples of 64 bytes in the file (arrow-go aligns them to 8, which makes
// gathers of raw records slower), the bytes that are written never depend on
// the version of a library, and the reader checks every offset before use,
// because packs may come from anywhere. Tests compare with arrow-go.
package arrowipc

import (
	"encoding/binary"
	"errors"
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"
)

// Type is the type of a column.
type Type uint8

// The types of columns.
const (
	Int64 Type = iota + 1
	Int32
	Uint8
	UTF8
	Binary
	Int8
	Int16
	Uint16
	Uint32
	Uint64
	Float16
	Float32
	Float64
	// LargeBinary is Binary with 64-bit offsets.
	LargeBinary
	// FixedList has Column.Size elements of type Column.Elem in each row.
	FixedList
)

var typeNames = map[Type]string{
	Int64: "int64", Int32: "int32", Uint8: "uint8", UTF8: "utf8", Binary: "binary", Int8: "int8", Int16: "int16", Uint16: "uint16",
	Uint32: "uint32", Uint64: "uint64", Float16: "float16", Float32: "float32", Float64: "float64",
	LargeBinary: "large_binary", FixedList: "fixed_size_list",
}

// String returns Arrow's name of the type.
func (t Type) String() string { return typeNames[t] }

// ParseType is the reverse of String.
func ParseType(s string) (Type, error) {
	for t, n := range typeNames {
		if n == s {
			return t, nil
		}
	}
	return 0, fmt.Errorf("unknown column type %q", s)
}

// Width is the size of a number in bytes, 0 for the other types.
func (t Type) Width() int {
	switch t {
	case Int64, Uint64, Float64:
		return 8
	case Int32, Uint32, Float32:
		return 4
	case Int16, Uint16, Float16:
		return 2
	case Int8, Uint8:
		return 1
	}
	return 0
}

// number says how a number is described in a schema: the kind of its type, and
// of integers whether they have a sign.
func (t Type) number() (kind byte, signed bool) {
	switch t {
	case Float16, Float32, Float64:
		return typeFloat, false
	case Int8, Int16, Int32, Int64:
		return typeInt, true
	}
	return typeInt, false
}

// Column is a column of the schema.
type Column struct {
	Name string
	Type Type
	// Elem and Size are of FixedList only. Shape is the text of the shape's
	// JSON, such as "[3,224,224]": tools see the column as the extension type
	// arrow.fixed_shape_tensor.
	Elem  Type
	Size  int32
	Shape string
}

// Width is the size of a row of the values in bytes, 0 for columns with
// offsets.
func (c *Column) Width() int64 {
	if c.Type == FixedList {
		return int64(c.Elem.Width()) * int64(c.Size)
	}
	return int64(c.Type.Width())
}

// OffsetWidth is the size of an offset in bytes, 0 for columns without.
func (c *Column) OffsetWidth() int64 {
	switch c.Type {
	case UTF8, Binary:
		return 4
	case LargeBinary:
		return 8
	}
	return 0
}

// buffers is the number of Arrow buffers of the column: validity, then values,
// or validity, offsets and data; of lists also the elements' validity.
func (c *Column) buffers() int {
	if c.Type.Width() > 0 {
		return 2
	}
	return 3
}

// nodes is the number of Arrow's field nodes of the column.
func (c *Column) nodes() int {
	if c.Type == FixedList {
		return 2
	}
	return 1
}

// KeyValue is an entry of the schema's metadata.
type KeyValue struct{ Key, Value string }

// Block says where a record batch message lies in the file.
type Block struct {
	Offset    int64
	MetaBytes int32 // of the message without its body
	BodyBytes int64
}

const (
	align = 64

	versionV5 = 4 // MetadataVersion

	headerSchema      = 1
	headerRecordBatch = 3

	typeInt         = 2
	typeFloat       = 3
	typeBinary      = 4
	typeUTF8        = 5
	typeFixedList   = 16
	typeLargeBinary = 19

	continuation = 0xFFFFFFFF
)

// Magic begins and ends every Arrow IPC file.
const Magic = "ARROW1"

// Header is the beginning of a file: magic and schema. Its length is a
// multiple of 64.
func Header(cols []Column, meta []KeyValue) []byte {
	b := flatbuffers.NewBuilder(1024)
	schema := buildSchema(b, cols, meta)
	out := append(make([]byte, 0, 1024), Magic+"\x00\x00"...)
	return appendMessage(out, b, headerSchema, schema, 0, 8)
}

// Footer is the end of a file whose record batches lie at blocks.
func Footer(cols []Column, meta []KeyValue, blocks []Block) []byte {
	b := flatbuffers.NewBuilder(1024 + 24*len(blocks))
	schema := buildSchema(b, cols, meta)
	b.StartVector(24, 0, 8)
	dicts := b.EndVector(0)
	b.StartVector(24, len(blocks), 8)
	for i := len(blocks) - 1; i >= 0; i-- {
		b.Prep(8, 24)
		b.PrependInt64(blocks[i].BodyBytes)
		b.Pad(4)
		b.PrependInt32(blocks[i].MetaBytes)
		b.PrependInt64(blocks[i].Offset)
	}
	batches := b.EndVector(len(blocks))
	b.StartObject(5)
	b.PrependInt16Slot(0, versionV5, 0)
	b.PrependUOffsetTSlot(1, schema, 0)
	b.PrependUOffsetTSlot(2, dicts, 0)
	b.PrependUOffsetTSlot(3, batches, 0)
	b.Finish(b.EndObject())
	footer := b.FinishedBytes()

	// The stream's end marker, as other writers put it, then the footer.
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, len(footer)+18), continuation)
	out = binary.LittleEndian.AppendUint32(out, 0)
	out = append(out, footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, Magic...)
}

func buildSchema(b *flatbuffers.Builder, cols []Column, meta []KeyValue) flatbuffers.UOffsetT {
	fields := make([]flatbuffers.UOffsetT, len(cols))
	for i := range cols {
		fields[i] = buildField(b, &cols[i])
	}
	b.StartVector(4, len(fields), 4)
	for i := len(fields) - 1; i >= 0; i-- {
		b.PrependUOffsetT(fields[i])
	}
	fieldVec := b.EndVector(len(fields))
	pairVec := buildMeta(b, meta)

	b.StartObject(4)
	b.PrependInt16Slot(0, 0, 0) // little-endian
	b.PrependUOffsetTSlot(1, fieldVec, 0)
	b.PrependUOffsetTSlot(2, pairVec, 0)
	return b.EndObject()
}

// tensorName is the name of the extension type of arrays of one shape.
const tensorName = "arrow.fixed_shape_tensor"

func buildField(b *flatbuffers.Builder, c *Column) flatbuffers.UOffsetT {
	name := b.CreateString(c.Name)
	var meta flatbuffers.UOffsetT
	var item flatbuffers.UOffsetT
	if c.Type == FixedList {
		item = buildField(b, &Column{Name: "item", Type: c.Elem})
		meta = buildMeta(b, []KeyValue{
			{"ARROW:extension:name", tensorName},
			{"ARROW:extension:metadata", `{"shape":` + c.Shape + `}`},
		})
		b.StartVector(4, 1, 4)
		b.PrependUOffsetT(item)
	} else {
		b.StartVector(4, 0, 4)
	}
	children := b.EndVector(c.nodes() - 1)
	kind, typ := buildType(b, c)
	b.StartObject(7)
	b.PrependUOffsetTSlot(0, name, 0)
	b.PrependBoolSlot(1, false, false) // never null
	b.PrependByteSlot(2, kind, 0)
	b.PrependUOffsetTSlot(3, typ, 0)
	b.PrependUOffsetTSlot(5, children, 0)
	b.PrependUOffsetTSlot(6, meta, 0)
	return b.EndObject()
}

func buildType(b *flatbuffers.Builder, c *Column) (kind byte, typ flatbuffers.UOffsetT) {
	switch c.Type {
	case UTF8, Binary, LargeBinary:
		kind = map[Type]byte{UTF8: typeUTF8, Binary: typeBinary, LargeBinary: typeLargeBinary}[c.Type]
		b.StartObject(0)
		return kind, b.EndObject()
	case FixedList:
		b.StartObject(1)
		b.PrependInt32Slot(0, c.Size, 0)
		return typeFixedList, b.EndObject()
	}
	kind, signed := c.Type.number()
	if kind == typeFloat {
		b.StartObject(1)
		b.PrependInt16Slot(0, int16(c.Type.Width()/4), 0) // half, single, double
		return kind, b.EndObject()
	}
	b.StartObject(2)
	b.PrependInt32Slot(0, int32(8*c.Type.Width()), 0)
	b.PrependBoolSlot(1, signed, false)
	return kind, b.EndObject()
}

func buildMeta(b *flatbuffers.Builder, meta []KeyValue) flatbuffers.UOffsetT {
	pairs := make([]flatbuffers.UOffsetT, len(meta))
	for i, kv := range meta {
		k, v := b.CreateString(kv.Key), b.CreateString(kv.Value)
		b.StartObject(2)
		b.PrependUOffsetTSlot(0, k, 0)
		b.PrependUOffsetTSlot(1, v, 0)
		pairs[i] = b.EndObject()
	}
	b.StartVector(4, len(pairs), 4)
	for i := len(pairs) - 1; i >= 0; i-- {
		b.PrependUOffsetT(pairs[i])
	}
	return b.EndVector(len(pairs))
}

// appendMessage appends an encapsulated message without its body, padded so
// that its end lies at a multiple of 64 when out begins at one.
func appendMessage(out []byte, b *flatbuffers.Builder, header byte, table flatbuffers.UOffsetT, bodyBytes int64, prefix int) []byte {
	b.StartObject(5)
	b.PrependInt16Slot(0, versionV5, 0)
	b.PrependByteSlot(1, header, 0)
	b.PrependUOffsetTSlot(2, table, 0)
	b.PrependInt64Slot(3, bodyBytes, 0)
	b.Finish(b.EndObject())
	fb := b.FinishedBytes()
	total := padded(int64(prefix + 8 + len(fb)))
	out = binary.LittleEndian.AppendUint32(out, continuation)
	out = binary.LittleEndian.AppendUint32(out, uint32(total)-uint32(prefix)-8)
	out = append(out, fb...)
	return append(out, make([]byte, int(total)-prefix-8-len(fb))...)
}

func padded(n int64) int64 { return (n + align - 1) &^ (align - 1) }

// Batch is a record batch to be written: for each column its values, for those
// of varying size also the offsets (rows+1 of them).
type Batch struct {
	Rows    int
	Values  [][]byte
	Offsets [][]byte // little-endian, of Column.OffsetWidth; nil for fixed-width columns
}

// Parts lays the batch out as one message: the pieces to be written one after
// the other, and the size of its metadata and body. Head is the size of
// everything before the values of column bulk, of all when bulk is -1.
func (bt *Batch) Parts(cols []Column, bulk int) (parts [][]byte, block Block, head int64) {
	b := flatbuffers.NewBuilder(1024)
	type span struct{ off, n int64 }
	var spans []span
	var body [][]byte
	var at int64
	put := func(p []byte) {
		spans = append(spans, span{at, int64(len(p))})
		n := padded(int64(len(p)))
		body = append(body, p)
		if gap := n - int64(len(p)); gap > 0 {
			body = append(body, zeros[:gap])
		}
		at += n
	}
	for i := range cols {
		for range cols[i].nodes() {
			spans = append(spans, span{at, 0}) // validity: never null
		}
		if cols[i].OffsetWidth() > 0 {
			put(bt.Offsets[i])
		}
		if i == bulk {
			head = at
		}
		put(bt.Values[i])
	}

	b.StartVector(16, len(spans), 8)
	for i := len(spans) - 1; i >= 0; i-- {
		b.Prep(8, 16)
		b.PrependInt64(spans[i].n)
		b.PrependInt64(spans[i].off)
	}
	buffers := b.EndVector(len(spans))
	b.StartVector(16, countNodes(cols), 8)
	node := func(n int64) {
		b.Prep(8, 16)
		b.PrependInt64(0)
		b.PrependInt64(n)
	}
	for i := len(cols) - 1; i >= 0; i-- {
		if cols[i].Type == FixedList {
			node(int64(bt.Rows) * int64(cols[i].Size))
		}
		node(int64(bt.Rows))
	}
	nodes := b.EndVector(countNodes(cols))
	b.StartObject(5)
	b.PrependInt64Slot(0, int64(bt.Rows), 0)
	b.PrependUOffsetTSlot(1, nodes, 0)
	b.PrependUOffsetTSlot(2, buffers, 0)
	meta := appendMessage(make([]byte, 0, 1024), b, headerRecordBatch, b.EndObject(), at, 0)

	if bulk < 0 {
		head = at
	}
	parts = append([][]byte{meta}, body...)
	return parts, Block{MetaBytes: int32(len(meta)), BodyBytes: at}, head + int64(len(meta))
}

func countNodes(cols []Column) int {
	n := 0
	for i := range cols {
		n += cols[i].nodes()
	}
	return n
}

var zeros [align]byte

// ErrFormat is in all errors of the reader: the bytes are not what the format
// says.
var ErrFormat = errors.New("damaged")

func damaged(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, a...))
}
