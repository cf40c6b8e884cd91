package driver

import (
	"context"
	"slices"
	"testing"
)

// base implements Sizer and Skipper, and no other ability.
type base struct{ Source }

func (base) Info() *Info                              { return &Info{Len: 10} }
func (base) Name(int64) string                        { return "base" }
func (base) Left() []Skipped                          { return []Skipped{{Path: "a", Reason: "b"}} }
func (base) Find(context.Context, int64) string       { return "found" }
func (base) Sizes(field int, ids, sizes []int64) bool { copy(sizes, ids); return field == 2 }

type wrapped struct{ Wrapper }

func (wrapped) Info() *Info        { return nil }
func (wrapped) Name(int64) string  { return "wrapped" }
func (wrapped) Locate(*Group)      {}
func (wrapped) Parse(*Group) error { return nil }

type renumbered struct{ Mapped }

func (renumbered) Info() *Info        { return nil }
func (renumbered) Locate(*Group)      {}
func (renumbered) Parse(*Group) error { return nil }

func TestAs(t *testing.T) {
	w := &wrapped{Wrapper{Base: base{}}}
	m := &renumbered{Mapped{
		Wrapper: Wrapper{Base: base{}},
		Record:  func(id int64) int64 { return min(id+5, 9) - 10*(id/8) },
		Field:   func(field int) (int, bool) { return 2, field == 0 },
	}}
	outer := &renumbered{Mapped{Wrapper: Wrapper{Base: m}, Record: func(id int64) int64 { return id + 1 }}}
	for _, s := range []Source{w, m, outer} {
		if l, ok := As[Leaver](s); !ok || len(l.Left()) != 1 {
			t.Errorf("%T does not pass on what was left out", s)
		}
		if _, ok := As[Shaper](s); ok {
			t.Errorf("%T has an ability that its base does not have", s)
		}
		if _, ok := As[Sequential](s); ok {
			t.Errorf("%T gives records in order", s)
		}
	}
	if _, ok := As[Sizer](w); ok {
		t.Error("sizes pass without numbers of records")
	}
	for s, want := range map[Source][]int64{m: {5, 6}, outer: {6, 7}} {
		z, ok := As[Sizer](s)
		sizes := make([]int64, 2)
		if !ok || !z.Sizes(0, []int64{0, 1}, sizes) || !slices.Equal(sizes, want) || z.Sizes(1, []int64{0, 1}, sizes) {
			t.Errorf("sizes %v, want %v and none of field 1", sizes, want)
		}
	}
	f, _ := As[Finder](m)
	if a, b := f.Find(t.Context(), 0), f.Find(t.Context(), 8); a != "found" || b != "base" {
		t.Errorf("found %q and %q", a, b)
	}
	m.Without = []any{(*Leaver)(nil)}
	if _, ok := As[Leaver](outer); ok {
		t.Error("a hidden ability was found")
	}
	if _, ok := As[Leaver](nil); ok {
		t.Error("no source has an ability")
	}
}
