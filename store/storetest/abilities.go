package storetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/store"
)

// abilities tests that all optional abilities of an object give the same bytes.
func (s Suite) abilities(t *testing.T) {
	st, all := s.open(t)
	o, want := open(t, st, "large"), all["large"]
	for _, a := range []store.Advice{store.Random, store.WillNeed, store.DontNeed, store.Advice(99)} {
		store.Advise(o, 0, 0, a)
		store.Advise(o, 5000, 100, a)
		store.Advise(o, -1, 1<<62, a)
	}
	if s, ok := o.(store.Starter); ok {
		for _, off := range []int{-1, 0, 5, 4096, len(want) - 10, len(want) + 10} {
			if began := s.Start(int64(off), 100_000); began && off < 0 {
				t.Errorf("Start at %d", off)
			}
			if off >= 0 && off < len(want) {
				buf := make([]byte, min(100_000, len(want)-off))
				if err := o.ReadAt(t.Context(), buf, int64(off)); err != nil || !bytes.Equal(buf, want[off:off+len(buf)]) {
					t.Errorf("after Start at %d: %v, or different bytes", off, err)
				}
			}
		}
	}
	if d, ok := store.As[store.DirectReader](o); ok {
		direct(t, d, st.Path("large"), want)
	}
	if c, ok := store.As[store.CachedReader](o); ok {
		for _, off := range []int{0, 5, 4096, len(want) - 10} {
			buf := make([]byte, min(100_000, len(want)-off))
			n, err := c.ReadCached(buf, int64(off))
			if err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("ReadCached at %d: %v", off, err)
			}
			if n < 0 || n > len(buf) || !bytes.Equal(buf[:n], want[off:off+n]) {
				t.Errorf("ReadCached at %d gives %d bytes, or different ones", off, n)
			}
		}
		if _, err := c.ReadCached(make([]byte, 2), int64(len(want)-1)); !errors.Is(err, store.ErrShort) {
			t.Errorf("ReadCached after the end: error is %v", err)
		}
	}
	if m, ok := store.As[store.Mapper](o); ok {
		mapped(t, st, m, want)
	}
	if l, ok := store.As[store.Lender](o); ok {
		lent(t, l, o, want)
	}
	if w, ok := store.As[store.WholeReader](st); ok {
		whole(t, st, w, all)
	}
}

// lent reads an object several times, and compares lent bytes before, between and after reads.
func lent(t *testing.T, l store.Lender, o store.Object, want []byte) {
	now := time.Now()
	for range 4 {
		for off := 0; off < len(want); off += 7001 {
			n := min(9000, len(want)-off)
			for _, tail := range []int64{0, 64} {
				if b := l.Lend(int64(off), int64(n), tail, now); b != nil && !bytes.Equal(b, want[off:off+n]) {
					t.Fatalf("the %d lent bytes from %d on differ", len(b), off)
				}
			}
			if err := o.ReadAt(t.Context(), make([]byte, n), int64(off)); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(time.Second)
	}
	for _, off := range []int64{-1, int64(len(want)) - 1, int64(len(want)), 1 << 40} {
		if l.Lend(off, 2, 0, now) != nil {
			t.Errorf("bytes from %d on are lent", off)
		}
	}
}

func whole(t *testing.T, st store.Store, w store.WholeReader, all map[string][]byte) {
	for _, name := range []string{"a", "d/e", "large"} {
		b, e, err := w.ReadWhole(t.Context(), name, len(all["large"]))
		if errors.Is(err, errors.ErrUnsupported) {
			t.Log("this store has no reads of whole objects")
			return
		}
		if err != nil || !bytes.Equal(b, all[name]) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(b), len(all[name]), err)
			continue
		}
		if want, err := st.Stat(t.Context(), name); err != nil || e.Name != name || e.Version != want.Version || e.Size != want.Size {
			t.Errorf("%s is read as %+v, and described as %+v (%v)", name, e, want, err)
		}
	}
	if _, _, err := w.ReadWhole(t.Context(), "large", len(all["large"])-1); err == nil {
		t.Error("more than the limit is read")
	}
	if _, _, err := w.ReadWhole(t.Context(), "nothing", 10); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("a missing object: %v", err)
	}
}

func direct(t *testing.T, d store.DirectReader, path string, want []byte) {
	for _, c := range []struct{ off, n int }{{0, 0}, {0, len(want)}, {0, 4096}, {1, 1}, {4095, 2}, {8192, 1<<20 + 3}, {len(want) - 1, 1}, {123_457, 700_001}} {
		got := make([]byte, c.n)
		err := d.ReadDirect(t.Context(), got, int64(c.off))
		if errors.Is(err, errors.ErrUnsupported) {
			t.Log("no direct reads here:", err)
			return
		}
		if err != nil || !bytes.Equal(got, want[c.off:c.off+c.n]) {
			t.Errorf("direct read of %d bytes at %d: %v", c.n, c.off, err)
		}
	}
	if err := d.ReadDirect(t.Context(), make([]byte, 2), int64(len(want)-1)); !errors.Is(err, store.ErrShort) || !strings.Contains(err.Error(), path) {
		t.Errorf("direct read after the end: error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.ReadDirect(ctx, make([]byte, 2), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("direct read that is cancelled: error is %v", err)
	}
}

func mapped(t *testing.T, s store.Store, m store.Mapper, want []byte) {
	v, err := m.Map()
	if err != nil {
		t.Log("no mappings here:", err)
		return
	}
	if !bytes.Equal(v.Bytes(), want) {
		t.Error("the mapping has other bytes")
	}
	// The bytes were read just now, but the system may have evicted them.
	now := time.Now()
	t.Log("resident after reading:", v.Resident(0, int64(len(want)), now))
	if !v.Resident(10, 0, now) {
		t.Error("zero bytes are reported as not in memory")
	}
	for _, c := range []struct{ off, n int64 }{{-1, 2}, {0, int64(len(want)) + 1}, {1 << 62, 1 << 62}, {5, -1}} {
		if v.Resident(c.off, c.n, now) {
			t.Errorf("%d bytes at %d are in memory", c.n, c.off)
		}
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	// A mapping outlives its object.
	o, err := s.Open(t.Context(), "large")
	if err != nil {
		t.Fatal(err)
	}
	again, ok := store.As[store.Mapper](o)
	if !ok {
		t.Fatal("the second object is not a Mapper")
	}
	if v, err = again.Map(); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(v.Bytes(), want) {
		t.Error("the mapping of a closed object has other bytes")
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}
