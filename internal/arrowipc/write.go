package arrowipc

import (
	"encoding/binary"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/stokerdata/stoker/internal/arrowipc/flatbuf"
)

// Header is the beginning of a file: magic and schema. Its length is a
// multiple of 64.
func Header(cols []ColumnType, meta []KeyValue) []byte {
	b := flatbuffers.NewBuilder(1024)
	schema := buildSchema(b, cols, meta)
	out := append(make([]byte, 0, 1024), Magic+"\x00\x00"...)
	return appendMessage(out, b, flatbuf.MessageHeaderSchema, schema, 0, 8)
}

// Footer is the end of a file whose record batches lie at blocks.
func Footer(cols []ColumnType, meta []KeyValue, blocks []Block) []byte {
	b := flatbuffers.NewBuilder(1024 + 24*len(blocks))
	schema := buildSchema(b, cols, meta)
	flatbuf.FooterStartDictionariesVector(b, 0)
	dicts := b.EndVector(0)
	flatbuf.FooterStartRecordBatchesVector(b, len(blocks))
	for i := len(blocks) - 1; i >= 0; i-- {
		flatbuf.CreateBlock(b, blocks[i].Offset, blocks[i].MetaBytes, blocks[i].BodyBytes)
	}
	batches := b.EndVector(len(blocks))
	flatbuf.FooterStart(b)
	flatbuf.FooterAddVersion(b, flatbuf.MetadataVersionV5)
	flatbuf.FooterAddSchema(b, schema)
	flatbuf.FooterAddDictionaries(b, dicts)
	flatbuf.FooterAddRecordBatches(b, batches)
	b.Finish(flatbuf.FooterEnd(b))
	footer := b.FinishedBytes()

	// The stream's end marker, as other writers put it, then the footer.
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, len(footer)+18), continuation)
	out = binary.LittleEndian.AppendUint32(out, 0)
	out = append(out, footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, Magic...)
}

// vector makes a vector of tables.
func vector(b *flatbuffers.Builder, tables []flatbuffers.UOffsetT) flatbuffers.UOffsetT {
	b.StartVector(4, len(tables), 4)
	for i := len(tables) - 1; i >= 0; i-- {
		b.PrependUOffsetT(tables[i])
	}
	return b.EndVector(len(tables))
}

func buildSchema(b *flatbuffers.Builder, cols []ColumnType, meta []KeyValue) flatbuffers.UOffsetT {
	fields := buildFields(b, cols)
	pairs := buildMeta(b, meta)
	flatbuf.SchemaStart(b)
	flatbuf.SchemaAddEndianness(b, flatbuf.EndiannessLittle)
	flatbuf.SchemaAddFields(b, fields)
	if len(meta) > 0 {
		flatbuf.SchemaAddCustomMetadata(b, pairs)
	}
	return flatbuf.SchemaEnd(b)
}

func buildMeta(b *flatbuffers.Builder, meta []KeyValue) flatbuffers.UOffsetT {
	if len(meta) == 0 {
		return 0
	}
	pairs := make([]flatbuffers.UOffsetT, len(meta))
	for i, kv := range meta {
		k, v := b.CreateString(kv.Key), b.CreateString(kv.Value)
		flatbuf.KeyValueStart(b)
		flatbuf.KeyValueAddKey(b, k)
		flatbuf.KeyValueAddValue(b, v)
		pairs[i] = flatbuf.KeyValueEnd(b)
	}
	return vector(b, pairs)
}

