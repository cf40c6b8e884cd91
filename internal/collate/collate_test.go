package collate

import (
	"encoding/binary"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

func TestLayout(t *testing.T) {
	l, err := New(3, []Column{
		{Name: "image", DType: item.U8, Shape: []int{5, 7, 3}},
		{Name: "half", DType: item.F16, Shape: []int{3}},
		{Name: "label", DType: item.I64, Shape: nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ offset, row int64 }{{0, 105}, {320, 6}, {384, 8}}
	for i, w := range want {
		if a := l.Arrays[i]; a.Offset != w.offset || a.RowBytes != w.row || a.Offset%Align != 0 {
			t.Errorf("%+v, want offset %d and rows of %d", a, w.offset, w.row)
		}
	}
	if l.Bytes != 448 {
		t.Errorf("%d bytes", l.Bytes)
	}
	// Rows do not overlap and fill the arrays.
	slot := make([]byte, l.Bytes)
	b := l.NewBatch()
	b.Begin(slot, l.Rows)
	for a := range l.Arrays {
		for i := range l.Rows {
			for k, row := 0, b.Row(a, i); k < len(row); k++ {
				if row[k] != 0 {
					t.Fatalf("row %d of %s overlaps another", i, l.Arrays[a].Name)
				}
				row[k] = 1
			}
		}
	}
	b.PutInt(2, 1, -5)
	if int64(binary.LittleEndian.Uint64(b.Row(2, 1))) != -5 {
		t.Error("PutInt wrote something else")
	}
	if n := len(b.Span(0, 1, 3)); n != 210 {
		t.Errorf("rows 1 and 2 have %d bytes", n)
	}
	b.Begin(slot, 1)
	for i, want := range []byte{1, 0, 0} {
		if b.Row(0, i)[104] != want {
			t.Errorf("row %d of a batch of one", i)
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	for name, cols := range map[string][]Column{
		"same name":  {{Name: "a", DType: item.U8, Shape: nil}, {Name: "a", DType: item.I64, Shape: nil}},
		"no name":    {{Name: "", DType: item.U8, Shape: nil}},
		"zero side":  {{Name: "a", DType: item.U8, Shape: []int{3, 0}}},
		"overflow":   {{Name: "a", DType: item.F32, Shape: []int{1 << 20, 1 << 20, 1 << 20}}},
		"large slot": {{Name: "a", DType: item.U8, Shape: []int{1 << 30}}},
		"capacity":   {{Name: "a", DType: item.U8, Ragged: true, Capacity: -1}},
		"large rest": {{Name: "a", DType: item.U8, Ragged: true, Capacity: MaxBatch}, {Name: "b", DType: item.U8}},
		"element":    {{Name: "a", DType: item.F32, Shape: []int{1 << 20, 1 << 20}, Ragged: true, Capacity: 5}},
	} {
		if _, err := New(1<<20, cols); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
