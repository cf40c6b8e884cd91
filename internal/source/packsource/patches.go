package packsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/wrap/variants"
	"github.com/stokerdata/stoker/source/driver"
)

// originName is the field with the start of a patch in its volume.
const originName = "origin"

// patches has the patches of a pack's volumes as records. They are adjacent or overlap, and the last one of each
// axis ends with the volume. Only the patch is read from a volume.
type patches struct {
	driver.Mapped
	base          variants.Base
	info          driver.Info
	patch, stride [3]int
	sides         [3]int
	along         [3]int64 // patches along each axis
	each          int64    // patches per volume
	volume        []bool   // by field
	origin        int
	spare         sync.Pool
}

func openPatches(r variants.Base, patch, stride [3]int) (*patches, error) {
	s := &patches{base: r, info: *r.Info(), patch: patch, stride: stride, each: 1}
	s.Base = r
	s.Record = func(id int64) int64 {
		if id < 0 || id >= s.info.Len {
			return -1
		}
		return id / s.each
	}
	s.Field = func(field int) (int, bool) {
		if field == s.origin {
			return -1, false
		}
		return field, !s.volume[field]
	}
	// A patch is not the volume of the pack, and its number has no epoch.
	s.Without = []any{(*driver.Deriver)(nil), (*driver.Epochs)(nil), (*driver.Varied)(nil)}
	s.info.Fields = slices.Clone(s.info.Fields)
	first := -1
	for i := range s.info.Fields {
		f := &s.info.Fields[i]
		is := f.Kind == driver.KindVolume
		if s.volume = append(s.volume, is); f.Name == originName {
			return nil, fmt.Errorf("%s has a field %q, a name that patches need: rename the field", s.info.URL, originName)
		}
		if !is {
			continue
		}
		n := len(f.Shape) - 3
		sides := [3]int(f.Shape[n:])
		if first >= 0 && sides != s.sides {
			return nil, fmt.Errorf("the volumes of %q and %q in %s have different sizes, %v and %v: patches need equal sizes",
				s.info.Fields[first].Name, f.Name, s.info.URL, s.sides, sides)
		}
		first, s.sides = i, sides
		f.Shape, f.Stats = slices.Concat(f.Shape[:n], patch[:]), nil
		f.MaxBytes = int64(f.DType.Size())
		for _, side := range f.Shape {
			f.MaxBytes *= int64(side)
		}
	}
	if first < 0 {
		return nil, fmt.Errorf("patch=: %s has no volumes to cut into patches", s.info.URL)
	}
	for a, side := range s.sides {
		if side < patch[a] {
			return nil, fmt.Errorf("the volumes of %s have %v voxels, fewer than a patch of %v", s.info.URL, s.sides, patch)
		}
		if s.stride[a] == 0 {
			s.stride[a] = patch[a]
		}
		s.along[a] = int64((side-patch[a]+s.stride[a]-1)/s.stride[a]) + 1
		s.each *= s.along[a] // at most 2^45
	}
	if s.info.Len > (1<<40)/s.each {
		return nil, fmt.Errorf("%d patches per volume and %d volumes in %s exceed the limit of %d records", s.each, s.info.Len, s.info.URL, int64(1)<<40)
	}
	s.info.Len *= s.each
	s.origin = len(s.info.Fields)
	s.info.Fields = append(s.info.Fields, driver.Field{Name: originName, Kind: driver.KindArray, DType: driver.Int64, Shape: []int{3}})
	s.info.Fingerprint = fmt.Sprintf("%032x", xxh3.HashString128(fmt.Sprint(s.info.Fingerprint, patch, stride)).Bytes())
	s.spare.New = func() any { return s.newWork() }
	return s, nil
}

// place returns the volume of a patch, and the patch's position in it.
func (s *patches) place(id int64) (volume int64, box driver.Box) {
	box.Size = s.patch
	at := id % s.each
	for a := 2; a >= 0; a-- {
		box.At[a] = min(int(at%s.along[a])*s.stride[a], s.sides[a]-s.patch[a])
		at /= s.along[a]
	}
	return id / s.each, box
}

