package phash

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
)

const (
	// MaxDistance is the largest distance that is looked for.
	MaxDistance = 11
	// DefaultDistance finds resized and recompressed images, and hardly any others.
	DefaultDistance = 6
)

// CheckDistance returns an error for an invalid distance.
func CheckDistance(d int) error {
	if d < 0 || d > MaxDistance {
		return fmt.Errorf("a distance of %d: it is 0 to %d of 64 bits", d, MaxDistance)
	}
	return nil
}

// Pair are two records, the one with the smaller number first.
type Pair struct {
	First, Second int64
	Distance      int
}

func compare(a, b Pair) int {
	return cmp.Or(cmp.Compare(a.Distance, b.Distance), cmp.Compare(a.First, b.First), cmp.Compare(a.Second, b.Second))
}

// band is a part of the bits of a hash.
type band struct{ shift, bits int }

func (b band) of(h uint64) uint32 { return uint32(h>>b.shift) & (1<<b.bits - 1) }

// layouts are the ways to divide hashes. Wide bands have few hashes in a bucket, and more
// buckets to look into.
var layouts = [][]band{
	{{0, 16}, {16, 16}, {32, 16}, {48, 16}},
	{{0, 22}, {22, 21}, {43, 21}},
}

// layout returns the bands that find near hashes among n with the least work: opening a bucket costs about as much as
// three comparisons.
func layout(n, distance int) []band {
	best, least := layouts[0], 0.0
	for i, l := range layouts {
		cost := 0.0
		for _, b := range l {
			cost += float64(ball(b.bits, distance/len(l))) * (3 + float64(n)/float64(int(1)<<b.bits))
		}
		if i == 0 || cost < least {
			best, least = l, cost
		}
	}
	return best
}

// ball returns the count of numbers with so many bits that differ from a given one in at most radius bits.
func ball(bits, radius int) int {
	total, choose := 0, 1
	for r := range radius + 1 {
		total += choose
		choose = choose * (bits - r) / (r + 1)
	}
	return total
}

// index finds hashes that are near another one. If two hashes differ in d bits, one of their k bands differs in at most
// d/k of them. Each band has a bucket per value, and a search visits the buckets whose value is that near. A hash is
// stored once, regardless of the number of images with it. The usual name is multi-index hashing.
type index struct {
	hashes   []uint64 // sorted, each once
	bands    []band
	radius   int
	distance int
	// start holds the first index of each bucket in order, followed by that of the next bucket, by band.
	start [][]uint32
	order [][]uint32
	masks [][]uint32 // by band, what is put on it to get those that are near
}

func newIndex(hashes []uint64, distance int) *index {
	x := &index{hashes: hashes, bands: layout(len(hashes), distance), distance: distance}
	x.radius = distance / len(x.bands)
	for _, b := range x.bands {
		start, order := make([]uint32, 1<<b.bits+1), make([]uint32, len(hashes))
		for _, h := range hashes {
			start[b.of(h)+1]++
		}
		for i := range len(start) - 1 {
			start[i+1] += start[i]
		}
		// Each bucket is filled from its beginning. Afterwards start[k] is the beginning of the next bucket.
		for i, h := range hashes {
			k := b.of(h)
			order[start[k]] = uint32(i)
			start[k]++
		}
		copy(start[1:], start)
		start[0] = 0
		x.start, x.order = append(x.start, start), append(x.order, order)
		x.masks = append(x.masks, near(nil, 0, b.bits, x.radius))
	}
	return x
}

// near appends the values that differ from m in up to radius of its lowest bits.
func near(out []uint32, m uint32, bits, radius int) []uint32 {
	out = append(out, m)
	for i := 0; i < bits && radius > 0; i++ {
		out = near(out, m|1<<i, i, radius-1)
	}
	return out
}

// behind calls found for each hash after i in the order that is within the distance, once each and in any order.
func (x *index) behind(i int, found func(k, distance int)) {
	h := x.hashes[i]
	for b, band := range x.bands {
		own, start, order := band.of(h), x.start[b], x.order[b]
		for _, m := range x.masks[b] {
			k := own ^ m
			bucket := order[start[k]:start[k+1]]
			if len(bucket) > 8 { // they lie in their order
				from, _ := slices.BinarySearch(bucket, uint32(i+1))
				bucket = bucket[from:]
			}
			for _, o := range bucket {
				other := x.hashes[o]
				d := bits.OnesCount64(h ^ other)
				if d > x.distance || int(o) <= i || x.seen(h^other, b) {
					continue
				}
				found(int(o), d)
			}
		}
	}
}

// seen reports whether a band before b has found hashes with this difference.
func (x *index) seen(differ uint64, b int) bool {
	for _, band := range x.bands[:b] {
		if bits.OnesCount32(band.of(differ)) <= x.radius {
			return true
		}
	}
	return false
}

// around is like behind for all other hashes, and may call found several times.
func (x *index) around(i int, found func(k int)) {
	h := x.hashes[i]
	for b, band := range x.bands {
		own, start, order := band.of(h), x.start[b], x.order[b]
		for _, m := range x.masks[b] {
			k := own ^ m
			for _, o := range order[start[k]:start[k+1]] {
				if int(o) != i && bits.OnesCount64(h^x.hashes[o]) <= x.distance {
					found(int(o))
				}
			}
		}
	}
}

// Repeats are the records that are left out so that no two of those that stay are alike:
// going through them in order, each that is near one that stays.
func Repeats(ctx context.Context, ids []int64, hashes []uint64, distance int) ([]int64, error) {
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(hashes[a], hashes[b]), cmp.Compare(ids[a], ids[b])) })
	var unique []uint64
	var first []int
	var out []int64
	for _, i := range order {
		if n := len(unique); n > 0 && unique[n-1] == hashes[i] {
			out = append(out, ids[i])
			continue
		}
		unique, first = append(unique, hashes[i]), append(first, i)
	}
	if distance == 0 {
		slices.Sort(out)
		return out, nil
	}
	// By the number of their first record.
	at := make([]int, len(unique))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int { return cmp.Compare(ids[first[a]], ids[first[b]]) })
	x := newIndex(unique, distance)
	gone := make([]bool, len(unique))
	for n, i := range at {
		if n%step == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if gone[i] {
			out = append(out, ids[first[i]])
			continue
		}
		x.around(i, func(k int) {
			gone[k] = gone[k] || ids[first[k]] > ids[first[i]]
		})
	}
	slices.Sort(out)
	return out, nil
}

// nearest keeps the nearest pairs, in memory for twice as many.
type nearest struct {
	most  int
	pairs []Pair
	// worst is the last one of those that are kept, when there are as many.
	worst Pair
	full  bool
}

func (n *nearest) add(p Pair) {
	if n.full && compare(p, n.worst) > 0 {
		return
	}
	if n.pairs = append(n.pairs, p); len(n.pairs) >= 2*n.most {
		n.cut()
	}
}

func (n *nearest) cut() {
	slices.SortFunc(n.pairs, compare)
	if len(n.pairs) > n.most {
		n.pairs = n.pairs[:n.most]
		n.worst, n.full = n.pairs[n.most-1], true
	}
}
