package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// scans are volumes of 1.2 MB and labels of a few bytes.
type scans struct {
	driver.InMemory
	info driver.Info
}

func newScans(n int64) *scans {
	return &scans{info: driver.Info{URL: "scans", Format: "test", Len: n, Fingerprint: "scans", Fields: []driver.Field{
		{Name: "scan", Kind: driver.KindVolume, DType: driver.Uint16, Shape: []int{2, 30, 100, 104}},
		{Name: "seg", Kind: driver.KindVolume, DType: driver.Uint8, Shape: []int{2, 3, 4}, Mask: true},
		{Name: "case", Kind: driver.KindInt},
	}}}
}

func (s *scans) volume(id int64, field int) []byte {
	n := 1
	for _, side := range s.info.Fields[field].Shape {
		n *= side
	}
	var b []byte
	for i := range n {
		if field == 1 {
			b = append(b, byte(int(id)+i))
		} else {
			b = binary.LittleEndian.AppendUint16(b, uint16(int(id)*7+i))
		}
	}
	return b
}

func (s *scans) Info() *driver.Info   { return &s.info }
func (s *scans) Name(id int64) string { return fmt.Sprint("scan ", id) }
func (s *scans) Close() error         { return nil }

func (s *scans) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		v := g.Records[k].Values
		v[0].Bytes, v[1].Bytes, v[2].Int = s.volume(id, 0), s.volume(id, 1), id
	}
	return nil
}

// inParts reads a part of volumes and counts the bytes that are read for it.
type inParts struct {
	*Reader
	box  map[int]driver.Box
	read map[int64]int64
}

func (b *inParts) set(g *driver.Group) {
	g.Box = func(_, field int) (driver.Box, bool) {
		box, ok := b.box[field]
		return box, ok
	}
}

func (b *inParts) Locate(g *driver.Group) {
	b.set(g)
	b.Reader.Locate(g)
	for k, id := range g.IDs {
		b.read[id] = 0
		for _, e := range g.Extents[g.First[k]:g.First[k+1]] {
			b.read[id] += e.Size
		}
	}
}

func (b *inParts) Parse(g *driver.Group) error {
	b.set(g)
	return b.Reader.Parse(g)
}

// Parts of any size can be read from a pack of volumes, with little extra data.
func TestPartsOfVolumes(t *testing.T) {
	dir := t.TempDir()
	s := newScans(5)
	mustWriteSource(t, s, dir, &Options{})
	for _, verify := range []bool{false, true} {
		r, err := Open(t.Context(), dir, &ReadOptions{VerifyChunks: verify})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if !r.Cuts(0) || r.Cuts(1) || r.Cuts(2) || r.Sides(3, 0) != [3]int{30, 100, 104} {
			t.Errorf("cuts %t, %t, %t; sides %v", r.Cuts(0), r.Cuts(1), r.Cuts(2), r.Sides(3, 0))
		}
		for _, box := range []driver.Box{
			{At: [3]int{1, 2, 3}, Size: [3]int{16, 16, 16}}, {At: [3]int{7, 0, 0}, Size: [3]int{20, 100, 104}}, {Size: [3]int{30, 100, 104}},
			{At: [3]int{29, 99, 103}, Size: [3]int{1, 1, 1}},
		} {
			b := &inParts{r, map[int]driver.Box{0: box, 1: {At: [3]int{1, 1, 1}, Size: [3]int{1, 2, 2}}}, map[int64]int64{}}
			for _, rec := range load(t, b, 4, 0, 2) {
				if rec.Err != nil {
					t.Fatal(rec.Err)
				}
				all := s.volume(rec.ID, 0)
				var want []byte
				for l := range 2 {
					for z := range box.Size[0] {
						for y := range box.Size[1] {
							at := 2 * (((l*30+box.At[0]+z)*100+box.At[1]+y)*104 + box.At[2])
							want = append(want, all[at:at+2*box.Size[2]]...)
						}
					}
				}
				v := rec.Values[0]
				if !bytes.Equal(v.Bytes, want) || [3]int{int(v.Depth), int(v.Height), int(v.Width)} != box.Size {
					t.Errorf("%v of record %d: other voxels, or %d x %d x %d", box, rec.ID, v.Depth, v.Height, v.Width)
				}
				if most := int64(2*box.Size[0]*box.Size[1]) * 208; b.read[rec.ID] > most+24 {
					t.Errorf("%v: %d bytes are read, the rows have %d", box, b.read[rec.ID], most)
				}
				seg := s.volume(rec.ID, 1)
				if got := rec.Values[1].Bytes; !bytes.Equal(got, []byte{seg[17], seg[18], seg[21], seg[22]}) {
					t.Errorf("the labels of record %d are %v", rec.ID, got)
				}
				if rec.Values[2].Int != rec.ID {
					t.Errorf("record %d is case %d", rec.ID, rec.Values[2].Int)
				}
			}
		}
		b := &inParts{r, map[int]driver.Box{0: {At: [3]int{20, 0, 0}, Size: [3]int{11, 1, 1}}}, map[int64]int64{}}
		if rec := load(t, b, 1)[0]; rec.Err == nil {
			t.Error("a part outside of the volume is read")
		}
	}
}

// The first part of a small volume is read with the rest of it, for its checksum. Later parts are read alone. A
// volume of any size that is read completely is also checked.
func TestPartsAreChecked(t *testing.T) {
	for _, c := range []struct {
		shape []int
		box   driver.Box
	}{
		{[]int{30, 40, 50}, driver.Box{At: [3]int{1, 2, 3}, Size: [3]int{4, 5, 6}}},
		{[]int{30, 100, 400}, driver.Box{Size: [3]int{30, 100, 400}}},
	} {
		s := newScans(3)
		s.info.Fields[0].Shape = c.shape
		dir := t.TempDir()
		mustWriteSource(t, s, dir, &Options{})
		shard := filepath.Join(dir, must(ReadManifest(dir)).Shards[0].File)
		whole := must(os.ReadFile(shard))
		read := func() (*inParts, driver.Record) {
			r := must(Open(t.Context(), dir, nil))
			t.Cleanup(func() { r.Close() })
			b := &inParts{r, map[int]driver.Box{0: c.box}, map[int64]int64{}}
			return b, load(t, b, 1)[0]
		}
		b, want := read()
		first := b.read[1]
		again := load(t, b, 1)[0]
		if small := c.box.Size[0] == 4; small && (first < 2*30*40*50 || b.read[1] > 3000) || !bytes.Equal(again.Values[0].Bytes, want.Values[0].Bytes) {
			t.Errorf("%v: %d bytes are read, and then %d", c.box, first, b.read[1])
		}
		at := bytes.Index(whole, s.volume(1, 0))
		for i := range 9 {
			damaged := bytes.Clone(whole)
			damaged[at+(len(s.volume(1, 0))-1)*i/8] ^= 1 << (i % 8)
			writeFile(t, damaged, shard)
			if _, rec := read(); rec.Err == nil || !errors.Is(rec.Err, driver.ErrDamaged) {
				t.Errorf("%v: part %d of 8 is damaged, and the error is %v", c.box, i, rec.Err)
			}
		}
	}
}