func buildFields(b *flatbuffers.Builder, cols []ColumnType) flatbuffers.UOffsetT {
	fields := make([]flatbuffers.UOffsetT, len(cols))
	for i := range cols {
		c := &cols[i]
		name := b.CreateString(c.Name)
		children := buildFields(b, c.Children)
		meta := buildMeta(b, c.Meta)
		kind, typ := buildType(b, c)
		flatbuf.FieldStart(b)
		flatbuf.FieldAddName(b, name)
		// Columns never hold nulls. They are declared as tools declare theirs, so
		// that types compare as equal.
		flatbuf.FieldAddNullable(b, true)
		flatbuf.FieldAddTypeType(b, kind)
		flatbuf.FieldAddType(b, typ)
		flatbuf.FieldAddChildren(b, children)
		if len(c.Meta) > 0 {
			flatbuf.FieldAddCustomMetadata(b, meta)
		}
		fields[i] = flatbuf.FieldEnd(b)
	}
	return vector(b, fields)
}

func buildType(b *flatbuffers.Builder, c *ColumnType) (flatbuf.Type, flatbuffers.UOffsetT) {
	switch c.Type {
	case Float16, Float32, Float64:
		flatbuf.FloatingPointStart(b)
		flatbuf.FloatingPointAddPrecision(b, precision(c.Type))
		return flatbuf.TypeFloatingPoint, flatbuf.FloatingPointEnd(b)
	case UTF8:
		flatbuf.Utf8Start(b)
		return flatbuf.TypeUtf8, flatbuf.Utf8End(b)
	case Binary:
		flatbuf.BinaryStart(b)
		return flatbuf.TypeBinary, flatbuf.BinaryEnd(b)
	case LargeUTF8:
		flatbuf.LargeUtf8Start(b)
		return flatbuf.TypeLargeUtf8, flatbuf.LargeUtf8End(b)
	case LargeBinary:
		flatbuf.LargeBinaryStart(b)
		return flatbuf.TypeLargeBinary, flatbuf.LargeBinaryEnd(b)
	case List:
		flatbuf.ListStart(b)
		return flatbuf.TypeList, flatbuf.ListEnd(b)
	case LargeList:
		flatbuf.LargeListStart(b)
		return flatbuf.TypeLargeList, flatbuf.LargeListEnd(b)
	case FixedList:
		flatbuf.FixedSizeListStart(b)
		flatbuf.FixedSizeListAddListSize(b, c.Size)
		return flatbuf.TypeFixedSizeList, flatbuf.FixedSizeListEnd(b)
	case Struct:
		flatbuf.Struct_Start(b)
		return flatbuf.TypeStruct_, flatbuf.Struct_End(b)
	}
	flatbuf.IntStart(b)
	flatbuf.IntAddBitWidth(b, int32(8*c.Type.Width()))
	flatbuf.IntAddIsSigned(b, c.Type <= Int64)
	return flatbuf.TypeInt, flatbuf.IntEnd(b)
}

func precision(t Type) flatbuf.Precision {
	switch t {
	case Float16:
		return flatbuf.PrecisionHALF
	case Float32:
		return flatbuf.PrecisionSINGLE
	}
	return flatbuf.PrecisionDOUBLE
}

// appendMessage frames a message: continuation marker, size, metadata, padding.
// prefix is what stands in front of it in the file, for the alignment.
func appendMessage(out []byte, b *flatbuffers.Builder, kind flatbuf.MessageHeader, header flatbuffers.UOffsetT, bodyBytes int64, prefix int) []byte {
	flatbuf.MessageStart(b)
	flatbuf.MessageAddVersion(b, flatbuf.MetadataVersionV5)
	flatbuf.MessageAddHeaderType(b, kind)
	flatbuf.MessageAddHeader(b, header)
	flatbuf.MessageAddBodyLength(b, bodyBytes)
	b.Finish(flatbuf.MessageEnd(b))
	fb := b.FinishedBytes()
	total := padded(int64(prefix + 8 + len(fb)))
	out = binary.LittleEndian.AppendUint32(out, continuation)
	out = binary.LittleEndian.AppendUint32(out, uint32(total)-uint32(prefix)-8)
	out = append(out, fb...)
	return append(out, make([]byte, int(total)-prefix-8-len(fb))...)
}

// Zone says where in a record batch a leaf lies.
type Zone uint8

