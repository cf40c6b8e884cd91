package drivertest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// Wrapping describes a wrapper, for Wrapped. Abilities have the names of their interfaces in package
// driver, such as "Sizer".
type Wrapping struct {
	// Open opens a source that the wrapper accepts. Wrapped adds all abilities to it.
	Open Open
	// Wrap puts the wrapper around base. The wrapper owns base.
	Wrap func(t testing.TB, base driver.Source) driver.Source
	// Lacks lists the abilities that the wrapper does not pass on, each with the reason.
	Lacks map[string]string
	// Refuses lists the abilities that the base must not have for the wrapper to accept it.
	Refuses []string
}

// Wrapped tests that a wrapper passes on the abilities of its base (driver.As). It also tests that sizes, paths
// and the other answers belong to the same records and fields as the values do. It fails if the
// wrapper loses an ability that Lacks does not name.
func Wrapped(t *testing.T, w Wrapping) {
	base := newAble(t, w.Open, w.Refuses)
	src := w.Wrap(t, base.source())
	s := &opened{src, recordread.NewObjects(src, nil)}
	defer s.Close()
	for _, what := range w.lost(base.source(), src) {
		t.Error(what)
	}
	for _, a := range abilities {
		if a.of(base.source()) && a.of(src) && a.check != nil {
			t.Run(a.name, func(t *testing.T) { a.check(t, base, s) })
		}
	}
}

// lost describes what is wrong with the abilities of src, which wraps base.
func (w *Wrapping) lost(base, src driver.Source) (all []string) {
	names := slices.Sorted(maps.Keys(w.Lacks))
	for _, a := range abilities {
		why, lacks := w.Lacks[a.name]
		names = slices.DeleteFunc(names, func(n string) bool { return n == a.name })
		switch has := a.of(src); {
		case a.of(base) && !has && !lacks:
			all = append(all, fmt.Sprintf("the wrapper loses %s of its base: embed driver.Mapped or driver.Wrapper, or name the ability in Lacks with the reason", a.name))
		case lacks && (has || why == "" || !a.of(base)):
			all = append(all, fmt.Sprintf("Lacks[%q] is %q: the wrapper has the ability: %v, the base has it: %v", a.name, why, has, a.of(base)))
		}
	}
	if len(names) > 0 {
		all = append(all, fmt.Sprintf("Lacks has names that are not abilities: %q", names))
	}
	return all
}

type ability struct {
	name string
	// of reports whether a source has it, check compares the answers of a wrapper with the base.
	of    func(driver.Source) bool
	check func(t *testing.T, base *able, s *opened)
}

func has[T any](s driver.Source) bool {
	_, ok := driver.As[T](s)
	return ok
}

func as[T any](s *opened) T {
	t, _ := driver.As[T](s.Source)
	return t
}

