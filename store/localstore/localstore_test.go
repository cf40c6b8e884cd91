package localstore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/localstore"
	"github.com/stokerdata/stoker/store/storetest"
)

// put writes a file in a store's folder.
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

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Suite{
		Open:   newStore,
		Change: put,
		Again:  func(t *testing.T, s store.Store) store.Store { return localstore.New(s.String()) },
	})
}
