package sampler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Buckets are records in groups of similar records, for example of about the same length. A batch has records of one
// bucket. The order of the records in each bucket and the order of the runs differ per epoch. Buckets do not change
// after their creation.
//
// Each bucket is cut into runs, and a run into Together batches of the bucket's size. The last run of a bucket may have
// smaller ones. An epoch permutes the runs. The positions of an epoch are its batches, one after the other, whichever
// rank takes them. So the order does not depend on the number of ranks. If Together is that number, the ranks have
// batches of the same bucket at the same time.
type Buckets struct {
	split Split // Len and Batch are not used
	// ids are the records, bucket by bucket, in the order of the source. Bucket b has ids[first[b]:first[b+1]].
	ids   []uint32
	first []int64
	// rows has the rows of a batch. runs has the number of runs before each bucket, and in total at the end.
	rows     []int
	runs     []int64
	together int64
	// plain is the order of the runs without shuffle.
	plain []int64
	// length is set by Balance.
	length func(id int64) int64
	// aligned is the number of buckets of the first kind, 0 without kinds (NewAligned). The order of the runs then keeps
	// the proportion of the two kinds, and plain has those of the first kind first.
	aligned int
}

// MaxBucketed is the largest number of records that can be put into buckets.
const MaxBucketed = 1 << 32

// NewBuckets sorts n records into buckets. of returns the bucket of a record, in [0, len(rows)). rows has the number of
// rows of each bucket's batches. together is the number of batches of a run.
func NewBuckets(n int64, of func(id int64) int, rows []int, together int, s *Split) (*Buckets, error) {
	return newBuckets(n, of, rows, together, s, 0)
}

// NewAligned sorts n records into buckets of two kinds. The first without buckets are of records without a field, the
// other buckets of records with it. After any number of runs, each kind had its share of the runs, within one. If the
// last run of a bucket has too few records for its batches, it shares them with the run before, in about equal parts.
func NewAligned(n int64, of func(id int64) int, rows []int, without, together int, s *Split) (*Buckets, error) {
	b, err := newBuckets(n, of, rows, together, s, without)
	if err != nil {
		return nil, err
	}
	for k := range b.rows {
		switch {
		case !b.divided(k) || b.rows[k] > 1 && b.Records(k) >= b.together:
		case len(rows) == 2:
			return nil, fmt.Errorf("%d records without it and %d with it cannot be shared so that each of %d ranks has one in each batch of %d: "+
				"use ranks=stoker.Ranks(uneven=\"pad\") or \"drop\"", b.Records(0), b.Records(1), together, rows[k])
		default:
			kind := "with"
			if k < without {
				kind = "without"
			}
			return nil, fmt.Errorf("a bucket has %d records %s it, which cannot be shared so that each of %d ranks has one in each batch of %d: "+
				"use ranks=stoker.Ranks(uneven=\"pad\") or \"drop\", or fewer buckets", b.Records(k), kind, together, b.rows[k])
		}
	}
	return b, nil
}

// divided reports whether the last two runs of a bucket have about as many records.
func (b *Buckets) divided(k int) bool {
	few := b.Records(k) % b.global(k)
	return b.aligned > 0 && few > 0 && few < b.together && b.split.Uneven != Pad && b.split.Uneven != Drop && !b.split.DropLast
}

// Balance makes the batches of each whole run have about the same sum of lengths, so that ranks which wait for each other
// have about the same work. The records of a run, and the number of rows of its batches, stay the same.
func (b *Buckets) Balance(length func(id int64) int64) { b.length = length }

// deal cuts the records of a whole run into batches, one after the other. Each turn gives the longest records that are
// left to the batches, the longest of them to the batch with the smallest sum. In a batch the order is that of the run.
func (b *Buckets) deal(ids []int64, rows int) {
	n := len(ids) / rows
	long := make([]int, len(ids)) // positions
	for i := range long {
		long[i] = i
	}
	slices.SortFunc(long, func(x, y int) int {
		return cmp.Or(cmp.Compare(b.length(ids[y]), b.length(ids[x])), cmp.Compare(x, y))
	})
	sums, turn, batches := make([]int64, n), make([]int, n), make([][]int, n)
	for k := range turn {
		turn[k] = k
	}
	for i := 0; i < len(long); i += n {
		slices.SortFunc(turn, func(x, y int) int { return cmp.Or(cmp.Compare(sums[x], sums[y]), cmp.Compare(x, y)) })
		for j, k := range turn {
			batches[k] = append(batches[k], long[i+j])
			sums[k] += b.length(ids[long[i+j]])
		}
	}
	b.even(ids, batches, sums)
	run := slices.Clone(ids)
	for k, batch := range batches {
		slices.Sort(batch)
		for j, at := range batch {
			ids[k*rows+j] = run[at]
		}
	}
}

