package column

import (
	"math"
	"math/bits"

	"github.com/stokerdata/stoker/source/driver"
)

// Sizes counts values by their size in bytes. The fields are exported for
// package indexcache.
type Sizes struct {
	Count, Bytes, Min, Max int64
	// By counts values by the position of driver.SizeBound of their size in bounds.
	By []int64
}

// bounds are the results of driver.SizeBound in ascending order. first is, by the number
// of bits of a size, the position of the smallest result.
var bounds, first = func() (all []int64, first [65]int) {
	all = append(all, 0)
	for power := int64(1); ; power *= 10 {
		for _, n := range []int64{1, 2, 5} {
			if power > math.MaxInt64/n {
				break
			}
			all = append(all, n*power)
		}
		if power > math.MaxInt64/10 {
			break
		}
	}
	for n := 1; n < len(first); n++ {
		for first[n] = first[n-1]; first[n]+1 < len(all) && all[first[n]+1] <= 1<<(n-1); first[n]++ {
		}
	}
	return all, first
}()

// position returns the position of driver.SizeBound(n) in bounds.
func position(n int64) int {
	if n < 1 {
		return 0
	}
	i := first[bits.Len64(uint64(n))]
	for i+1 < len(bounds) && bounds[i+1] <= n {
		i++
	}
	return i
}

// Add counts a value of n bytes.
func (s *Sizes) Add(n int64) { s.AddN(n, 1) }

// AddN counts several values of n bytes each.
func (s *Sizes) AddN(n, count int64) {
	if count <= 0 {
		return
	}
	if s.By == nil {
		s.By, s.Min = make([]int64, len(bounds)), n
	}
	s.Count += count
	s.Bytes += n * count
	s.Min, s.Max = min(s.Min, n), max(s.Max, n)
	s.By[position(n)] += count
}

// Merge adds the values that o has counted.
func (s *Sizes) Merge(o *Sizes) {
	if o.Count == 0 || len(o.By) != len(bounds) {
		return
	}
	if s.By == nil {
		s.By, s.Min = make([]int64, len(bounds)), o.Min
	}
	s.Count += o.Count
	s.Bytes += o.Bytes
	s.Min, s.Max = min(s.Min, o.Min), max(s.Max, o.Max)
	for i, n := range o.By {
		s.By[i] += n
	}
}

// Stats returns the statistics of a field with this many records. Records without a
// value count as empty.
func (s *Sizes) Stats(records int64) *driver.FieldStats {
	out := &driver.FieldStats{Count: records, Bytes: s.Bytes, MinBytes: s.Min, MaxBytes: s.Max, Sizes: map[int64]int64{}}
	for i, n := range s.By {
		if n > 0 {
			out.Sizes[bounds[i]] = n
		}
	}
	if n := records - s.Count; n > 0 {
		out.MinBytes = 0
		out.Sizes[0] += n
	}
	return out
}
