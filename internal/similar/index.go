package similar

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

const (
	bands     = 4
	bandBits  = 64 / bands
	buckets   = 1 << bandBits
	maxRadius = 2
	// MaxDistance is the largest distance that is looked for.
	MaxDistance = bands*(maxRadius+1) - 1
	// DefaultDistance finds what was resized and compressed again, and hardly anything else.
	DefaultDistance = 6
)

// CheckDistance says what is wrong with a distance.
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

// index finds hashes that are near another one. Of two that differ in d bits, one of
// four bands of 16 bits differs in no more than a quarter of them: there are as many
// buckets for each band as it has values, and a hash is looked for in those that are so
// near its own. A hash is there once, however many images have it.
type index struct {
	hashes []uint64 // sorted, each once
	// start of a bucket in order, and behind it the next one's, by band.
	start [bands][]uint32
	order [bands][]uint32
	masks []uint16 // what is put on a band to get those that are near
}

func newIndex(hashes []uint64, distance int) *index {
	x := &index{hashes: hashes}
	for b := range bands {
		start, order := make([]uint32, buckets+1), make([]uint32, len(hashes))
		for _, h := range hashes {
			start[band(h, b)+1]++
		}
		for i := range buckets {
			start[i+1] += start[i]
		}
		at := slices.Clone(start[:buckets])
		for i, h := range hashes {
			k := band(h, b)
			order[at[k]] = uint32(i)
			at[k]++
		}
		x.start[b], x.order[b] = start, order
	}
	radius := distance / bands
	for m := range buckets {
		if bits.OnesCount16(uint16(m)) <= radius {
			x.masks = append(x.masks, uint16(m))
		}
	}
	return x
}

func band(h uint64, b int) uint16 { return uint16(h >> (bandBits * b)) }

// near calls found for each hash behind i in their order that is no further from it than
// distance, once each and in any order.
func (x *index) near(i, distance int, found func(k, distance int)) {
	h := x.hashes[i]
	radius := distance / bands
	for b := range bands {
		for _, m := range x.masks {
			k := band(h, b) ^ m
			bucket := x.order[b][x.start[b][k]:x.start[b][int(k)+1]]
			// They lie in their order.
			from, _ := slices.BinarySearch(bucket, uint32(i+1))
			for _, o := range bucket[from:] {
				other := x.hashes[o]
				d := bits.OnesCount64(h ^ other)
				if d > distance || seen(h^other, b, radius) {
					continue
				}
				found(int(o), d)
			}
		}
	}
}

// seen says that hashes which differ so were found by a band before b.
func seen(differ uint64, b, radius int) bool {
	for i := range b {
		if bits.OnesCount16(band(differ, i)) <= radius {
			return true
		}
	}
	return false
}

// Found is what is alike.
type Found struct {
	// Pairs are those that are alike, the nearest ones first, up to a number.
	Pairs []Pair
	// Total is how many there are, of Images that were looked at; Records is how many
	// have one before them that they are alike to.
	Total, Images, Records int64
}

// Find finds pairs among the hashes of records, whose numbers are ids, ascending. It
// keeps the nearest ones, up to most. Of images with equal hashes each is paired with
// the first of them only, and that one stands for all towards others.
func Find(ids []int64, hashes []uint64, distance, most int) *Found {
	type entry struct {
		hash uint64
		id   int64
	}
	all := make([]entry, len(ids))
	for i := range ids {
		all[i] = entry{hashes[i], ids[i]}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.id, b.id)) })
	f := &Found{Images: int64(len(ids))}
	keep := newNearest(most)
	var unique []uint64
	var first []int64
	late := map[int64]bool{} // of the first ones, those that are alike to an earlier one
	for _, e := range all {
		if n := len(unique); n > 0 && unique[n-1] == e.hash {
			f.Total++
			f.Records++
			keep.add(Pair{first[n-1], e.id, 0})
			continue
		}
		unique, first = append(unique, e.hash), append(first, e.id)
	}
	if distance > 0 {
		x := newIndex(unique, distance)
		for i := range unique {
			x.near(i, distance, func(k, d int) {
				a, b := min(first[i], first[k]), max(first[i], first[k])
				f.Total++
				late[b] = true
				keep.add(Pair{a, b, d})
			})
		}
	}
	f.Records += int64(len(late))
	f.Pairs = keep.sorted()
	return f
}

// Repeats are the records that are left out so that no two of those that stay are alike:
// going through them in order, each that is near one that stays.
func Repeats(ids []int64, hashes []uint64, distance int) []int64 {
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
		return out
	}
	// By the number of their first record.
	at := make([]int, len(unique))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int { return cmp.Compare(ids[first[a]], ids[first[b]]) })
	x := newIndex(unique, distance)
	gone := make([]bool, len(unique))
	for _, i := range at {
		if gone[i] {
			out = append(out, ids[first[i]])
			continue
		}
		x.around(i, distance, func(k int) {
			gone[k] = gone[k] || ids[first[k]] > ids[first[i]]
		})
	}
	slices.Sort(out)
	return out
}

// around is near for all others, and may call found several times.
func (x *index) around(i, distance int, found func(k int)) {
	h := x.hashes[i]
	for b := range bands {
		for _, m := range x.masks {
			k := band(h, b) ^ m
			for _, o := range x.order[b][x.start[b][k]:x.start[b][int(k)+1]] {
				if int(o) != i && bits.OnesCount64(h^x.hashes[o]) <= distance {
					found(int(o))
				}
			}
		}
	}
}

// nearest keeps the nearest pairs, in memory for twice as many as are kept.
type nearest struct {
	most  int
	pairs []Pair
	worst int // what is further away than this need not be added
}

func newNearest(most int) *nearest { return &nearest{most: most, worst: 64} }

func (n *nearest) add(p Pair) {
	if p.Distance > n.worst {
		return
	}
	if n.pairs = append(n.pairs, p); len(n.pairs) >= 2*n.most {
		n.cut()
	}
}

func (n *nearest) cut() {
	slices.SortFunc(n.pairs, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.Distance, b.Distance), cmp.Compare(a.First, b.First), cmp.Compare(a.Second, b.Second))
	})
	if len(n.pairs) > n.most {
		n.pairs = n.pairs[:n.most]
		n.worst = n.pairs[n.most-1].Distance
	}
}

func (n *nearest) sorted() []Pair {
	n.cut()
	return n.pairs
}
