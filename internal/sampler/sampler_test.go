package sampler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func lengths() []int64 {
	ns := []int64{1, 2, 3, 4, 5, 6, 7, 10, 100, 1000, 50_000}
	for k := 3; k <= 16; k++ {
		ns = append(ns, 1<<k-1, 1<<k, 1<<k+1)
	}
	return ns
}

func TestEachRecordOnce(t *testing.T) {
	for _, n := range lengths() {
		for _, seed := range []uint64{0, 1, math.MaxUint64} {
			o := NewOrder(n, true, seed, 3)
			seen := make([]bool, n)
			for pos := range n {
				id := o.At(pos)
				if id < 0 || id >= n || seen[id] {
					t.Fatalf("n %d seed %d: record %d at %d is out of range or there twice", n, seed, id, pos)
				}
				seen[id] = true
				if back := o.Find(id); back != pos {
					t.Fatalf("n %d: Find(At(%d)) = %d", n, pos, back)
				}
			}
		}
	}
}

func TestLargeLengths(t *testing.T) {
	for _, n := range []int64{1<<31 - 1, 1 << 32, 1<<32 + 1, 1_281_167, 1<<39 + 12345, MaxLen - 1, MaxLen} {
		o := NewOrder(n, true, 7, 0)
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		seen := map[int64]bool{}
		for i := range 20_000 {
			pos := rng.Int64N(n)
			if i < 2 {
				pos = []int64{0, n - 1}[i]
			}
			id := o.At(pos)
			if id < 0 || id >= n {
				t.Fatalf("n %d: record %d at %d is out of range", n, id, pos)
			}
			if back := o.Find(id); back != pos {
				t.Fatalf("n %d: Find(At(%d)) = %d", n, pos, back)
			}
			seen[pos] = true
		}
	}
}

func TestWithoutShuffleIsTheSourcesOrder(t *testing.T) {
	o := NewOrder(100, false, 9, 9)
	for pos := range int64(100) {
		if o.At(pos) != pos || o.Find(pos) != pos {
			t.Fatalf("position %d holds record %d", pos, o.At(pos))
		}
	}
}

// chi2 is the statistic of counts against equal expectation, as its distance
// from the mean in standard deviations.
func chi2(counts []int, total int) float64 {
	want := float64(total) / float64(len(counts))
	x := 0.0
	for _, c := range counts {
		d := float64(c) - want
		x += d * d / want
	}
	df := float64(len(counts) - 1)
	return (x - df) / math.Sqrt(2*df)
}

// For small n, all permutations must be equally frequent.
func TestAllPermutationsAreEquallyLikely(t *testing.T) {
	for _, n := range []int64{2, 3, 4, 5, 6} {
		index := map[int64]int{}
		var counts []int
		const total = 60_000
		for seed := range uint64(total) {
			o := NewOrder(n, true, seed, int64(seed%3))
			key := int64(0)
			for pos := range n {
				key = key*8 + o.At(pos)
			}
			i, ok := index[key]
			if !ok {
				i = len(counts)
				index[key] = i
				counts = append(counts, 0)
			}
			counts[i]++
		}
		want := 1
		for i := 2; i <= int(n); i++ {
			want *= i
		}
		if len(counts) != want {
			t.Fatalf("n %d: %d of %d permutations came up", n, len(counts), want)
		}
		if z := chi2(counts, total); z > 6 {
			t.Errorf("n %d: permutations are not equally likely: %.1f standard deviations", n, z)
		}
	}
}

// The record at a fixed position, and the distance between neighbours, must be
// uniform over epochs and over positions.
func TestUniform(t *testing.T) {
	for _, n := range []int64{10, 60, 100, 1000, 1281170, MaxLen} {
		const bins, total = 10, 50_000
		first, mid, gap := make([]int, bins), make([]int, bins), make([]int, bins)
		bin := func(x int64) int { return int(float64(x) / float64(n) * bins) }
		for e := range int64(total) {
			o := NewOrder(n, true, 42, e)
			a, b := o.At(0), o.At(n/2)
			first[bin(a)]++
			mid[bin(b)]++
			c := o.At(1)
			if n >= 1000 {
				gap[bin((c-a+n)%n)]++
			}
		}
		for name, counts := range map[string][]int{"first": first, "middle": mid, "gap": gap} {
			if name == "gap" && n < 1000 {
				continue
			}
			if z := chi2(counts, total); z > 6 {
				t.Errorf("n %d: %s is not uniform over epochs: %.1f standard deviations %v", n, name, z, counts)
			}
		}
	}
	o := NewOrder(1_000_000, true, 1, 1)
	gap := make([]int, 100)
	for pos := range int64(999_999) {
		d := (o.At(pos+1) - o.At(pos) + 1_000_000) % 1_000_000
		gap[d/10_000]++
	}
	if z := chi2(gap, 999_999); z > 6 {
		t.Errorf("distance of neighbours in one epoch is not uniform: %.1f standard deviations", z)
	}
}

