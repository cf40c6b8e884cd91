package npzsource

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func opener(path string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, path, localstore.New(path), nil)
	})
}

func BenchmarkFiles(b *testing.B) {
	drivertest.Bench(b, opener(formattest.NPZFolder(b, 100, zip.Store)))
}

func readOne(t testing.TB, s driver.Source, id int64) *driver.Record {
	return &drivertest.Records(t, s, id)[0]
}

func TestArrays(t *testing.T) {
	s := opener(formattest.NPZFolder(t, 3, zip.Store))(t)
	f := s.Info().Fields
	if len(f) != 2 || f[0].Name != "x" || f[0].DType != driver.Float32 || fmt.Sprint(f[0].Shape) != "[9 5]" || f[1].Name != "y" {
		t.Fatalf("%+v", f)
	}
	r := readOne(t, s, 2)
	if r.Err != nil || len(r.Values[0].Bytes) != 180 || r.Values[0].Bytes[0] != 2 || r.Values[1].Bytes[1] != 5 {
		t.Errorf("%+v", r)
	}
}

func TestBadFiles(t *testing.T) {
	dir := formattest.NPZFolder(t, 6, zip.Store)
	put := func(i int, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("img_%04d.npz", i)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	flipped := formattest.NPZ(t, 1, zip.Store, 9, 5)
	flipped[200] ^= 1
	whole := formattest.NPZ(t, 2, zip.Store, 9, 5)
	put(1, flipped)
	put(2, whole[:len(whole)-30])
	put(3, formattest.NPZ(t, 3, zip.Store, 5, 9))
	put(4, []byte("not a zip file at all"))
	s := opener(dir)(t)
	if err := os.Remove(filepath.Join(dir, "img_0005.npz")); err != nil {
		t.Fatal(err)
	}
	for id, want := range []string{"", `array "x": it is damaged: its checksum is`, "not a .npz file", "of shape [5 9], that of", "not a .npz file", "it is gone"} {
		r := readOne(t, s, int64(id))
		if want == "" {
			if r.Err != nil {
				t.Error(r.Err)
			}
			continue
		}
		if r.Err == nil || !strings.Contains(r.Err.Error(), want) || strings.Count(r.Err.Error(), fmt.Sprintf("img_%04d.npz", id)) != 1 {
			t.Errorf("record %d: got %v, want %q", id, r.Err, want)
		}
	}
}

// Members whose declared size is larger or smaller than their inflated bytes.
func FuzzMembers(f *testing.F) {
	for _, m := range []uint16{zip.Store, zip.Deflate} {
		f.Add(formattest.NPZ(f, 1, m, 3, 4))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		members, err := readMembers(bytes.NewReader(b), int64(len(b)), true)
		if err != nil {
			return
		}
		for _, m := range members {
			if m.file.Method == zip.Store && (m.data < 0 || m.data+m.head+m.bytes > int64(len(b))) {
				t.Fatalf("array %q lies at %d to %d of %d bytes", m.field.Name, m.data, m.data+m.head+m.bytes, len(b))
			}
		}
		if members[0].bytes > 1<<20 {
			return // read for real below
		}
		name := filepath.Join(dir, "x.npz")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), dir, localstore.New(dir), nil) // a folder: its files are records
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		total := int64(0)
		for _, fd := range s.Info().Fields {
			n, _ := driver.ArrayBytes(fd.DType, fd.Shape)
			total += n
		}
		if total < 1<<22 {
			r := readOne(t, s, 0)
			for i, v := range r.Values {
				if n, _ := driver.ArrayBytes(s.Info().Fields[i].DType, s.Info().Fields[i].Shape); r.Err == nil && int64(len(v.Bytes)) != n {
					t.Fatalf("%d bytes instead of %d", len(v.Bytes), n)
				}
			}
		}
		_ = crc32.ChecksumIEEE(b)
	})
}

func TestBadRecords(t *testing.T) {
	for _, name := range []string{"0.npz", "sub/zz.npz"} {
		drivertest.BadFiles{
			Folder: formattest.NPZFolder(t, 4, zip.Store), Name: name, Content: formattest.NPZ(t, 3, zip.Store, 9, 5), Late: true,
			Open: func(ctx context.Context, st store.Store) (driver.Source, error) { return Open(ctx, "test", st, nil) },
		}.Run(t)
	}
}
