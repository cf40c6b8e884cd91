package arrowipc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

var testColumns = []Column{
	{Name: "path", Type: UTF8}, {Name: "label", Type: Int64}, {Name: "width", Type: Int32}, {Name: "codec", Type: Uint8},
	{Name: "image", Type: Binary}, {Name: "icc", Type: Binary},
	{Name: "blob", Type: LargeBinary}, {Name: "score", Type: Float32}, {Name: "half", Type: Float16}, {Name: "short", Type: Int16},
	{Name: "tokens", Type: FixedList, Elem: Uint16, Size: 6, Shape: "[2,3]"},
	{Name: "weights", Type: FixedList, Elem: Float64, Size: 1, Shape: "[1]"},
}

// testBatch makes rows of random length; bulk is the column "image".
func testBatch(rng *rand.Rand, rows int) *Batch {
	b := &Batch{Rows: rows, Values: make([][]byte, len(testColumns)), Offsets: make([][]byte, len(testColumns))}
	for i, c := range testColumns {
		if w := c.Width(); w > 0 {
			b.Values[i] = make([]byte, int(w)*rows)
			for k := range b.Values[i] {
				b.Values[i][k] = byte(rng.Uint32())
			}
			continue
		}
		b.Offsets[i] = make([]byte, c.OffsetWidth())
		for range rows {
			for range rng.IntN(300) {
				b.Values[i] = append(b.Values[i], 'a'+byte(rng.IntN(26)))
			}
			if c.Type == LargeBinary {
				b.Offsets[i] = binary.LittleEndian.AppendUint64(b.Offsets[i], uint64(len(b.Values[i])))
			} else {
				b.Offsets[i] = binary.LittleEndian.AppendUint32(b.Offsets[i], uint32(len(b.Values[i])))
			}
		}
	}
	return b
}

const testBulk = 4

// writeFile writes a file of batches and returns where they lie.
func writeFile(batches []*Batch) (file []byte, blocks []Block, heads []int64) {
	meta := []KeyValue{{"stoker.pack.version", "1"}}
	file = Header(testColumns, meta)
	for _, b := range batches {
		parts, block, head := b.Parts(testColumns, testBulk)
		block.Offset = int64(len(file))
		for _, p := range parts {
			file = append(file, p...)
		}
		blocks, heads = append(blocks, block), append(heads, head)
	}
	return append(file, Footer(testColumns, meta, blocks)...), blocks, heads
}

func testFile(seed uint64, sizes ...int) (file []byte, batches []*Batch, blocks []Block, heads []int64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, n := range sizes {
		batches = append(batches, testBatch(rng, n))
	}
	file, blocks, heads = writeFile(batches)
	return file, batches, blocks, heads
}

// What is written here is read by arrow-go.
func TestArrowGoReadsIt(t *testing.T) {
	file, batches, _, _ := testFile(1, 1, 7, 100, 0, 3)
	r, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n := r.NumRecords(); n != len(batches) {
		t.Fatalf("%d record batches, want %d", n, len(batches))
	}
	if v, ok := r.Schema().Metadata().GetValue("stoker.pack.version"); !ok || v != "1" {
		t.Errorf("metadata %v", r.Schema().Metadata())
	}
	for i, c := range testColumns {
		f := r.Schema().Field(i)
		want := c.Type.String()
		if c.Type == FixedList {
			want = fmt.Sprintf("fixed_size_list<item: %s>[%d]", c.Elem, c.Size)
			if ext, _ := f.Metadata.GetValue("ARROW:extension:metadata"); ext != `{"shape":`+c.Shape+"}" {
				t.Errorf("field %d has the extension %q", i, ext)
			}
		}
		if f.Name != c.Name || f.Type.String() != want || f.Nullable {
			t.Errorf("field %d is %v, want %v %v not null", i, f, c.Name, c.Type)
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
			at := func(col, i int) int { return int(binary.LittleEndian.Uint32(b.Offsets[col][4*i:])) }
			if got, want := rec.Column(0).(*array.String).Value(row), string(b.Values[0][at(0, row):at(0, row+1)]); got != want {
				t.Fatalf("batch %d, row %d: path %q, want %q", k, row, got, want)
			}
			if got, want := rec.Column(1).(*array.Int64).Value(row), int64(binary.LittleEndian.Uint64(b.Values[1][8*row:])); got != want {
				t.Fatalf("batch %d, row %d: label %d, want %d", k, row, got, want)
			}
			if got, want := rec.Column(2).(*array.Int32).Value(row), int32(binary.LittleEndian.Uint32(b.Values[2][4*row:])); got != want {
				t.Fatalf("batch %d, row %d: width %d, want %d", k, row, got, want)
			}
			if got, want := rec.Column(3).(*array.Uint8).Value(row), b.Values[3][row]; got != want {
				t.Fatalf("batch %d, row %d: codec %d, want %d", k, row, got, want)
			}
			for _, col := range []int{4, 5} {
				if got, want := rec.Column(col).(*array.Binary).Value(row), b.Values[col][at(col, row):at(col, row+1)]; !bytes.Equal(got, want) {
					t.Fatalf("batch %d, row %d: column %d differs", k, row, col)
				}
			}
			from, to := binary.LittleEndian.Uint64(b.Offsets[6][8*row:]), binary.LittleEndian.Uint64(b.Offsets[6][8*row+8:])
			if !bytes.Equal(rec.Column(6).(*array.LargeBinary).Value(row), b.Values[6][from:to]) {
				t.Fatalf("batch %d, row %d: blob differs", k, row)
			}
			if got, want := math.Float32bits(rec.Column(7).(*array.Float32).Value(row)), binary.LittleEndian.Uint32(b.Values[7][4*row:]); got != want {
				t.Fatalf("batch %d, row %d: score differs", k, row)
			}
			if got, want := rec.Column(8).(*array.Float16).Value(row).Uint16(), binary.LittleEndian.Uint16(b.Values[8][2*row:]); got != want {
				t.Fatalf("batch %d, row %d: half differs", k, row)
			}
			if got, want := rec.Column(9).(*array.Int16).Value(row), int16(binary.LittleEndian.Uint16(b.Values[9][2*row:])); got != want {
				t.Fatalf("batch %d, row %d: short differs", k, row)
			}
			list := rec.Column(10).(*array.FixedSizeList)
			elems := list.ListValues().(*array.Uint16)
			for e := range 6 {
				if got, want := elems.Value(6*row+e), binary.LittleEndian.Uint16(b.Values[10][12*row+2*e:]); got != want {
					t.Fatalf("batch %d, row %d: tokens differ", k, row)
				}
			}
		}
	}
}