// work is the state of a group while the pack handles it.
type work struct {
	s     *patches
	inner driver.Group
	outer *driver.Group
	ids   []int64
	boxes []driver.Box
}

func (s *patches) newWork() *work {
	w := &work{s: s}
	w.inner.Box = func(k, field int) (driver.Box, bool) {
		if !s.volume[field] {
			return driver.Box{}, false
		}
		box := w.boxes[k]
		if w.outer.Box != nil {
			if part, ok := w.outer.Box(k, field); ok {
				for a := range 3 {
					part.At[a] += box.At[a]
				}
				return part, true
			}
		}
		return box, true
	}
	return w
}

func (s *patches) begin(g *driver.Group) *work {
	w := s.spare.Get().(*work)
	w.outer, w.ids, w.boxes = g, w.ids[:0], w.boxes[:0]
	for _, id := range g.IDs {
		volume, box := int64(-1), driver.Box{}
		if id >= 0 && id < s.info.Len {
			volume, box = s.place(id)
		}
		w.ids, w.boxes = append(w.ids, volume), append(w.boxes, box)
	}
	w.inner.Want = g.Want
	if g.Want != nil {
		w.inner.Want = g.Want[:s.origin]
	}
	w.inner.BeginIn(g, w.ids, s.origin)
	for k := range g.Records {
		if w.ids[k] < 0 && g.Records[k].Err == nil {
			w.inner.Records[k].Err = fmt.Errorf("record %d is outside of the %d records of %s", g.IDs[k], s.info.Len, s.info.URL)
		}
	}
	return w
}

func (w *work) end() {
	w.inner.Release()
	w.outer = nil
	w.s.spare.Put(w)
}

// Info implements driver.Source.
func (s *patches) Info() *driver.Info { return &s.info }

// Locate implements driver.Source.
func (s *patches) Locate(g *driver.Group) {
	w := s.begin(g)
	s.Base.Locate(&w.inner)
	g.Hand(&w.inner, nil)
	w.end()
}

// Parse implements driver.Source.
func (s *patches) Parse(g *driver.Group) error {
	w := s.begin(g)
	defer w.end()
	in := &w.inner
	in.HandBytes(g, nil)
	in.Place = g.Place
	if err := s.Base.Parse(in); err != nil {
		return err
	}
	for k := range g.Records {
		rec := &g.Records[k]
		copy(rec.Values, in.Records[k].Values)
		if rec.Err = in.Records[k].Err; rec.Err != nil || !g.Wants(s.origin) {
			continue
		}
		b := make([]byte, 0, 24)
		for _, x := range w.boxes[k].At {
			b = binary.LittleEndian.AppendUint64(b, uint64(x))
		}
		rec.Values[s.origin].Bytes = b
	}
	return nil
}

// Chunks implements driver.Chunker.
func (s *patches) Chunks() []int64 {
	starts := s.base.Chunks()
	for i := range starts {
		starts[i] *= s.each
	}
	return starts
}

// Chunk implements driver.Chunker.
func (s *patches) Chunk(n int) driver.Extent { return s.base.Chunk(n) }

// Cuts implements driver.Cutter. Parts of patches are parts of volumes.
func (s *patches) Cuts(field int) bool { return field < s.origin && s.volume[field] }

// Sides implements driver.Cutter.
func (s *patches) Sides(int64, int) [3]int { return s.patch }

// Name implements driver.Source.
func (s *patches) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.named(s.Mapped.Name(id), id)
}

func (s *patches) named(volume string, id int64) string {
	_, box := s.place(id)
	return fmt.Sprintf("%s, patch at z, y, x = %d, %d, %d", volume, box.At[0], box.At[1], box.At[2])
}

// Find implements driver.Finder.
func (s *patches) Find(ctx context.Context, id int64) string {
	if id < 0 || id >= s.info.Len {
		return s.Name(id)
	}
	return s.named(s.base.Find(ctx, s.Record(id)), id)
}

var errBoth = errors.New("patch=: packs with variants of records (--augment) cannot be cut into patches")
