package phash

import (
	"cmp"
	"context"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Found is the result of Find.
type Found struct {
	// Pairs are the similar pairs, the nearest ones first, up to a limit.
	Pairs []Pair
	// Total is the number of pairs among the Images compared. Records is the number of records that are similar to an
	// earlier record.
	Total, Images, Records int64
}

// step is the number of hashes between two checks for cancellation.
const step = 1 << 10

// Find finds pairs among the hashes of records, whose numbers are ids, ascending. It keeps the nearest ones, up to
// most. Images with equal hashes are paired only with the first of them, which represents all of them towards other
// images. Each core searches a part of the hashes. The result does not depend on the number of cores.
func Find(ctx context.Context, ids []int64, hashes []uint64, distance, most int) (*Found, error) {
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
	keep := &nearest{most: most}
	var unique []uint64
	var first []int64
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
		if err := f.among(ctx, newIndex(unique, distance), first, keep); err != nil {
			return nil, err
		}
	}
	keep.cut()
	f.Pairs = keep.pairs
	return f, nil
}

// among adds the pairs of an index. first are the records of its hashes.
func (f *Found) among(ctx context.Context, x *index, first []int64, keep *nearest) error {
	late := make([]atomic.Uint64, (len(first)+63)/64) // a bit for each that is alike to an earlier one
	var next, total atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(first)/step+1) {
		wg.Go(func() {
			mine := nearest{most: keep.most}
			n := int64(0)
			for ctx.Err() == nil {
				at := int(next.Add(step)) - step
				if at >= len(first) {
					break
				}
				for i := at; i < min(at+step, len(first)); i++ {
					x.behind(i, func(k, d int) {
						n++
						of := k
						if first[i] > first[k] {
							of = i
						}
						if bit := uint64(1) << (of % 64); late[of/64].Load()&bit == 0 {
							late[of/64].Or(bit)
						}
						mine.add(Pair{min(first[i], first[k]), max(first[i], first[k]), d})
					})
				}
			}
			total.Add(n)
			mine.cut()
			mu.Lock()
			defer mu.Unlock()
			for _, p := range mine.pairs {
				keep.add(p)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f.Total += total.Load()
	for i := range late {
		f.Records += int64(bits.OnesCount64(late[i].Load()))
	}
	return nil
}
