package volumesource

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func TestForms(t *testing.T) {
	patch := &Options{Patch: [3]int{3, 4, 5}, Stride: [3]int{3, 3, 3}}
	for name, dir := range formattest.Volumes(t) {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, opener(dir, nil))
			drivertest.Run(t, opener(dir, patch))
			for _, opt := range []*Options{nil, patch} {
				s := opener(dir, opt)(t)
				for _, r := range drivertest.Records(t, s, upTo(s.Info().Len)...) {
					if r.Err != nil {
						t.Fatal(r.Err)
					}
					file, box := s.(*source).place(r.ID)
					checkBox(t, r.Values[0].Bytes, box, file)
				}
				s.Close()
			}
		})
	}
}

// checkBox checks the voxels of a part.
func checkBox(t *testing.T, b []byte, box driver.Box, plus int) {
	t.Helper()
	for z := range box.Size[0] {
		for y := range box.Size[1] {
			for x := range box.Size[2] {
				if got, want := binary.LittleEndian.Uint16(b), formattest.Voxel(box.At[0]+z, box.At[1]+y, box.At[2]+x, plus); got != want {
					t.Fatalf("voxel %d, %d, %d of %v is %d, want %d", z, y, x, box, got, want)
				}
				b = b[2:]
			}
		}
	}
}

// Only the rows of a part are read. From wide rows, only the columns of the part are read.
func TestOnlyThePartIsRead(t *testing.T) {
	box := driver.Box{At: [3]int{2, 3, 4}, Size: [3]int{2, 4, 3}}
	for name, c := range map[string]struct{ most int64 }{
		"npy": {2 * 4 * 9 * 2}, "strips": {2 * 4 * 9 * 2}, "big": {2 * 4 * 9 * 2}, "tiles": {2 * 4 * 16 * 2}, "explicit": {2 * 4 * 9 * 2},
	} {
		s := opener(formattest.Volumes(t)[name], nil)(t)
		var g driver.Group
		g.Box = func(int, int) (driver.Box, bool) { return box, true }
		g.Begin([]int64{1, 3}, len(s.Info().Fields))
		s.Locate(&g)
		total := int64(0)
		for _, e := range g.Extents {
			total += e.Size
		}
		if total != 2*c.most {
			t.Errorf("%s: %d bytes are read for two parts, want %d", name, total, 2*c.most)
		}
		s.Close()
	}
	wide := &volume{shape: []int{4, 6, 1 << 14}, dtype: driver.Int16}
	wide.whole(100)
	extents := wide.locate(nil, &driver.Box{At: [3]int{1, 2, 300}, Size: [3]int{2, 3, 50}}, 0)
	if len(extents) != 6 || extents[1].Size != 100 || extents[1].Offset != 100+2*((1*6+3)<<14+300) {
		t.Errorf("%+v", extents)
	}
}

func TestPairsOfForms(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		sub := filepath.Join(dir, "ct", fmt.Sprintf("case%d", i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for z := range 7 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("%d.dcm", z)), formattest.DICOM(explicitLittle, z, 8, 9, i), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if i < 2 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("case%d.npy", i)), formattest.NPYVolume(i), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	fields := []pairsource.Field{{Name: "image", Pattern: "ct/*/*.dcm"}, {Name: "label", Pattern: "*.npy"}}
	s := opener(dir, &Options{Fields: fields})(t)
	defer s.Close()
	if f := s.Info().Fields; s.Info().Len != 2 || len(f) != 3 || !f[1].Mask || f[0].Mask || f[2].Name != "affine" {
		t.Fatalf("%d records, %+v", s.Info().Len, f)
	}
	for _, r := range drivertest.Records(t, s, 0, 1) {
		if r.Err != nil || !bytes.Equal(r.Values[0].Bytes, r.Values[1].Bytes) {
			t.Errorf("record %d: %v", r.ID, r.Err)
		}
	}
	if left := s.(driver.Skipper).Skipped(); len(left) != 1 || !strings.Contains(left[0].Reason, "no partner in *.npy") {
		t.Errorf("%v", left)
	}
}

func fuzzFile(f *testing.F, name string) {
	path := filepath.Join(f.TempDir(), name)
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, opt := range []*Options{nil, {Patch: [3]int{1, 2, 2}}} {
			s, err := Open(t.Context(), path, localstore.New(path), opt)
			if err != nil {
				continue
			}
			if f := s.Info().Fields[0]; f.MaxBytes < 1<<22 && len(b) < 1<<16 {
				_ = fmt.Sprint(drivertest.Records(t, s, 0, s.Info().Len-1))
			}
			s.Close()
		}
	})
}

func FuzzTIFF(f *testing.F) {
	for _, b := range [][]byte{
		formattest.TIFF(binary.LittleEndian, 2, 5, 6, 2, false, false, 0), formattest.TIFF(binary.BigEndian, 2, 5, 6, 5, false, true, 0),
		formattest.TIFF(binary.LittleEndian, 1, 18, 17, 16, true, true, 0), formattest.TIFF(binary.BigEndian, 1, 18, 17, 16, true, false, 0),
	} {
		f.Add(b)
	}
	big := []byte("II+\x00\x08\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00")
	f.Add(append(big, make([]byte, 60)...))
	fuzzFile(f, "x.tif")
}

func FuzzDICOM(f *testing.F) {
	for _, s := range []string{implicitLittle, explicitLittle, rleLossless, jpegLossless, jpegLosslessFirst} {
		f.Add(formattest.DICOM(s, 1, 3, 4, 0))
	}
	fuzzFile(f, "x.dcm")
}

func FuzzNumPy(f *testing.F) {
	f.Add(formattest.NPYVolume(0))
	fuzzFile(f, "x.npy")
}