var abilities = []ability{
	{"Skipper", has[driver.Skipper], equal(func(base *able, s *opened) (got, want any) {
		return as[driver.Skipper](s).Skipped(), base.Skipped()
	})},
	{"Leaver", has[driver.Leaver], equal(func(base *able, s *opened) (got, want any) {
		return as[driver.Leaver](s).Left(), base.Left()
	})},
	{"Holder", has[driver.Holder], equal(func(base *able, s *opened) (got, want any) {
		return min(driver.Held(s.Source), base.Held()), base.Held()
	})},
	{"Cacher", has[driver.Cacher], equal(func(base *able, s *opened) (got, want any) {
		driver.Keep(s.Source, 1<<50)
		return [2]int64{min(driver.Useful(s.Source), base.Useful()), base.kept}, [2]int64{base.Useful(), base.Useful()}
	})},
	{"Seeded", has[driver.Seeded], equal(func(base *able, s *opened) (got, want any) {
		driver.SeedOf(s.Source, 42)
		return base.seed, uint64(42)
	})},
	{"Turned", has[driver.Turned], equal(func(base *able, s *opened) (got, want any) {
		driver.ApplyOrientation(s.Source)
		return base.turned, true
	})},
	{"Indexer", has[driver.Indexer], func(t *testing.T, base *able, s *opened) {
		base.forget()
		if read(t, s, []int64{0}); base.forgot() {
			t.Error("a record was read, and the base did not get its index")
		}
	}},
	{"Sizer", has[driver.Sizer], checkSizes},
	{"Shaper", has[driver.Shaper], each(func(base *able, s *opened, p place) (got, want any) {
		var a, b [1]driver.Shape
		if as[driver.Shaper](s).Shapes(p.field, []int64{p.id}, a[:]) && !base.Shapes(p.of, []int64{p.record}, b[:]) {
			return a, "no shape"
		}
		return a, b
	})},
	{"Pather", has[driver.Pather], each(func(base *able, s *opened, p place) (got, want any) {
		if _, own := s.Source.(driver.Pather); own {
			return nil, nil
		}
		return as[driver.Pather](s).Path(p.id, p.field), base.Path(p.record, p.of)
	})},
	{"Finder", has[driver.Finder], each(func(base *able, s *opened, p place) (got, want any) {
		a, b := as[driver.Finder](s).Find(context.Background(), p.id), base.Find(context.Background(), p.record)
		if strings.Contains(a, b) { // a wrapper may add to it
			return nil, nil
		}
		return a, b
	})},
	{"Cutter", has[driver.Cutter], checkCuts},
	{"Varied", has[driver.Varied], func(t *testing.T, base *able, s *opened) {
		if _, own := s.Source.(driver.Varied); own {
			return
		}
		checkEpoch(t, base, s)
		each(func(base *able, s *opened, p place) (got, want any) {
			return driver.Varies(s.Source, p.field), base.Varies(p.of)
		})(t, base, s)
	}},
	{"Epochs", has[driver.Epochs], func(t *testing.T, base *able, s *opened) {
		if _, own := s.Source.(driver.Epochs); !own {
			checkEpoch(t, base, s)
		}
	}},
	{"Chunker", has[driver.Chunker], func(t *testing.T, base *able, s *opened) {
		starts, c := driver.ChunksOf(s.Source)
		if n := len(starts); n < 2 || starts[0] != 0 || starts[n-1] != s.Info().Len || !slices.IsSorted(starts) {
			t.Fatalf("the chunks of %d records begin at %v", s.Info().Len, starts)
		}
		for n := range len(starts) - 1 {
			if e := c.Chunk(n); s.Object(e.Object) != base.Object(base.Chunk(0).Object) {
				t.Errorf("chunk %d is in object %d, which is not the object of the base", n, e.Object)
			}
		}
	}},
	{"Sequential", has[driver.Sequential], nil}, // Run tests these
}

// equal makes a check of an answer of a wrapper and an answer of its base.
func equal(ask func(base *able, s *opened) (got, want any)) func(*testing.T, *able, *opened) {
	return func(t *testing.T, base *able, s *opened) {
		if got, want := ask(base, s); !reflect.DeepEqual(got, want) {
			t.Errorf("the wrapper answers %v, the base %v", got, want)
		}
	}
}

// place is a field of a record, and the field and the record of the base that it comes from.
type place struct {
	id     int64
	field  int
	record int64
	of     int
}

// each is equal for the fields of some records, as far as the wrapper tells their origin.
func each(ask func(base *able, s *opened, p place) (got, want any)) func(*testing.T, *able, *opened) {
	return func(t *testing.T, base *able, s *opened) {
		for _, p := range places(s) {
			if got, want := any(nil), any(nil); p.of >= 0 {
				if got, want = ask(base, s, p); !reflect.DeepEqual(got, want) {
					t.Errorf("field %d of record %d: the wrapper answers %v, the base %v", p.field, p.id, got, want)
				}
			}
		}
	}
}

// places returns the fields of the first record, the last and one between them.
func places(s *opened) (all []place) {
	d, derived := driver.As[driver.Deriver](s.Source)
	info := s.Info()
	for _, id := range []int64{0, info.Len / 2, info.Len - 1} {
		for field := range info.Fields {
			p := place{id: id, field: field, of: -1}
			if derived {
				_, p.record, p.of = d.Origin(id, field)
			}
			all = append(all, p)
		}
	}
	return all
}

