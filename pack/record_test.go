package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// testRecords is a source with a field of each kind.
type testRecords struct {
	driver.InMemory
	n    int64
	wide int
	bad  map[int64]bool
}

func (s *testRecords) Info() *driver.Info {
	return &driver.Info{URL: "test-records", Format: "test", Len: s.n, Fingerprint: fmt.Sprintf("t%d-%d", s.n, s.wide), Fields: []driver.Field{
		{Name: "blob", Kind: driver.KindBytes, MaxBytes: int64(s.wide)},
		{Name: "label", Kind: driver.KindLabel, Classes: []string{"a", "b", "c"}},
		{Name: "tokens", Kind: driver.KindArray, DType: driver.Uint16, Shape: []int{2, 3}},
		{Name: "caption", Kind: driver.KindText, MaxBytes: 64},
		{Name: "score", Kind: driver.KindArray, DType: driver.Float32},
		{Name: "count", Kind: driver.KindInt},
		{Name: "more", Kind: driver.KindBytes, MaxBytes: int64(s.wide)},
		{Name: "mask", Kind: driver.KindArray, DType: driver.Bool, Shape: []int{5}},
	}}
}

// fill makes the values of a record.
func (s *testRecords) fill(id int64) []driver.Value {
	rng := rand.New(rand.NewPCG(uint64(id), 3))
	text := func() []byte {
		b := make([]byte, rng.IntN(s.wide+1))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	var tokens, mask []byte
	for i := range 6 {
		tokens = binary.LittleEndian.AppendUint16(tokens, uint16(id*7+int64(i)))
	}
	for i := range 5 {
		mask = append(mask, byte(id>>i&1))
	}
	score := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(id)/4))
	return []driver.Value{{Bytes: text()}, {Int: id % 3}, {Bytes: tokens}, {Bytes: fmt.Appendf(nil, "record %d", id)}, {Bytes: score},
		{Int: -id}, {Bytes: text()}, {Bytes: mask}}
}

func (s *testRecords) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		if s.bad[id] {
			g.Records[k].Err = errors.New("it is broken")
			continue
		}
		copy(g.Records[k].Values, s.fill(id))
	}
	return nil
}

func (s *testRecords) Name(id int64) string { return fmt.Sprint("test record ", id) }
func (s *testRecords) Close() error         { return nil }

type testRecordsWithPaths struct{ testRecords }

func (s *testRecordsWithPaths) Path(id int64) string { return fmt.Sprintf("dir/%d.bin", id) }

