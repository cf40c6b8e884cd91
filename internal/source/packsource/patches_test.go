package packsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/source/wrap/variants"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// scans returns volumes with labels of the same size, a text and a number.
type scans struct {
	driver.InMemory
	info driver.Info
}

func newScans(n int64, seg ...int) *scans {
	return &scans{info: driver.Info{URL: "scans", Format: "test", Len: n, Fingerprint: "scans", Fields: []driver.Field{
		{Name: "scan", Kind: driver.KindVolume, DType: driver.Uint16, Shape: []int{2, 9, 10, 11}},
		{Name: "seg", Kind: driver.KindVolume, DType: driver.Uint8, Shape: seg, Mask: true},
		{Name: "about", Kind: driver.KindText},
		{Name: "case", Kind: driver.KindInt},
	}}}
}

// voxel returns a number for a voxel of a field of a record.
func voxel(id int64, field, i int) uint16 { return uint16(int(id)*31 + field*7 + i*3) }

func (s *scans) Info() *driver.Info   { return &s.info }
func (s *scans) Name(id int64) string { return fmt.Sprint("scan ", id) }
func (s *scans) Close() error         { return nil }

func (s *scans) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		v := g.Records[k].Values
		n := 1
		for _, side := range s.info.Fields[1].Shape {
			n *= side
		}
		for i := range 2 * 9 * 10 * 11 {
			v[0].Bytes = binary.LittleEndian.AppendUint16(v[0].Bytes, voxel(id, 0, i))
		}
		for i := range n {
			v[1].Bytes = append(v[1].Bytes, byte(voxel(id, 1, i)))
		}
		v[2].Bytes, v[3].Int = bytes.Repeat([]byte("x"), int(id)), id
	}
	return nil
}

func packed(t *testing.T, s driver.Source) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := pack.WriteSource(t.Context(), s, dir, &pack.Options{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPatches(t *testing.T) {
	dir := packed(t, newScans(5, 9, 10, 11))
	for _, opt := range []Options{{Patch: [3]int{4, 5, 6}}, {Patch: [3]int{9, 3, 11}, Stride: [3]int{1, 2, 3}}, {Patch: [3]int{9, 10, 11}}} {
		open := drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return Open(ctx, dir, localstore.New(dir), &opt) })
		drivertest.Run(t, open)
		s := open(t)
		defer s.Close()
		info := s.Info()
		p := opt.Patch
		if info.Fields[1].Kind != driver.KindVolume || info.Fields[4].Name != "origin" || fmt.Sprint(info.Fields[0].Shape) != fmt.Sprint([]int{2, p[0], p[1], p[2]}) {
			t.Fatalf("%+v", info.Fields)
		}
		seen := map[string]bool{}
		covered := map[[4]int]bool{}
		for id := range info.Len {
			rec := drivertest.Records(t, s, id)[0]
			if rec.Err != nil {
				t.Fatal(rec.Err)
			}
			scan := rec.Values[3].Int
			at := [3]int{}
			for a := range at {
				at[a] = int(binary.LittleEndian.Uint64(rec.Values[4].Bytes[8*a:]))
			}
			if name := fmt.Sprint(scan, at); seen[name] || !strings.Contains(s.Name(id), fmt.Sprintf("%d, %d, %d", at[0], at[1], at[2])) {
				t.Errorf("%s: %s, or again", name, s.Name(id))
			} else {
				seen[name] = true
			}
			var want, seg []byte
			for l := range 2 {
				for z := range p[0] {
					for y := range p[1] {
						for x := range p[2] {
							i := ((at[0]+z)*10+at[1]+y)*11 + at[2] + x
							want = binary.LittleEndian.AppendUint16(want, voxel(scan, 0, l*990+i))
							if l == 0 {
								seg = append(seg, byte(voxel(scan, 1, i)))
								covered[[4]int{int(scan), at[0] + z, at[1] + y, at[2] + x}] = true
							}
						}
					}
				}
			}
			if !bytes.Equal(rec.Values[0].Bytes, want) || !bytes.Equal(rec.Values[1].Bytes, seg) || len(rec.Values[2].Bytes) != int(scan) {
				t.Fatalf("patch %v of scan %d is something else", at, scan)
			}
		}
		if len(covered) != 5*990 {
			t.Errorf("patches of %v cover %d of %d voxels", p, len(covered), 5*990)
		}
	}
}

func TestPatchesThatAreNone(t *testing.T) {
	odd := newScans(2, 9, 10, 12)
	other := newScans(2, 9, 10, 11)
	other.info.Fields[0].Kind, other.info.Fields[1].Kind = driver.KindArray, driver.KindArray
	twice := newScans(2, 9, 10, 11)
	twice.info.Fields[2].Name = "origin"
	for _, c := range []struct {
		src  driver.Source
		size int
		want string
	}{
		{odd, 4, "have different sizes, [9 10 11] and [9 10 12]"}, {other, 4, "has no volumes"}, {twice, 4, `has a field "origin"`},
		{newScans(2, 9, 10, 11), 10, "have [9 10 11] voxels, fewer than a patch of [10 10 10]"},
	} {
		dir := packed(t, c.src)
		s, err := Open(t.Context(), dir, localstore.New(dir), &Options{Patch: [3]int{c.size, c.size, c.size}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if err == nil {
			s.Close()
		}
	}
}

func TestWrapped(t *testing.T) {
	drivertest.Wrapped(t, drivertest.Wrapping{
		Open: func(testing.TB) driver.Source { return sourcetest.Mixed(20).Copied() },
		Wrap: func(t testing.TB, base driver.Source) driver.Source {
			s, err := openPatches(base.(variants.Base), [3]int{2, 3, 4}, [3]int{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Lacks: map[string]string{
			"Epochs": "packs are the same in each epoch",
			"Varied": "packs with variants are not cut",
		},
	})
}