// The zones, in their order.
const (
	// Head is the batch's index: it is read as one piece with the metadata.
	Head Zone = iota
	// Bulk has the offsets in the head and the values behind it.
	Bulk
	// Tail is behind the bulk with both.
	Tail
)

// LeafData are the values of a leaf, with Rows+1 offsets where it has them.
type LeafData struct{ Offsets, Values []byte }

// Batch is a record batch to be written.
type Batch struct {
	Rows   int
	Leaves []LeafData
}

// Parts lays the batch out as one message: the pieces to be written one after
// the other, the size of its metadata and body, and the size of the head with
// the metadata.
func (bt *Batch) Parts(cols []ColumnType, zones []Zone) (parts [][]byte, block Block, head int64) {
	type place struct{ offsets, values Span }
	places := make([]place, len(bt.Leaves))
	var body [][]byte
	at := int64(0)
	put := func(s *Span, p []byte) {
		*s = Span{at, int64(len(p))}
		n := padded(s.Len)
		body = append(body, p)
		if gap := n - s.Len; gap > 0 {
			body = append(body, zeros[:gap])
		}
		at += n
	}
	for zone := Head; zone <= Tail; zone++ {
		if zone == Bulk {
			head = at
		}
		for i := range bt.Leaves {
			l, p := &bt.Leaves[i], &places[i]
			offsets := zones[i]
			if offsets == Bulk {
				offsets = Head
			}
			if l.Offsets != nil && offsets == zone {
				put(&p.offsets, l.Offsets)
			}
			if zones[i] == zone {
				put(&p.values, l.Values)
			}
		}
	}

	var nodes []int64
	var spans []Span
	leaf := 0
	var walk func(c *ColumnType, rows int64)
	walk = func(c *ColumnType, rows int64) {
		nodes = append(nodes, rows)
		spans = append(spans, Span{}) // validity: never null
		p := &places[min(leaf, len(places)-1)]
		if c.Type.offsetWidth() > 0 {
			spans = append(spans, p.offsets)
		}
		switch c.Type {
		case Struct:
			for i := range c.Children {
				walk(&c.Children[i], rows)
			}
		case FixedList:
			walk(&c.Children[0], rows*int64(c.Size))
		case List, LargeList:
			walk(&c.Children[0], p.values.Len/bytesOf(&c.Children[0]))
		default:
			spans = append(spans, p.values)
			leaf++
		}
	}
	for i := range cols {
		walk(&cols[i], int64(bt.Rows))
	}

	b := flatbuffers.NewBuilder(1024)
	flatbuf.RecordBatchStartBuffersVector(b, len(spans))
	for i := len(spans) - 1; i >= 0; i-- {
		flatbuf.CreateBuffer(b, spans[i].Off, spans[i].Len)
	}
	buffers := b.EndVector(len(spans))
	flatbuf.RecordBatchStartNodesVector(b, len(nodes))
	for i := len(nodes) - 1; i >= 0; i-- {
		flatbuf.CreateFieldNode(b, nodes[i], 0)
	}
	nodeVec := b.EndVector(len(nodes))
	flatbuf.RecordBatchStart(b)
	flatbuf.RecordBatchAddLength(b, int64(bt.Rows))
	flatbuf.RecordBatchAddNodes(b, nodeVec)
	flatbuf.RecordBatchAddBuffers(b, buffers)
	meta := appendMessage(make([]byte, 0, 1024), b, flatbuf.MessageHeaderRecordBatch, flatbuf.RecordBatchEnd(b), at, 0)
	return append([][]byte{meta}, body...), Block{MetaBytes: int32(len(meta)), BodyBytes: at}, head + int64(len(meta))
}

// bytesOf is the size of an element of a list.
func bytesOf(c *ColumnType) int64 {
	n := int64(1)
	for c.Type == FixedList {
		n *= int64(c.Size)
		c = &c.Children[0]
	}
	return n * int64(c.Type.Width())
}
