// Package joined puts several sources with the same fields one after the other.
package joined

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/source/driver"
)

// Source has the records of several sources.
type Source struct {
	parts []driver.Source
	info  driver.Info
	// ids and objects are the numbers of the first record and object of each part, and after them
	// the count of all.
	ids, objects []int64

	// mixed reports that record numbers include the round of their part (OpenMixed). epochs are then the parts whose
	// records differ per round.
	mixed  bool
	epochs []bool

	sizers  []driver.Sizer
	shapers []driver.Shaper
	pathers []driver.Pather
	finders []driver.Finder
	spare   sync.Pool
}

// Open returns a source with the records of parts, at least one, and takes ownership of them. If
// Open fails, they stay open.
func Open(url string, parts []driver.Source) (*Source, error) {
	return open(&Source{}, "concat", url, parts)
}

// OpenMixed is Open for a mixture, in which each part has rounds of its own: a part comes again before others came
// once. Record numbers are made by driver.InEpoch with the round of the part.
func OpenMixed(url string, parts []driver.Source) (*Source, error) {
	s := &Source{mixed: true}
	for _, p := range parts {
		s.epochs = append(s.epochs, driver.EpochsOf(p))
	}
	return open(s, "mix", url, parts)
}

func open(s *Source, what, url string, parts []driver.Source) (*Source, error) {
	first := parts[0].Info()
	s.parts, s.ids, s.objects = parts, []int64{0}, []int64{0}
	s.info = driver.Info{URL: url, Format: first.Format, Fields: slices.Clone(first.Fields)}
	h := xxh3.New()
	for i, p := range parts {
		in := p.Info()
		if in.Sequential {
			return nil, fmt.Errorf("%s: the records of %s can only be read in order; stoker pack makes a pack whose records can be read in any order", what, in.URL)
		}
		if driver.EpochsOf(p) && !s.mixed || driver.VariantsOf(p) > 1 {
			return nil, fmt.Errorf("%s: the records of %s differ per epoch, and are not joined with others", what, in.URL)
		}
		if in.Format != first.Format {
			s.info.Format = what
		}
		if i > 0 {
			if err := s.add(first, in); err != nil {
				return nil, fmt.Errorf("%s: %w", what, err)
			}
		}
		s.ids, s.objects = append(s.ids, s.ids[i]+in.Len), append(s.objects, s.objects[i]+in.Objects)
		s.info.BadFiles += in.BadFiles
		s.info.Bad = append(s.info.Bad, in.Bad[:min(len(in.Bad), driver.MaxBad-len(s.info.Bad))]...)
		_, _ = fmt.Fprintf(h, "%s %d\x00", in.Fingerprint, in.Len)
	}
	s.info.Len, s.info.Objects = s.ids[len(parts)], s.objects[len(parts)]
	sum := h.Sum128().Bytes()
	s.info.Fingerprint = hex.EncodeToString(sum[:])
	for i := range s.info.Fields {
		if f := &s.info.Fields[i]; f.Stats != nil && f.MaxBytes == 0 && len(parts) > 1 {
			f.MaxBytes = max(f.Stats.MaxBytes, 1)
		}
	}
	s.sizers, s.shapers, s.pathers, s.finders = all[driver.Sizer](parts), all[driver.Shaper](parts), all[driver.Pather](parts), all[driver.Finder](parts)
	s.spare.New = func() any {
		w := &work{slot: make([]int32, len(parts))}
		for i := range w.slot {
			w.slot[i] = -1
		}
		return w
	}
	return s, nil
}

// all returns an ability of all parts, nil if a part lacks it.
func all[T any](parts []driver.Source) (out []T) {
	for _, p := range parts {
		t, ok := driver.As[T](p)
		if !ok {
			return nil
		}
		out = append(out, t)
	}
	return out
}