func mustWriteSource(t testing.TB, s driver.Source, dst string, opt *Options) *Summary {
	t.Helper()
	sum, err := WriteSource(t.Context(), s, dst, opt)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// checkRecords compares a pack with the source that it was made from, whose
// records are those of ids.
func checkRecords(t *testing.T, dir string, s *testRecords, ids []int64) {
	t.Helper()
	r, err := Open(t.Context(), dir, &ReadOptions{VerifyChunks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Len() != int64(len(ids)) {
		t.Fatalf("%d records, want %d", r.Len(), len(ids))
	}
	names := map[string]int{}
	for i, f := range s.Info().Fields {
		names[f.Name] = i
	}
	fields := r.Fields()
	if len(fields) != 7 || fields[0].Name != "label" || fields[1].Name != "count" || fields[2].Name != "blob" {
		t.Fatalf("fields are %+v", fields)
	}
	n := len(ids)
	at := make([]int64, n)
	for i, k := range rand.New(rand.NewPCG(8, 8)).Perm(n) {
		at[i] = int64(k)
	}
	recs := drivertest.Records(t, asSource(r), at...)
	for i := range recs {
		rec := &recs[i]
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		want := s.fill(ids[at[i]])
		for k, f := range fields {
			w := want[names[f.Name]]
			if got := rec.Values[k]; got.Int != w.Int || !bytes.Equal(got.Bytes, w.Bytes) {
				t.Fatalf("record %d: %s is %v, want %v", at[i], f.Name, got, w)
			}
		}
	}
	for i := range min(n, 20) {
		rec, err := r.Record(int64(i))
		if err != nil {
			t.Fatal(err)
		}
		want := s.fill(ids[i])
		for _, v := range rec.Values {
			if v.Field.Name == colPath {
				continue
			}
			w := want[names[v.Field.Name]]
			if v.Int != w.Int || !bytes.Equal(v.Bytes, w.Bytes) {
				t.Fatalf("Record(%d): %s is %v, want %v", i, v.Field.Name, v, w)
			}
		}
	}
	rep, err := Verify(t.Context(), dir, &VerifyOptions{Decode: true})
	if err != nil || len(rep.Problems) > 0 || rep.Records != int64(n) {
		t.Errorf("Verify: %+v, %v", rep, err)
	}
}

func upTo(n int64) (ids []int64) {
	for i := range n {
		ids = append(ids, i)
	}
	return ids
}

func TestRecords(t *testing.T) {
	for _, wide := range []int{0, 10, 3000} {
		s := &testRecords{n: 500, wide: wide}
		dir := filepath.Join(t.TempDir(), "pack")
		sum := mustWriteSource(t, s, dir, small(""))
		if sum.Manifest.Version != RecordsVersion || sum.Manifest.Images() != nil || len(sum.Manifest.Shards[0].Chunks) == 1 && wide == 3000 {
			t.Errorf("manifest %+v", sum.Manifest)
		}
		checkRecords(t, dir, s, upTo(500))
		again := mustWriteSource(t, s, dir, small(""))
		if !again.Unchanged {
			t.Error("it was packed again")
		}
	}
	s := &testRecordsWithPaths{testRecords{n: 10, wide: 10}}
	dir := filepath.Join(t.TempDir(), "pack")
	mustWriteSource(t, s, dir, nil)
	checkRecords(t, dir, &s.testRecords, upTo(10))
	r, err := Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if rec, err := r.Record(7); err != nil || rec.Path != "dir/7.bin" || !strings.HasPrefix(r.Find(t.Context(), 7), "dir/7.bin (") {
		t.Errorf("%+v, %v, %s", rec, err, r.Find(t.Context(), 7))
	}
}

func TestRecordsSkipBad(t *testing.T) {
	s := &testRecords{n: 50, wide: 10, bad: map[int64]bool{3: true, 49: true}}
	dir := filepath.Join(t.TempDir(), "pack")
	sum := mustWriteSource(t, s, dir, nil)
	if len(sum.Manifest.Skipped) != 2 || sum.Manifest.Skipped[0].Path != "test record 3" {
		t.Errorf("skipped: %+v", sum.Manifest.Skipped)
	}
	var ids []int64
	for _, id := range upTo(50) {
		if !s.bad[id] {
			ids = append(ids, id)
		}
	}
	checkRecords(t, dir, s, ids)
}

// An interrupted run is gone on with, and the result is that of one run.
func TestRecordsResume(t *testing.T) {
	s := &testRecords{n: 400, wide: 3000}
	tmp := t.TempDir()
	mustWriteSource(t, s, filepath.Join(tmp, "whole"), small(""))
	ctx, cancel := context.WithCancel(t.Context())
	opt := small("")
	opt.Threads = 1
	opt.Progress = func(p Progress) {
		if p.Files > 150 {
			cancel()
		}
	}
	slow := &slowRecords{testRecords: s, after: 200, cancel: cancel}
	dir := filepath.Join(tmp, "parts")
	if _, err := WriteSource(ctx, slow, dir, opt); !errors.Is(err, ErrInterrupted) {
		t.Fatalf("got %v", err)
	}
	if _, err := Open(t.Context(), dir, nil); !errors.Is(err, ErrUnfinished) || !strings.Contains(err.Error(), "stoker pack test-records "+dir+" --shard-size") {
		t.Errorf("got %v", err)
	}
	sum := mustWriteSource(t, s, dir, small(""))
	if sum.Resumed == 0 {
		t.Error("it began anew")
	}
	sameFiles(t, "resumed", filepath.Join(tmp, "whole"), dir)
}

type slowRecords struct {
	*testRecords
	after  int64
	cancel func()
}

func (s *slowRecords) Parse(g *driver.Group) error {
	if g.IDs[0] >= s.after {
		s.cancel()
		return context.Canceled
	}
	return s.testRecords.Parse(g)
}

func TestRecordsRefused(t *testing.T) {
	s := &testRecords{n: 5, wide: 10}
	dir := filepath.Join(t.TempDir(), "pack")
	if _, err := WriteSource(t.Context(), s, dir, &Options{Images: ImagesRaw}); err == nil || !strings.Contains(err.Error(), "holds no images") {
		t.Errorf("got %v", err)
	}
	mustWriteSource(t, s, dir, nil)
	if _, err := Convert(t.Context(), dir, dir+"2", nil); err == nil || !strings.Contains(err.Error(), "holds no images") {
		t.Errorf("got %v", err)
	}
}

// goldenRecords are those of the golden pack.
func goldenRecords() driver.Source { return &testRecordsWithPaths{testRecords{n: 9, wide: 40}} }

func TestGoldenRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	mustWriteSource(t, goldenRecords(), dir, nil)
	golden := filepath.Join("testdata", "golden", "records")
	if *update {
		if err := os.RemoveAll(golden); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(golden, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	sameFiles(t, "records", golden, dir)
	checkRecords(t, golden, &testRecords{n: 9, wide: 40}, upTo(9))
}

// FuzzRecordChunk is FuzzChunk for a pack without images; fields is the JSON of
// the manifest's fields.
func FuzzRecordChunk(f *testing.F) {
	golden := filepath.Join("testdata", "golden", "records")
	m, err := ReadManifest(golden)
	if err != nil {
		f.Fatal(err)
	}
	shard, err := os.ReadFile(filepath.Join(golden, m.Shards[0].File))
	if err != nil {
		f.Fatal(err)
	}
	fields, err := json.Marshal(m.Fields)
	if err != nil {
		f.Fatal(err)
	}
	c := m.Shards[0].Chunks[0]
	f.Add(shard[c.Offset:c.Offset+c.Bytes], c.Head, c.Rows, fields)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, head, rows int64, fields []byte) {
		mm := *m
		mm.Fields = nil
		if json.Unmarshal(fields, &mm.Fields) != nil {
			return
		}
		mm.Shards = []Shard{{File: m.Shards[0].File, Bytes: int64(len(b)), Records: rows, Chunks: []Chunk{{Bytes: int64(len(b)), Head: head, Rows: rows}}}}
		mm.Records, mm.Bytes = rows, int64(len(b))
		mm.Fingerprint = mm.computeFingerprint()
		text, err := mm.marshal()
		if err != nil {
			return
		}
		writeFile(t, b, dir, mm.Shards[0].File)
		writeFile(t, text, dir, ManifestName)
		r, err := Open(t.Context(), dir, nil)
		if err != nil {
			return
		}
		defer r.Close()
		n := min(rows, 64)
		ids := make([]int64, n)
		for i := range ids {
			ids[i] = int64(i)
		}
		recs := drivertest.Records(t, asSource(r), ids...)
		for i := range recs {
			for _, v := range recs[i].Values {
				if len(v.Bytes) > len(b) {
					t.Fatalf("record %d has %d bytes in a chunk of %d", i, len(v.Bytes), len(b))
				}
			}
			_ = r.Name(int64(i))
			_, _ = r.Record(int64(i))
		}
		_, _ = r.Describe(t.Context())
		if _, err := Verify(t.Context(), dir, &VerifyOptions{Threads: 1}); err != nil {
			t.Fatal(err)
		}
	})
}
