package hdf5source

import (
	"encoding/binary"
	"fmt"
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

// scripts/fixtures/hdf5.py wrote the files in testdata with h5py.

func open(t testing.TB, name, query string) driver.Source {
	t.Helper()
	s, err := tryOpen(t, filepath.Join("testdata", name), query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func tryOpen(t testing.TB, path, query string) (driver.Source, error) {
	t.Helper()
	opt := &Options{}
	if split, ok := strings.CutPrefix(query, "split="); ok {
		opt.Split, query, _ = strings.Cut(split, "&")
	}
	if query != "" {
		var err error
		if opt.Columns, err = column.ParseQuery(query); err != nil {
			t.Fatal(err)
		}
	}
	return Open(t.Context(), path, localstore.New(path), opt)
}

// number returns element n of the arrays of numbers.
func number(t dtype.Type, n int64) []byte {
	switch {
	case t == dtype.Bool:
		return []byte{byte(n % 2)}
	case t.Floating():
		return t.Append(nil, float64(n))
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(n))[:t.Size()]
}

func TestLayouts(t *testing.T) {
	for _, version := range []string{"earliest", "latest"} {
		s := open(t, "layouts_"+version+".h5", "")
		info := s.Info()
		if info.Len != 30 || len(info.Fields) != 18 {
			t.Fatalf("%s: %d records of %d fields: %+v", version, info.Len, len(info.Fields), info.Fields)
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
				if len(f.Shape) == 0 && f.DType != driver.Bool {
					if v := rec.Values[i]; f.DType != "" || float64(v.Int)+v.Float != float64(rec.ID) {
						t.Fatalf("%s: row %d of %q is %+v", version, rec.ID, f.Name, v)
					}
					continue
				}
				d := f.DType.Type()
				size, _ := driver.ArrayBytes(f.DType, f.Shape)
				n := size / int64(d.Size())
				got := rec.Values[i].Bytes
				if int64(len(got)) != size {
					t.Fatalf("%s: %q has %d bytes, want %d", version, f.Name, len(got), size)
				}
				for k := range n {
					want := number(d, rec.ID*n+k)
					if !slices.Equal(got[k*int64(d.Size()):(k+1)*int64(d.Size())], want) {
						t.Fatalf("%s: element %d of row %d of %q (%s) is %v, want %v", version, k, rec.ID, f.Name, d, got[k*int64(d.Size()):][:d.Size()], want)
					}
				}
			}
		}
	}
}

func TestKinds(t *testing.T) {
	for _, version := range []string{"earliest", "latest"} {
		name := "kinds_" + version + ".h5"
		s := open(t, name, "")
		at := map[string]int{}
		for i, f := range s.Info().Fields {
			at[f.Name] = i
		}
		for _, id := range []int64{29, 0, 5, 11, 10} {
			r := drivertest.Records(t, s, id)[0]
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			text := func(field, want string) {
				t.Helper()
				if got := string(r.Values[at[field]].Bytes); got != want {
					t.Errorf("%s, row %d: %q is %q, want %q", version, id, field, got, want)
				}
			}
			bytes := func(field string, want ...byte) {
				t.Helper()
				text(field, string(want))
			}
			text("fixed", fmt.Sprintf("row %d", id))
			text("text", strings.Repeat(fmt.Sprintf("größe %d", id), int(id%4)))
			text("text_chunked", fmt.Sprintf("t%d", id))
			if v := r.Values[at["enum"]].Int; v != id%3 {
				t.Errorf("enum is %d", v)
			}
			for _, record := range []string{"record", "record_gzip"} {
				if n := r.Values[at[record+".id"]].Int; n != id {
					t.Errorf("%s, row %d: %q is %d", version, id, record+".id", n)
				}
				text(record+".name", "ab")
				var box []byte
				for k := range int64(4) {
					box = dtype.F32.Append(box, float64(4*id+k))
				}
				bytes(record+".box", box...)
			}
			var list []byte
			for k := range id % 5 {
				list = append(list, byte(id+k), 0)
			}
			bytes("lists", list...)
			blob := int(20 * (id % 6))
			if id == 11 {
				blob = 5000
			}
			text("blobs", strings.Repeat(string([]byte{byte(id)}), blob))
			var holes []byte
			for range 4 {
				if id < 8 || id >= 12 {
					holes = append(holes, 0xF9, 0xFF, 0xFF, 0xFF)
				} else {
					holes = append(holes, 5, 0, 0, 0)
				}
			}
			bytes("holes", holes...)
			bytes("never", 0, 0, 0x20, 0x40, 0, 0, 0x20, 0x40)
			text("opaque", strings.Repeat(string([]byte{byte(id)}), 5))
		}
		e := s.Info().Fields[at["enum"]]
		if e.Kind != driver.KindLabel || !slices.Equal(e.Classes, []string{"cat", "dog", "eel"}) {
			t.Errorf("enum is %+v", e)
		}
		left := s.(interface{ Left() []driver.Skipped }).Left()
		if len(left) != 2 {
			t.Errorf("left out: %v", left)
		}
		// A list of integers can be several kinds.
		s = open(t, name, "tokens:tokens=lists&labels:multilabel=lists&blob:bytes=blobs&text:bytes&n:int=record.id&f:float=record.id")
		r := drivertest.Records(t, s, 4)[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if got := r.Values[0].Bytes; !slices.Equal(got, []byte{4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0}) {
			t.Errorf("tokens are %v", got)
		}
		if got := r.Values[1].Bytes; len(got) != 32 || got[8] != 5 {
			t.Errorf("labels are %v", got)
		}
		if r.Values[4].Int != 4 || r.Values[5].Float != 4 {
			t.Errorf("%+v", r.Values)
		}
	}
}

func TestNames(t *testing.T) {
	for _, version := range []string{"earliest", "latest"} {
		s := open(t, "names_"+version+".h5", "")
		if n := len(s.Info().Fields); n != 70 {
			t.Fatalf("%s: %d fields", version, n)
		}
		r := drivertest.Records(t, s, 7)[0]
		for i, f := range s.Info().Fields {
			if !strings.HasPrefix(f.Name, fmt.Sprintf("name_%03d_", i)) || r.Values[i].Int != int64(7+i) {
				t.Errorf("%s: field %d is %q with %d", version, i, f.Name, r.Values[i].Int)
			}
		}
	}
}

func TestPages(t *testing.T) {
	s := open(t, "pages.h5", "")
	if s.Info().Len != 2100 || len(s.Info().Fields) != 3 {
		t.Fatalf("%+v", s.Info())
	}
	for id := int64(0); id < 2100; id += 37 {
		r := drivertest.Records(t, s, id)[0]
		for i := range s.Info().Fields {
			v := r.Values[i]
			if r.Err != nil || byte(v.Int) != byte(id) && (len(v.Bytes) == 0 || v.Bytes[0] != byte(id)) {
				t.Fatalf("row %d: %v, %v", id, v, r.Err)
			}
		}
	}
}

func TestSplitsAndColumns(t *testing.T) {
	s := open(t, "splits.h5", "split=test")
	if s.Info().Len != 20 || s.Info().Fields[0].Name != "image" || s.Info().Fields[1].Name != "label" {
		t.Errorf("%+v", s.Info())
	}
	s = open(t, "splits.h5", "picture:image=/train/image&label:label=/train/label")
	f := s.Info().Fields
	if s.Info().Len != 24 || f[0].Name != "picture" || f[0].Kind != driver.KindImage || f[0].Width != 5 || f[0].Height != 4 || f[1].Kind != driver.KindLabel {
		t.Errorf("%+v", s.Info())
	}
	r := drivertest.Records(t, s, 13)[0]
	if v := r.Values[0]; r.Err != nil || v.Codec != driver.CodecRaw || v.Width != 5 || v.Channels != 3 || v.Bytes[1] != (13*60+1)&255 || r.Values[1].Int != 3 {
		t.Errorf("%+v, %v", r.Values, r.Err)
	}
	// One chosen column, and all others with *.
	s = open(t, "splits.h5", "split=train&label:label&*")
	if f := s.Info().Fields; len(f) != 2 || f[0].Kind != driver.KindLabel || f[1].Name != "image" {
		t.Errorf("%+v", f)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, query, want string }{
		{"splits.h5", "", `has the groups "test", "train" with the same arrays: say which one is wanted, such as ?split=test`},
		{"splits.h5", "split=val", `has no group "val" with arrays: it has "test", "train"`},
		{"splits.h5", "a=/train/image&b=/test/image", `"train/image" has 24 rows and "test/image" has 20`},
		{"splits.h5", "a=/train/nothing", `has no array "/train/nothing"`},
		{"layouts_latest.h5", "scalar", "is a single value and has no rows"},
		{"layouts_latest.h5", "empty", "has no elements"},
		{"layouts_latest.h5", "a:label=big", "cannot be label: it has no single numbers"},
		{"layouts_latest.h5", "a:image=big", "pixels are uint8"},
		{"kinds_latest.h5", "a:array=fixed", `column "fixed" (text) cannot be array: it has no numbers; without :array it is read as text`},
	} {
		_, err := tryOpen(t, filepath.Join("testdata", c.name), c.query)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), c.name) != 1 {
			t.Errorf("%s?%s: %v, want %q", c.name, c.query, err, c.want)
		}
	}
}

// several returns a folder with the same file twice.
func several(t testing.TB, name string) string {
	dir := t.TempDir()
	b := read(t, name)
	for _, to := range []string{"a.h5", "b.hdf5"} {
		if err := os.WriteFile(filepath.Join(dir, to), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSeveralFiles(t *testing.T) {
	dir := several(t, "layouts_latest.h5")
	s, err := tryOpen(t, dir, "rows&growing_both&one_chunk_gzip")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	recs := drivertest.Records(t, s, 12, 42)
	if s.Info().Len != 60 || recs[0].Err != nil || recs[1].Err != nil {
		t.Fatalf("%+v, %v, %v", s.Info(), recs[0].Err, recs[1].Err)
	}
	for i := range s.Info().Fields {
		if !slices.Equal(recs[0].Values[i].Bytes, recs[1].Values[i].Bytes) {
			t.Errorf("field %d differs", i)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "c.h5"), read(t, "kinds_latest.h5"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(t, dir, "rows"); err == nil || !strings.Contains(err.Error(), `c.h5 has no array "rows", which `) {
		t.Error(err)
	}
}

// Files that are cut off, or that have a changed byte, give an error that names the file, or bad records.
func TestDamaged(t *testing.T) {
	for _, name := range []string{"layouts_earliest.h5", "layouts_latest.h5", "kinds_latest.h5", "pairs_latest.h5"} {
		whole := read(t, name)
		path := filepath.Join(t.TempDir(), "x.h5")
		try := func(b []byte) {
			t.Helper()
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			tryFile(t, path)
		}
		for n := 0; n < len(whole); n += 1 + len(whole)/60 {
			try(whole[:n])
			if _, err := tryOpen(t, path, ""); err == nil || !strings.Contains(err.Error(), "x.h5") {
				t.Fatalf("%s cut off after %d of %d bytes: %v", name, n, len(whole), err)
			}
		}
		for at := 0; at < len(whole); at += 1 + len(whole)/400 {
			b := slices.Clone(whole)
			b[at] ^= 0xFF
			try(b)
		}
	}
}

// tryFile reads all records of a file. Errors must name the file.
func tryFile(t testing.TB, path string) {
	t.Helper()
	s, err := tryOpen(t, path, "")
	if err != nil {
		if !strings.Contains(err.Error(), filepath.Base(path)) || strings.Contains(err.Error(), "\n") {
			t.Fatal(err)
		}
		return
	}
	defer s.Close()
	total := int64(0)
	for _, f := range s.Info().Fields {
		if f.Kind == driver.KindArray {
			n, _ := driver.ArrayBytes(f.DType, f.Shape)
			total += n
		}
		total += f.MaxBytes
	}
	if total > 1<<22 {
		return
	}
	ids := []int64{0, s.Info().Len / 2, s.Info().Len - 1}
	for _, r := range drivertest.Records(t, s, ids...) {
		if r.Err != nil {
			if !strings.Contains(r.Err.Error(), filepath.Base(path)) {
				t.Fatal(r.Err)
			}
			continue
		}
		for i, f := range s.Info().Fields {
			if n, err := driver.ArrayBytes(f.DType, f.Shape); f.Kind == driver.KindArray && err == nil && int64(len(r.Values[i].Bytes)) != n {
				t.Fatalf("%q has %d bytes instead of %d", f.Name, len(r.Values[i].Bytes), n)
			}
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, name := range []string{"layouts_earliest.h5", "layouts_latest.h5", "kinds_earliest.h5", "kinds_latest.h5", "names_latest.h5", "splits.h5", "pairs_latest.h5"} {
		f.Add(read(f, name))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, "x.h5")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		tryFile(t, path)
	})
}
