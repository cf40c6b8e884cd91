// Package storetest has the tests that every store and every decorator passes, and a store in memory.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stokerdata/stoker/store"
)

// Suite describes a store to test.
type Suite struct {
	// Open returns a new store with exactly these objects. If the store is a single object, its name is "".
	Open func(t *testing.T, objects map[string][]byte) store.Store
	// Change replaces the content of an object of a store from Open with content of another size, like another
	// process. Nil means that objects cannot change.
	Change func(t *testing.T, s store.Store, name string, data []byte)
	// Again returns a second store for the same objects as s, like another process. If it is nil, writable stores
	// are tested with one store only.
	Again func(t *testing.T, s store.Store) store.Store
	// Spoil adds what List passes to ListOptions.Bad to a store from Open, such as keys that are not valid names, and
	// returns their names. Names that begin with "d/" are in the folder d. Nil means that there is nothing bad.
	Spoil func(t *testing.T, s store.Store) []string
	// UTF8 is true if names must be UTF-8, as in buckets.
	UTF8 bool
}

// OddKeys are keys below a folder that are not valid names. Servers of buckets store them.
var OddKeys = []string{"d//x", "d/./x", "d/../x", "d/f//", "/lead", "//", "../up", "./here", "sub/..", "sub/."}

// objects returns the names that tests use, with different content each.
func objects() map[string][]byte {
	m := map[string][]byte{}
	for i, name := range []string{
		"a", "b.txt", "a-b", "a.b/c", "d/e", "d/f/g", "d/f.x", "d-", "empty", "sub/\xff\xfe not utf-8", "sub/ü", "with space/x y",
		".hidden", ".folder/x", "d/.hidden", "large",
	} {
		m[name] = pattern(i*1000+10, byte(i))
	}
	m["empty"] = []byte{}
	m["large"] = large()
	return m
}

var large = sync.OnceValue(func() []byte { return pattern(1<<20+100_017, 99) })

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// Run runs the tests.
func Run(t *testing.T, s Suite) {
	t.Run("Read", s.read)
	t.Run("Ranges", s.ranges)
	t.Run("Names", s.names)
	t.Run("Missing", s.missing)
	t.Run("List", s.list)
	t.Run("Folders", s.folders)
	t.Run("Bad", s.bad)
	t.Run("Stat", s.stat)
	t.Run("Cancelled", s.cancelled)
	t.Run("Concurrent", s.concurrent)
	t.Run("Changed", s.changed)
	t.Run("Abilities", s.abilities)
	t.Run("Single", s.single)
	t.Run("Write", s.write)
	t.Run("Resume", s.resume)
}

func (s Suite) open(t *testing.T) (store.Store, map[string][]byte) {
	t.Helper()
	all := objects()
	maps.DeleteFunc(all, func(name string, _ []byte) bool { return s.UTF8 && !utf8.ValidString(name) })
	st := s.Open(t, all)
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st, all
}

