package store_test

import (
	"errors"
	"io"
	"path"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A valid name stays below the root, however it is joined.
func FuzzCheckName(f *testing.F) {
	for _, name := range append(storetest.BadNames, "", "a", "a/b", "a b/ü", "..a/b..", "...", "\xff") {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := store.CheckName(name)
		if err != nil {
			if !errors.Is(err, store.ErrName) {
				t.Errorf("%q: error is %v", name, err)
			}
			return
		}
		if name == "" {
			return
		}
		if joined := path.Join("/root", name); joined != "/root/"+name {
			t.Errorf("%q becomes %q", name, joined)
		}
		if localstore.New("/root").Path(name) != "/root/"+name {
			t.Errorf("%q becomes %q", name, localstore.New("/root").Path(name))
		}
	})
}

func TestBadNames(t *testing.T) {
	for _, name := range storetest.BadNames {
		if err := store.CheckName(name); !errors.Is(err, store.ErrName) {
			t.Errorf("%.20q: error is %v", name, err)
		}
	}
}

// Decorators pass abilities on, or hide them, as documented.
func TestAbilitiesOfDecorators(t *testing.T) {
	s := localstore.New(t.TempDir())
	put(t, s, "a", make([]byte, 10_000))
	for name, c := range map[string]struct {
		s      store.Store
		mapped bool
	}{
		"none":  {s, true},
		"count": {counttest.New(s, nil), true},
		"fault": {faulttest.New(s, 1), false},
	} {
		o, err := c.s.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := store.As[store.Mapper](o); ok != c.mapped {
			t.Errorf("%s: maps: %v", name, ok)
		}
		if _, ok := store.As[store.CachedReader](o); ok != c.mapped {
			t.Errorf("%s: reads what is cached: %v", name, ok)
		}
		if _, ok := store.As[store.DirectReader](o); !ok {
			t.Errorf("%s: no direct reads", name)
		}
		if _, ok := store.As[store.Adviser](o); !ok {
			t.Errorf("%s: takes no hints", name)
		}
		if _, ok := store.As[store.Checker](o); !ok {
			t.Errorf("%s: cannot be checked", name)
		}
		if _, ok := store.As[store.Resumer](c.s); !ok {
			t.Errorf("%s: cannot be written to", name)
		}
		o.Close()
	}
	if _, ok := store.As[store.WriteStore](faulttest.New(storetest.NewMemory(nil), 1)); ok {
		t.Error("a store in memory can be written to")
	}
}

func TestReaderAt(t *testing.T) {
	s := storetest.NewMemory(map[string][]byte{"x": []byte("hello")})
	o, err := s.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(store.ReaderAt(t.Context(), o), 1, 100))
	if err != nil || string(b) != "ello" {
		t.Errorf("%q, %v", b, err)
	}
	r := store.ReaderAt(t.Context(), o)
	if n, err := r.ReadAt(make([]byte, 3), 4); n != 1 || err != io.EOF {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := r.ReadAt(make([]byte, 3), -1); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := r.ReadAt(make([]byte, 3), 1<<40); n != 0 || err != io.EOF {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestErrors(t *testing.T) {
	read := &store.Error{Op: "read", Path: "/d/x", Off: 5, Len: 10, Err: store.ErrShort}
	if read.Error() != "/d/x, bytes 5 to 15: it ends before that" {
		t.Error(read)
	}
	s := localstore.New(t.TempDir())
	_, err := s.Open(t.Context(), "none")
	if want := "cannot open " + s.Path("none") + ": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if strings.Contains(s.Path(""), "//") {
		t.Error(s.Path(""))
	}
}
