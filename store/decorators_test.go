package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/internal/store/disk"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/keep"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

// Each decorator, and all of them together, make a store of any store.
func TestDecorators(t *testing.T) {
	decorators := map[string]func(store.Store) store.Store{
		"count": func(s store.Store) store.Store { return counttest.New(s, nil) },
		"fault": func(s store.Store) store.Store { return faulttest.New(s, 1) },
		"keep": func(s store.Store) store.Store { // some pieces of each object
			var pieces []keep.Piece
			_ = s.List(t.Context(), "", nil, func(e store.Entry) error {
				for off := int64(0); off < e.Size; off += 1000 {
					pieces = append(pieces, keep.Piece{Path: s.Path(e.Name), Off: off, Size: min(1000, e.Size-off)})
				}
				return nil
			})
			k, err := keep.New(10_000, pieces)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(k.Close)
			return k.Store(s)
		},
		"disk": func(s store.Store) store.Store { // space for a part of it
			dir, err := cache.At(t.TempDir(), 300_000)
			if err != nil {
				t.Fatal(err)
			}
			chunks, err := cache.OpenChunks(dir, s.String(), func(why string) { t.Error(why) })
			if err != nil {
				t.Fatal(err)
			}
			var list []disk.Piece
			_ = s.List(t.Context(), "", nil, func(e store.Entry) error {
				for off := int64(0); off < e.Size; off += 10_000 {
					list = append(list, disk.Piece{Path: s.Path(e.Name), Off: off, Size: min(10_000, e.Size-off)})
				}
				return nil
			})
			d, err := disk.New(disk.Options{Shelf: chunks, Cut: disk.NewCut(list, false, nil), Buffers: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				d.Close()
				if err := chunks.Close(); err != nil {
					t.Error(err)
				}
			})
			return d.Store(s)
		},
		"all": func(s store.Store) store.Store {
			return counttest.New(counttest.New(faulttest.New(s, 1), nil), nil)
		},
	}
	for name, decorate := range decorators {
		local := func(t *testing.T, objects map[string][]byte) store.Store {
			t.Helper()
			s := localstore.New(filepath.Join(t.TempDir(), "x"))
			for name, data := range objects {
				put(t, s, name, data)
			}
			return decorate(s)
		}
		t.Run(name+"/local", func(t *testing.T) {
			storetest.Run(t, storetest.Suite{Open: local, Change: put, Again: func(t *testing.T, s store.Store) store.Store {
				return localstore.New(s.String())
			}, Spoil: func(t *testing.T, s store.Store) []string {
				if err := os.Symlink("nothing", s.Path("d/dangling")); err != nil {
					t.Fatal(err)
				}
				return []string{"d/dangling"}
			}})
		})
		t.Run(name+"/memory", func(t *testing.T) {
			storetest.Run(t, storetest.Suite{Open: func(t *testing.T, objects map[string][]byte) store.Store {
				return decorate(storetest.NewMemory(objects))
			}})
		})
	}
}

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