// checkSizes compares sizes with the values that are read, and these with the values of the base.
func checkSizes(t *testing.T, base *able, s *opened) {
	some := false
	for _, p := range places(s) {
		var size [1]int64
		if !as[driver.Sizer](s).Sizes(p.field, []int64{p.id}, size[:]) {
			continue
		}
		some = true
		v := read(t, s, []int64{p.id}).Records[0].Values[p.field]
		if int64(len(v.Bytes)) != size[0] {
			t.Errorf("field %d of record %d has %d bytes, Sizes returned %d", p.field, p.id, len(v.Bytes), size[0])
		}
		if p.of >= 0 && !same(copied{v}, copied{base.values[p.record][p.of]}) {
			t.Errorf("field %d of record %d differs from field %d of record %d of the base, which Origin returned", p.field, p.id, p.of, p.record)
		}
	}
	if !some {
		t.Error("the base knows the sizes of all fields, and the wrapper of none")
	}
}

// checkCuts checks that Locate asks Group.Box about the fields that are cut.
func checkCuts(t *testing.T, base *able, s *opened) {
	some := false
	for _, p := range places(s) {
		if !as[driver.Cutter](s).Cuts(p.field) {
			continue
		}
		some = true
		if got := as[driver.Cutter](s).Sides(p.id, p.field); p.of >= 0 && got != base.Sides(p.record, p.of) {
			t.Errorf("field %d of record %d has the sides %v, in the base %v", p.field, p.id, got, base.Sides(p.record, p.of))
		}
		asked := false
		g := driver.Group{Box: func(k, field int) (driver.Box, bool) {
			asked = asked || k == 0 && field == p.field
			return driver.Box{}, false
		}}
		g.Begin([]int64{p.id}, len(s.Info().Fields))
		if s.Locate(&g); !asked {
			t.Errorf("Cuts is true for field %d, and Locate did not ask Group.Box about it", p.field)
		}
	}
	if !some {
		t.Error("Cuts is false for all fields")
	}
}

// checkEpoch checks that numbers of InEpoch reach the base as such.
func checkEpoch(t *testing.T, base *able, s *opened) {
	if s.Info().Sequential {
		return
	}
	var g driver.Group
	g.Begin([]int64{driver.InEpoch(1, 0)}, len(s.Info().Fields))
	if s.Locate(&g); g.Records[0].Err != nil || base.epoch != 1 {
		t.Errorf("record 0 of epoch 1 was located in epoch %d of the base: %v", base.epoch, g.Records[0].Err)
	}
}

// able is a source with all abilities. Variants and epochs have the same records.
type able struct {
	driver.Source
	refuses []string
	values  map[int64]copied
	seed    uint64
	turned  bool
	kept    int64

	mu      sync.Mutex
	unknown bool  // Locate lists Missing
	epoch   int64 // of the record that was located last
}

func newAble(t testing.TB, open Open, refuses []string) *able {
	s := start(t, open)
	ids := make([]int64, s.Info().Len)
	for i := range ids {
		ids[i] = int64(i)
	}
	a := &able{Source: s.Source, refuses: refuses, values: map[int64]copied{}}
	b := read(t, s, ids)
	for i := range b.Records {
		a.values[int64(i)] = copyRecord(&b.Records[i])
	}
	if err := s.obj.Close(); err != nil {
		t.Fatal(err)
	}
	return a
}

// source returns a as the type that reads it.
func (a *able) source() driver.Source {
	if s, ok := a.Source.(driver.Sequential); ok {
		return ableInOrder{a, s}
	}
	return a
}

type inOrder interface {
	Token(id int64) string
	Memory() int64
	Records(ctx context.Context, token string, in *driver.InOrder) error
}

type ableInOrder struct {
	*able
	inOrder
}

// Hides leaves out the abilities that a wrapper refuses.
func (a *able) Hides(ability any) bool {
	return slices.Contains(a.refuses, strings.TrimPrefix(fmt.Sprintf("%T", ability), "*driver."))
}

// index is the extent that Locate needs after forget.
var index = driver.Extent{Size: 1, Field: -1}

func (a *able) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unknown = a.Info().Objects > 0 && !a.Info().Sequential
}

func (a *able) forgot() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unknown
}

// plain calls f while the numbers of g are those of records without an epoch.
func (a *able) plain(g *driver.Group, f func(g *driver.Group)) {
	ids := g.IDs
	g.IDs = make([]int64, len(ids))
	for k, id := range ids {
		if g.IDs[k] = id; id >= 0 {
			_, g.IDs[k] = driver.OfEpoch(id)
		}
	}
	f(g)
	g.IDs = ids
}

