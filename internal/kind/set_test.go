package kind

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

// open plans the arrays of a batch of 4 for a source with these fields.
func open(t *testing.T, fields []driver.Field, r Request) *Set {
	t.Helper()
	src := sourcetest.NewMemory(10, fields, func(int64, []driver.Value) error { return nil })
	s, err := Open(&Planner{Source: src, Info: src.Info(), BatchSize: 4}, &r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ops builds a list of operations from JSON.
func ops(list ...string) (all []json.RawMessage) {
	for _, s := range list {
		all = append(all, json.RawMessage(s))
	}
	return all
}

func names(s *Set) (all []string) {
	for _, c := range s.Columns() {
		all = append(all, c.Name)
	}
	return all
}

var someFields = []driver.Field{
	{Name: "n", Kind: driver.KindInt},
	{Name: "x", Kind: driver.KindArray, DType: driver.Float32, Shape: []int{5}},
	{Name: "image", Kind: driver.KindImage, Width: 8, Height: 6, Channels: 3, MaxBytes: 144},
	{Name: "text", Kind: driver.KindText, MaxBytes: 100},
	{Name: "mask", Kind: driver.KindMask, DType: driver.Uint8, Width: 8, Height: 6, MaxBytes: 48},
	{Name: "label", Kind: driver.KindLabel, Classes: []string{"a", "b"}},
	{Name: "unknown", Kind: "smell"},
}

func TestWhichFieldsComeInWhichOrder(t *testing.T) {
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{}, "image mask x text n label"},
		{Request{Fields: []string{"label", "mask", "x"}}, "mask x label"},
		{Request{Outputs: []transform.Output{{Name: "b", Field: "image"}, {Name: "mask"}}}, "b mask x text n label"},
		{Request{Outputs: []transform.Output{{Name: "image"}}}, "image x text n label"},
		{Request{Outputs: []transform.Output{{Name: "image"}}, Fields: []string{"n", "mask"}}, "image n"},
		{Request{Outputs: []transform.Output{{Name: "t", Field: "text"}, {Name: "l", Field: "label"}, {Name: "image"}, {Name: "text"}}}, "t l image text x n"},
	} {
		if got := strings.Join(names(open(t, someFields, c.r)), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.r, got, c.want)
		}
	}
}

// Values that are read into the batch go to the first array that is the field as stored.
func TestPlaces(t *testing.T) {
	s := open(t, someFields, Request{Outputs: []transform.Output{{Name: "a", Field: "x"}, {Name: "x"}, {Name: "image"}}})
	l, err := collate.New(4, s.Columns())
	if err != nil {
		t.Fatal(err)
	}
	b := l.NewBatch()
	if err := s.Begin(b, make([]byte, l.Bytes), []int64{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field int
		bytes int64
		array int // -1 for none
	}{
		{1, 20, 0}, {1, 19, -1}, {3, 100, 3}, {3, 7, 3}, {3, 101, -1}, {2, 144, -1}, {0, 8, -1}, {6, 8, -1},
	} {
		at, ok := s.Place(b, 2, c.field, c.bytes)
		if ok != (c.array >= 0) {
			t.Errorf("field %d of %d bytes: %v", c.field, c.bytes, ok)
		}
		if a := l.Arrays[max(c.array, 0)]; ok && (at < a.Offset || at+c.bytes > a.Offset+max(a.Capacity, 4*a.RowBytes)) {
			t.Errorf("field %d lies at %d, which is not in %s", c.field, at, a.Name)
		}
	}
}

func TestCosts(t *testing.T) {
	c := open(t, someFields, Request{}).Cost()
	if len(c.Images) != 2 || c.Images[0].Width != 8 || c.Images[0].PixelBytes != 3 || c.Images[1].PixelBytes != 1 || c.Images[1].MaxBytes != 48 {
		t.Errorf("images cost %+v", c.Images)
	}
	if c.ValueBytes != 20+100 || c.UnplacedBytes != 100 {
		t.Errorf("values cost %d and %d", c.ValueBytes, c.UnplacedBytes)
	}
	jitter := []transform.Output{{Name: "x", Ops: ops(`{"op":"RandomInvert"}`)}}
	c = open(t, []driver.Field{{Name: "x", Kind: driver.KindArray, DType: driver.Uint8, Shape: []int{6, 8, 3}}}, Request{Outputs: jitter}).Cost()
	if len(c.Images) != 1 || c.Images[0].Width != 8 || c.Images[0].Height != 6 || c.Images[0].MaxBytes != 144 || !c.Images[0].Kept {
		t.Errorf("an array with operations costs %+v", c)
	}
}

func TestClassesAndLabels(t *testing.T) {
	s := open(t, someFields, Request{Outputs: []transform.Output{{Name: "l", Field: "label"}}})
	if c := s.Classes(); len(c) != 1 || !slices.Equal(c["l"], []string{"a", "b"}) {
		t.Errorf("classes are %v", c)
	}
	if l := s.Labels(); len(l) != 1 || l["l"] != 2 {
		t.Errorf("labels are %v", l)
	}
}

// sizes is a source that knows the sizes of its values.
type sizes struct {
	driver.Source
	of func(id int64) int64
}

func (s sizes) Sizes(_ int, ids, sizes []int64) bool {
	for i, id := range ids {
		sizes[i] = s.of(id)
	}
	return true
}

// Large values get the capacity of the largest ones that can meet in a batch.
func TestRoomForTheLargestBatch(t *testing.T) {
	fields := []driver.Field{{Name: "b", Kind: driver.KindBytes, MaxBytes: 1 << 30}}
	info := &driver.Info{URL: "x", Len: 20_000, Fields: fields}
	src := sizes{sourcetest.NewMemory(20_000, fields, nil), func(id int64) int64 {
		if id%5000 == 7 {
			return 1 << 30
		}
		return id % 100
	}}
	s, err := Open(&Planner{Source: src, Info: info, BatchSize: 6}, &Request{})
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Columns()[0]; c.Capacity != 4<<30+99*2 || c.MaxRow != 1<<30 {
		t.Errorf("%+v", c)
	}
	// A field that is counted is not asked about.
	info.Fields[0].Stats = &driver.FieldStats{Count: 20_000, Bytes: 5 << 30, MaxBytes: 1 << 30, Sizes: map[int64]int64{0: 9, 50: 19_980, 100: 7, 500_000_000: 4}}
	if s, err = Open(&Planner{Source: src, Info: info, BatchSize: 12}, &Request{}); err != nil {
		t.Fatal(err)
	}
	if c := s.Columns()[0]; c.Capacity != 4<<30+7*199+99 {
		t.Errorf("%+v", c)
	}
	if c := s.Cost(); c.ValueBytes != 5<<30/20_000 {
		t.Errorf("%+v", c)
	}
	for from := int64(0); from < 5e9; from = nextSize(from) {
		if want := pack.NextBound(false, from); nextSize(from) != want {
			t.Errorf("behind %d comes %d, and packs count up to %d", from, nextSize(from), want)
		}
	}
	// A source that panics when it is asked is an error.
	src.of = func(int64) int64 { panic("no sizes") }
	l, err := collate.New(6, []collate.Column{{Name: "b", DType: 1, Ragged: true, Capacity: 10, MaxRow: 10}})
	if err != nil {
		t.Fatal(err)
	}
	s.sizer = src
	if err := s.Begin(l.NewBatch(), make([]byte, l.Bytes), []int64{1}); err == nil || !strings.Contains(err.Error(), "asking for the sizes of values: no sizes") {
		t.Errorf("got %v", err)
	}
}
