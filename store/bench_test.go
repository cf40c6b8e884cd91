package store_test

import (
	"testing"

	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
)

// The cost of decorators is small compared with the shortest possible read, one from the page cache.
func BenchmarkRead(b *testing.B) {
	s := localstore.New(b.TempDir())
	if err := store.WriteFile(b.Context(), s, "x", make([]byte, 1<<20)); err != nil {
		b.Fatal(err)
	}
	for name, s := range map[string]store.Store{"local": s, "count": counttest.New(s, nil)} {
		b.Run(name+"/read", func(b *testing.B) {
			o, err := s.Open(b.Context(), "x")
			if err != nil {
				b.Fatal(err)
			}
			defer o.Close()
			p := make([]byte, 4096)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := o.ReadAt(b.Context(), p, int64(i%200)*4096); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/file", func(b *testing.B) {
			e, err := s.Stat(b.Context(), "x")
			if err != nil {
				b.Fatal(err)
			}
			p := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				o, err := store.OpenEntry(b.Context(), s, e)
				if err != nil {
					b.Fatal(err)
				}
				if err := o.ReadAt(b.Context(), p, 0); err != nil {
					b.Fatal(err)
				}
				o.Close()
			}
		})
	}
}
