package zarrsource

import (
	"encoding/binary"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// scripts/fixtures/zarr_arrays.py wrote the folders in testdata with zarr.

func tryOpen(t testing.TB, path, query string) (driver.Source, error) {
	t.Helper()
	opt := &Options{}
	if query != "" {
		var err error
		if opt.Columns, err = column.ParseQuery(query); err != nil {
			t.Fatal(err)
		}
	}
	return Open(t.Context(), path, localstore.New(path), opt)
}

func opener(path, query string) drivertest.Open {
	return func(t testing.TB) driver.Source {
		t.Helper()
		s, err := tryOpen(t, path, query)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// element returns number n of the arrays of numbers.
func element(t dtype.Type, n int64) []byte {
	if t.Floating() {
		return t.Append(nil, float64(n))
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(n))[:t.Size()]
}

func TestArrays(t *testing.T) {
	for name, count := range map[string]int{"second.zarr": 27, "third.zarr": 12} {
		s := opener(filepath.Join("testdata", name), "")(t)
		defer s.Close()
		info := s.Info()
		if info.Len != 24 || len(info.Fields) < count-3 || len(info.Fields) > count {
			t.Fatalf("%s: %d records of %d fields: %+v", name, info.Len, len(info.Fields), info.Fields)
		}
		ids := make([]int64, info.Len)
		for i := range ids {
			ids[i] = (int64(i)*7 + 3) % info.Len
		}
		for _, rec := range drivertest.Records(t, s, ids...) {
			if rec.Err != nil {
				t.Fatal(rec.Err)
			}
			for i, f := range info.Fields {
				if f.Kind == driver.KindInt || f.Kind == driver.KindFloat {
					want := rec.ID
					if f.Name == "label" {
						want %= 10
					}
					if v := rec.Values[i]; float64(v.Int)+v.Float != float64(want) {
						t.Fatalf("%s: row %d of %q is %+v", name, rec.ID, f.Name, v)
					}
					continue
				}
				d := f.DType.Type()
				size, _ := driver.ArrayBytes(f.DType, f.Shape)
				n := size / int64(d.Size())
				got := rec.Values[i].Bytes
				if int64(len(got)) != size {
					t.Fatalf("%s: %q has %d bytes, want %d", name, f.Name, len(got), size)
				}
				for k := range n {
					v := rec.ID*n + k
					switch f.Name {
					case "label":
						v = rec.ID % 10
					case "holes":
						if v = 3; rec.ID >= 6 {
							if math.Float32frombits(binary.LittleEndian.Uint32(got[4*k:])) != 1.5 {
								t.Fatalf("row %d of holes is %v", rec.ID, got)
							}
							continue
						}
					}
					if want := element(d, v); !slices.Equal(got[k*int64(d.Size()):][:d.Size()], want) {
						t.Fatalf("%s: element %d of row %d of %q (%s) is %v, want %v", name, k, rec.ID, f.Name, d, got[k*int64(d.Size()):][:d.Size()], want)
					}
				}
			}
		}
	}
}

func TestRefused(t *testing.T) {
	plain := `{"zarr_format": 2, "shape": [20, 3], "chunks": [5, 3], "dtype": "<i4", "compressor": null, "fill_value": 0, "order": "C", "filters": null}`
	third := `{"zarr_format": 3, "node_type": "array", "shape": [20], "data_type": "int32", "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5]}},
		"chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}]}`
	for _, c := range []struct{ name, text, old, new, want string }{
		{arrayName, plain, "", "", ""},
		{thirdName, third, "", "", ""},
		{arrayName, plain, "[5, 3]", "[0, 3]", "invalid shape [20 3] with chunks of [0 3]"},
		{arrayName, plain, "[5, 3]", "[5]", "chunks of 1 axes in an array of 2"},
		{arrayName, plain, "[20, 3]", "[20, 1125899906842624]", "which is out of range"},
		{arrayName, plain, `"<i4"`, `"<M8[ns]"`, `has the type "<M8[ns]", which is not read`},
		{arrayName, plain, `"compressor": null`, `"compressor": {"id": "lzma"}`, `the codec "lzma", which is not read`},
		{arrayName, plain, `"compressor": null`, `"compressor": {"id": "zstd"}, "x": 0`, ""},
		{arrayName, plain, `"fill_value": 0`, `"fill_value": "much"`, "invalid fill value"},
		{arrayName, plain, `: 2,`, `: 7,`, "zarr_format is 7"},
		{arrayName, plain, `{`, ``, "invalid Zarr metadata"},
		{thirdName, third, `"bytes"`, `"vlen-utf8"`, `the codec "vlen-utf8", which is not read`},
		{thirdName, third, `[{"name": "bytes"}]`, `[]`, "its codecs have no bytes codec"},
		{thirdName, third, `"regular"`, `"rectilinear"`, `a chunk grid "rectilinear"`},
		{thirdName, third, `[{"name": "bytes"}]`, `[{"name": "transpose", "configuration": {"order": [1]}}, {"name": "bytes"}]`, "transpose has the invalid order [1]"},
		{thirdName, third, `[{"name": "bytes"}]`, `[{"name": "bytes"}, {"name": "zstd"}, {"name": "gzip"}]`, "gzip after zstd"},
		{thirdName, third, `[{"name": "bytes"}]`, `[{"name": "sharding_indexed", "configuration": {"chunk_shape": [3], "codecs": ["bytes"], "index_codecs": ["bytes"]}}]`, "shards of [5] with chunks of [3]"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte(strings.Replace(c.text, c.old, c.new, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := tryOpen(t, dir, "")
		if c.want == "" {
			if err != nil {
				t.Errorf("%s with %s: %v", c.name, c.new, err)
				continue
			}
			s.Close()
		} else if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s with %s: %v, want %q", c.name, c.new, err, c.want)
		}
	}
}

// Files that are cut off, or that have a changed byte, give an error that names the file, or bad records.
func TestDamaged(t *testing.T) {
	for _, name := range []string{"second.zarr", "third.zarr"} {
		dir := drivertest.Copied(t, filepath.Join("testdata", name))
		var files []string
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files = append(files, p)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for k, path := range files {
			if k%3 != 0 {
				continue
			}
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := slices.Clone(whole)
			changed[len(whole)/2] ^= 0xFF
			for _, b := range [][]byte{whole[:len(whole)/2], whole[:len(whole)-1], changed, nil} {
				if err := os.WriteFile(path, b, 0o644); err != nil {
					t.Fatal(err)
				}
				try(t, dir)
			}
			if err := os.WriteFile(path, whole, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// try reads some records of a folder. Errors must name the folder.
func try(t testing.TB, dir string) {
	t.Helper()
	s, err := tryOpen(t, dir, "")
	if err != nil {
		if !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n") {
			t.Fatal(err)
		}
		return
	}
	defer s.Close()
	total := int64(0)
	for _, f := range s.Info().Fields {
		if n, err := driver.ArrayBytes(f.DType, f.Shape); f.Kind == driver.KindArray && err == nil {
			total += n
		}
		total += f.MaxBytes
	}
	if total > 1<<22 {
		return
	}
	for _, r := range drivertest.Records(t, s, 0, s.Info().Len/2, s.Info().Len-1) {
		if r.Err != nil && !strings.Contains(r.Err.Error(), dir) {
			t.Fatal(r.Err)
		}
	}
}

func FuzzMeta(f *testing.F) {
	for _, name := range []string{"second.zarr/plain/.zarray", "third.zarr/shards_start/zarr.json", "third.zarr/turned/zarr.json", "third.zarr/zarr.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, strings.HasSuffix(name, thirdName), []byte("chunk"))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, third bool, chunk []byte) {
		name, first := arrayName, "0.0.0"
		if third {
			name, first = thirdName, "c/0/0/0"
		}
		for _, n := range []string{arrayName, thirdName} {
			_ = os.Remove(filepath.Join(dir, n))
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(first)), 0o755); err != nil {
			t.Fatal(err)
		}
		for n, p := range map[string][]byte{name: b, first: chunk} {
			if err := os.WriteFile(filepath.Join(dir, n), p, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		try(t, dir)
	})
}
