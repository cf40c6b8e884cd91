// Package arrowipc writes and reads the part of the Arrow IPC file format that
// packs use: flat columns of fixed-width integers, UTF-8 and binary, no nulls,
// no compression, no dictionaries.
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
)

var typeNames = map[Type]string{Int64: "int64", Int32: "int32", Uint8: "uint8", UTF8: "utf8", Binary: "binary"}

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

// Width is the size of a fixed-width value, 0 for UTF8 and Binary.
func (t Type) Width() int {
	switch t {
	case Int64:
		return 8
	case Int32:
		return 4
	case Uint8:
		return 1
	}
	return 0
}

// buffers is the number of Arrow buffers of a column of this type: validity,
// then values, or validity, offsets and data.
func (t Type) buffers() int {
	if t.Width() > 0 {
		return 2
	}
	return 3
}

// Column is a column of the schema.
type Column struct {
	Name string
	Type Type
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

	typeInt    = 2
	typeBinary = 4
	typeUTF8   = 5

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
	for i, c := range cols {
		name := b.CreateString(c.Name)
		b.StartVector(4, 0, 4)
		children := b.EndVector(0)
		var kind byte
		var typ flatbuffers.UOffsetT
		switch c.Type {
		case UTF8, Binary:
			kind = typeBinary
			if c.Type == UTF8 {
				kind = typeUTF8
			}
			b.StartObject(0)
			typ = b.EndObject()
		default:
			kind = typeInt
			b.StartObject(2)
			b.PrependInt32Slot(0, int32(8*c.Type.Width()), 0)
			b.PrependBoolSlot(1, c.Type != Uint8, false)
			typ = b.EndObject()
		}
		b.StartObject(7)
		b.PrependUOffsetTSlot(0, name, 0)
		b.PrependBoolSlot(1, false, false) // never null
		b.PrependByteSlot(2, kind, 0)
		b.PrependUOffsetTSlot(3, typ, 0)
		b.PrependUOffsetTSlot(5, children, 0)
		fields[i] = b.EndObject()
	}
	b.StartVector(4, len(fields), 4)
	for i := len(fields) - 1; i >= 0; i-- {
		b.PrependUOffsetT(fields[i])
	}
	fieldVec := b.EndVector(len(fields))

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
	pairVec := b.EndVector(len(pairs))

	b.StartObject(4)
	b.PrependInt16Slot(0, 0, 0) // little-endian
	b.PrependUOffsetTSlot(1, fieldVec, 0)
	b.PrependUOffsetTSlot(2, pairVec, 0)
	return b.EndObject()
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

// Batch is a record batch to be written: for each column its values, for UTF8
// and Binary columns also the offsets (rows+1 of them).
type Batch struct {
	Rows    int
	Values  [][]byte
	Offsets [][]byte // little-endian int32, nil for fixed-width columns
}

// Parts lays the batch out as one message: the pieces to be written one after
// the other, and the size of its metadata and body. Head is the size of
// everything before the values of column bulk.
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
	for i, c := range cols {
		spans = append(spans, span{at, 0}) // validity: never null
		if c.Type.Width() == 0 {
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
	b.StartVector(16, len(cols), 8)
	for range cols {
		b.Prep(8, 16)
		b.PrependInt64(0)
		b.PrependInt64(int64(bt.Rows))
	}
	nodes := b.EndVector(len(cols))
	b.StartObject(5)
	b.PrependInt64Slot(0, int64(bt.Rows), 0)
	b.PrependUOffsetTSlot(1, nodes, 0)
	b.PrependUOffsetTSlot(2, buffers, 0)
	meta := appendMessage(make([]byte, 0, 1024), b, headerRecordBatch, b.EndObject(), at, 0)

	parts = append([][]byte{meta}, body...)
	return parts, Block{MetaBytes: int32(len(meta)), BodyBytes: at}, head + int64(len(meta))
}

var zeros [align]byte

// ErrFormat is in all errors of the reader: the bytes are not what the format
// says.
var ErrFormat = errors.New("damaged")

func damaged(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, a...))
}
