package handoff

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
)

// goldenSlot returns a batch of 3 rows with capacity for 4, with an array of each format, and its description. The
// tests of the Python client read both.
func goldenSlot(t *testing.T) (description, slot []byte) {
	t.Helper()
	ragged := func(c collate.Column, capacity int64) collate.Column {
		c.Ragged, c.Capacity, c.MaxRow = true, capacity, capacity/4
		return c
	}
	l, err := collate.New(4, []collate.Column{
		{Name: "image", Kind: "image", DType: item.U8, Shape: []int{2, 2, 3}},
		{Name: "mask", Kind: "mask", DType: item.U16, Shape: []int{2, 2}},
		ragged(collate.Column{Name: "caption", Kind: "text", DType: item.U8}, 64),
		ragged(collate.Column{Name: "boxes", Kind: "ragged", DType: item.F32, Shape: []int{4}}, 256),
		ragged(collate.Column{Name: "tags", Kind: "multilabel", DType: item.I64}, 128),
		ragged(collate.Column{Name: "meta", Kind: "json", DType: item.U8}, 64),
		{Name: "score", Kind: "float", DType: item.F64},
		{Name: "index", DType: item.I64},
	})
	if err != nil {
		t.Fatal(err)
	}
	slot = make([]byte, l.Bytes)
	b := l.NewBatch()
	b.Begin(slot, 3)
	captions, metas := []string{"ein Hünd", "", "cat"}, []string{`{"a": 1}`, `[]`, `null`}
	for i := range 3 {
		for k := range b.Row(0, i) {
			b.Row(0, i)[k] = byte(20*i + k)
		}
		for k := range 4 {
			binary.LittleEndian.PutUint16(b.Row(1, i)[2*k:], uint16(1000*i+k))
		}
		var boxes, tags []byte
		for k := range 4 * i {
			boxes = binary.LittleEndian.AppendUint32(boxes, math.Float32bits(float32(i)+float32(k)/8))
		}
		for k := range 2 - i {
			tags = binary.LittleEndian.AppendUint64(tags, uint64(10*i+k))
		}
		for a, v := range map[int][]byte{2: []byte(captions[i]), 3: boxes, 4: tags, 5: []byte(metas[i])} {
			if err := b.Put(a, i, v); err != nil {
				t.Fatal(err)
			}
		}
		b.PutInt(6, i, int64(math.Float64bits(float64(i)/4)))
		b.PutInt(7, i, int64(100+i))
	}
	if err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	// Bytes after the values are arbitrary; here they are zero.
	for _, a := range l.Arrays {
		if a.Ragged {
			at := int64(binary.LittleEndian.Uint64(slot[a.Offsets+8*3:])) * a.ElementBytes()
			clear(slot[a.Offset+at : a.Offset+a.Capacity])
		}
	}
	description, err = infoJSON(pipeline.Info{
		URL: "test:", Format: "test", Len: 7, Steps: 2, BatchSize: 4, WorldSize: 1, Threads: 1, SlotBytes: l.Bytes, Slots: 3, Arrays: l.Arrays,
		Classes: map[string][]string{"tags": {"a", "b"}},
	}, "0")
	if err != nil {
		t.Fatal(err)
	}
	return append(description, '\n'), slot
}

func TestGoldenSlot(t *testing.T) {
	description, slot := goldenSlot(t)
	for name, want := range map[string][]byte{"slot.json": description, "slot.raw": slot} {
		name = filepath.Join(goldenDir, name)
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s has changed: a layout that clients do not know needs another version", name)
		}
	}
}
