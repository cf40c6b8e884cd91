package format

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// counted counts the listings of a store.
type counted struct {
	store.Store
	n int
}

func (c *counted) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	c.n++
	return c.Store.List(ctx, dir, opt, f)
}

func TestMatchFiles(t *testing.T) {
	isFile := func(context.Context, store.Store, string) bool { return true }
	x, y := MatchFiles(Extensions(".x"), nil, IsNote), MatchFiles(Extensions(".y"), isFile, nil)
	for names, want := range map[string]string{
		"a.x b/c.X": "x", "a.x LICENSE.md": "x", "a.md a.x": "x", "a.md": "", "a.x a.y": "", "a.y": "y", "a.y b.md": "", "": "",
	} {
		files := map[string][]byte{}
		for name := range strings.FieldsSeq(names) {
			files[name] = nil
		}
		st := &counted{Store: localstore.New(drivertest.Folder(t, files))}
		p := &Probe{Store: st, Dir: true}
		got := ""
		for range 3 {
			if x(t.Context(), p) {
				got = "x"
			}
			if y(t.Context(), p) {
				got = "y"
			}
		}
		if got != want || st.n > 2 {
			t.Errorf("%q is %q, want %q; listed %d times", names, got, want, st.n)
		}
	}
	p := &Probe{Store: localstore.New("a.z")}
	if x(t.Context(), p) || !y(t.Context(), p) {
		t.Error("a file is known by its content")
	}
}

// The first names decide, and most folders are known by the first one.
func TestProbeLooksAtFewNames(t *testing.T) {
	files := map[string][]byte{"z.y": nil}
	for i := range MaxNames {
		files[fmt.Sprintf("%04d.x", i)] = nil
	}
	p := &Probe{Store: localstore.New(drivertest.Folder(t, files)), Dir: true}
	for ext, most := range map[string]int{".y": 1, ".x": MaxNames} {
		seen := 0
		is := p.All(t.Context(), func(name string) bool { seen++; return strings.HasSuffix(name, ext) })
		if is != (ext == ".x") || ext == ".y" && seen > most {
			t.Errorf("%s: %v after %d names", ext, is, seen)
		}
	}
	if names, file := p.Siblings(t.Context()); names != nil || file != "" {
		t.Errorf("%d names, %q", len(names), file)
	}
}

func TestSiblings(t *testing.T) {
	dir := drivertest.Folder(t, map[string][]byte{"train.x": nil, "test.x": nil, "sub/other.x": nil})
	for _, p := range []*Probe{{Store: localstore.New(dir), Dir: true}, {Store: localstore.New(dir + "/train.x")}} {
		names, file := p.Siblings(t.Context())
		if len(names) != 2 || p.Dir != (file == "") {
			t.Errorf("%q, %q", names, file)
		}
	}
	is := func(ctx context.Context, st store.Store) bool { return st.Path("") == dir }
	for path, want := range map[string]bool{"/train.x": true, "/test.x": false} {
		if MatchIndex("train.x", is)(t.Context(), &Probe{Store: localstore.New(dir + path)}) != want {
			t.Errorf("%s is an index: %v", path, !want)
		}
	}
}