// even exchanges records of the batches with the largest and the smallest sum, until the sums are within half a percent
// or no exchange helps. Long records, of which a batch has few, need that.
func (b *Buckets) even(ids []int64, batches [][]int, sums []int64) {
	for range 8 * len(batches) {
		hi, lo := 0, 0
		for k, sum := range sums {
			if sum > sums[hi] {
				hi = k
			}
			if sum < sums[lo] {
				lo = k
			}
		}
		gap := sums[hi] - sums[lo]
		if gap <= sums[lo]/200 {
			return
		}
		best, x, y := gap, 0, 0
		for i, at := range batches[hi] {
			for j, other := range batches[lo] {
				by := b.length(ids[at]) - b.length(ids[other])
				if left := max(gap-2*by, 2*by-gap); left < best {
					best, x, y = left, i, j
				}
			}
		}
		if best == gap {
			return
		}
		by := b.length(ids[batches[hi][x]]) - b.length(ids[batches[lo][y]])
		batches[hi][x], batches[lo][y] = batches[lo][y], batches[hi][x]
		sums[hi] -= by
		sums[lo] += by
	}
}

func newBuckets(n int64, of func(id int64) int, rows []int, together int, s *Split, aligned int) (*Buckets, error) {
	if n > MaxBucketed {
		return nil, fmt.Errorf("%d records are more than can be put into buckets, which is %d", n, int64(MaxBucketed))
	}
	b := &Buckets{split: *s, ids: make([]uint32, n), first: make([]int64, len(rows)+1), rows: slices.Clone(rows), together: int64(together), aligned: aligned}
	for id := range n {
		b.first[of(id)+1]++
	}
	for k := range rows {
		b.first[k+1] += b.first[k]
	}
	at := slices.Clone(b.first)
	for id := range n {
		k := of(id)
		b.ids[at[k]] = uint32(id)
		at[k]++
	}
	b.cut()
	// Without shuffle, the position of a run is that of its last record.
	b.plain = make([]int64, b.runs[len(rows)])
	last := make([]uint32, len(b.plain))
	for g := range b.plain {
		k, lo, hi := b.span(int64(g))
		b.plain[g], last[g] = int64(g), b.ids[b.first[k]+lo+hi-1]
	}
	slices.SortFunc(b.plain, func(x, y int64) int { return int(int64(last[x]) - int64(last[y])) })
	if first := b.runs[aligned]; aligned > 0 {
		kind := func(run int64) int {
			if run < first {
				return 0
			}
			return 1
		}
		slices.SortStableFunc(b.plain, func(x, y int64) int { return kind(x) - kind(y) })
	}
	return b, nil
}

// cut cuts the buckets into runs.
func (b *Buckets) cut() {
	cut := b.split
	cut.World = int(b.together)
	b.runs = make([]int64, len(b.rows)+1)
	for k, rows := range b.rows {
		b.runs[k+1] = b.runs[k] + cut.steps(b.Records(k), int64(rows))
	}
}

// global is the number of records of a whole run of a bucket.
func (b *Buckets) global(k int) int64 { return int64(b.rows[k]) * b.together }

// batches is the number of batches of an epoch, of all ranks together.
func (b *Buckets) batches() int64 { return b.runs[len(b.runs)-1] * b.together }

// Steps is the number of batches of an epoch on each rank.
func (b *Buckets) Steps() int64 {
	w := int64(b.split.World)
	if b.split.DropLast || b.split.Uneven == Drop {
		return b.batches() / w
	}
	return (b.batches() + w - 1) / w
}

// Records returns the number of records of bucket k. Rows returns the number of rows of its batches.
func (b *Buckets) Records(k int) int64 { return b.first[k+1] - b.first[k] }

