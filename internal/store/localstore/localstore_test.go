package localstore_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

// put writes a file into a store's folder.
func put(t *testing.T, s store.Store, name string, data []byte) {
	t.Helper()
	path := s.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func newStore(t *testing.T, objects map[string][]byte) store.Store {
	t.Helper()
	s := localstore.New(filepath.Join(t.TempDir(), "x"))
	for name, data := range objects {
		put(t, s, name, data)
	}
	return s
}

// spoil adds a dangling link, a link to itself and a pipe.
func spoil(t *testing.T, s store.Store) []string {
	t.Helper()
	for name, to := range map[string]string{"d/dangling": "nothing", "loop": "loop"} {
		if err := os.Symlink(to, s.Path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(s.Path("d/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"d/dangling", "d/pipe", "loop"}
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Suite{
		Open:   newStore,
		Change: put,
		Again:  func(t *testing.T, s store.Store) store.Store { return localstore.New(s.String()) },
		Spoil:  spoil,
	})
}

// Random trees are listed in the same order as by a store that only has names.
func TestListOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		local, memory := localstore.New(t.TempDir()), storetest.NewMemory(nil)
		for range 40 {
			var name strings.Builder
			for range 1 + rng.IntN(3) {
				if name.Len() > 0 {
					name.WriteByte('/')
				}
				for range 1 + rng.IntN(2) {
					name.WriteByte("ab-.!0_z\xc3"[rng.IntN(9)])
				}
			}
			n := name.String()
			if store.CheckName(n) != nil || os.MkdirAll(filepath.Dir(local.Path(n)), 0o755) != nil || os.WriteFile(local.Path(n), nil, 0o644) != nil {
				continue // a file with the name of a folder, or the reverse
			}
			memory.Put(n, nil)
		}
		for _, opt := range []*store.ListOptions{nil, {Hidden: true}, {Shallow: true, Hidden: true}, {Hidden: true, Threads: 1}, {Names: true}} {
			got, err := list(t, local, opt)
			want, merr := list(t, memory, opt)
			if err != nil || merr != nil || !slices.Equal(got, want) {
				t.Fatalf("%+v: %q, want %q; %v, %v", opt, got, want, err, merr)
			}
		}
	}
}