// Locate implements driver.Source.
func (a *able) Locate(g *driver.Group) {
	a.mu.Lock()
	unknown := a.unknown
	for _, id := range g.IDs {
		a.epoch, _ = driver.OfEpoch(id)
	}
	a.mu.Unlock()
	for k := range g.IDs {
		for field := range a.Info().Fields {
			if g.Box != nil && a.Cuts(field) {
				g.Box(k, field)
			}
		}
		if unknown {
			g.Missing = append(g.Missing, driver.Missing{K: k, Extent: index})
			g.Next()
		}
	}
	if !unknown {
		a.plain(g, a.Source.Locate)
	}
}

// Parse implements driver.Source.
func (a *able) Parse(g *driver.Group) (err error) {
	a.plain(g, func(g *driver.Group) { err = a.Source.Parse(g) })
	for k := range g.Records {
		for field := range a.Info().Fields {
			if v := &g.Records[k].Values[field]; err == nil && g.Box != nil && a.Cuts(field) && g.Records[k].Err == nil {
				if box, ok := g.Box(k, field); ok {
					v.Bytes = cut(v.Bytes, a.Info().Fields[field].Shape, box)
				}
			}
		}
	}
	return err
}

// cut returns a part of a volume.
func cut(b []byte, shape []int, box driver.Box) (part []byte) {
	unit := len(b) / (shape[0] * shape[1] * shape[2])
	for z := range box.Size[0] {
		for y := range box.Size[1] {
			at := unit * (((box.At[0]+z)*shape[1]+box.At[1]+y)*shape[2] + box.At[2])
			part = append(part, b[at:at+unit*box.Size[2]]...)
		}
	}
	return part
}

// Learn implements driver.Indexer.
func (a *able) Learn(e driver.Extent, b []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e != index || int64(len(b)) != e.Size {
		return fmt.Errorf("Learn of %+v with %d bytes, Locate asked for %+v", e, len(b), index)
	}
	a.unknown = false
	return nil
}

func (a *able) value(id int64, field int) *driver.Value {
	_, id = driver.OfEpoch(id)
	return &a.values[id][field]
}

// Sizes implements driver.Sizer.
func (a *able) Sizes(field int, ids, sizes []int64) bool {
	for i, id := range ids {
		sizes[i] = int64(len(a.value(id, field).Bytes))
	}
	return true
}

// Shapes implements driver.Shaper.
func (a *able) Shapes(field int, ids []int64, shapes []driver.Shape) bool {
	if a.Info().Fields[field].Kind != driver.KindImage {
		return false
	}
	for i, id := range ids {
		v := a.value(id, field)
		shapes[i] = driver.Shape{Width: v.Width, Height: v.Height, Channels: v.Channels, Orientation: 1}
	}
	return true
}

// The other abilities, with answers that tell records and fields apart.

func (a *able) Path(id int64, field int) string         { return fmt.Sprintf("folder/%d/%d", id, field) }
func (a *able) Find(_ context.Context, id int64) string { return fmt.Sprintf("record <%d>", id) }
func (a *able) Cuts(field int) bool {
	f := &a.Info().Fields[field]
	return f.Kind == driver.KindVolume && len(f.Shape) == 3
}

func (a *able) Sides(_ int64, field int) [3]int { return [3]int(a.Info().Fields[field].Shape) }

func (a *able) Variants() int           { return 2 }
func (a *able) Varies(field int) bool   { return field%2 == 0 }
func (a *able) EpochRecords()           {}
func (a *able) Chunks() []int64         { return []int64{0, a.Info().Len / 2, a.Info().Len} }
func (a *able) Chunk(int) driver.Extent { return driver.Extent{Size: 1, Field: -1} }
func (a *able) Skipped() []driver.Skipped {
	return []driver.Skipped{{Path: "notes.txt", Reason: "text"}}
}

func (a *able) Left() []driver.Skipped {
	return []driver.Skipped{{Path: "scale", Reason: "one number"}}
}

func (a *able) Held() int64      { return 1000 }
func (a *able) Useful() int64    { return 5000 }
func (a *able) Keep(n int64)     { a.kept = n }
func (a *able) Seed(seed uint64) { a.seed = seed }

func (a *able) ApplyOrientation() { a.turned = true }
