package arrowipc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// testColumns have every type that packs use; testZones are where their leaves
// lie.
var testColumns = []ColumnType{
	{Name: "image", Type: Struct, Children: []ColumnType{{Name: "bytes", Type: Binary}, {Name: "path", Type: UTF8}}},
	{Name: "width", Type: Int32}, {Name: "codec", Type: Uint8}, {Name: "label", Type: Int64}, {Name: "score", Type: Float64},
	{Name: "half", Type: Float16}, {Name: "single", Type: Float32}, {Name: "i1", Type: Int8}, {Name: "i2", Type: Int16}, {Name: "u2", Type: Uint16},
	{Name: "u4", Type: Uint32}, {Name: "u8", Type: Uint64},
	{Name: "text", Type: LargeUTF8}, {Name: "blob", Type: LargeBinary},
	tensor("tokens", 6, Uint16, "[2,3]"),
	ListOf("labels", LargeList, 0, ColumnType{Type: Int64}),
	ListOf("boxes", LargeList, 0, ListOf("", FixedList, 4, ColumnType{Type: Float32})),
	ListOf("deep", LargeList, 0, ListOf("", FixedList, 2, ListOf("", FixedList, 3, ColumnType{Type: Uint8}))),
	ListOf("few", List, 0, ColumnType{Type: Int16}),
}

func tensor(name string, size int32, elem Type, shape string) ColumnType {
	c := ListOf(name, FixedList, size, ColumnType{Type: elem})
	c.Meta = []KeyValue{{"ARROW:extension:name", "arrow.fixed_shape_tensor"}, {"ARROW:extension:metadata", `{"shape":` + shape + `}`}}
	return c
}

var testZones = []Zone{Bulk, Tail, Head, Head, Head, Head, Head, Head, Head, Head, Head, Head, Head, Bulk, Tail, Bulk, Head, Bulk, Bulk, Tail}

func testLeaves(t testing.TB) []Leaf {
	t.Helper()
	leaves, err := Leaves(testColumns)
	if err != nil || len(leaves) != len(testZones) {
		t.Fatal(leaves, err)
	}
	return leaves
}

// testBatch makes rows of random length.
func testBatch(t testing.TB, rng *rand.Rand, rows int) *Batch {
	leaves := testLeaves(t)
	b := &Batch{Rows: rows, Leaves: make([]LeafData, len(leaves))}
	for i, l := range leaves {
		d := &b.Leaves[i]
		letter := func(n int64) {
			for range n {
				d.Values = append(d.Values, 'a'+byte(rng.IntN(26)))
			}
		}
		if l.OffsetWidth == 0 {
			letter(l.Width * int64(rows))
			continue
		}
		d.Offsets = make([]byte, l.OffsetWidth)
		for range rows {
			letter(l.Width * int64(rng.IntN(50)))
			n := uint64(len(d.Values)) / uint64(l.Width)
			if l.OffsetWidth == 8 {
				d.Offsets = binary.LittleEndian.AppendUint64(d.Offsets, n)
			} else {
				d.Offsets = binary.LittleEndian.AppendUint32(d.Offsets, uint32(n))
			}
		}
	}
	return b
}

// row returns the bytes of row i of a leaf.
func (b *Batch) row(leaves []Leaf, leaf, i int) []byte {
	l, d := leaves[leaf], b.Leaves[leaf]
	from, to := int64(i), int64(i+1)
	switch l.OffsetWidth {
	case 4:
		from, to = int64(binary.LittleEndian.Uint32(d.Offsets[4*i:])), int64(binary.LittleEndian.Uint32(d.Offsets[4*i+4:]))
	case 8:
		from, to = int64(binary.LittleEndian.Uint64(d.Offsets[8*i:])), int64(binary.LittleEndian.Uint64(d.Offsets[8*i+8:]))
	}
	return d.Values[from*l.Width : to*l.Width]
}

func testFile(t testing.TB, seed uint64, sizes ...int) (file []byte, batches []*Batch, blocks []Block, heads []int64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	meta := []KeyValue{{"stoker.pack.version", "3"}}
	file = Header(testColumns, meta)
	for _, n := range sizes {
		b := testBatch(t, rng, n)
		parts, block, head := b.Parts(testColumns, testZones)
		block.Offset = int64(len(file))
		for _, p := range parts {
			file = append(file, p...)
		}
		batches, blocks, heads = append(batches, b), append(blocks, block), append(heads, head)
	}
	return append(file, Footer(testColumns, meta, blocks)...), batches, blocks, heads
}

