package sampler

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// chunks returns random bounds of n chunks with up to most records each.
func chunks(rng *rand.Rand, n, most int) []int64 {
	starts := []int64{0}
	for range n {
		starts = append(starts, starts[len(starts)-1]+1+rng.Int64N(int64(most)))
	}
	return starts
}

func mustWindows(t testing.TB, starts []int64, window int) *Windows {
	t.Helper()
	w, err := NewWindows(starts, window)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// checkWindowOrder checks the promises of an order: each record comes once, in At and in a walk. No chunk comes after
// its last position, and no more chunks are in use at a time than the window has.
func checkWindowOrder(t *testing.T, starts []int64, window int, seed uint64, epoch int64) {
	t.Helper()
	w := mustWindows(t, starts, window)
	e := w.Epoch(seed, epoch)
	k := newWalk(e)
	n := w.Len()
	name := fmt.Sprintf("%d chunks of %d records, window %d", w.Chunks(), n, window)
	seen := make([]bool, n)
	first, last := map[int]int64{}, map[int]int64{}
	for pos := range n {
		id := e.At(pos)
		if id < 0 || id >= n || seen[id] {
			t.Fatalf("%s: record %d at %d is out of range or there twice", name, id, pos)
		}
		if walked := k.at(pos); walked != id {
			t.Fatalf("%s: position %d is %d, on a walk %d", name, pos, id, walked)
		}
		seen[id] = true
		c := w.Chunk(id)
		if lo, hi := w.Records(c); id < lo || id >= hi {
			t.Fatalf("%s: record %d is not in chunk %d of %d to %d", name, id, c, lo, hi)
		}
		if _, ok := first[c]; !ok {
			first[c] = pos
		}
		last[c] = pos
	}
	inUse := make([]int, n+1)
	for c := range w.Chunks() {
		if got := e.Last(c); got != last[c] && !w.Whole() || got < last[c] {
			t.Fatalf("%s: chunk %d ends at %d and not at %d", name, c, last[c], got)
		}
		if got := e.First(c, 0, 1); got != first[c] && !w.Whole() {
			t.Fatalf("%s: chunk %d begins at %d and not at %d", name, c, first[c], got)
		}
		for world := 2; world < 5 && !w.Whole(); world++ {
			for rank := range world {
				want := int64(-1)
				for pos := first[c]; pos <= last[c] && want < 0; pos++ {
					if int(pos)%world == rank && w.Chunk(e.At(pos)) == c {
						want = pos
					}
				}
				if got := e.First(c, rank, world); got != want {
					t.Fatalf("%s: chunk %d begins at %d for rank %d of %d, and not at %d", name, c, want, rank, world, got)
				}
			}
		}
		inUse[first[c]]++
		inUse[last[c]+1]--
	}
	now := 0
	for pos, d := range inUse[:n] {
		if now += d; now > window {
			t.Fatalf("%s: %d chunks are in use at %d", name, now, pos)
		}
	}
}

func TestWindows(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 300 {
		starts := chunks(rng, 1+rng.IntN(60), 1+rng.IntN(40))
		if round%5 == 0 { // one chunk that is larger than all others together
			starts[len(starts)-1] += 1000
		}
		checkWindowOrder(t, starts, 1+rng.IntN(70), rng.Uint64(), int64(round%3))
	}
	for _, window := range []int{1, 2, 3, 4, 6, 8, 12, 16, 48, 64, 97} {
		checkWindowOrder(t, chunks(rng, 100, 50), window, 1, 1)
	}
}

func TestWindowsRefuse(t *testing.T) {
	for _, starts := range [][]int64{nil, {0}, {1, 2}, {0, 2, 2}, {0, 3, 2}, {0, MaxLen + 1}} {
		if _, err := NewWindows(starts, 2); err == nil {
			t.Errorf("chunks %v were taken", starts)
		}
	}
	for _, window := range []int{0, -1, MaxWindow + 1} {
		if _, err := NewWindows([]int64{0, 2, 4}, window); err == nil {
			t.Errorf("a window of %d chunks was taken", window)
		}
	}
}

// Each record comes once over all ranks for each handling of the last records. That holds batch by batch and after
// other ranks have stopped.
func TestWindowsAreShared(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 400 {
		starts := chunks(rng, 1+rng.IntN(30), 1+rng.IntN(20))
		w := mustWindows(t, starts, 1+rng.IntN(20))
		e, n := w.Epoch(uint64(round), 2), w.Len()
		for _, uneven := range Unevens {
			world, batch, from := 1+rng.IntN(9), 1+rng.IntN(9), rng.Int64N(n)
			drop := round%4 == 0
			seen := make([]int, n)
			var again, rows, left int64
			steps := make([]int64, world)
			for r := range world {
				s := &Split{Len: n, Batch: batch, Rank: r, World: world, DropLast: drop, Uneven: uneven, InTurn: true}
				epoch := e.Of(s)
				for row := from; ; steps[r]++ {
					p, ok := epoch.At(row)
					if !ok {
						break
					}
					ids := make([]int64, p.Rows())
					epoch.Fill(ids, &p, 0)
					if len(ids) > batch || uneven != Exact && len(ids) == 0 {
						t.Fatalf("a batch of %d rows", len(ids))
					}
					for i, id := range ids[:int64(len(ids))-p.Repeated] {
						one := []int64{0}
						if epoch.Fill(one, &p, i); one[0] != id {
							t.Fatalf("row %d is record %d, and %d alone", i, id, one[0])
						}
						if at := p.Lo + int64(i)*p.Stride; e.At(at) != id || at%int64(world) != int64(r) {
							t.Fatalf("row %d of rank %d is record %d, at position %d", i, r, id, at)
						}
						seen[id]++
					}
					again, rows, row = again+p.Repeated, rows+int64(len(ids)), p.Next
				}
				if from == 0 && steps[r] != s.Steps() || steps[r] != steps[0] {
					t.Fatalf("rank %d has %d batches, rank 0 %d, %d were said", r, steps[r], steps[0], s.Steps())
				}
			}
			for pos := from; pos < n; pos++ {
				switch seen[e.At(pos)] {
				case 0:
					left++
				case 1:
				default:
					t.Fatalf("position %d came %d times", pos, seen[e.At(pos)])
				}
			}
			if rows-again != n-from-left || again >= int64(world) || again > 0 && uneven != Pad ||
				left > 0 && !drop && (uneven != Drop || left >= int64(world)) || drop && left != (n-from)%(int64(world)*int64(batch)) {
				t.Fatalf("%d ranks, batches of %d, %s, drop_last=%v: %d rows of %d, %d left out, %d again", world, batch, uneven, drop, rows, n-from, left, again)
			}
		}
	}
}

// The records of a global batch do not depend on the number of ranks or on the position where the loop started.
func TestWindowsAreElastic(t *testing.T) {
	w := mustWindows(t, chunks(rand.New(rand.NewPCG(1, 2)), 80, 30), 16)
	e := w.Epoch(9, 4)
	global := func(world int, row int64) []int64 {
		var ids []int64
		for r := range world {
			epoch := e.Of(&Split{Len: w.Len(), Batch: 32 / world, Rank: r, World: world, InTurn: true})
			p, ok := epoch.At(row)
			if !ok {
				t.Fatal("no batch")
			}
			part := make([]int64, p.Rows())
			epoch.Fill(part, &p, 0)
			ids = append(ids, part...)
		}
		slices.Sort(ids)
		return ids
	}
	for row := int64(0); row+32 < w.Len(); row += 32 {
		two := global(2, row)
		for _, world := range []int{1, 4, 8, 16} {
			if got := global(world, row); !slices.Equal(two, got) {
				t.Fatalf("row %d: %d ranks have %v, two %v", row, world, got, two)
			}
		}
	}
}

// If the window is a multiple of the ranks, each rank has its own chunks: all ranks together read few more than there
// are. No rank uses more at a time than InUse returns.
func TestRanksHaveTheirChunks(t *testing.T) {
	w := mustWindows(t, chunks(rand.New(rand.NewPCG(3, 4)), 400, 60), 16)
	e := w.Epoch(1, 0)
	for _, world := range []int{1, 2, 3, 4, 6, 8, 16} {
		total := 0
		for r := range world {
			first, last := map[int]int64{}, map[int]int64{}
			for pos := int64(r); pos < w.Len(); pos += int64(world) {
				c := w.Chunk(e.At(pos))
				if _, ok := first[c]; !ok {
					first[c] = pos
				}
				last[c] = pos
			}
			total += len(first)
			change := make([]int, w.Len()+1)
			for c, at := range first {
				change[at]++
				change[last[c]+1]--
			}
			now := 0
			for _, d := range change {
				if now += d; now > w.InUse(world) {
					t.Fatalf("rank %d of %d uses %d chunks, %d were said", r, world, now, w.InUse(world))
				}
			}
		}
		// Small chunks do not have a record for each rank.
		n := w.Readers(world)
		if most := n*w.Chunks() + world - 1; total > most || total < most*3/4 || n > 1 != (w.Window()%world != 0) {
			t.Errorf("%d ranks use %d chunks together, of %d that %d ranks read each", world, total, w.Chunks(), n)
		}
	}
}

// Another epoch has another order, of chunks and within them. Over many epochs, chunks and positions within chunks are
// uniformly distributed.
func TestWindowsAreRandom(t *testing.T) {
	starts := []int64{0}
	for range 64 {
		starts = append(starts, starts[len(starts)-1]+64)
	}
	w := mustWindows(t, starts, 8)
	const bins, total = 16, 20_000
	chunk, within := make([]int, bins), make([]int, bins)
	for e := range int64(total) {
		id := w.Epoch(3, e).At(e % w.Len())
		chunk[id/64*bins/64]++
		within[id%64*bins/64]++
	}
	for name, counts := range map[string][]int{"chunk": chunk, "place in the chunk": within} {
		if z := chi2(counts, total); z > 6 {
			t.Errorf("%s is not uniform over epochs: %.1f standard deviations %v", name, z, counts)
		}
	}
}

// The order is the same on every machine and in every version, because states have positions in it.
func TestWindowsAreForever(t *testing.T) {
	w := mustWindows(t, []int64{0, 3, 8, 9, 15, 20}, 2)
	var ids []int64
	e := w.Epoch(5, 1)
	for pos := range w.Len() {
		ids = append(ids, e.At(pos))
	}
	if want := []int64{2, 8, 0, 16, 1, 18, 3, 15, 5, 17, 4, 19, 6, 12, 7, 11, 10, 14, 9, 13}; !slices.Equal(ids, want) {
		t.Errorf("%v", ids)
	}
	for _, g := range []struct {
		chunks, most, window int
		sum                  uint64
	}{{10, 5, 3, 0x3b81bbfffdaf4661}, {100, 100, 16, 0xe7b8a2414108e82d}, {50, 7, 12, 0x2c4696995453d827}, {5, 9, 5, 0xbf896117a4ece3ef}} {
		w := mustWindows(t, chunks(rand.New(rand.NewPCG(1, 1)), g.chunks, g.most), g.window)
		h := fnv.New64a()
		for epoch := range int64(2) {
			e := w.Epoch(7, epoch)
			for pos := range w.Len() {
				fmt.Fprintln(h, e.At(pos))
			}
		}
		if h.Sum64() != g.sum {
			t.Errorf("%d chunks of up to %d records, window %d: %#x", g.chunks, g.most, g.window, h.Sum64())
		}
	}
}

// The tests of the Python package read the same file and compute the order again.
func TestWindowsAsInPython(t *testing.T) {
	b, err := os.ReadFile("testdata/windows.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Starts []int64
		Window int
		Seed   uint64
		Epoch  int64
		Order  []int64
	}
	if err := json.Unmarshal(b, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err)
	}
	for _, c := range cases {
		e := mustWindows(t, c.Starts, c.Window).Epoch(c.Seed, c.Epoch)
		for pos, id := range c.Order {
			if got := e.At(int64(pos)); got != id {
				t.Fatalf("%v, window %d: position %d is record %d, should be %d", c.Starts, c.Window, pos, got, id)
			}
		}
	}
}

func FuzzWindows(f *testing.F) {
	f.Add([]byte{3, 5, 1, 6}, uint16(2), uint64(1), int64(0))
	f.Add([]byte{255, 1, 1, 1, 1, 1, 1, 1}, uint16(4), uint64(7), int64(-1))
	f.Fuzz(func(t *testing.T, sizes []byte, window uint16, seed uint64, epoch int64) {
		if len(sizes) == 0 || len(sizes) > 64 {
			return
		}
		starts := []int64{0}
		for _, n := range sizes {
			starts = append(starts, starts[len(starts)-1]+1+int64(n))
		}
		checkWindowOrder(t, starts, int(window)%100+1, seed, epoch)
	})
}

func BenchmarkWalk(b *testing.B) {
	starts := []int64{0}
	for range 20_000 {
		starts = append(starts, starts[len(starts)-1]+75)
	}
	w := mustWindows(b, starts, 64)
	k, pos := newWalk(w.Epoch(1, 1)), int64(0)
	for b.Loop() {
		k.at(pos)
		if pos++; pos == w.Len() {
			pos = 0
		}
	}
}