// Rows is the number of rows of a batch of bucket k on each rank.
func (b *Buckets) Rows(k int) int { return b.rows[k] }

// Len is the number of buckets.
func (b *Buckets) Len() int { return len(b.rows) }

// span returns the bucket of run g in the order of the buckets, its first record and their number.
func (b *Buckets) span(g int64) (bucket int, from, n int64) {
	k, found := slices.BinarySearch(b.runs, g)
	if !found {
		k--
	}
	for b.runs[k+1] == g { // buckets without a run
		k++
	}
	i, whole := g-b.runs[k], b.global(k)
	from = i * whole
	if b.divided(k) {
		switch last, half := b.runs[k+1]-b.runs[k]-1, (whole+b.Records(k)%whole+1)/2; i {
		case last - 1:
			return k, from, half
		case last:
			from += half - whole
		}
	}
	return k, from, min(whole, b.Records(k)-from)
}

// After returns the record that comes try positions after id in its bucket, in the order of the source, wrapping around
// at the end. It returns false if that is id again.
func (b *Buckets) After(id, try int64) (int64, bool) {
	for k := range b.rows {
		all := b.ids[b.first[k]:b.first[k+1]]
		if i, ok := slices.BinarySearch(all, uint32(id)); ok && id <= math.MaxUint32 {
			return int64(all[(int64(i)+try)%int64(len(all))]), try%int64(len(all)) != 0
		}
	}
	return id, false
}

// Epoch is the order of the records of one epoch and how it is cut into batches.
type Epoch struct {
	order Order
	split *Split
	walk  *walk // if the order is by windows
	mix   *mixEpoch

	b       *Buckets
	shuffle bool
	runs    Order
	aligned [2]Order // of the runs of each kind
	orders  []Order
	// dealt are the records of the run that was balanced last: of bucket dealtOf, from position dealtAt.
	dealt   []int64
	dealtOf int
	dealtAt int64
}

// NewEpoch is the epoch of a split without buckets.
func NewEpoch(s *Split, shuffle bool, seed uint64, epoch int64) *Epoch {
	return &Epoch{order: NewOrder(s.Len, shuffle, seed, epoch), split: s}
}

// Of is the epoch of a split in an order by windows, for one goroutine.
func (w *WindowEpoch) Of(s *Split) *Epoch { return &Epoch{walk: newWalk(w), split: s} }

// NewEpoch is an epoch of batches of one bucket each.
func (b *Buckets) NewEpoch(shuffle bool, seed uint64, epoch int64) *Epoch {
	e := &Epoch{b: b, shuffle: shuffle, runs: NewOrder(b.runs[len(b.runs)-1], shuffle, mix64(seed^golden), epoch)}
	if b.aligned > 0 {
		first := b.runs[b.aligned]
		for kind, n := range []int64{first, b.runs[len(b.rows)] - first} {
			e.aligned[kind] = NewOrder(n, shuffle, mix64(seed^golden+uint64(kind)), epoch)
		}
	}
	for k := range b.rows {
		e.orders = append(e.orders, NewOrder(b.Records(k), shuffle, mix64(seed+uint64(k+1)*golden), epoch))
	}
	return e
}

// At returns the part of the global batch that begins at position row. It returns false if the epoch has no further
// batch there.
func (e *Epoch) At(row int64) (Part, bool) {
	if e.b == nil {
		p, ok := e.split.At(row)
		p.Step = row / (int64(e.split.Batch) * int64(e.split.World))
		return p, ok
	}
	b, all, w := e.b, e.b.batches(), int64(e.b.split.World)
	if row < 0 || row >= all || all-row < w && (b.split.DropLast || b.split.Uneven == Drop) {
		return Part{}, false
	}
	next, at := min(row+w, all), row+int64(b.split.Rank)
	if at >= all && b.split.Uneven != Pad {
		return Part{Next: next, Step: row / w}, true
	}
	p := e.batch(at % all)
	p.Next, p.Step = next, row/w
	if at >= all {
		p.Repeated = p.Hi - p.Lo
	}
	return p, true
}