func open(t *testing.T, s store.Store, name string) store.Object {
	t.Helper()
	o, err := s.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

func (s Suite) read(t *testing.T) {
	st, all := s.open(t)
	for name, want := range all {
		o := open(t, st, name)
		if o.Size() != int64(len(want)) {
			t.Errorf("%q has %d bytes, want %d", name, o.Size(), len(want))
			continue
		}
		got := make([]byte, len(want))
		if err := o.ReadAt(t.Context(), got, 0); err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%q has another content", name)
		}
		if err := store.Check(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}

// Reads return exactly the requested bytes, or an error with the bytes and the object. They do not write to other
// memory.
func (s Suite) ranges(t *testing.T) {
	st, all := s.open(t)
	o, want := open(t, st, "large"), all["large"]
	size := int64(len(want))
	for _, c := range []struct{ off, n int64 }{
		{0, 0}, {0, 1}, {size - 1, 1}, {size, 0}, {1, size - 1}, {4095, 2}, {4096, 4096}, {12345, 1 << 20}, {size - 17, 17},
	} {
		buf := bytes.Repeat([]byte{0xa5}, int(c.n)+16)
		if err := o.ReadAt(t.Context(), buf[8:8+c.n], c.off); err != nil {
			t.Errorf("bytes %d to %d: %v", c.off, c.off+c.n, err)
			continue
		}
		if !bytes.Equal(buf[8:8+c.n], want[c.off:c.off+c.n]) {
			t.Errorf("bytes %d to %d differ", c.off, c.off+c.n)
		}
		if edge := append(buf[:8:8], buf[8+c.n:]...); !bytes.Equal(edge, bytes.Repeat([]byte{0xa5}, 16)) {
			t.Errorf("bytes %d to %d: memory outside of it was written", c.off, c.off+c.n)
		}
	}
	for _, c := range []struct{ off, n int64 }{{size, 1}, {size - 1, 2}, {0, size + 1}, {size + 5, 1}, {1 << 62, 10}, {-1, 1}, {-1 << 63, 4}} {
		err := o.ReadAt(t.Context(), make([]byte, c.n), c.off)
		if !errors.Is(err, store.ErrShort) {
			t.Errorf("bytes %d to %d of %d: error is %v", c.off, c.off+c.n, size, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, st.Path("large")) || !strings.Contains(text, fmt.Sprintf("bytes %d to %d", c.off, c.off+c.n)) {
			t.Errorf("the error does not say what could not be read: %v", err)
		}
	}
}

// BadNames are names that no store accepts.
var BadNames = []string{"..", "../x", "a/../../x", "a/..", ".", "./a", "a/.", "/a", "a/", "a//b", "/", "a\x00b", "\x00", strings.Repeat("x/", 3000) + "x"}

func (s Suite) names(t *testing.T) {
	st, _ := s.open(t)
	for _, name := range BadNames {
		if o, err := st.Open(t.Context(), name); err == nil {
			o.Close()
			t.Errorf("Open(%.20q) succeeds", name)
		} else if !errors.Is(err, store.ErrName) {
			t.Errorf("Open(%.20q): error is %.80v", name, err)
		}
		if _, err := st.Stat(t.Context(), name); !errors.Is(err, store.ErrName) {
			t.Errorf("Stat(%.20q): error is %.80v", name, err)
		}
		if err := st.List(t.Context(), name, nil, func(store.Entry) error { return nil }); !errors.Is(err, store.ErrName) {
			t.Errorf("List(%.20q): error is %.80v", name, err)
		}
	}
	if st.String() == "" || !strings.Contains(st.Path("a"), "a") || !strings.HasPrefix(st.Path("a"), st.Path("")) {
		t.Errorf("String is %q, Path %q", st.String(), st.Path("a"))
	}
}

func (s Suite) missing(t *testing.T) {
	st, _ := s.open(t)
	for _, name := range []string{"none", "d/none", "none/x", "a/x", "d/f/g/h"} {
		if o, err := st.Open(t.Context(), name); err == nil {
			o.Close()
			t.Errorf("Open(%q) succeeds", name)
		} else if !errors.Is(err, store.ErrNotExist) || !strings.Contains(err.Error(), st.Path(name)) {
			t.Errorf("Open(%q): error is %v", name, err)
		}
		if _, err := st.Stat(t.Context(), name); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("Stat(%q): error is %v", name, err)
		}
		if err := st.List(t.Context(), name, nil, func(store.Entry) error { return nil }); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("List(%q): error is %v", name, err)
		}
	}
	if o, err := st.Open(t.Context(), "d"); err == nil {
		o.Close()
		t.Error("a folder can be opened")
	}
	if o, err := st.Open(t.Context(), ""); err == nil {
		o.Close()
		t.Error("the root folder can be opened")
	}
}

// visible reports whether a path is listed without Hidden.
func visible(name string) bool { return !strings.HasPrefix(name, ".") && !strings.Contains(name, "/.") }

func list(t *testing.T, s store.Store, dir string, opt *store.ListOptions) []store.Entry {
	t.Helper()
	var out []store.Entry
	if err := s.List(t.Context(), dir, opt, func(e store.Entry) error {
		out = append(out, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func names(entries []store.Entry) []string {
	var out []string
	for _, e := range entries {
		n := e.Name
		if e.Dir {
			n += "/"
		}
		out = append(out, n)
	}
	return out
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s is\n%q, want\n%q", what, got, want)
	}
}

func (s Suite) list(t *testing.T) {
	st, all := s.open(t)
	every := slices.Sorted(maps.Keys(all))
	seen := slices.DeleteFunc(slices.Clone(every), func(n string) bool { return !visible(n) })
	entries := list(t, st, "", nil)
	equal(t, "the listing", names(entries), seen)
	equal(t, "the listing with hidden ones", names(list(t, st, "", &store.ListOptions{Hidden: true, Threads: 1})), every)
	for _, e := range entries {
		if e.Size != int64(len(all[e.Name])) || e.Dir {
			t.Errorf("%+v: want %d bytes", e, len(all[e.Name]))
		}
		o, err := store.OpenEntry(t.Context(), st, e)
		if err != nil {
			t.Error(err)
			continue
		}
		o.Close()
	}
	equal(t, "the listing of d", names(list(t, st, "d", nil)), []string{"d/e", "d/f.x", "d/f/g"})
	equal(t, "the listing of names", names(list(t, st, "", &store.ListOptions{Names: true})), seen)
	// Folder and Guess change the requests but not the results.
	known := map[string]store.Entry{}
	for _, e := range entries {
		known[e.Name] = e
	}
	for _, guess := range []string{"", "a", "d", "nothing"} {
		for _, only := range []bool{false, true} {
			got := list(t, st, "", &store.ListOptions{Folder: true, Guess: guess, Names: only})
			equal(t, "the listing with a guess", names(got), seen)
			for _, e := range got {
				if (!only || e.Version != "") && e != known[e.Name] {
					t.Errorf("with the guess %q it is listed as %+v, not %+v", guess, e, known[e.Name])
				}
			}
		}
	}
	keep := &store.ListOptions{Keep: func(name string) bool { return strings.HasSuffix(name, "g") }}
	equal(t, "what is kept", names(list(t, st, "", keep)), []string{"d/f/g"})

	stop := errors.New("enough")
	n := 0
	if err := st.List(t.Context(), "", nil, func(store.Entry) error {
		if n++; n == 3 {
			return stop
		}
		return nil
	}); err != stop || n != 3 {
		t.Errorf("a listing that is stopped gives %d entries and %v", n, err)
	}
}

// What cannot be listed is passed to Bad, in order, and does not hide the rest. Without Bad the listing fails.
func (s Suite) bad(t *testing.T) {
	if s.Spoil == nil {
		t.Skip("nothing in this store is bad")
	}
	st, all := s.open(t)
	spoiled := s.Spoil(t, st)
	slices.Sort(spoiled)
	good := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return !visible(n) })
	var bad []string
	collect := func(e store.Entry, err error) error {
		var named *store.Error
		if !store.IsObjectError(err) || !errors.As(err, &named) || named.Path == "" || e.Size != 0 || e.Version != "" {
			t.Errorf("%+v: %v", e, err)
		}
		bad = append(bad, e.Name)
		return nil
	}
	equal(t, "the listing", names(list(t, st, "", &store.ListOptions{Bad: collect})), good)
	equal(t, "what is bad", bad, spoiled)
	bad = nil
	in := func(dir string, all []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !strings.HasPrefix(n, dir) })
	}
	equal(t, "the listing of d", names(list(t, st, "d", &store.ListOptions{Bad: collect})), in("d/", good))
	equal(t, "what is bad in d", bad, in("d/", spoiled))
	equal(t, "the root", names(list(t, st, "", &store.ListOptions{Shallow: true, Bad: collect})),
		[]string{"a", "a-b", "a.b/", "b.txt", "d-", "d/", "empty", "large", "sub/", "with space/"})
	none := func(store.Entry) error { return nil }
	if err := st.List(t.Context(), "", nil, none); err == nil || !store.IsObjectError(err) {
		t.Errorf("the listing without Bad: error is %v", err)
	}
	stop := errors.New("enough")
	if err := st.List(t.Context(), "", &store.ListOptions{Bad: func(store.Entry, error) error { return stop }}, none); !errors.Is(err, stop) {
		t.Errorf("the listing that Bad stops: error is %v", err)
	}
	kept := list(t, st, "", &store.ListOptions{Keep: func(name string) bool { return slices.Contains(good, name) }})
	equal(t, "what is kept", names(kept), good)
}

