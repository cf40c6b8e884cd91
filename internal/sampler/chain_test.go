package sampler

import (
	"hash/fnv"
	"math/rand/v2"
	"testing"
)

// Each item comes once, at the offsets that Start and Find return. Cursors pass over empty items.
func TestChain(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	for _, n := range []int64{1, 2, 3, 8, 9, 10, 11, 80, 81, 82, 729, 730, 5_000} {
		sizes := make([]int64, n)
		for i := range sizes {
			sizes[i] = rng.Int64N(5)
		}
		sizes[n/2] = 3 // not all of them are empty
		c := newChain(n, func(i int64) int64 { return sizes[i] }, 4, 9)
		e := c.Epoch(4, 2)
		seen := make([]bool, n)
		at := int64(0)
		for cur := e.Find(0); ; {
			item := cur.Item()
			from, to := cur.Bounds()
			if seen[item] || from != at || to-from != sizes[item] || sizes[item] == 0 {
				t.Fatalf("%d items: item %d at %d to %d, expected at %d with size %d", n, item, from, to, at, sizes[item])
			}
			seen[item] = true
			if item%7 == 0 {
				if got := e.Start(item); got != from {
					t.Fatalf("%d items: item %d starts at %d, expected %d", n, item, got, from)
				}
				if found := e.Find(to - 1); found.Item() != item {
					t.Fatalf("%d items: item %d at %d, expected %d", n, found.Item(), to-1, item)
				}
			}
			at = to
			if !cur.Next() {
				break
			}
		}
		if at != c.Total() {
			t.Fatalf("%d items: the walk ends at %d of %d", n, at, c.Total())
		}
		for i, ok := range seen {
			if ok != (sizes[i] > 0) {
				t.Fatalf("%d items: item %d of size %d is missing", n, i, sizes[i])
			}
		}
	}
}

// The order is the same on every machine and in every version with this OrderVersion.
func TestChainIsForever(t *testing.T) {
	h := fnv.New64a()
	e := NewChain(30_000, func(i int64) int64 { return i % 3 * (i & 1) }).Epoch(7, 3)
	for cur, more := e.Find(0), true; more; more = cur.Next() {
		item := cur.Item()
		_, _ = h.Write([]byte{byte(item), byte(item >> 8), byte(item >> 16)})
	}
	if got := h.Sum64(); got != 0xd543b30f360e1a31 {
		t.Errorf("%#x", got)
	}
}

// far is a position in an epoch that is far from its beginning.
const far = 1_000_000_000

// farOrders are epochs of more than far records, and the most permuted numbers that a restore there may compute.
func farOrders(t testing.TB) map[string]struct {
	epoch func() *Epoch
	most  int64
} {
	const window, batch = 64, 256
	starts := make([]int64, 1_200_001)
	for i := range starts {
		starts[i] = int64(i) * 1000
	}
	w := mustWindows(t, starts, window)
	s := Split{Len: w.Len(), Batch: batch, World: 1, InTurn: true}
	full := Split{Len: 2 * far, Batch: batch, World: 1}
	b := &Buckets{split: full, first: []int64{0, far, 16 * far}, ids: nil, rows: []int{3, 8}, together: 4}
	b.cut()
	return map[string]struct {
		epoch func() *Epoch
		most  int64
	}{
		"full":    {func() *Epoch { return NewEpoch(&full, true, 1, 2) }, 0},
		"window":  {func() *Epoch { return w.Epoch(1, 2).Of(&s) }, 2 * window * maxFanout},
		"buckets": {func() *Epoch { return b.NewEpoch(true, 1, 2) }, 0},
	}
}

// restore makes the first batch at a position.
func restore(t testing.TB, e *Epoch) {
	p, ok := e.At(far)
	if !ok {
		t.Fatal("the epoch has ended")
	}
	ids := make([]int64, p.Rows())
	if e.b == nil {
		e.Fill(ids, &p, 0)
	}
}

// A restore computes no more at position 10^9 than at the beginning: nothing is counted up to there.
func TestRestoreIsSmallWork(t *testing.T) {
	defer func(before func(int64)) { looked = before }(looked)
	for name, o := range farOrders(t) {
		work := int64(0)
		looked = func(children int64) { work += children }
		restore(t, o.epoch())
		if work > o.most {
			t.Errorf("%s: %d numbers were permuted, expected %d or less", name, work, o.most)
		}
	}
}

func BenchmarkRestore(b *testing.B) {
	for name, o := range farOrders(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				restore(b, o.epoch())
			}
		})
	}
}
