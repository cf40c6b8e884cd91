package volumesource

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func TestBadFile(t *testing.T) {
	plain := func(i int) (string, []byte) { return ".nii", formattest.NIfTI(binary.LittleEndian, 0, i, 7, 8, 9) }
	pages := func(i int) (string, []byte) {
		return ".tif", formattest.TIFF(binary.LittleEndian, 7, 8, 9, 4, false, false, i)
	}
	for name, c := range map[string]struct {
		file func(i int) (string, []byte)
		opt  Options
	}{
		"NIfTI":       {plain, Options{}},
		"patches":     {plain, Options{Patch: [3]int{3, 4, 5}}},
		"TIFF stacks": {pages, Options{Format: "volumes"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, at := range []string{"0bad", "sub/bad"} {
				ext, b := c.file(9)
				drivertest.BadFiles{
					Folder: formattest.Numbered(t, 4, c.file), Name: at + ext, Content: b,
					Open: func(ctx context.Context, st store.Store) (driver.Source, error) {
						opt := c.opt
						return Open(ctx, "test", st, &opt)
					},
				}.Run(t)
			}
		})
	}
}

// bads opens a folder and returns the names of its records. Names of bad records begin with !.
func bads(t *testing.T, dir string, opt *Options) (all []string) {
	t.Helper()
	s := opener(dir, opt)(t)
	defer s.Close()
	bad := 0
	for _, r := range drivertest.Records(t, s, upTo(s.Info().Len)...) {
		name := strings.TrimPrefix(s.Name(r.ID), dir+"/")
		if r.Err != nil {
			bad++
			name = "!" + name
		}
		all = append(all, name)
	}
	if s.Info().BadFiles != bad {
		t.Errorf("%d files are bad, %d records: %v", s.Info().BadFiles, bad, s.Info().Bad)
	}
	return all
}

// A pair with a bad volume is one bad record, and so is a pair whose volumes differ in size.
func TestBadPairs(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		drivertest.Put(t, dir, "image/"+name+".nii", formattest.NIfTI(binary.LittleEndian, 0, 1, 7, 8, 9))
		drivertest.Put(t, dir, "label/"+name+".nii", formattest.NIfTI(binary.LittleEndian, 0, 2, 7, 8, 9))
	}
	drivertest.Put(t, dir, "image/a.nii", []byte("no volume"))
	drivertest.Put(t, dir, "label/c.nii", nil)
	drivertest.Put(t, dir, "label/d.nii", formattest.NIfTI(binary.LittleEndian, 0, 2, 6, 8, 9))
	fields := []pairsource.Field{{Name: "image", Pattern: "image/*.nii"}, {Name: "label", Pattern: "label/*.nii"}}
	want := []string{"!image/a.nii", "image/b.nii", "!image/c.nii", "!image/d.nii", "image/e.nii"}
	if got := bads(t, dir, &Options{Fields: fields}); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got := bads(t, dir, &Options{Fields: fields, Patch: [3]int{7, 8, 5}})
	if n := len(slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s[0] == '!' })); n != 4 || len(got) != 7 {
		t.Errorf("%q", got)
	}
	if err := os.Remove(filepath.Join(dir, "label/b.nii")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "label/b.nii")); err != nil {
		t.Fatal(err)
	}
	want[1] = "!image/b.nii"
	if got := bads(t, dir, &Options{Fields: fields}); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	drivertest.Put(t, dir, "label/e.nii", nil)
	if _, err := Open(t.Context(), "test", localstore.New(dir), &Options{Fields: fields}); err == nil || !strings.HasPrefix(err.Error(), "none of 5 files can be read; the first: cannot read "+dir) {
		t.Error(err)
	}
}

// A series that misses a slice is one bad record.
func TestBadSlices(t *testing.T) {
	series := func(t *testing.T) string {
		dir := t.TempDir()
		for _, patient := range []string{"p1", "p2"} {
			for z := range 4 {
				drivertest.Put(t, dir, patient+"/"+string(rune('0'+z))+".dcm", formattest.DICOM(explicitLittle, z, 8, 9, 0))
			}
		}
		return dir
	}
	cut := func(b []byte) []byte { return b[:len(b)-20] }
	for name, c := range map[string]struct {
		change func(dir string) error
		want   []string
	}{
		"cut":     {func(dir string) error { return edit(dir+"/p1/2.dcm", cut) }, []string{"!p1", "p2"}},
		"empty":   {func(dir string) error { return edit(dir+"/p1/2.dcm", func([]byte) []byte { return nil }) }, []string{"!p1", "p2"}},
		"first":   {func(dir string) error { return edit(dir+"/p2/0.dcm", func([]byte) []byte { return []byte("x") }) }, []string{"p1", "!p2"}},
		"missing": {func(dir string) error { return os.Symlink("nowhere", dir+"/p2/9.dcm") }, []string{"p1", "!p2"}},
		"alone":   {func(dir string) error { return os.Symlink("nowhere", dir+"/3.dcm") }, []string{"!3.dcm", "p1", "p2"}},
		"twice": {func(dir string) error {
			return edit(dir+"/p1/2.dcm", func([]byte) []byte { return formattest.DICOM(explicitLittle, 1, 8, 9, 0) })
		}, []string{"!p1", "p2"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := series(t)
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			if got := bads(t, dir, &Options{Format: "dicom"}); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func edit(path string, f func(b []byte) []byte) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, f(b), 0o644)
}