// Orders of neighbouring seeds and epochs agree in no more places than chance
// has it: one on average.
func TestNeighboursAreUnrelated(t *testing.T) {
	const n = 4096
	agree := func(a, b Order) (same int) {
		for pos := range int64(n) {
			if a.At(pos) == b.At(pos) {
				same++
			}
		}
		return same
	}
	total := 0
	const pairs = 100
	for s := range uint64(pairs) {
		total += agree(NewOrder(n, true, s, 0), NewOrder(n, true, s+1, 0))
		total += agree(NewOrder(n, true, 5, int64(s)), NewOrder(n, true, 5, int64(s)+1))
		total += agree(NewOrder(n, true, s, 1), NewOrder(n, true, s+1, 0))
	}
	mean := float64(total) / (3 * pairs)
	if mean < 0.6 || mean > 1.4 {
		t.Errorf("neighbouring orders agree in %.2f places on average, want about 1", mean)
	}
}

func TestSplitCoversTheEpochOnEachNumberOfRanks(t *testing.T) {
	for _, n := range []int64{1, 2, 7, 16, 17, 100, 1000, 1023} {
		for _, world := range []int{1, 2, 3, 4, 7} {
			for _, batch := range []int{1, 3, 16, 200} {
				for _, drop := range []bool{false, true} {
					checkSplit(t, n, world, batch, drop, 0)
				}
			}
		}
	}
	checkSplit(t, 1000, 3, 16, false, 37) // a position that another world size left
}

func checkSplit(t *testing.T, n int64, world, batch int, drop bool, from int64) {
	t.Helper()
	seen := make([]int, n)
	var steps []int64
	for rank := range world {
		s := Split{Len: n, Batch: batch, Rank: rank, World: world, DropLast: drop}
		row, count := from, int64(0)
		for {
			p, ok := s.At(row)
			if !ok {
				break
			}
			if p.Hi-p.Lo > int64(batch) || p.Hi < p.Lo || p.Next <= row {
				t.Fatalf("n %d world %d batch %d: part %+v at %d", n, world, batch, p, row)
			}
			if drop && p.Hi-p.Lo != int64(batch) {
				t.Fatalf("drop_last gave a batch of %d", p.Hi-p.Lo)
			}
			for pos := p.Lo; pos < p.Hi; pos++ {
				seen[pos]++
			}
			row = p.Next
			count++
		}
		if from == 0 && count != s.Steps() {
			t.Fatalf("n %d world %d batch %d drop %v: %d batches, Steps says %d", n, world, batch, drop, count, s.Steps())
		}
		steps = append(steps, count)
	}
	for _, c := range steps {
		if c != steps[0] {
			t.Fatalf("ranks have different numbers of batches: %v", steps)
		}
	}
	missing := int64(0)
	for pos := from; pos < n; pos++ {
		switch seen[pos] {
		case 0:
			missing++
		case 1:
		default:
			t.Fatalf("position %d was given out %d times", pos, seen[pos])
		}
	}
	want := int64(0)
	if drop {
		want = (n - from) % (int64(world) * int64(batch))
	}
	if missing != want {
		t.Fatalf("n %d world %d batch %d drop %v: %d positions left out, want %d", n, world, batch, drop, missing, want)
	}
}

func FuzzOrder(f *testing.F) {
	f.Add(uint64(10), uint64(0), int64(0), uint64(3))
	f.Add(uint64(1<<40), uint64(1), int64(-1), uint64(1<<39))
	f.Fuzz(func(t *testing.T, n, seed uint64, epoch int64, pos uint64) {
		n = n%MaxLen + 1
		pos %= n
		o := NewOrder(int64(n), true, seed, epoch)
		id := o.At(int64(pos))
		if id < 0 || id >= int64(n) {
			t.Fatalf("n %d: record %d", n, id)
		}
		if back := o.Find(id); back != int64(pos) {
			t.Fatalf("n %d seed %d epoch %d: Find(At(%d)) = %d", n, seed, epoch, pos, back)
		}
	})
}

