package pack

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/tfrecordsource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
)

// recordFiles writes records as files, once uncompressed and once with all files but the last compressed.
func recordFiles(t testing.TB) (compressed, plain string) {
	t.Helper()
	compressed, plain = t.TempDir(), t.TempDir()
	rng := rand.New(rand.NewPCG(5, 6))
	for f := range 3 {
		var b []byte
		for i := range 40 {
			data := make([]byte, []int{0, 100, 8000, 19000}[i%4])
			for k := range data {
				data[k] = byte(rng.Uint32())
			}
			b = tfrecordsource.AppendRecord(b, data)
		}
		name := fmt.Sprintf("x%d.tfrecord", f)
		writeFile(t, b, plain, name)
		if f < 2 {
			var out bytes.Buffer
			w, _ := gzip.NewWriterLevel(&out, 1)
			_, _ = w.Write(b)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			b = out.Bytes()
		}
		writeFile(t, b, compressed, name)
	}
	return compressed, plain
}

func recordSource(t testing.TB, dir string) driver.Source {
	t.Helper()
	s, err := tfrecordsource.Open(t.Context(), dir, localstore.New(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func smallRecords() *Options {
	return &Options{ChunkBytes: 64 << 10, ShardBytes: 128 << 10, Threads: 3}
}

// A source that can only be read in order gives the same shards as the same records in a seekable source, also if the
// run is interrupted.
func TestPackInOrder(t *testing.T) {
	compressed, plain := recordFiles(t)
	want := filepath.Join(t.TempDir(), "p")
	if _, err := WriteSource(t.Context(), recordSource(t, plain), want, smallRecords()); err != nil {
		t.Fatal(err)
	}
	straight := filepath.Join(t.TempDir(), "p")
	sum, err := WriteSource(t.Context(), recordSource(t, compressed), straight, smallRecords())
	if err != nil || sum.Manifest.Records != 120 {
		t.Fatalf("%+v, %v", sum, err)
	}
	shards, _ := filepath.Glob(filepath.Join(want, "shard-*"))
	for _, s := range shards {
		a, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(straight, filepath.Base(s)))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is another one: %v", filepath.Base(s), err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 6 {
		dst := filepath.Join(t.TempDir(), "p")
		for at := 5 + rng.Int64N(40); at < 120; at += 5 + rng.Int64N(40) {
			o, err := smallRecords().withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			o.Threads = 1 + rng.IntN(4)
			ctx, cancel := context.WithCancel(t.Context())
			in, err := newSourceInput(recordSource(t, compressed), o)
			if err != nil {
				t.Fatal(err)
			}
			_, err = run(ctx, &cancelInput{input: in, after: at, cancel: cancel}, localstore.New(dst), o)
			cancel()
			_ = in.obj.Close()
			if !errors.Is(err, ErrInterrupted) {
				t.Fatalf("interrupted run: %v", err)
			}
			if round%2 == 1 {
				damage(t, rng, dst)
			}
		}
		s, err := WriteSource(t.Context(), recordSource(t, compressed), dst, smallRecords())
		if err != nil {
			t.Fatal(err)
		}
		if round%2 == 0 && s.Resumed == 0 {
			t.Errorf("nothing was gone on with")
		}
		sameFiles(t, fmt.Sprintf("round %d", round), straight, dst)
	}
}

// A damaged record is left out and listed. A source that changes during packing ends the run.
func TestPackInOrderBad(t *testing.T) {
	compressed, _ := recordFiles(t)
	last := filepath.Join(compressed, "x2.tfrecord") // not compressed, so that one byte is one record's
	flip(t, last, 16+12+50)
	sum, err := WriteSource(t.Context(), recordSource(t, compressed), filepath.Join(t.TempDir(), "p"), smallRecords())
	if err != nil || sum.Manifest.Records != 119 || len(sum.Manifest.Skipped) != 1 || !strings.Contains(sum.Manifest.Skipped[0].Path, "x2.tfrecord, record 1") {
		t.Fatalf("%+v, %v", sum, err)
	}
	s := recordSource(t, compressed)
	flip(t, last, 16+12+50)
	if err := os.WriteFile(filepath.Join(compressed, "x1.tfrecord"), []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = WriteSource(t.Context(), s, filepath.Join(t.TempDir(), "p"), smallRecords())
	if err == nil || !strings.Contains(err.Error(), "x1.tfrecord") || !strings.Contains(err.Error(), "must stand still") {
		t.Errorf("error is %v", err)
	}
}