// add extends the fields to another part. It fails if the part has other fields.
func (s *Source) add(first, in *driver.Info) error {
	fail := func(format string, a ...any) error {
		return fmt.Errorf("%s and %s have different fields: %s; select, drop, rename or kinds make them the same", first.URL, in.URL, fmt.Sprintf(format, a...))
	}
	at := func(info *driver.Info, name string) int {
		return slices.IndexFunc(info.Fields, func(f driver.Field) bool { return f.Name == name })
	}
	for i := range in.Fields {
		if f := &in.Fields[i]; at(first, f.Name) < 0 {
			return fail("the first has no field %q", f.Name)
		}
	}
	for i := range s.info.Fields {
		f := &s.info.Fields[i]
		k := at(in, f.Name)
		if k < 0 {
			return fail("the second has no field %q", f.Name)
		}
		o := &in.Fields[k]
		switch {
		case k != i:
			return fail("field %q is number %d and number %d", f.Name, i+1, k+1)
		case f.Kind != o.Kind:
			return fail("field %q is %s and %s", f.Name, f.Kind, o.Kind)
		case f.DType != o.DType:
			return fail("field %q has elements of type %q and %q", f.Name, f.DType, o.DType)
		case f.Kind != driver.KindVolume && !slices.Equal(f.Shape, o.Shape):
			return fail("field %q has shape %v and %v", f.Name, f.Shape, o.Shape)
		case len(f.Shape)+len(f.Most) != len(o.Shape)+len(o.Most):
			return fail("field %q has %d and %d axes", f.Name, len(f.Shape)+len(f.Most), len(o.Shape)+len(o.Most))
		case f.Format != o.Format || f.Boxes != o.Boxes || f.Mask != o.Mask || f.Stored != o.Stored:
			return fail("field %q has other coordinates or belongs to other boxes", f.Name)
		case !slices.Equal(f.Classes, o.Classes):
			return fail("field %q has other classes: %s", f.Name, otherClass(f.Classes, o.Classes))
		}
		merge(f, o)
	}
	return nil
}

// otherClass names the first class that differs.
func otherClass(a, b []string) string {
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return fmt.Sprintf("class %d is missing and %q", i, b[i])
		case i >= len(b):
			return fmt.Sprintf("class %d is %q and missing", i, a[i])
		case a[i] != b[i]:
			return fmt.Sprintf("class %d is %q and %q", i, a[i], b[i])
		}
	}
	return "none"
}

// merge extends the limits of a field to another one.
func merge(f, o *driver.Field) {
	limit := func(f *driver.Field) int64 {
		if f.MaxBytes == 0 && f.Stats != nil {
			return max(f.Stats.MaxBytes, 1)
		}
		return f.MaxBytes
	}
	if a, b := limit(f), limit(o); a > 0 && b > 0 {
		f.MaxBytes = max(a, b)
	} else {
		f.MaxBytes = 0
	}
	f.Stats, f.Columns = nil, nil
	least, most := f.Least, f.Most
	if f.Kind == driver.KindVolume && !slices.Equal(f.Shape, o.Shape) || f.Shape == nil {
		lo, hi := o.Least, o.Most
		if f.Shape != nil {
			least, most = f.Shape, f.Shape
		}
		if o.Shape != nil {
			lo, hi = o.Shape, o.Shape
		}
		if f.Kind == driver.KindVolume {
			f.Shape = nil
		}
		f.Least, f.Most = sides(least, lo, func(a, b int) int { return min(a, b) }), sides(most, hi, func(a, b int) int { return max(a, b) })
	}
	side := func(f *driver.Field) (w, h int32) { return max(f.Width, f.MaxWidth), max(f.Height, f.MaxHeight) }
	aw, ah := side(f)
	bw, bh := side(o)
	if aw > 0 && bw > 0 {
		f.MaxWidth, f.MaxHeight = max(aw, bw), max(ah, bh)
	} else {
		f.MaxWidth, f.MaxHeight = 0, 0
	}
	if f.Width != o.Width || f.Height != o.Height || f.Channels != o.Channels {
		f.Width, f.Height, f.Channels = 0, 0, 0
	}
}

func sides(a, b []int, of func(a, b int) int) []int {
	if len(a) != len(b) {
		return a
	}
	out := make([]int, len(a))
	for i := range a {
		out[i] = of(a[i], b[i])
	}
	return out
}

// part returns the part of a number, by the first number of each part.
func part(starts []int64, n int64) int {
	return sort.Search(len(starts)-1, func(i int) bool { return starts[i+1] > n })
}

