package zarrsource

import (
	"archive/zip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// zipped packs a folder, below another name.
func zipped(t testing.TB, from, below string, method uint16) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "data.zip")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	root := os.DirFS(from)
	err = fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		m, err := w.CreateHeader(&zip.FileHeader{Name: below + p, Method: method})
		if err == nil {
			_, err = m.Write(b)
		}
		return err
	})
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// A zip file has the records of its folder.
func TestZip(t *testing.T) {
	for name, method := range map[string]uint16{"second.zarr": zip.Store, "third.zarr": zip.Deflate} {
		for _, below := range []string{"", "data.zarr/"} {
			folder, packed := filepath.Join("testdata", name), zipped(t, filepath.Join("testdata", name), below, method)
			if !IsZip(t.Context(), localstore.New(packed)) {
				t.Fatalf("%s is not found to be Zarr", packed)
			}
			a, b := opener(folder, "")(t), opener(packed, "")(t)
			if a.Info().Len != b.Info().Len || len(a.Info().Fields) != len(b.Info().Fields) {
				t.Fatalf("%s: %+v", name, b.Info())
			}
			ids := []int64{5, 0, 23, 11}
			other := drivertest.Records(t, b, ids...)
			for k, rec := range drivertest.Records(t, a, ids...) {
				for i := range rec.Values {
					if !slices.Equal(rec.Values[i].Bytes, other[k].Values[i].Bytes) || rec.Values[i].Int != other[k].Values[i].Int {
						t.Fatalf("%s: record %d, %q", name, ids[k], a.Info().Fields[i].Name)
					}
				}
			}
			a.Close()
			b.Close()
		}
	}
}

// A changed byte gives an error that names the file.
func TestZipDamaged(t *testing.T) {
	whole, err := os.ReadFile(zipped(t, "testdata/third.zarr", "", zip.Deflate))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "cut.zip")
	for i := 0; i < len(whole); i += 1 + len(whole)/50 {
		b := slices.Clone(whole)
		b[i] ^= 0xff
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if s, err := tryOpen(t, name, ""); err == nil {
			s.Close()
		} else if !strings.Contains(err.Error(), "cut.zip") {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

// Failed reads are errors of records, as with any other store.
func TestZipFaults(t *testing.T) {
	packed := zipped(t, "testdata/second.zarr/plain", "", zip.Store)
	z, err := openZip(t.Context(), localstore.New(packed))
	if err != nil {
		t.Fatal(err)
	}
	drivertest.Faults(t, z, false, func(ctx context.Context, st store.Store) (driver.Source, error) {
		return Open(ctx, "test", st, nil)
	})
	var names []string
	if err := z.List(t.Context(), "", &store.ListOptions{Hidden: true}, func(e store.Entry) error {
		names = append(names, e.Name)
		return nil
	}); err != nil || !slices.IsSorted(names) || len(names) < 2 {
		t.Fatal(names, err)
	}
	if _, err := z.Open(t.Context(), "nothing"); err == nil || !strings.Contains(fmt.Sprint(err), "data.zip/nothing") {
		t.Error(err)
	}
}