// flat is the bytes of rows from to to of an array, leaf by leaf.
func flat(a arrow.Array, from, to int) [][]byte {
	switch a := a.(type) {
	case *array.Struct:
		var out [][]byte
		for i := range a.NumField() {
			out = append(out, flat(a.Field(i), from, to)...)
		}
		return out
	case *array.FixedSizeList:
		lo, _ := a.ValueOffsets(from)
		_, hi := a.ValueOffsets(to - 1)
		return flat(a.ListValues(), int(lo), int(hi))
	case *array.LargeList:
		lo, _ := a.ValueOffsets(from)
		_, hi := a.ValueOffsets(to - 1)
		return flat(a.ListValues(), int(lo), int(hi))
	case *array.List:
		lo, _ := a.ValueOffsets(from)
		_, hi := a.ValueOffsets(to - 1)
		return flat(a.ListValues(), int(lo), int(hi))
	case *array.String:
		return [][]byte{[]byte(a.Value(from))}
	case *array.LargeString:
		return [][]byte{[]byte(a.Value(from))}
	case *array.Binary:
		return [][]byte{a.Value(from)}
	case *array.LargeBinary:
		return [][]byte{a.Value(from)}
	}
	w := a.DataType().(arrow.FixedWidthDataType).Bytes()
	if from == to {
		return [][]byte{nil}
	}
	return [][]byte{a.Data().Buffers()[1].Bytes()[w*(a.Data().Offset()+from) : w*(a.Data().Offset()+to)]}
}

// What is written here is read by arrow-go.
func TestArrowGoReadsIt(t *testing.T) {
	file, batches, _, _ := testFile(t, 1, 1, 7, 100, 0, 3)
	leaves := testLeaves(t)
	r, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n := r.NumRecords(); n != len(batches) {
		t.Fatalf("%d record batches, want %d", n, len(batches))
	}
	if v, ok := r.Schema().Metadata().GetValue("stoker.pack.version"); !ok || v != "3" {
		t.Errorf("metadata %v", r.Schema().Metadata())
	}
	for i, want := range []string{
		"struct<bytes: binary nullable, path: utf8 nullable>", "int32", "uint8", "int64", "float64", "float16", "float32", "int8", "int16", "uint16", "uint32", "uint64",
		"large_utf8", "large_binary", "fixed_size_list<item: uint16, nullable>[6]", "large_list<item: int64, nullable>",
		"large_list<item: fixed_size_list<item: float32, nullable>[4], nullable>",
		"large_list<item: fixed_size_list<item: fixed_size_list<item: uint8, nullable>[3], nullable>[2], nullable>", "list<item: int16, nullable>",
	} {
		f := r.Schema().Field(i)
		if f.Name != testColumns[i].Name || f.Type.String() != want || !f.Nullable {
			t.Errorf("field %d is %v, want %v %v", i, f, testColumns[i].Name, want)
		}
		if ext, ok := f.Metadata.GetValue("ARROW:extension:metadata"); ok != (f.Name == "tokens") || ok && ext != `{"shape":[2,3]}` {
			t.Errorf("field %d has the extension %q", i, ext)
		}
	}
	for k, b := range batches {
		rec, err := r.RecordBatch(k)
		if err != nil {
			t.Fatal(err)
		}
		if rec.NumRows() != int64(b.Rows) {
			t.Fatalf("batch %d has %d rows, want %d", k, rec.NumRows(), b.Rows)
		}
		for row := range b.Rows {
			leaf := 0
			for i := range testColumns {
				for _, got := range flat(rec.Column(i), row, row+1) {
					if want := b.row(leaves, leaf, row); !bytes.Equal(got, want) {
						t.Fatalf("batch %d, row %d: %s is %q, want %q", k, row, leaves[leaf].Name, got, want)
					}
					leaf++
				}
			}
		}
	}
}

// What arrow-go writes is read here: types and their numbers are Arrow's.
func TestReadsArrowGo(t *testing.T) {
	item := func(t arrow.DataType) arrow.DataType { return arrow.FixedSizeListOf(3, t) }
	types := []arrow.DataType{
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint8,
		arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64, arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32,
		arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String, arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.LargeBinary,
		arrow.LargeListOf(item(arrow.PrimitiveTypes.Uint16)), arrow.ListOf(arrow.PrimitiveTypes.Int64), item(item(arrow.PrimitiveTypes.Float32)),
		arrow.StructOf(arrow.Field{Name: "bytes", Type: arrow.BinaryTypes.Binary}, arrow.Field{Name: "path", Type: arrow.BinaryTypes.String}),
	}
	var fields []arrow.Field
	for i, typ := range types {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: typ, Nullable: true})
	}
	schema := arrow.NewSchema(fields, nil)
	build := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer build.Release()
	for i := range fields {
		for range 4 {
			build.Field(i).AppendEmptyValue()
		}
	}
	rec := build.NewRecordBatch()
	defer rec.Release()
	var file bytes.Buffer
	w, err := ipc.NewFileWriter(&file, ipc.WithSchema(schema))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	cols, err := ParseHeader(file.Bytes())
	if err != nil || len(cols) != len(types) {
		t.Fatal(cols, err)
	}
	for i := range cols {
		if i < 15 && cols[i].Type != Type(i+1) && typeNames[cols[i].Type] != types[i].String() {
			t.Errorf("column %d is %s, want %s", i, cols[i].String(), types[i])
		}
	}
	if s := cols[15].String() + cols[16].String() + cols[17].String() + cols[18].String(); s !=
		"large_list<fixed_size_list<uint16>[3]>list<int64>fixed_size_list<fixed_size_list<float32>[3]>[3]struct<bytes: binary, path: utf8>" {
		t.Error(s)
	}
	again, blocks, err := ParseFooter(file.Bytes(), int64(file.Len()))
	if err != nil || !Equal(again, cols) || len(blocks) != 1 {
		t.Fatal(again, blocks, err)
	}
	b := blocks[0]
	l, err := ParseBatch(file.Bytes()[b.Offset:], int64(b.MetaBytes)+b.BodyBytes, cols)
	if err != nil || l.Rows != 4 || len(l.Leaves) != 20 {
		t.Fatal(l, err)
	}
}