func (s Suite) folders(t *testing.T) {
	st, _ := s.open(t)
	shallow := &store.ListOptions{Shallow: true}
	equal(t, "the root", names(list(t, st, "", shallow)), []string{"a", "a-b", "a.b/", "b.txt", "d-", "d/", "empty", "large", "sub/", "with space/"})
	equal(t, "d", names(list(t, st, "d", shallow)), []string{"d/e", "d/f.x", "d/f/"})
}

func (s Suite) stat(t *testing.T) {
	st, all := s.open(t)
	for _, e := range list(t, st, "", nil) {
		got, err := st.Stat(t.Context(), e.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		o := open(t, st, e.Name)
		if got != e || got.Size != int64(len(all[e.Name])) || o.Version() != e.Version || e.Version == "" {
			t.Errorf("%q is listed as %+v, Stat says %+v, open it is version %q", e.Name, e, got, o.Version())
		}
	}
	for _, dir := range []string{"", "d", "d/f"} {
		if got, err := st.Stat(t.Context(), dir); err != nil || got != (store.Entry{Name: dir, Dir: true}) {
			t.Errorf("Stat(%q) is %+v, %v", dir, got, err)
		}
	}
}

// Nothing starts if the context is done, and the error has its cause.
func (s Suite) cancelled(t *testing.T) {
	st, _ := s.open(t)
	o := open(t, st, "large")
	why := errors.New("given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := o.ReadAt(ctx, make([]byte, 10), 0); !errors.Is(err, why) {
		t.Errorf("ReadAt: error is %v", err)
	}
	if got, err := st.Open(ctx, "a"); !errors.Is(err, why) {
		t.Errorf("Open: error is %v", err)
		if err == nil {
			got.Close()
		}
	}
	if _, err := st.Stat(ctx, "a"); !errors.Is(err, why) {
		t.Errorf("Stat: error is %v", err)
	}
	if err := st.List(ctx, "", nil, func(store.Entry) error { t.Error("an entry"); return nil }); !errors.Is(err, why) {
		t.Errorf("List: error is %v", err)
	}
	// In the middle of a listing.
	ctx, cancel = context.WithCancelCause(t.Context())
	defer cancel(nil)
	err := st.List(ctx, "", nil, func(store.Entry) error { cancel(why); return ctx.Err() })
	if !errors.Is(err, context.Canceled) && !errors.Is(err, why) {
		t.Errorf("List that is cancelled: error is %v", err)
	}
}

func (s Suite) concurrent(t *testing.T) {
	st, all := s.open(t)
	o, want := open(t, st, "large"), all["large"]
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			buf := make([]byte, 70_000)
			for i := range 50 {
				off := (w*50 + i) * 7919 % (len(want) - len(buf))
				if err := o.ReadAt(t.Context(), buf, int64(off)); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(buf, want[off:off+len(buf)]) {
					t.Errorf("bytes from %d differ", off)
				}
				if b, err := store.ReadFile(t.Context(), st, "d/e", 1<<20); err != nil || !bytes.Equal(b, all["d/e"]) {
					t.Errorf("d/e: %v", err)
				}
			}
			if n := len(list(t, st, "d", nil)); n != 3 {
				t.Errorf("%d entries", n)
			}
		})
	}
	wg.Wait()
}