// batch returns the batch at a position. Lo and Hi are positions in the order of its bucket.
func (e *Epoch) batch(at int64) Part {
	b := e.b
	run := at / b.together
	switch {
	case b.aligned > 0:
		run = e.alignedRun(run)
	case e.shuffle:
		run = e.runs.At(run)
	default:
		run = b.plain[run]
	}
	k, from, n := b.span(run)
	cut := b.split
	cut.World, cut.Rank = int(b.together), int(at%b.together)
	p, _ := cut.share(from, n, int64(b.rows[k])) // cut has left out runs without a batch
	p.Bucket = k
	return p
}

// alignedRun returns the run at a place of the order. Before place n, the second kind had n x its share, rounded.
func (e *Epoch) alignedRun(n int64) int64 {
	first, all := e.b.runs[e.b.aligned], e.b.runs[len(e.b.rows)]
	with := func(n int64) int64 { return (n*(all-first) + all/2) / all }
	var run int64
	if had := with(n); with(n+1) > had {
		run = first + e.aligned[1].At(had)
	} else {
		run = e.aligned[0].At(n - had)
	}
	if e.shuffle {
		return run
	}
	return e.b.plain[run]
}

// Part returns a part by its rows, as At returned it: positions lo, lo + stride, ... of global batch step. With buckets,
// step is the number of the batch in the epoch, over all ranks, and lo and hi are positions in its bucket. Part returns
// false if the epoch has no such rows.
func (e *Epoch) Part(step, lo, hi, stride int64) (Part, bool) {
	if step < 0 || step >= 2*MaxLen || lo < 0 || lo >= 2*MaxLen || hi < lo || stride < 0 || stride > MaxLen {
		return Part{}, false
	}
	if e.b != nil {
		p := e.batch(step % max(e.b.batches(), 1))
		p.Step = step
		return p, p.Lo == lo && p.Hi == hi && stride <= 1
	}
	return Part{Lo: lo, Hi: hi, Stride: stride, Step: step, Next: hi}, hi-lo <= int64(e.split.Batch) && (stride <= 1 || e.walk != nil)
}

// run returns the balanced records of the whole run that a part belongs to, and the part's position in them. It returns
// nil if the run is not balanced.
func (e *Epoch) run(p *Part) (ids []int64, at int64) {
	b := e.b
	if b == nil || b.length == nil || b.together < 2 {
		return nil, 0
	}
	whole := b.global(p.Bucket)
	from, left := p.Lo-p.Lo%whole, b.Records(p.Bucket)
	if b.divided(p.Bucket) {
		left -= whole // of the runs that have less than whole
	}
	if from+whole > left {
		return nil, 0
	}
	if e.dealt == nil || e.dealtOf != p.Bucket || e.dealtAt != from {
		e.dealt, e.dealtOf, e.dealtAt = slices.Grow(e.dealt[:0], int(whole))[:whole], p.Bucket, from
		e.orders[p.Bucket].Fill(e.dealt, from)
		for i, k := range e.dealt {
			e.dealt[i] = int64(b.ids[b.first[p.Bucket]+k])
		}
		b.deal(e.dealt, b.rows[p.Bucket])
	}
	return e.dealt, p.Lo - from
}

// Fill writes the records of rows k, k+1, ... of a part into ids.
func (e *Epoch) Fill(ids []int64, p *Part, k int) {
	if len(ids) == 0 {
		return
	}
	if e.mix != nil {
		for i := range ids {
			ids[i], _ = e.Mixed(p, k+i)
		}
		return
	}
	if e.walk != nil {
		step := max(p.Stride, 1)
		for i := range ids {
			ids[i] = e.walk.at((p.Lo + (int64(k)+int64(i))*step) % e.split.Len)
		}
		return
	}
	if run, at := e.run(p); run != nil {
		copy(ids, run[at+int64(k):])
		return
	}
	pos, order, n := p.Lo+int64(k), &e.order, e.order.Len()
	var all []uint32
	if e.b != nil {
		order, all = &e.orders[p.Bucket], e.b.ids[e.b.first[p.Bucket]:]
		n = order.Len()
	}
	// After the end, the first ones are repeated as often as needed.
	for done := 0; done < len(ids); {
		at := (pos + int64(done)) % n
		some := ids[done:min(int64(len(ids)), int64(done)+n-at)]
		order.Fill(some, at)
		done += len(some)
	}
	if all != nil {
		for i, at := range ids {
			ids[i] = int64(all[at])
		}
	}
}
