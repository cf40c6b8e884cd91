package sampler

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Each record comes once over all ranks, ranks agree on the number of batches, and each batch has records of one
// bucket. An epoch can start at any batch.
func TestBuckets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		n, nb := int64(rng.IntN(400)), 1+rng.IntN(6)
		of := make([]int, n)
		for i := range of {
			of[i] = rng.IntN(1 + rng.IntN(nb))
		}
		rows := make([]int, nb)
		for k := range rows {
			rows[k] = 1 + rng.IntN(9)
		}
		world := 1 + rng.IntN(3)
		drop := round%3 == 0
		var ranks []*Buckets
		for r := range world {
			b, err := NewBuckets(n, func(id int64) int { return of[id] }, rows, world, &Split{Len: n, Rank: r, World: world, DropLast: drop})
			if err != nil {
				t.Fatal(err)
			}
			ranks = append(ranks, b)
		}
		shuffle := round%2 == 0
		for epoch := range int64(2) {
			seen := make([]int, n)
			var starts []int64
			for r, b := range ranks {
				e := b.NewEpoch(shuffle, 7, epoch)
				row, steps := int64(0), int64(0)
				for {
					p, ok := e.At(row)
					if !ok {
						break
					}
					if r == 0 {
						starts = append(starts, row)
					}
					if p.Step != steps || row != starts[steps] || row != steps*int64(world) {
						t.Fatalf("round %d: rank %d is at step %d, row %d", round, r, p.Step, row)
					}
					if p.Hi-p.Lo > int64(rows[p.Bucket]) {
						t.Fatalf("round %d: %d rows in bucket %d of %d", round, p.Hi-p.Lo, p.Bucket, rows[p.Bucket])
					}
					ids := make([]int64, p.Hi-p.Lo)
					e.Fill(ids, &p, 0)
					for i, id := range ids {
						seen[id]++
						if of[id] != p.Bucket {
							t.Fatalf("round %d: record %d is of bucket %d and not %d", round, id, of[id], p.Bucket)
						}
						one := ids[i : i+1 : i+1]
						again := []int64{0}
						if e.Fill(again, &p, i); again[0] != one[0] {
							t.Fatalf("round %d: two records at one position", round)
						}
					}
					row, steps = p.Next, steps+1
				}
				if steps != b.Steps() {
					t.Fatalf("round %d: %d steps, %d were said", round, steps, b.Steps())
				}
			}
			for id, times := range seen {
				if times != 1 && !(drop && times == 0) {
					t.Fatalf("round %d: record %d comes %d times", round, id, times)
				}
			}
			if !shuffle && world == 1 { // records of a bucket in the order of the source
				e := ranks[0].NewEpoch(false, 1, epoch)
				last := make([]int64, nb)
				for row := int64(0); ; {
					p, ok := e.At(row)
					if !ok {
						break
					}
					ids := make([]int64, p.Hi-p.Lo)
					e.Fill(ids, &p, 0)
					if !slices.IsSorted(ids) || len(ids) > 0 && ids[0] < last[p.Bucket] {
						t.Fatalf("round %d: %v behind %d", round, ids, last[p.Bucket])
					}
					last[p.Bucket] = ids[len(ids)-1]
					row = p.Next
				}
			}
		}
		if n > 0 { // the replacement of a record is in its bucket
			id := rng.Int64N(n)
			got := map[int64]bool{}
			for try := int64(1); ; try++ {
				other, ok := ranks[0].After(id, try)
				if !ok {
					break
				}
				if of[other] != of[id] || other == id || got[other] {
					t.Fatalf("round %d: %d for %d", round, other, id)
				}
				got[other] = true
			}
			if int64(len(got)) != ranks[0].Records(of[id])-1 {
				t.Fatalf("round %d: %d others of %d", round, len(got), ranks[0].Records(of[id]))
			}
		}
	}
}

