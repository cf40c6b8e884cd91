package volumesource

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func opener(dir string, opt *Options) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return Open(ctx, dir, localstore.New(dir), opt) })
}

// Patches have the voxels of the whole volume, and cover all of it.
func TestPatches(t *testing.T) {
	dir := formattest.Numbered(t, 4, formattest.MixedNIfTI)
	s := opener(dir, &Options{Patch: [3]int{3, 4, 5}})(t)
	defer s.Close()
	if s.Info().Len != 4*3*2*2 {
		t.Fatalf("%d patches", s.Info().Len)
	}
	seen := map[[4]int]bool{}
	for _, r := range drivertest.Records(t, s, upTo(48)...) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		file := int(r.ID / 12)
		var at [3]int
		for i := range at {
			at[i] = int(binary.LittleEndian.Uint64(r.Values[2].Bytes[8*i:]))
		}
		b := r.Values[0].Bytes
		for z := range 3 {
			for y := range 4 {
				for x := range 5 {
					want := (at[0]+z)*1000 + (at[1]+y)*100 + at[2] + x + file
					if got := int(int16(binary.LittleEndian.Uint16(b[2*((z*4+y)*5+x):]))); got != want {
						t.Fatalf("%s: voxel %d, %d, %d is %d, want %d", s.Name(r.ID), z, y, x, got, want)
					}
					seen[[4]int{file, at[0] + z, at[1] + y, at[2] + x}] = true
				}
			}
		}
	}
	if len(seen) != 4*7*8*9 {
		t.Errorf("%d voxels are in patches", len(seen))
	}
}

func upTo(n int64) (ids []int64) {
	for i := range n {
		ids = append(ids, i)
	}
	return ids
}

func TestWhole(t *testing.T) {
	s := opener(formattest.Numbered(t, 3, formattest.MixedNIfTI), nil)(t)
	defer s.Close()
	if f := s.Info().Fields[0]; !slices.Equal(f.Shape, []int{7, 8, 9}) || f.DType != driver.Int16 {
		t.Fatalf("%+v", f)
	}
	for _, r := range drivertest.Records(t, s, 0, 1, 2) {
		if got := int16(binary.LittleEndian.Uint16(r.Values[0].Bytes[2*((3*8+4)*9+5):])); r.Err != nil || got != int16(3405+r.ID) {
			t.Errorf("record %d: %v, %d", r.ID, r.Err, got)
		}
	}
	scaled := opener(formattest.Numbered(t, 1, func(int) (string, []byte) { return ".nii", formattest.NIfTI(binary.BigEndian, 0.5, 0, 2, 3, 4) }), nil)(t)
	r := drivertest.Records(t, scaled, 0)[0]
	if got := math.Float32frombits(binary.LittleEndian.Uint32(r.Values[0].Bytes[4*((1*3+2)*4+3):])); r.Err != nil || got != 0.5*1203+1.5 {
		t.Errorf("%v, %v", r.Err, got)
	}
}

func TestBadFiles(t *testing.T) {
	good := formattest.NIfTI(binary.LittleEndian, 0, 0, 4, 5, 6)
	change := func(at int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], v)
		return b
	}
	patch := &Options{Patch: [3]int{8, 2, 2}}
	for name, c := range map[string]struct {
		ext  string
		b    []byte
		opt  *Options
		want string
	}{
		"empty":   {".nii", nil, nil, "it is not a NIfTI, .npy, TIFF or DICOM file"},
		"magic":   {".nii", change(344, 'x'), nil, "it does not begin with the header of a NIfTI file"},
		"pair":    {".nii", change(344, 'n', 'i', '1'), nil, "in a separate file"},
		"axes":    {".nii", change(40, 9), nil, "9 axes"},
		"side":    {".nii", change(42, 0, 0), nil, "0 voxels along axis 1"},
		"huge":    {".nii", change(42, 255, 127, 255, 127, 255, 127), nil, "out of range"},
		"type":    {".nii", change(70, 32), nil, "its voxels are of type 32"},
		"offset":  {".nii", change(108, 0, 0, 192, 127), nil, "voxels begin at byte NaN"},
		"cut":     {".nii", good[:len(good)-1], nil, "the file is cut off"},
		"cut gz":  {".nii.gz", formattest.Gzip(good[:400]), nil, "unpacked it has less: the file is cut off"},
		"gzip":    {".nii.gz", formattest.Gzip(good)[:30], nil, "the header of a NIfTI file"},
		"patch":   {".nii", good, patch, "less than a patch of 8 x 2 x 2"},
		"4-D":     {".nii", formattest.NIfTI(binary.LittleEndian, 0, 0, 2, 4, 5, 6), patch, "less than a patch of 8 x 2 x 2"},
		"foreign": {".nii.gz", []byte{0x1f, 0x8b, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}, nil, "gzip"},
	} {
		dir := formattest.Numbered(t, 1, func(int) (string, []byte) { return c.ext, c.b })
		s, err := Open(t.Context(), dir, localstore.New(dir), c.opt)
		if err == nil {
			err = drivertest.Records(t, s, 0)[0].Err
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "00"+c.ext) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
	for _, text := range []string{"", "0", "1x2", "1x2x3x4", "-1", "ax2x3", "1x2x40000"} {
		if v, err := FormatVolumes.Parse("patch=" + text); err == nil {
			t.Errorf("%q is %v", text, v.Size("patch"))
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(formattest.NIfTI(binary.LittleEndian, 0, 0, 2, 3, 4))
	f.Add(formattest.NIfTI(binary.BigEndian, 2, 0, 2, 3, 4, 1))
	v2 := make([]byte, 544)
	binary.LittleEndian.PutUint32(v2, 540)
	copy(v2[4:], "n+2\x00\r\n\x1a\n")
	f.Add(v2)
	path := filepath.Join(f.TempDir(), "x.nii")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, opt := range []*Options{nil, {Patch: [3]int{1, 2, 2}}} {
			s, err := Open(t.Context(), path, localstore.New(path), opt)
			if err != nil || s.Info().Fields[0].Shape[0] > 1000 || len(b) > 1<<16 {
				continue
			}
			_ = fmt.Sprint(drivertest.Records(t, s, 0))
			s.Close()
		}
	})
}
