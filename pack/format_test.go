package pack

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/source/driver"
)

var update = flag.Bool("update", false, "write the golden packs anew")

// goldenSource makes the folder that the golden packs are made from: its bytes
// and times do not depend on the machine.
func goldenSource(t testing.TB) {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", "images", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	contents := map[string][]byte{
		"photos/cat/a.jpg": read("small.jpg"), "photos/cat/deep/b.png": read("small.png"),
		"photos/dog/c.jpg": read("turned.jpg"), "photos/dog/d.jpg": []byte("not an image"), "photos/dog/notes.txt": []byte("beside the images"),
	}
	dir := t.TempDir()
	for name, b := range contents {
		writeFile(t, b, dir, name)
		when := time.Unix(1_700_000_000, 0)
		if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// The format does not change by accident: the same input gives the bytes stored in testdata. Run with -update after
// an intended change. Such a change needs a new format version unless old readers understand it.
func TestGolden(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	goldenSource(t)
	for name, opt := range map[string]*Options{
		"keep": {Images: ImagesKeep},
		// Only the PNG, because the pixels of a JPEG are libjpeg's matter.
		"raw": {Images: ImagesRaw, Metadata: true},
	} {
		src := "photos"
		if name == "raw" {
			src = "photos/cat/deep"
		}
		mustWrite(t, src, name, opt)
		golden := filepath.Join(here, "testdata", "golden", name)
		if *update {
			if err := os.RemoveAll(golden); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(golden, os.DirFS(name)); err != nil {
				t.Fatal(err)
			}
		}
		sameFiles(t, name, golden, name)
	}
}

// A pack to which something was appended, with a class more, and of which a record was
// removed.
func TestGoldenChanged(t *testing.T) {
	here := must(os.Getwd())
	goldenSource(t)
	for name, from := range map[string]string{"more/ant/e.jpg": "small.jpg", "more/cat/f.png": "small.png"} {
		writeFile(t, must(os.ReadFile(filepath.Join(here, "testdata", "images", from))), name)
		when := time.Unix(1_700_000_000, 0)
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(t, "photos", "changed", &Options{Images: ImagesKeep})
	m := mustWrite(t, "more", "changed", &Options{Append: true}).Manifest
	must(Remove(t.Context(), "changed", m.Fingerprint, []int64{1}))
	golden := filepath.Join(here, "testdata", "golden", "changed")
	if *update {
		if err := os.RemoveAll(golden); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(golden, os.DirFS("changed")); err != nil {
			t.Fatal(err)
		}
	}
	sameFiles(t, "changed", golden, "changed")
	var got []string
	for _, r := range readAll(t, golden) {
		got = append(got, r.Path+" "+r.Class)
	}
	if want := []string{"cat/a.jpg cat", "dog/c.jpg dog", "ant/e.jpg ant", "cat/f.png cat"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Packs that were made once stay readable.
func TestGoldenReads(t *testing.T) {
	recs := readAll(t, filepath.Join("testdata", "golden", "keep"))
	if len(recs) != 3 {
		t.Fatalf("%d records", len(recs))
	}
	for i, want := range []struct {
		path        string
		class       string
		w, h        int32
		orientation int32
		codec       driver.Codec
		file        string
	}{
		{"cat/a.jpg", "cat", 13, 9, 1, driver.CodecJPEG, "small.jpg"},
		{"cat/deep/b.png", "cat", 7, 5, 1, driver.CodecPNG, "small.png"},
		{"dog/c.jpg", "dog", 13, 9, 6, driver.CodecJPEG, "small.jpg"}, // turned.jpg without its EXIF data
	} {
		r := recs[i]
		b, err := os.ReadFile(filepath.Join("testdata", "images", want.file))
		if err != nil {
			t.Fatal(err)
		}
		if r.Path != want.path || r.Class != want.class || r.Width != want.w || r.Height != want.h ||
			r.Orientation != want.orientation || r.Codec != want.codec || !bytes.Equal(r.Image, b) {
			t.Errorf("record %d: %s, %s, %d x %d, orientation %d, codec %d, %d bytes", i, r.Path, r.Class, r.Width, r.Height, r.Orientation, r.Codec, len(r.Image))
		}
	}
	raw := readAll(t, filepath.Join("testdata", "golden", "raw"))
	b, err := os.ReadFile(filepath.Join("testdata", "images", "small.png"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 * 5 {
		r, g, b, _ := m.At(i%7, i/7).RGBA()
		if want := []byte{byte(r >> 8), byte(g >> 8), byte(b >> 8)}; !bytes.Equal(raw[0].Image[3*i:3*i+3], want) {
			t.Fatalf("pixel %d is %v, want %v", i, raw[0].Image[3*i:3*i+3], want)
		}
	}
	for _, name := range []string{"keep", "raw"} {
		rep, err := Verify(t.Context(), filepath.Join("testdata", "golden", name), &VerifyOptions{Decode: true})
		if err != nil || len(rep.Problems) > 0 {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	for _, name := range []string{"keep", "raw", "changed"} {
		b, err := os.ReadFile(filepath.Join("testdata", "golden", name, ManifestName))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		again, err := m.marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseManifest(again); err != nil {
			t.Fatalf("written again it does not pass: %v", err)
		}
	})
}

// FuzzChunk reads a pack whose only chunk is the input. For any input, no read goes outside of it, and damage is an
// error.
func FuzzChunk(f *testing.F) {
	m, err := ReadManifest(filepath.Join("testdata", "golden", "keep"))
	if err != nil {
		f.Fatal(err)
	}
	shard, err := os.ReadFile(filepath.Join("testdata", "golden", "keep", m.Shards[0].File))
	if err != nil {
		f.Fatal(err)
	}
	c := m.Shards[0].Chunks[0]
	f.Add(shard[c.Offset:c.Offset+c.Bytes], c.Head, c.Rows)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, head, rows int64) {
		mm := *m
		mm.Fields = slices.Clone(m.Fields)
		for i := range mm.Fields {
			mm.Fields[i].Stats.Count = rows
		}
		fuzzPack(t, dir, &mm, b, head, rows)
	})
}

// fuzzPack reads the pack with the fields of m whose one chunk is b.
func fuzzPack(t *testing.T, dir string, m *Manifest, b []byte, head, rows int64) {
	one := Chunk{Bytes: int64(len(b)), Head: head, Rows: rows}
	if head > 0 && head <= one.Bytes { // the text to find is after the checksum
		one.HeadXXH3 = Checksum(xxh3.Hash(b[:head]))
	}
	m.Shards = []Shard{{File: m.Shards[0].File, Bytes: int64(len(b)), Records: rows, Chunks: []Chunk{one}}}
	m.Records, m.Bytes = rows, int64(len(b))
	m.Fingerprint = m.computeFingerprint()
	text, err := m.marshal()
	if err != nil {
		return
	}
	writeFile(t, b, dir, m.Shards[0].File)
	writeFile(t, text, dir, ManifestName)
	r, err := Open(t.Context(), dir, nil)
	if err != nil {
		return
	}
	defer r.Close()
	readFuzzed(t, r, b)
	if _, err := Verify(t.Context(), dir, &VerifyOptions{Threads: 1}); err != nil {
		t.Fatal(err)
	}
}

// readFuzzed reads the first records of a pack of which nothing is known but that
// its one chunk is b.
func readFuzzed(t *testing.T, r *Reader, b []byte) {
	t.Helper()
	var ids []int64
	for i := range min(r.Len(), 64) {
		ids = append(ids, i)
	}
	for i, rec := range load(t, r, ids...) {
		for _, v := range rec.Values {
			if rec.Err == nil && len(v.Bytes) > len(b) {
				t.Fatalf("record %d has %d bytes in a chunk of %d", i, len(v.Bytes), len(b))
			}
		}
		_ = r.Name(int64(i))
		_, _ = r.Record(t.Context(), int64(i))
	}
}

// A flipped bit anywhere in a pack never changes a record silently: a loader returns the original record or an error.
// Verify reports each flipped bit.
func TestFlippedBits(t *testing.T) {
	golden := filepath.Join("testdata", "golden", "keep")
	m := must(ReadManifest(golden))
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
		t.Fatal(err)
	}
	intact := must(Open(t.Context(), golden, nil))
	defer intact.Close()
	want := load(t, intact, 0, 1, 2)
	step := 17 // the bits of each byte come up in turns
	if testing.Short() {
		step = 331
	}
	for _, name := range []string{m.Shards[0].File, ManifestName} {
		whole := must(os.ReadFile(filepath.Join(golden, name)))
		for bit := 0; bit < 8*len(whole); bit += step {
			b := bytes.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			writeFile(t, b, dir, name)
			flipped(t, dir, want, fmt.Sprintf("%s, byte %d", name, bit/8))
		}
		writeFile(t, whole, dir, name)
	}
}

// flipped reads and verifies a pack in which a bit was flipped.
func flipped(t *testing.T, dir string, want []driver.Record, where string) {
	t.Helper()
	rep, err := Verify(t.Context(), dir, &VerifyOptions{Threads: 1})
	switch {
	case err == nil && len(rep.Problems) == 0:
		t.Errorf("%s: verify finds nothing", where)
	case err != nil && !errors.Is(err, ErrDamaged):
		t.Errorf("%s: verify does not call it damage: %v", where, err)
	}
	r, err := Open(t.Context(), dir, nil)
	if err != nil {
		return
	}
	defer r.Close()
	for i, rec := range load(t, r, 0, 1, 2) {
		if rec.Err == nil && !reflect.DeepEqual(rec.Values, want[i].Values) {
			t.Errorf("%s: record %d differs", where, i)
		}
		_ = r.Name(int64(i))
		_, _ = r.Record(t.Context(), int64(i))
	}
}
