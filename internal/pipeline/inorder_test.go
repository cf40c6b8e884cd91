package pipeline

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/tfrecordsource"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// plainAndCompressed writes records as plain files and as compressed ones. The compressed files have several members, and records
// cross their boundaries, except in the last file.
func plainAndCompressed(t testing.TB, sizes func(i int) int, files, each int) (plain, compressed string) {
	t.Helper()
	plain, compressed = t.TempDir(), t.TempDir()
	rng := rand.New(rand.NewPCG(3, 4))
	for f := range files {
		var b []byte
		for i := range each {
			size := sizes(f*each + i)
			data := make([]byte, size+7)
			for k := 0; k < size; k += 8 {
				binary.LittleEndian.PutUint64(data[k:], rng.Uint64()&0x0f0f0f0f0f0f0f0f)
			}
			b = tfrecordsource.AppendRecord(b, data[:size])
		}
		name := fmt.Sprintf("x-%02d.tfrecord", f)
		if err := os.WriteFile(filepath.Join(plain, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for rest := b; len(rest) > 0 && f < files-1; {
			n := min(len(rest), 1<<18+17)
			w, _ := gzip.NewWriterLevel(&out, gzip.HuffmanOnly) // the race detector makes more of it slow
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if f == files-1 {
			out.Write(b) // one that is not compressed among them
		}
		if err := os.WriteFile(filepath.Join(compressed, name), out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return plain, compressed
}

// raggedRows are the records of a batch as the trainer sees them.
func raggedRows(p *Pipeline, ev Event) (ids []int64, rows [][]byte) {
	slot := p.Ring().Slot(ev.Slot)
	for _, a := range p.Info().Arrays {
		switch {
		case a.Name == "index":
			for i := range ev.Rows {
				ids = append(ids, int64(binary.LittleEndian.Uint64(slot[a.Offset+int64(i)*8:])))
			}
		case a.Ragged:
			offsets, values := slot[a.Offsets:], slot[a.Offset:]
			for i := range ev.Rows {
				lo, hi := binary.LittleEndian.Uint64(offsets[8*i:]), binary.LittleEndian.Uint64(offsets[8*i+8:])
				rows = append(rows, slices.Clone(values[lo:hi]))
			}
		}
	}
	return ids, rows
}

type raggedBatch struct {
	ids  []int64
	rows [][]byte
	pos  item.Position
	end  bool
}

func raggedBatches(t testing.TB, p *Pipeline, n int) (all []raggedBatch) {
	t.Helper()
	for len(all) < n {
		ev, err := p.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == EventEpochEnd {
			all = append(all, raggedBatch{end: true, pos: ev.Pos})
			continue
		}
		b := raggedBatch{pos: ev.Pos}
		b.ids, b.rows = raggedRows(p, ev)
		all = append(all, b)
		p.Release(ev.Slot)
	}
	return all
}

func sameBatches(t testing.TB, what string, a, b []raggedBatch) {
	t.Helper()
	for i := range a {
		x, y := a[i], b[i]
		if x.end != y.end || x.pos != y.pos || !slices.Equal(x.ids, y.ids) || !slices.EqualFunc(x.rows, y.rows, bytes.Equal) {
			t.Fatalf("%s: batch %d is another one: %v (%v) against %v (%v)", what, i, x.ids, x.pos, y.ids, y.pos)
		}
	}
}

// Batches of compressed records equal those of uncompressed ones: for all ranks, over several epochs, from every
// position.
func TestInOrder(t *testing.T) {
	less := 1
	if testing.Short() {
		less = 10 // the race detector makes compressing slow
	}
	plain, compressed := plainAndCompressed(t, func(i int) int { return []int{0, 100, 5000, 70_000 / less, 7, 300_000 / less}[i%6] }, 3, 101)
	for _, c := range []Config{
		{BatchSize: 16},
		{BatchSize: 16, DropLast: true, Threads: 1},
		{BatchSize: 7, WorldSize: 3, Rank: 1},
		{BatchSize: 5, WorldSize: 16, Rank: 15, DropLast: true},
		{BatchSize: 64, Memory: 100 << 20, Prefetch: 1},
		{BatchSize: 303, Memory: 300 << 20, Prefetch: 1},
	} {
		what := fmt.Sprintf("%+v", c)
		open := func(dir string) *Pipeline {
			c.Source = dir
			if testing.Short() {
				c.Lookahead = int64(64 << 20 / less) // the default reads more epochs ahead if they are smaller
			}
			return mustOpen(t, c)
		}
		a, b := open(plain), open(compressed)
		if a.Info().Len != b.Info().Len || a.Info().Steps != b.Info().Steps {
			t.Fatalf("%s: %+v against %+v", what, a.Info(), b.Info())
		}
		a.Start(item.Position{})
		b.Start(item.Position{})
		n := int(3*a.Info().Steps) + 2
		want := raggedBatches(t, a, n)
		sameBatches(t, what, want, raggedBatches(t, b, n))
		for at := 0; at+4 < n; at += 1 + n/5 {
			a.Start(want[at].pos)
			b.Start(want[at].pos)
			sameBatches(t, fmt.Sprintf("%s, behind batch %d", what, at), raggedBatches(t, a, 3), raggedBatches(t, b, 3))
		}
	}
}

// The memory for reading is less than a batch, and than two of the records.
func TestInOrderLittleMemory(t *testing.T) {
	plain, compressed := plainAndCompressed(t, func(i int) int { return []int{3 << 20, 10, 2 << 20, 1 << 20}[i%4] }, 2, 20)
	var all [2][]raggedBatch
	for i, dir := range []string{plain, compressed} {
		p := mustOpen(t, Config{Source: dir, BatchSize: 8, Threads: 2, Prefetch: 1, Lookahead: 1, Memory: 160 << 20})
		p.Start(item.Position{})
		all[i] = raggedBatches(t, p, 12)
		if s := p.Stats(); s.MemoryPeak > s.MemoryUsed+200<<20 {
			t.Errorf("%d bytes", s.MemoryPeak)
		}
	}
	sameBatches(t, "little memory", all[0], all[1])
}

func TestInOrderIsNotShuffled(t *testing.T) {
	_, compressed := plainAndCompressed(t, func(int) int { return 100 }, 2, 20)
	_, err := Open(t.Context(), Config{Source: compressed, BatchSize: 4, Shuffle: true, Memory: 64 << 20})
	if err == nil || !strings.Contains(err.Error(), "can only be read in order") || !strings.Contains(err.Error(), "stoker pack") {
		t.Errorf("error is %v", err)
	}
}

// damage damages records in a file.
func damage(t testing.TB, dir, name string, at ...int) {
	t.Helper()
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range at {
		b[i] ^= 0x55
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A bad record has the same replacement as in an uncompressed file, or ends the epoch and is named.
func TestInOrderBadRecords(t *testing.T) {
	const size, files, each = 1000, 2, 30
	plain, compressed := plainAndCompressed(t, func(int) int { return size }, files, each)
	last := "x-01.tfrecord" // uncompressed in both
	for _, dir := range []string{plain, compressed} {
		damage(t, dir, last, 3*1016+500, 4*1016+500, 29*1016+500)
	}
	var all [2][]raggedBatch
	for i, dir := range []string{plain, compressed} {
		p := mustOpen(t, Config{Source: dir, BatchSize: 8, OnError: OnErrorSkip})
		p.Start(item.Position{})
		all[i] = raggedBatches(t, p, 18)
	}
	sameBatches(t, "skip", all[0], all[1])
	p := mustOpen(t, Config{Source: compressed, BatchSize: 8})
	p.Start(item.Position{})
	err := lastError(t, p)
	var rec *RecordError
	if !errors.As(err, &rec) || rec.ID != 33 || !strings.Contains(err.Error(), last+", record 3") || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("error is %v", err)
	}
}

// lastError loads batches until one fails.
func lastError(t testing.TB, p *Pipeline) error {
	t.Helper()
	for {
		ev, err := p.Next(testContext(t))
		if err != nil {
			return err
		}
		if ev.Kind == EventEpochEnd {
			t.Fatal("no error came")
		}
		p.Release(ev.Slot)
	}
}

// If the store fails within a compressed stream, the records up to the next restart point cannot be read. With
// on_error=skip, later records take their place.
func TestInOrderStreamFails(t *testing.T) {
	_, compressed := plainAndCompressed(t, func(int) int { return 20_000 }, 3, 150)
	why := errors.New("the device is on fire")
	open := func(onError string) *Pipeline {
		return mustOpen(t, Config{Source: compressed, BatchSize: 10, OnError: onError, Decorate: func(s store.Store) store.Store {
			return faulttest.New(s, 1, faulttest.Error(why).On(faulttest.Read).Named("x-01.tfrecord"))
		}})
	}
	p := open(OnErrorRaise)
	p.Start(item.Position{})
	err := lastError(t, p)
	var rec *RecordError
	if !errors.As(err, &rec) || rec.ID != 150 || !errors.Is(err, why) || !strings.Contains(err.Error(), "x-01.tfrecord") {
		t.Errorf("error is %v", err)
	}
	p = open(OnErrorSkip)
	p.Start(item.Position{})
	all := raggedBatches(t, p, 45)
	for i, b := range all {
		for k, id := range b.ids {
			if want := int64(10*i + k); id != want && (want < 150 || want >= 300 || id != 300) {
				t.Fatalf("record %d stands in the place of %d", id, want)
			}
		}
	}
}

// A read that hangs is named, and neither Start nor Close waits for it.
func TestInOrderHangs(t *testing.T) {
	_, compressed := plainAndCompressed(t, func(int) int { return 20_000 }, 3, 150)
	var on atomic.Bool
	on.Store(true)
	hang := faulttest.Hang().On(faulttest.Read).Named("x-01.tfrecord").While(on.Load)
	p := mustOpen(t, Config{Source: compressed, BatchSize: 10, Decorate: func(s store.Store) store.Store { return faulttest.New(s, 1, hang) }})
	p.Start(item.Position{})
	raggedBatches(t, p, 15)
	for hang.Hits() == 0 {
		time.Sleep(time.Millisecond)
	}
	var s Stats
	for s.Waiting == "" {
		time.Sleep(10 * time.Millisecond)
		s = p.Stats()
	}
	if !strings.HasPrefix(s.Waiting, "fetch: reading "+filepath.Join(compressed, "x-01.tfrecord")+", bytes 0 to ") {
		t.Errorf("waiting for %q", s.Waiting)
	}
	on.Store(false)
	p.Start(item.Position{Row: 140})
	if b := raggedBatches(t, p, 2); b[1].ids[0] != 150 {
		t.Errorf("%v", b[1].ids)
	}
	on.Store(true)
	p.Start(item.Position{Row: 140})
	for n := hang.Hits(); hang.Hits() == n; {
		time.Sleep(time.Millisecond)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A source that cannot locate and fails as a whole ends the epoch with an error.
func TestInOrderBug(t *testing.T) {
	_, compressed := plainAndCompressed(t, func(int) int { return 100 }, 2, 20)
	p := mustOpen(t, Config{Source: compressed, BatchSize: 4, OpenSource: func(ctx context.Context, url string) (driver.Source, error) {
		s, err := source.Open(ctx, url, nil)
		if err != nil {
			return nil, err
		}
		return forgetful{s.(driver.Sequential)}, nil
	}})
	p.Start(item.Position{})
	if err := lastError(t, p); err == nil || !strings.Contains(err.Error(), "invalid resume token") {
		t.Errorf("error is %v", err)
	}
}

type forgetful struct{ driver.Sequential }

func (f forgetful) Token(id int64) string {
	if id == 0 {
		return ""
	}
	return "x"
}

func (f forgetful) Records(ctx context.Context, token string, in *driver.InOrder) error {
	own := *in
	own.Record = func(rec *driver.Record) (int64, error) {
		next, err := in.Record(rec)
		if rec.ID == 9 {
			next = f.Info().Len
		}
		return next, err
	}
	return f.Sequential.Records(ctx, token, &own)
}