func TestReadBack(t *testing.T) {
	file, batches, blocks, heads := testFile(t, 2, 5, 1, 64)
	leaves := testLeaves(t)
	cols, err := ParseHeader(file)
	if err != nil || !Equal(cols, testColumns) {
		t.Fatalf("header: %v, %v", cols, err)
	}
	cols, got, err := ParseFooter(file, int64(len(file)))
	if err != nil || !Equal(cols, testColumns) || !slices.Equal(got, blocks) {
		t.Fatalf("footer: %v, %v, %v", cols, got, err)
	}
	for k, b := range blocks {
		total := int64(b.MetaBytes) + b.BodyBytes
		if b.Offset%64 != 0 || b.MetaBytes%64 != 0 || total%64 != 0 || heads[k]%64 != 0 {
			t.Errorf("block %+v with head %d is not aligned to 64 bytes", b, heads[k])
		}
		msg := file[b.Offset : b.Offset+total]
		l, err := ParseBatch(msg[:heads[k]], total, testColumns)
		if err != nil {
			t.Fatal(err)
		}
		if l.Rows != batches[k].Rows || len(l.Leaves) != len(leaves) {
			t.Fatalf("%d rows and %d leaves, want %d and %d", l.Rows, len(l.Leaves), batches[k].Rows, len(leaves))
		}
		bulk := int64(0)
		for i, p := range l.Leaves {
			v, o, want := p.Values, p.Offsets, batches[k].Leaves[i]
			if !bytes.Equal(msg[v.Off:v.Off+v.Len], want.Values) || !bytes.Equal(msg[o.Off:o.Off+o.Len], want.Offsets) {
				t.Errorf("batch %d: %s differs", k, leaves[i].Name)
			}
			items := int64(l.Rows)
			if leaves[i].OffsetWidth > 0 {
				items = int64(len(want.Values)) / leaves[i].Width
				if err := CheckOffsets(msg[o.Off:o.Off+o.Len], leaves[i].OffsetWidth, l.Rows, p.Items); err != nil {
					t.Errorf("batch %d: %s: %v", k, leaves[i].Name, err)
				}
			}
			if p.Items != items {
				t.Errorf("batch %d: %s has %d items, want %d", k, leaves[i].Name, p.Items, items)
			}
			if testZones[i] == Bulk {
				bulk = max(bulk, v.Off+v.Len)
			}
		}
		for i, p := range l.Leaves {
			head := heads[k]
			inHead, offsetsInHead := p.Values.Off+p.Values.Len <= head, p.Offsets.Off+p.Offsets.Len <= head
			switch testZones[i] {
			case Head:
				if !inHead || !offsetsInHead {
					t.Errorf("batch %d: %s is not in the head", k, leaves[i].Name)
				}
			case Bulk:
				if p.Values.Off < head || !offsetsInHead {
					t.Errorf("batch %d: %s is not bulk", k, leaves[i].Name)
				}
			case Tail:
				if p.Values.Off < bulk || leaves[i].OffsetWidth > 0 && p.Offsets.Off < bulk {
					t.Errorf("batch %d: %s is not in the tail", k, leaves[i].Name)
				}
			}
		}
	}
}