func TestReadBack(t *testing.T) {
	file, batches, blocks, heads := testFile(2, 5, 1, 64)
	cols, err := ParseHeader(file)
	if err != nil || !slices.Equal(cols, testColumns) {
		t.Fatalf("header: %v, %v", cols, err)
	}
	cols, got, err := ParseFooter(file, int64(len(file)))
	if err != nil || !slices.Equal(cols, testColumns) || !slices.Equal(got, blocks) {
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
		if l.Rows != batches[k].Rows {
			t.Fatalf("%d rows, want %d", l.Rows, batches[k].Rows)
		}
		for i := range testColumns {
			v := l.Values[i]
			if !bytes.Equal(msg[v.Off:v.Off+v.Len], batches[k].Values[i]) {
				t.Errorf("batch %d: values of column %d differ", k, i)
			}
			o := l.Offsets[i]
			if !bytes.Equal(msg[o.Off:o.Off+o.Len], batches[k].Offsets[i]) {
				t.Errorf("batch %d: offsets of column %d differ", k, i)
			}
			if i < testBulk && v.Off+v.Len > heads[k] || i == testBulk && v.Off != heads[k] {
				t.Errorf("batch %d: head of %d bytes, column %d lies at %d", k, heads[k], i, v.Off)
			}
		}
	}
}

func TestCheckOffsets(t *testing.T) {
	enc := func(v ...int32) []byte {
		var b []byte
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
		return b
	}
	for _, test := range []struct {
		offsets []byte
		rows    int
		size    int64
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
		if err := CheckOffsets(test.offsets, test.rows, test.size); (err == nil) != test.ok {
			t.Errorf("%v of %d bytes: %v", test.offsets, test.size, err)
		}
	}
}

func FuzzParseBatch(f *testing.F) {
	file, _, blocks, _ := testFile(3, 3, 1)
	for _, b := range blocks {
		f.Add(file[b.Offset:b.Offset+int64(b.MetaBytes)+b.BodyBytes], int64(b.MetaBytes)+b.BodyBytes)
	}
	f.Fuzz(func(t *testing.T, b []byte, total int64) {
		l, err := ParseBatch(b, total, testColumns)
		if err != nil {
			return
		}
		for i := range testColumns {
			for _, s := range []Span{l.Values[i], l.Offsets[i]} {
				if s.Off < 0 || s.Len < 0 || s.Off+s.Len > total {
					t.Fatalf("span %+v outside of %d bytes", s, total)
				}
			}
			if w := testColumns[i].Width(); l.Values[i].Len < w*int64(l.Rows) {
				t.Fatalf("column %d is too short for %d rows", i, l.Rows)
			}
			s := l.Offsets[i]
			switch w := testColumns[i].OffsetWidth(); {
			case s.Off+s.Len > int64(len(b)):
			case w == 4:
				_ = CheckOffsets(b[s.Off:s.Off+s.Len], l.Rows, l.Values[i].Len)
			case w == 8:
				_ = CheckLargeOffsets(b[s.Off:s.Off+s.Len], l.Rows, l.Values[i].Len)
			}
		}
	})
}

func FuzzParseFile(f *testing.F) {
	for i, sizes := range [][]int{{}, {1}, {2, 3, 4}} {
		file, _, _, _ := testFile(uint64(i), sizes...)
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if cols, err := ParseHeader(b); err == nil && len(cols) > maxColumns {
			t.Fatal("too many columns")
		}
		if _, blocks, err := ParseFooter(b, int64(len(b))); err == nil {
			_ = fmt.Sprint(blocks)
		}
	})
}