// In an aligned order, all ranks have records of the same bucket in each step, at least one each, and the two kinds of
// buckets come in proportion. Each record comes once. Balancing changes none of that.
func TestAligned(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 600 {
		world, lengths := 1+rng.IntN(8), 1+rng.IntN(4)
		n := int64(world) + rng.Int64N(300*int64(lengths))
		share := rng.IntN(101)
		of, length := make([]int, n), make([]int64, n)
		counts, rows := make([]int64, 2*lengths), make([]int, 2*lengths)
		for k := range rows {
			rows[k] = 1 + rng.IntN(5)
			if lengths == 1 {
				rows[k] = max(rows[0], 2)
			}
		}
		for i := range of {
			l := rng.IntN(lengths)
			length[i] = int64(1 + 10*l + rng.IntN(10))
			if of[i] = l; rng.IntN(100) < share {
				of[i] += lengths
			}
			counts[of[i]]++
		}
		refused := false
		for k, n := range counts {
			few := n % int64(world*rows[k])
			refused = refused || n > 0 && n < int64(world) || rows[k] == 1 && few > 0
		}
		var ranks []*Buckets
		for r := range world {
			b, err := NewAligned(n, func(id int64) int { return of[id] }, rows, lengths, world, &Split{Len: n, Rank: r, World: world})
			if refused != (err != nil) {
				t.Fatalf("%v records, batches of %v, %d ranks: %v", counts, rows, world, err)
			}
			if err == nil && round%3 == 0 {
				b.Balance(func(id int64) int64 { return length[id] })
			}
			ranks = append(ranks, b)
		}
		if refused {
			continue
		}
		for epoch := range int64(2) {
			seen := make([]int, n)
			with, steps := 0.0, ranks[0].Steps()
			whole := float64(ranks[0].runs[2*lengths]-ranks[0].runs[lengths]) / float64(ranks[0].runs[2*lengths])
			row := int64(0)
			for step := range steps {
				bucket, next := -1, int64(0)
				for r, b := range ranks {
					e := b.NewEpoch(round%2 == 0, 7, epoch)
					p, ok := e.At(row)
					if !ok || p.Rows() < 1 || p.Rows() > rows[p.Bucket] || r > 0 && p.Bucket != bucket {
						t.Fatalf("%v records, %d ranks of %d rows, step %d: rank %d has %d rows of bucket %d, rank 0 of %d", counts, world, rows, step, r, p.Rows(), p.Bucket, bucket)
					}
					bucket, next = p.Bucket, p.Next
					ids := make([]int64, p.Rows())
					e.Fill(ids[:len(ids)/2], &p, 0)
					e.Fill(ids[len(ids)/2:], &p, len(ids)/2)
					for _, id := range ids {
						seen[id]++
						if of[id] != bucket {
							t.Fatalf("record %d is in bucket %d", id, bucket)
						}
					}
				}
				row = next
				if bucket >= lengths {
					with++
				}
				if d := with - whole*float64(step+1); d > 1 || d < -1 {
					t.Fatalf("%g of %d steps have it, of %v records", with, step+1, counts)
				}
			}
			for id, times := range seen {
				if times != 1 {
					t.Fatalf("%v records, %d ranks of %d rows: record %d came %d times", counts, world, rows, id, times)
				}
			}
		}
	}
}

// The order is the same on every machine, and another one in each epoch.
func TestBucketsAreForever(t *testing.T) {
	b, err := NewBuckets(20, func(id int64) int { return int(id % 2) }, []int{3, 4}, 1, &Split{Len: 20, World: 1})
	if err != nil {
		t.Fatal(err)
	}
	var epochs [2][]int64
	for n := range epochs {
		e := b.NewEpoch(true, 5, int64(n))
		for row := int64(0); ; {
			p, ok := e.At(row)
			if !ok {
				break
			}
			ids := make([]int64, p.Hi-p.Lo)
			e.Fill(ids, &p, 0)
			epochs[n] = append(epochs[n], ids...)
			row = p.Next
		}
	}
	want := []int64{5, 17, 18, 0, 10, 12, 2, 4, 16, 8, 14, 6, 13, 11, 3, 1, 7, 15, 9, 19}
	if slices.Equal(epochs[0], epochs[1]) || !slices.Equal(epochs[0], want) {
		t.Errorf("%v, then %v", epochs[0], epochs[1])
	}
}

// The batches of a step have about the same number of tokens, whichever rank count they are made for, and the records of
// the step are those without balancing.
func TestBalancedTokens(t *testing.T) {
	const n, most = 40_000, 16_384
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 9))
		length := make([]int64, n)
		for i := range length {
			length[i] = int64(min(max(math.Exp(5.5+0.7*rng.NormFloat64()), 1), most/8))
		}
		sorted := slices.Sorted(slices.Values(length))
		bounds := make([]int64, 32)
		for k := range bounds {
			bounds[k] = sorted[(k+1)*n/32-1]
		}
		of := func(id int64) int { k, _ := slices.BinarySearch(bounds, length[id]); return k }
		rows := make([]int, 32)
		for k := range rows {
			rows[k] = int(min(256, most/bounds[k]))
		}
		for _, together := range []int{2, 3, 8} {
			split := Split{World: together, Batch: 256}
			make1 := func() *Buckets {
				b, err := NewBuckets(n, of, rows, together, &split)
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			plain, b := make1(), make1()
			b.Balance(func(id int64) int64 { return length[id] })
			e, p := b.NewEpoch(true, seed, 1), plain.NewEpoch(true, seed, 1)
			worst, whole := 0.0, 0
			for run := int64(0); run < b.batches(); run += int64(together) {
				var sums []int64
				var all, want []int64
				same := true
				for k := range int64(together) {
					part := e.batch(run + k)
					ids, plainIDs := make([]int64, part.Hi-part.Lo), make([]int64, part.Hi-part.Lo)
					// In two pieces, as groups of records are planned.
					e.Fill(ids[:len(ids)/2], &part, 0)
					e.Fill(ids[len(ids)/2:], &part, len(ids)/2)
					p.Fill(plainIDs, &part, 0)
					all, want = append(all, ids...), append(want, plainIDs...)
					sum := int64(0)
					for _, id := range ids {
						sum += length[id]
					}
					sums = append(sums, sum)
					same = same && len(ids) == b.Rows(part.Bucket)
				}
				slices.Sort(all)
				slices.Sort(want)
				if !slices.Equal(all, want) {
					t.Fatalf("seed %d, %d ranks: balancing changes the records of step %d", seed, together, run)
				}
				if same {
					whole++
					worst = max(worst, float64(slices.Max(sums))/float64(slices.Min(sums))-1)
				}
			}
			if whole == 0 || worst > 0.02 {
				t.Errorf("seed %d, %d ranks: tokens of %d whole steps differ by %.2f%%", seed, together, whole, 100*worst)
			}
		}
	}
}
