package keep_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/keep"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

// data returns an object and its pieces of 1000 bytes.
func data(t testing.TB, size int) (store.Store, []byte, []keep.Piece) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	s := storetest.NewMemory(map[string][]byte{"x": b})
	var pieces []keep.Piece
	for off := 0; off < size; off += 1000 {
		pieces = append(pieces, keep.Piece{Path: s.Path("x"), Off: int64(off), Size: int64(min(1000, size-off))})
	}
	return s, b, pieces
}

func open(t testing.TB, s store.Store, limit int64, pieces []keep.Piece) (*keep.Kept, store.Object) {
	t.Helper()
	k, err := keep.New(limit, pieces)
	if err != nil {
		t.Fatal(err)
	}
	o, err := k.Store(s).Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		k.Close()
	})
	return k, o
}

// Reads return the bytes of the object whatever is cached. Each kept piece is read once, and as many are kept as
// there is space for.
func TestReads(t *testing.T) {
	s, b, pieces := data(t, 100_500)
	for _, limit := range []int64{1, 999, 25_125, 50_250, 100_500, 1 << 20} {
		counted := counttest.New(s, nil)
		k, o := open(t, counted, limit, pieces)
		for epoch := range 3 {
			before := counted.Stats().Bytes
			for off := 0; off < len(b); off += 700 { // across the borders of pieces
				p := make([]byte, min(700, len(b)-off))
				if err := o.ReadAt(t.Context(), p, int64(off)); err != nil || !bytes.Equal(p, b[off:off+len(p)]) {
					t.Fatalf("limit %d: bytes from %d on are others, %v", limit, off, err)
				}
			}
			got, room := counted.Stats().Bytes-before, min(limit, int64(len(b)))
			if want := int64(len(b)) - room; epoch > 0 && got != want || epoch == 0 && got != int64(len(b)) {
				t.Errorf("limit %d, epoch %d: %d bytes were read", limit, epoch, got)
			}
		}
		if st := k.Stats(); st.Bytes != min(limit, int64(len(b))) || st.Limit != st.Bytes || st.MissBytes != counted.Stats().Bytes || st.HitBytes+st.MissBytes < 3*int64(len(b)) || st.HitBytes > 3*int64(len(b)) {
			t.Errorf("limit %d: %+v", limit, st)
		}
		// Ranges inside adjacent kept pieces are lent without a copy, other ranges are not lent.
		l, ok := store.As[store.Lender](o)
		if !ok {
			t.Fatal("it lends nothing")
		}
		before := k.Stats().HitBytes
		n := 0
		for off := 0; off+700 <= len(b); off += 700 {
			p := l.Lend(int64(off), 700, 64, time.Time{})
			if p != nil && !bytes.Equal(p, b[off:off+700]) {
				t.Fatalf("limit %d: bytes from %d on are lent, and are others", limit, off)
			}
			if n += len(p); p == nil && limit >= int64(len(b)) {
				t.Errorf("limit %d: bytes from %d on are not lent", limit, off)
			}
		}
		if int64(n) > limit || k.Stats().HitBytes != before+int64(n) {
			t.Errorf("limit %d: %d bytes are lent, %d counted", limit, n, k.Stats().HitBytes-before)
		}
		if l.Lend(0, 1, 65, time.Time{}) != nil {
			t.Error("more may be looked at behind it than there is")
		}
		for _, outside := range []int64{-1, int64(len(b)) - 1, 1 << 40} {
			if err := o.ReadAt(t.Context(), make([]byte, 2), outside); err == nil {
				t.Errorf("bytes from %d on were read", outside)
			}
		}
	}
}

// Concurrent readers of one piece cause one read. A reader that is cancelled does not stop the others.
func TestOneReads(t *testing.T) {
	s, b, pieces := data(t, 5000)
	counted := counttest.New(s, nil)
	_, o := open(t, counted, 5000, pieces)
	if l, _ := store.As[store.Lender](o); l.Lend(1000, 10, 0, time.Time{}) != nil {
		t.Error("what is not there yet is lent")
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%4 == 0 {
				cancel()
			}
			p := make([]byte, 3000)
			if err := o.ReadAt(ctx, p, 1000); i%4 != 0 && (err != nil || !bytes.Equal(p, b[1000:4000])) {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if n := counted.Stats().Bytes; n != 3000 {
		t.Errorf("%d bytes were read", n)
	}
}

// A piece that failed is read again by the next reader and never counts as complete.
func TestFaults(t *testing.T) {
	s, b, pieces := data(t, 5000)
	broken := errors.New("it is broken")
	_, o := open(t, faulttest.New(s, 1, faulttest.Error(broken).On(faulttest.Read).Times(3)), 5000, pieces)
	failed := 0
	for range 10 {
		p := make([]byte, 5000)
		switch err := o.ReadAt(t.Context(), p, 0); {
		case errors.Is(err, broken):
			failed++
		case err != nil || !bytes.Equal(p, b):
			t.Fatalf("%v", err)
		}
	}
	if failed != 3 {
		t.Errorf("%d reads failed", failed)
	}
}

// A piece that was filled with damaged bytes is not used after Drop: neither lent nor copied. The others are.
func TestDrop(t *testing.T) {
	s, b, pieces := data(t, 10_000)
	faulty := faulttest.New(s, 1, faulttest.Flip(4500).Bytes(4500, 4501).Times(1))
	k, o := open(t, faulty, 1<<20, pieces)
	l, _ := store.As[store.Lender](o)
	p := make([]byte, 10_000)
	for i, damaged := range []bool{true, true, false, false} {
		if i == 2 {
			k.Drop(s.Path("x"), 4490, 20)
		}
		if err := o.ReadAt(t.Context(), p, 0); err != nil || bytes.Equal(p, b) == damaged {
			t.Errorf("the bytes are damaged: %t, expected %t; %v", !bytes.Equal(p, b), damaged, err)
		}
		if lent := l.Lend(4400, 200, 0, time.Now()); (lent != nil) != damaged {
			t.Errorf("lent: %t, expected %t", lent != nil, damaged)
		}
		if l.Lend(3900, 50, 0, time.Now()) == nil {
			t.Error("another piece is not lent any more")
		}
	}
}
