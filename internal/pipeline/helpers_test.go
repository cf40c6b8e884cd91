package pipeline

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/cache/cachetest"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

func TestMain(m *testing.M) { cachetest.Main(m) }

// ops builds a list of operations from JSON.
func ops(list ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, s := range list {
		out = append(out, json.RawMessage(s))
	}
	return out
}

func imageOps(list ...string) []transform.Output {
	return []transform.Output{{Name: "image", Field: "image", Ops: ops(list...)}}
}

const (
	opRRC  = `{"op":"RandomResizedCrop","size":[16,16]}`
	opFlip = `{"op":"RandomHorizontalFlip"}`
)

func use(src driver.Source) func(context.Context, string) (driver.Source, error) {
	return func(context.Context, string) (driver.Source, error) { return src, nil }
}

func mustOpen(t testing.TB, cfg Config) *Pipeline {
	t.Helper()
	if cfg.Memory == 0 {
		cfg.Memory = 256 << 20
	}
	p, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// got is a batch as the trainer sees it.
type got struct {
	rows  int
	epoch int64
	step  int64
	pos   item.Position
	index []int64
	// rowsum are hashes of all bytes of each row.
	rowsum []uint64
	end    *Event
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func take(t testing.TB, p *Pipeline) got {
	t.Helper()
	ev, err := p.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return read(p, ev)
}

// read copies the needed parts of a batch and releases it.
func read(p *Pipeline, ev Event) got {
	if ev.Kind == EventEpochEnd {
		return got{end: &ev, epoch: ev.Epoch, pos: ev.Pos}
	}
	g := got{rows: ev.Rows, epoch: ev.Epoch, step: ev.Step, pos: ev.Pos}
	slot := p.Ring().Slot(ev.Slot)
	for i := range ev.Rows {
		h := xxh3.New()
		for _, a := range p.Info().Arrays {
			row := slot[a.Offset+int64(i)*a.RowBytes:][:a.RowBytes]
			h.Write(row)
			if a.Name == "index" {
				g.index = append(g.index, int64(binary.LittleEndian.Uint64(row)))
			}
		}
		g.rowsum = append(g.rowsum, h.Sum64())
	}
	p.Release(ev.Slot)
	return g
}

// epochs takes batches until n epochs have ended.
func epochs(t testing.TB, p *Pipeline, n int) (batches []got, ends []Event) {
	t.Helper()
	for len(ends) < n {
		g := take(t, p)
		if g.end != nil {
			ends = append(ends, *g.end)
			continue
		}
		batches = append(batches, g)
	}
	return batches, ends
}

func sums(batches []got) (all []uint64) {
	for _, b := range batches {
		all = append(all, b.rowsum...)
	}
	return all
}

func indexes(batches []got) (all []int64) {
	for _, b := range batches {
		all = append(all, b.index...)
	}
	return all
}

func checkOnce(t *testing.T, idx []int64, n int64) {
	t.Helper()
	seen := make([]bool, n)
	for _, id := range idx {
		if id < 0 || id >= n || seen[id] {
			t.Fatalf("record %d is out of range or came twice", id)
		}
		seen[id] = true
	}
	if int64(len(idx)) != n {
		t.Fatalf("%d of %d records came", len(idx), n)
	}
}

func equal[T comparable](t *testing.T, what string, a, b []T) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%s: %d against %d", what, len(a), len(b))
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("%s: element %d of %d differs: %v against %v", what, i, len(a), fmt.Sprint(a[i]), fmt.Sprint(b[i]))
		}
	}
}

// checkRaw compares the rows of an identity output with the source's bytes.
func checkRaw(t *testing.T, p *Pipeline, ev Event, src driver.Source) {
	t.Helper()
	slot := p.Ring().Slot(ev.Slot)
	arrays := p.Info().Arrays
	for i := range ev.Rows {
		id := int64(binary.LittleEndian.Uint64(slot[arrays[2].Offset+int64(i)*8:]))
		label := int64(binary.LittleEndian.Uint64(slot[arrays[1].Offset+int64(i)*8:]))
		obj := recordread.NewObjects(src, nil)
		recs, err := recordread.NewDirect(src, obj).Read(t.Context(), []int64{id})
		if err != nil {
			t.Fatal(err)
		}
		v := recs[0].Values
		row := slot[arrays[0].Offset+int64(i)*arrays[0].RowBytes:][:arrays[0].RowBytes]
		if label != v[1].Int || string(row) != string(v[0].Bytes) {
			t.Fatalf("row %d is not record %d", i, id)
		}
	}
}