func (s Suite) changed(t *testing.T) {
	if s.Change == nil {
		t.Skip("its objects cannot change")
	}
	st, all := s.open(t)
	e, err := st.Stat(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	before := open(t, st, "a")
	s.Change(t, st, "a", pattern(5, 7))
	o, err := store.OpenEntry(t.Context(), st, e)
	if err == nil { // a store may report it at the first read
		if _, lazy := st.(store.EntryOpener); lazy {
			err = o.ReadAt(t.Context(), make([]byte, 1), 0)
		}
		o.Close()
	}
	if !errors.Is(err, store.ErrChanged) || !strings.Contains(err.Error(), st.Path("a")) {
		t.Errorf("opening what has changed: error is %v", err)
	}
	after := open(t, st, "a")
	if after.Version() == e.Version || after.Size() != 5 {
		t.Errorf("version %q, %d bytes; before the change %q", after.Version(), after.Size(), e.Version)
	}
	// An open object has its old bytes, or reports that it has changed.
	got := make([]byte, before.Size())
	err = before.ReadAt(t.Context(), got, 0)
	if err == nil {
		err = store.Check(t.Context(), before)
	}
	if err == nil && !bytes.Equal(got, all["a"]) {
		t.Error("an open object has other bytes and does not say so")
	}
	if err != nil && !errors.Is(err, store.ErrChanged) {
		t.Errorf("reading what has changed: error is %v", err)
	}
}

// single tests a store that is a single object.
func (s Suite) single(t *testing.T) {
	want := pattern(1000, 3)
	st := s.Open(t, map[string][]byte{"": want})
	t.Cleanup(func() { _ = st.Close() })
	entries := list(t, st, "", nil)
	if len(entries) != 1 || entries[0].Name != "" || entries[0].Size != 1000 {
		t.Errorf("the listing is %+v", entries)
	}
	if e, err := st.Stat(t.Context(), ""); err != nil || len(entries) == 1 && e != entries[0] {
		t.Errorf("Stat says %+v, %v", e, err)
	}
	if b, err := store.ReadFile(t.Context(), st, "", 1000); err != nil || !bytes.Equal(b, want) {
		t.Errorf("reading it: %v", err)
	}
	if _, err := store.ReadFile(t.Context(), st, "", 999); err == nil {
		t.Error("a limit is ignored")
	}
	if _, err := st.Stat(t.Context(), "x"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("an object below it: error is %v", err)
	}
}