func BenchmarkAt(b *testing.B) {
	for _, n := range []int64{1000, 1_281_167, 1 << 20, 1<<20 + 1, MaxLen} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o := NewOrder(n, true, 1, 1)
			var sum, pos int64
			for b.Loop() {
				sum += o.At(pos)
				if pos++; pos == n {
					pos = 0
				}
			}
			_ = sum
		})
	}
}

// Fill equals At for any number of records, position and length.
func TestFillIsAt(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 5, 64, 100, 255, 257, 1000, 40_000, 1 << 20, MaxLen - 3, MaxLen} {
		for _, shuffle := range []bool{true, false} {
			o := NewOrder(n, shuffle, 7, 3)
			for _, size := range []int64{0, 1, 2, 3, 4, 5, 7, 8, 64, 255, 1000} {
				for _, pos := range []int64{0, 1, n / 3, n - size} {
					if pos < 0 || pos+size > n {
						continue
					}
					ids := make([]int64, size)
					o.Fill(ids, pos)
					for i, id := range ids {
						if want := o.At(pos + int64(i)); id != want {
							t.Fatalf("%d records, shuffle %v: position %d is %d, alone %d", n, shuffle, pos+int64(i), id, want)
						}
					}
				}
			}
		}
	}
}

func BenchmarkFill(b *testing.B) {
	o := NewOrder(40_000, true, 7, 3)
	ids := make([]int64, 64)
	for b.Loop() {
		o.Fill(ids, 1000)
	}
}

// If an epoch ends unevenly, each rank has the same number of rows: with records from the beginning that are marked as
// repeated, or without the remaining ones.
func TestUneven(t *testing.T) {
	for _, uneven := range Unevens {
		for _, dropLast := range []bool{false, true} {
			for n := int64(1); n <= 60; n++ {
				for _, world := range []int{1, 2, 3, 7} {
					for _, batch := range []int{1, 4, 9} {
						checkUneven(t, n, world, batch, uneven, dropLast, nil)
						checkUneven(t, n, world, batch, uneven, dropLast, []int{batch, 2, batch})
					}
				}
			}
		}
	}
}

func checkUneven(t *testing.T, n int64, world, batch int, uneven Uneven, dropLast bool, buckets []int) {
	t.Helper()
	first, again := map[int64]int{}, 0
	steps := make([]int64, world)
	rows := map[int64][]int{}
	for r := range world {
		s := &Split{Len: n, Batch: batch, Rank: r, World: world, DropLast: dropLast, Uneven: uneven}
		e, want := NewEpoch(s, true, 5, 1), s.Steps()
		if buckets != nil {
			b, err := NewBuckets(n, func(id int64) int { return int(id*id) % len(buckets) }, buckets, world, s)
			if err != nil {
				t.Fatal(err)
			}
			e, want = b.NewEpoch(true, 5, 1), b.Steps()
		}
		for row := int64(0); ; steps[r]++ {
			p, ok := e.At(row)
			if !ok {
				break
			}
			ids := make([]int64, p.Rows())
			e.Fill(ids, &p, 0)
			for i, id := range ids {
				if int64(i) < int64(len(ids))-p.Repeated {
					first[id]++
				} else {
					again++
				}
			}
			rows[row] = append(rows[row], len(ids))
			row = p.Next
		}
		if steps[r] != want {
			t.Fatalf("%d steps, %d were said", steps[r], want)
		}
	}
	name := fmt.Sprintf("%d records, %d ranks, batches of %d, %s, drop_last=%v, buckets %v", n, world, batch, uneven, dropLast, buckets)
	groups := int64(max(len(buckets), 1))
	for id, times := range first {
		if times != 1 || id < 0 || id >= n {
			t.Fatalf("%s: record %d comes %d times", name, id, times)
		}
	}
	if left := n - int64(len(first)); left > 0 && !dropLast && uneven != Drop || !dropLast && left >= groups*int64(world) || uneven != Pad && again > 0 || int64(again) >= groups*int64(world) {
		t.Fatalf("%s: %d records are left out, %d come again", name, left, again)
	}
	for at, of := range rows {
		if uneven != Exact && (len(of) != world || slices.Min(of) != slices.Max(of) || of[0] == 0) {
			t.Fatalf("%s: ranks have %v rows at %d", name, of, at)
		}
	}
}