// Columns that packs do not have are refused, also those that would make the
// reader count wrong.
func TestLeavesRefuse(t *testing.T) {
	list := func(c ColumnType) ColumnType { return ListOf("x", LargeList, 0, c) }
	for name, c := range map[string]ColumnType{
		"a list of lists":     list(list(ColumnType{Type: Int8})),
		"a list of text":      list(ColumnType{Type: UTF8}),
		"a list of structs":   list(ColumnType{Type: Struct, Children: []ColumnType{{Name: "a", Type: Int8}}}),
		"a struct of structs": {Type: Struct, Children: []ColumnType{{Name: "b", Type: Struct, Children: []ColumnType{{Name: "a", Type: Int8}}}}},
		"an empty struct":     {Type: Struct},
		"rows of nothing":     ListOf("x", FixedList, 0, ColumnType{Type: Int8}),
		"rows of too much":    ListOf("x", FixedList, 1<<30, ListOf("", FixedList, 1<<30, ColumnType{Type: Int8})),
		"large elements":      ListOf("x", FixedList, 1<<30, ColumnType{Type: Int64}),
		"arrays of text":      ListOf("x", FixedList, 2, ColumnType{Type: UTF8}),
	} {
		if _, err := Leaves([]ColumnType{c}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestCheckOffsets(t *testing.T) {
	enc := func(v ...int64) []byte {
		var b []byte
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, uint64(x))
		}
		return b
	}
	for _, test := range []struct {
		offsets []byte
		rows    int
		items   int64
		ok      bool
	}{
		{enc(0, 1, 5), 2, 5, true},
		{enc(0, 1, 5), 2, 4, false},
		{enc(0, 5, 1), 2, 9, false},
		{enc(0, -1, 5), 2, 9, false},
		{enc(-5, 0, 5), 2, 9, false},
		{enc(0, 1), 2, 9, false},
		{enc(3, 3, 3), 2, 3, true},
		{nil, 0, 0, false},
		{enc(0), 0, 0, true},
	} {
		if err := CheckOffsets(test.offsets, 8, test.rows, test.items); (err == nil) != test.ok {
			t.Errorf("%v of %d items: %v", test.offsets, test.items, err)
		}
		var short []byte
		for i := 0; i < len(test.offsets); i += 8 {
			short = append(short, test.offsets[i:i+4]...)
		}
		if err := CheckOffsets(short, 4, test.rows, test.items); (err == nil) != test.ok {
			t.Errorf("%v of %d items, 32 bits: %v", short, test.items, err)
		}
	}
	if err := CheckOffsets([]byte{0, 0, 0, 0, 0, 0, 0, 0x80}, 4, 1, 1<<40); err == nil {
		t.Error("an offset of 2^31, which Arrow takes for negative, passes")
	}
}

func FuzzParseBatch(f *testing.F) {
	leaves := testLeaves(f)
	file, _, blocks, _ := testFile(f, 3, 3, 1)
	for _, b := range blocks {
		f.Add(file[b.Offset:b.Offset+int64(b.MetaBytes)+b.BodyBytes], int64(b.MetaBytes)+b.BodyBytes)
	}
	f.Fuzz(func(t *testing.T, b []byte, total int64) {
		l, err := ParseBatch(b, total, testColumns)
		if err != nil {
			return
		}
		if len(l.Leaves) != len(leaves) {
			t.Fatalf("%d leaves", len(l.Leaves))
		}
		for i, p := range l.Leaves {
			for _, s := range []Span{p.Values, p.Offsets} {
				if s.Off < 0 || s.Len < 0 || s.Off > total || s.Len > total-s.Off {
					t.Fatalf("span %+v outside of %d bytes", s, total)
				}
			}
			if p.Items < 0 || p.Items > p.Values.Len/leaves[i].Width {
				t.Fatalf("%s has %d items in %d bytes", leaves[i].Name, p.Items, p.Values.Len)
			}
			s := p.Offsets
			if w := leaves[i].OffsetWidth; w == 0 && p.Items != int64(l.Rows) {
				t.Fatalf("%s has %d of %d rows", leaves[i].Name, p.Items, l.Rows)
			} else if w > 0 && s.Len < w*int64(l.Rows+1) {
				t.Fatalf("%s has %d bytes of offsets for %d rows", leaves[i].Name, s.Len, l.Rows)
			} else if w > 0 && s.Off+s.Len <= int64(len(b)) {
				_ = CheckOffsets(b[s.Off:s.Off+s.Len], w, l.Rows, p.Items)
			}
		}
	})
}

func FuzzParseFile(f *testing.F) {
	for i, sizes := range [][]int{{}, {1}, {2, 3, 4}} {
		file, _, _, _ := testFile(f, uint64(i), sizes...)
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if cols, err := ParseHeader(b); err == nil {
			if len(cols) > maxColumns {
				t.Fatal("too many columns")
			}
			if head := Header(cols, nil); len(head) > HeaderLimit {
				return // by names that many columns share
			} else if again, err := ParseHeader(head); err != nil || !Equal(again, cols) {
				t.Fatalf("written again it is %v, %v", again, err)
			}
		}
		if _, blocks, err := ParseFooter(b, int64(len(b))); err == nil {
			_ = fmt.Sprint(blocks)
		}
	})
}
