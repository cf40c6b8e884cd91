package parquetsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// names are the files in testdata, which have the same rows (scripts/fixtures).
var names = []string{"snappy", "stored", "gzip", "zstd", "lz4", "pieces", "delta", "polars"}

func fixture(name string) string { return filepath.Join("testdata", name+".parquet") }

func load(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(fixture(name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(ctx context.Context, path string, columns ...string) (driver.Source, error) {
	opt := &Options{}
	for _, text := range columns {
		c, err := column.Parse(text)
		if err != nil {
			return nil, err
		}
		opt.Columns = append(opt.Columns, c)
	}
	return Open(ctx, path, localstore.New(path), opt)
}

func opener(path string, columns ...string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return open(ctx, path, columns...) })
}

// schema describes the fields.
func schema(s driver.Source) string {
	var out []string
	for _, f := range s.Info().Fields {
		text := fmt.Sprintf("%s:%s", f.Name, f.Kind)
		if f.DType != "" {
			text += fmt.Sprintf("/%s%v", f.DType, f.Shape)
		}
		if f.Classes != nil {
			text += fmt.Sprintf("%q", f.Classes)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func numbers(b []byte, d driver.DType) string {
	var out []string
	for ; len(b) > 0; b = b[d.Size():] {
		out = append(out, fmt.Sprint(d.Type().Float(b)))
	}
	return strings.Join(out, " ")
}

// Every writer's file has the rows that scripts/fixtures wrote.
func TestValues(t *testing.T) {
	for _, name := range names {
		s := opener(fixture(name))(t)
		defer s.Close()
		want := `image:image label:label["cat" "dog" "eel"] caption:text blob:bytes small:int score:float maybe:float ok:array/bool[] box:array/float32[3] grid:array/uint16[3 2] ids:ragged/int32[] gaps:array/float64[3] in.x:int in.tags:multilabel["p" "q"]`
		if name == "polars" { // polars writes no metadata
			want = `image:image label:int caption:text blob:bytes small:int score:float maybe:float ok:array/bool[] box:array/float32[3] grid:array/uint16[3 2] ids:ragged/int32[] gaps:array/float64[3] in.x:int in.tags:array/int64[2]`
		}
		if got := schema(s); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if s.Info().Len != 40 {
			t.Fatalf("%s: %d records", name, s.Info().Len)
		}
		for k := range int64(40) {
			i := (k * 17) % 40
			r := drivertest.Records(t, s, i)[0]
			if r.Err != nil {
				t.Fatal(name, r.Err)
			}
			v := r.Values
			nan := math.NaN()
			maybe, caption, ids := float64(i), strings.Repeat("é", int(i%5)), strings.TrimSpace(strings.Repeat(fmt.Sprint(i, " "), int(i%4)))
			if i%2 > 0 {
				maybe = nan
			}
			if i%9 == 4 {
				caption = ""
			}
			if i%11 == 5 {
				ids = ""
			}
			blob := []byte{0, 1, 2, 3, 4, 5}[:i%7]
			got := fmt.Sprintf("%.4q|%v|%q|%q|%v|%v|%v|%v|%v|%v|%v|%v|%v|%v", v[0].Bytes[1:4], v[1].Int, v[2].Bytes, v[3].Bytes, v[4].Int, v[5].Float, v[6].Float, v[7].Bytes,
				numbers(v[8].Bytes, "float32"), numbers(v[9].Bytes, "uint16"), numbers(v[10].Bytes, "int32"), numbers(v[11].Bytes, "float64"), v[12].Int, numbers(v[13].Bytes, "int64"))
			want := fmt.Sprintf("\"PNG\"|%v|%q|%q|%v|%v|%v|[%d]|%d 1 2|%d 1 2 3 4 5|%v|0.5 NaN %d|%v|1 0", i%3, caption, blob, i*6, float64(i)/8, maybe, b2i(i%3 == 1), i, i, ids, i, -i)
			if got != want {
				t.Errorf("%s, row %d: got\n%s\nwant\n%s", name, i, got, want)
			}
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// footerOf returns the offset of the footer.
func footerOf(b []byte) int {
	return len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
}

func TestOpeningFails(t *testing.T) {
	good := load(t, "stored")
	patched := func(b []byte, at int, with ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], with)
		return b
	}
	for name, c := range map[string]struct {
		b       []byte
		columns []string
		want    string
	}{
		"empty":        {nil, nil, "x.parquet: damaged: a file of 0 bytes"},
		"no Parquet":   {[]byte("PAR1xxxxxxxxxxxxxx"), nil, "x.parquet: damaged: it has no Parquet footer at its end: the file is cut off"},
		"encrypted":    {[]byte("PAR1xxxxxxxxxxPARE"), nil, "x.parquet: it is encrypted"},
		"cut":          {good[:len(good)-20], nil, "x.parquet: damaged: it has no Parquet footer at its end: the file is cut off"},
		"large footer": {patched(good, len(good)-8, 0xFF, 0xFF, 0xFF, 0x7F), nil, "x.parquet: damaged: a footer of 2147483647 bytes in a file of"},
		"other footer": {patched(good, footerOf(good), 0xFF, 0xFF, 0xFF), nil, "x.parquet: damaged: metadata, byte "},
		"large list":   {patched(good, footerOf(good)+2, 0x19, 0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F), nil, "x.parquet: damaged: metadata, byte "},
		"page header":  {patched(good, 4, 0xFF, 0xFF, 0xFF), nil, "x.parquet, row group 0, column \"image.bytes\": page at byte 4: damaged: metadata, byte "},
		"page size":    {patched(good, 4, 0x15, 0x00, 0x15, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F), nil, "x.parquet, row group 0, column \"image.bytes\": page at byte 4: "},
		"no column":    {good, []string{"y"}, "x.parquet: there is no column \"y\": the columns are \"image\", \"label\""},
		"no tokens":    {good, []string{"score:tokens"}, "column \"score\" (float) cannot be tokens: it has no lists of whole numbers; without :tokens it is read as float"},
	} {
		var before, after runtime.MemStats
		path := write(t, filepath.Join(t.TempDir(), "x.parquet"), c.b)
		runtime.ReadMemStats(&before)
		s, err := open(t.Context(), path, c.columns...)
		runtime.ReadMemStats(&after)
		if err == nil {
			s.Close()
			t.Errorf("%s: it opens", name)
		} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes of memory were taken", name, n)
		}
	}
}

// A page with a wrong checksum is a bad record. This needs a page of an image, which is not scanned at opening.
func TestChecksum(t *testing.T) {
	b := load(t, "stored")
	at := 0
	for range 22 { // some matches are in the statistics of page headers
		at += 1 + bytes.Index(b[at+1:], []byte("IDAT"))
	}
	b[at+6] ^= 1
	s := opener(write(t, filepath.Join(t.TempDir(), "x.parquet"), b), "image", "label")(t)
	defer s.Close()
	bad := 0
	for i := range s.Info().Len {
		if r := drivertest.Records(t, s, i)[0]; r.Err != nil {
			bad++
			if !strings.Contains(r.Err.Error(), "x.parquet, column \"image.bytes\", page at byte ") || !strings.Contains(r.Err.Error(), "checksum") {
				t.Fatal(r.Err)
			}
		}
	}
	if bad == 0 || bad > 20 {
		t.Errorf("%d records cannot be read", bad)
	}
}

func TestSplits(t *testing.T) {
	small := load(t, "snappy")
	other := load(t, "gzip")
	dir := t.TempDir()
	for _, name := range []string{
		"hub/data/train-00000-of-00002.parquet", "hub/data/train-00001-of-00002.parquet", "hub/data/test-00000-of-00001-0123456789abcdef.parquet",
		"folders/train/0000.parquet", "folders/train/0001.parquet", "folders/validation/0000.parquet", "one/a.parquet", "one/b.parquet",
		"sets/en/train-00000-of-00001.parquet", "sets/de/train-00000-of-00001.parquet", "named/x-train.parquet", "named/x-test.parquet",
		"spark/part-00000.snappy.parquet", "spark/part-00001.snappy.parquet", "spark/_metadata.parquet",
	} {
		write(t, filepath.Join(dir, name), small)
	}
	write(t, filepath.Join(dir, "differ/a.parquet"), small)
	write(t, filepath.Join(dir, "differ/b.parquet"), other)
	for _, c := range []struct {
		dir, split string
		records    int64
		err        string
	}{
		{"hub", "train", 80, ""}, {"hub", "test", 40, ""}, {"hub", "", 0, `hub has the splits "test", "train": choose one, such as ?split=test`},
		{"hub", "dev", 0, `hub has no split "dev": it has "test", "train"`}, {"folders", "train", 80, ""}, {"folders", "validation", 40, ""}, {"one", "", 80, ""},
		{"one", "train", 0, "one has no splits"}, {"sets", "", 0, `sets has several data sets, in "de", "en": give the folder of one, such as `},
		{"sets", "train", 0, `sets has several data sets`}, {"sets/en", "", 40, ""}, {"named", "train", 40, ""}, {"spark", "", 80, ""},
		{"one/a.parquet", "train", 0, "a.parquet is a file"}, {"differ", "", 80, ""},
	} {
		s, err := Open(t.Context(), "x", localstore.New(filepath.Join(dir, c.dir)), &Options{Split: c.split})
		switch {
		case err != nil && (c.err == "" || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s %s: %v, want %q", c.dir, c.split, err, c.err)
		case err == nil:
			if c.err != "" || s.Info().Len != c.records {
				t.Errorf("%s %s: %d records, want %d, %q", c.dir, c.split, s.Info().Len, c.records, c.err)
			}
			s.Close()
		}
	}
}

// fuzzed opens and reads a possibly damaged file.
func fuzzed(t *testing.T, b []byte) {
	path := write(t, filepath.Join(t.TempDir(), "x.parquet"), b)
	s, err := open(t.Context(), path)
	if err != nil {
		if !strings.Contains(err.Error(), path) {
			t.Fatalf("the error names no file: %v", err)
		}
		return
	}
	defer s.Close()
	n := s.Info().Len
	for _, r := range drivertest.Records(t, s, 0, n/2, n-1) {
		if r.Err != nil && !strings.Contains(r.Err.Error(), path) {
			t.Fatalf("the error names no file: %v", r.Err)
		}
	}
}

// No file makes the reader panic, hang or allocate more than its size justifies.
func FuzzFile(f *testing.F) {
	for _, name := range names {
		f.Add(load(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) { fuzzed(t, b) })
}

func BenchmarkRows(b *testing.B) {
	for _, name := range names {
		b.Run(name, func(b *testing.B) { drivertest.Bench(b, opener(fixture(name))) })
	}
}