// of returns the part of a record and its number there. The part is -1 if there is no such record.
func (s *Source) of(id int64) (int, int64) {
	round := int64(0)
	if s.mixed && id >= 0 {
		round, id = driver.OfEpoch(id)
	}
	if id < 0 || id >= s.info.Len {
		return -1, 0
	}
	p := part(s.ids, id)
	n := id - s.ids[p]
	if s.mixed && s.epochs[p] {
		n = driver.InEpoch(round, n)
	}
	return p, n
}

// Parts returns the number of the first record of each part of a mixture, and after them the number of all records. It
// is nil for other sources.
func Parts(src driver.Source) []int64 {
	if s, ok := src.(*Source); ok && s.mixed {
		return s.ids
	}
	return nil
}

// Differ reports whether the records of a part differ per round.
func (s *Source) Differ() bool { return slices.Contains(s.epochs, true) }

// URLs returns the URLs of the parts.
func (s *Source) URLs() (urls []string) {
	for _, p := range s.parts {
		urls = append(urls, p.Info().URL)
	}
	return urls
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// Object implements driver.Source.
func (s *Source) Object(n int64) driver.Object {
	p := part(s.objects, n)
	return s.parts[p].Object(n - s.objects[p])
}

// Name implements driver.Source.
func (s *Source) Name(id int64) string {
	p, n := s.of(id)
	if p < 0 {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.parts[p].Name(n)
}

// Close implements driver.Source.
func (s *Source) Close() error {
	var all []error
	for _, p := range s.parts {
		all = append(all, p.Close())
	}
	return errors.Join(all...)
}

// work is the state of a group while the parts process it.
type work struct {
	s *Source
	// used are the parts that have records of the group. slot has the index in used by part, -1 for none.
	used []int
	slot []int32
	// inner are the groups of the used parts. ids are the numbers of the records in each of them, at their places in
	// the group.
	inner   []driver.Group
	ids, at [][]int64
	// places has, for each record of the group, the index in used of its part, -1 for none, and its place there.
	places [][2]int
}

// begin sorts the records of a group into those of the parts.
func (s *Source) begin(g *driver.Group) *work {
	w := s.spare.Get().(*work)
	w.s = s
	w.places = w.places[:0]
	for k, id := range g.IDs {
		p, n := s.of(id)
		if p < 0 {
			w.places = append(w.places, [2]int{-1, 0})
			continue
		}
		i := int(w.slot[p])
		if i < 0 {
			i = len(w.used)
			w.slot[p] = int32(i)
			w.used = append(w.used, p)
			if i == len(w.inner) {
				w.inner, w.ids, w.at = append(w.inner, driver.Group{}), append(w.ids, nil), append(w.at, nil)
			}
			w.ids[i], w.at[i] = w.ids[i][:0], w.at[i][:0]
		}
		w.places = append(w.places, [2]int{i, len(w.ids[i])})
		w.ids[i], w.at[i] = append(w.ids[i], n), append(w.at[i], int64(k))
	}
	for i := range w.used {
		in, at := &w.inner[i], w.at[i]
		in.Want, in.Unproven, in.Alloc = g.Want, g.Unproven, g.Alloc
		in.Begin(w.ids[i], len(s.info.Fields))
		for j, k := range at {
			in.Records[j].Err = g.Records[k].Err
		}
		in.Box, in.Place = nil, nil
		if g.Box != nil {
			in.Box = func(k, field int) (driver.Box, bool) { return g.Box(int(at[k]), field) }
		}
		if g.Place != nil {
			in.Place = func(k, field int, n int64) []byte { return g.Place(int(at[k]), field, n) }
		}
	}
	return w
}

func (w *work) end() {
	for i, p := range w.used {
		w.inner[i].Release()
		w.inner[i].Box = nil
		w.slot[p] = -1
	}
	w.used = w.used[:0]
	w.s.spare.Put(w)
}

// Locate implements driver.Source.
func (s *Source) Locate(g *driver.Group) {
	w := s.begin(g)
	for i, p := range w.used {
		s.parts[p].Locate(&w.inner[i])
		for _, m := range w.inner[i].Missing {
			m.K = int(w.at[i][m.K])
			m.Object += s.objects[p]
			g.Missing = append(g.Missing, m)
		}
	}
	for k := range g.IDs {
		i, j := w.places[k][0], w.places[k][1]
		if i < 0 {
			if g.Records[k].Err == nil {
				g.Records[k].Err = fmt.Errorf("record %d is out of range: there are %d records in %s", g.IDs[k], s.info.Len, s.info.URL)
			}
			g.Next()
			continue
		}
		in := &w.inner[i]
		g.Records[k].Err = in.Records[j].Err
		for _, e := range in.Extents[in.First[j]:in.First[j+1]] {
			e.Object += s.objects[w.used[i]]
			g.Extents = append(g.Extents, e)
		}
		g.Next()
	}
	w.end()
}

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error {
	w := s.begin(g)
	defer w.end()
	for i, p := range w.used {
		in := &w.inner[i]
		in.First = append(in.First[:0], 0)
		for _, k := range w.at[i] {
			extents, bytes := g.Of(int(k))
			for j, e := range extents {
				e.Object -= s.objects[p]
				in.Extents, in.Bytes = append(in.Extents, e), append(in.Bytes, bytes[j])
			}
			in.Next()
		}
		if err := s.parts[p].Parse(in); err != nil {
			return err
		}
		for j, k := range w.at[i] {
			g.Records[k].Err = in.Records[j].Err
			copy(g.Records[k].Values, in.Records[j].Values)
		}
	}
	return nil
}

// Hides reports whether the source lacks an ability that one of its parts lacks.
func (s *Source) Hides(ability any) bool {
	switch ability.(type) {
	case *driver.Sizer:
		return s.sizers == nil
	case *driver.Shaper:
		return s.shapers == nil
	case *driver.Pather:
		return s.pathers == nil
	case *driver.Finder:
		return s.finders == nil
	case *driver.Epochs:
		return !s.mixed
	}
	return false
}

// Sizes implements driver.Sizer.
func (s *Source) Sizes(field int, ids, sizes []int64) bool {
	for i, id := range ids {
		p, n := s.of(id)
		if !s.sizers[p].Sizes(field, []int64{n}, sizes[i:i+1]) {
			return false
		}
	}
	return true
}

// Shapes implements driver.Shaper.
func (s *Source) Shapes(field int, ids []int64, shapes []driver.Shape) bool {
	for i, id := range ids {
		p, n := s.of(id)
		if !s.shapers[p].Shapes(field, []int64{n}, shapes[i:i+1]) {
			return false
		}
	}
	return true
}

// Path implements driver.Pather.
func (s *Source) Path(id int64, field int) string {
	p, n := s.of(id)
	return s.pathers[p].Path(n, field)
}

// Find implements driver.Finder.
func (s *Source) Find(ctx context.Context, id int64) string {
	p, n := s.of(id)
	return s.finders[p].Find(ctx, n)
}

// EpochRecords implements driver.Epochs, for a mixture.
func (s *Source) EpochRecords() {}

// Seed implements driver.Seeded.
func (s *Source) Seed(seed uint64) {
	for _, p := range s.parts {
		driver.SeedOf(p, seed)
	}
}

// ApplyOrientation implements driver.Turned.
func (s *Source) ApplyOrientation() {
	for _, p := range s.parts {
		driver.ApplyOrientation(p)
	}
}

// Learn implements driver.Indexer.
func (s *Source) Learn(e driver.Extent, b []byte) error {
	p := part(s.objects, e.Object)
	x, ok := driver.As[driver.Indexer](s.parts[p])
	if !ok {
		return fmt.Errorf("internal error: %s has an index and does not read it", s.parts[p].Info().Format)
	}
	e.Object -= s.objects[p]
	return x.Learn(e, b)
}

// Held implements driver.Holder.
func (s *Source) Held() (n int64) {
	for _, p := range s.parts {
		n += driver.Held(p)
	}
	return n
}

// Useful implements driver.Cacher.
func (s *Source) Useful() (n int64) {
	for _, p := range s.parts {
		n += driver.Useful(p)
	}
	return n
}

// Keep implements driver.Cacher: each part caches in proportion to what it could use.
func (s *Source) Keep(n int64) {
	useful := float64(max(s.Useful(), 1))
	for _, p := range s.parts {
		driver.Keep(p, int64(float64(n)*float64(driver.Useful(p))/useful))
	}
}
