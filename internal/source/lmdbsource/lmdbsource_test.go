package lmdbsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store/storetest"
)

// scripts/fixtures/lmdb_file.py wrote the files in testdata with liblmdb.

func open(ctx context.Context, path, name, query string) (driver.Source, error) {
	opt := &Options{Split: name}
	if query != "" {
		var err error
		if opt.Columns, err = column.ParseQuery(query); err != nil {
			return nil, err
		}
	}
	return Open(ctx, path, localstore.New(path), opt)
}

func opener(path, name string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return open(ctx, path, name, "") })
}

func TestSchema(t *testing.T) {
	for _, c := range []struct{ path, name, query, want string }{
		{"five.mdb", "png", "", "key:text[] value:image[]"},
		{"five.mdb", "npy", "", "key:text[] value:ragged/float32[4]"},
		{"five.mdb", "datum", "", "key:text[] image:array/uint8[3 2 2] label:label[]"},
		{"five.mdb", "raw", "", "key:text[] value:bytes[]"},
		{"five.mdb", "png", "image:bytes=value", "image:bytes[]"},
		{"plain.mdb", "", "", "key:text[] value:text[]"},
	} {
		s, err := open(t.Context(), "testdata/"+c.path, c.name, c.query)
		if err != nil {
			t.Fatal(err)
		}
		if got := drivertest.Fields(s); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.name, c.query, got, c.want)
		}
		s.Close()
	}
}

func TestRecords(t *testing.T) {
	s := opener("testdata/five.mdb", "raw")(t)
	defer s.Close()
	if s.Info().Len != 23 {
		t.Fatalf("%d records", s.Info().Len)
	}
	i := 0
	for id := range s.Info().Len {
		if i == 7 { // this key was removed
			i++
		}
		n := i * 9
		if i == 3 {
			n = 5000
		}
		rec := &drivertest.Records(t, s, id)[0]
		if rec.Err != nil || string(rec.Values[0].Bytes) != fmt.Sprintf("raw%05d", i) || !bytes.Equal(rec.Values[1].Bytes, bytes.Repeat([]byte{byte(i)}, n)) {
			t.Errorf("record %d: %q, %d bytes, %v", id, rec.Values[0].Bytes, len(rec.Values[1].Bytes), rec.Err)
		}
		i++
	}
	d := opener("testdata/five.mdb", "datum")(t)
	defer d.Close()
	for id := range d.Info().Len {
		if rec := &drivertest.Records(t, d, id)[0]; rec.Err != nil || rec.Values[2].Int != id%5 || len(rec.Values[1].Bytes) != 12 {
			t.Errorf("record %d: %+v", id, rec)
		}
	}
}

func TestErrors(t *testing.T) {
	whole, err := os.ReadFile("testdata/five.mdb")
	if err != nil {
		t.Fatal(err)
	}
	root := func(b []byte) int { // root page of a copy's main tree
		m, err := parseMeta(b)
		other, err2 := parseMeta(b[4096:])
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if other.txn > m.txn {
			m = other
		}
		return int(m.main.root) * 4096
	}
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(whole)) }
	for what, c := range map[string]struct {
		b    []byte
		name string
		want string
	}{
		"names":   {whole, "", `has the databases "datum", "dup", "empty", "npy", "png", "raw": choose one, such as ?split=datum`},
		"no name": {whole, "x", `has no database "x": it has "datum"`},
		"dup":     {whole, "dup", "several values for a key (dupsort), which is not supported"},
		"empty":   {whole, "empty", "has no records"},
		"cut":     {whole[:len(whole)-4096], "raw", "it is cut off"},
		"short":   {whole[:100], "raw", "100 bytes are too few for an LMDB database"},
		"foreign": {bytes.Repeat([]byte("x"), 9000), "raw", "not an LMDB database of a 64-bit little-endian machine"},
		"version": {change(func(b []byte) []byte { b[20] = 9; return b }), "raw", "unsupported version 9"},
		"page":    {change(func(b []byte) []byte { b[40]++; return b }), "raw", "invalid page size 4097"},
		"number":  {change(func(b []byte) []byte { b[root(b)]++; return b }), "raw", "its header has page number"},
		"kind":    {change(func(b []byte) []byte { b[root(b)+10] = 4; return b }), "raw", "it has the kind 0x4, expected"},
		"free":    {change(func(b []byte) []byte { b[root(b)+13] = 0xF0; return b }), "raw", "its free space begins at byte"},
		"node":    {change(func(b []byte) []byte { b[root(b)+17] = 0xFF; return b }), "raw", "a node at byte"},
	} {
		path := filepath.Join(t.TempDir(), "x.mdb")
		if err := os.WriteFile(path, c.b, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := open(t.Context(), path, c.name, "")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "x.mdb") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, name := range []string{"testdata/plain.mdb"} {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint16(40), byte(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint16, to byte) {
		if len(b) > 0 {
			b = bytes.Clone(b)
			b[int(at)%len(b)] = to
		}
		st := storetest.NewMemory(map[string][]byte{DataName: b})
		s, err := Open(t.Context(), "test", st, nil)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatal(err)
			}
			return
		}
		defer s.Close()
		if s.Info().Len > int64(len(b)) {
			t.Fatalf("%d records in %d bytes", s.Info().Len, len(b))
		}
		drivertest.Records(t, s, 0, s.Info().Len-1)
	})
}

func FuzzValue(f *testing.F) {
	f.Add([]byte("\x08\x01\x10\x02\x18\x02\x22\x04abcd\x28\x05"))
	f.Add([]byte("\x08\x01\x10\x01\x18\x01\x32\x04abcd\x38\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var label [8]byte
		for _, form := range []form{formOf(b), plain, array, datum} {
			_ = split(form, b, b, int64(len(b)), &label, func(_ int, v *dynvalue.Value) error {
				dynvalue.Add(column.New("x", nil), v)
				if v.Form != column.Other && int64(len(v.Bytes)) != v.Size {
					t.Fatalf("%d bytes of %d", len(v.Bytes), v.Size)
				}
				return nil
			})
		}
		_ = binary.LittleEndian.Uint64(label[:])
	})
}
