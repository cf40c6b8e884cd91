package storetest_test

import (
	"slices"
	"testing"

	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, storetest.Suite{
		Open: func(t *testing.T, objects map[string][]byte) store.Store { return storetest.NewMemory(objects) },
		Change: func(t *testing.T, s store.Store, name string, data []byte) {
			s.(*storetest.Memory).Put(name, data)
		},
		Spoil: func(t *testing.T, s store.Store) []string {
			for _, name := range storetest.OddKeys {
				s.(*storetest.Memory).Put(name, []byte("odd"))
			}
			return slices.Clone(storetest.OddKeys)
		},
	})
}
