package kind

import (
	"maps"
	"slices"

	"github.com/stokerdata/stoker/source/driver"
)

// exactCapacity is the size of a batch's values from which sizes are read one by one if no other limit is known.
const exactCapacity = 64 << 20

// largestBatch returns the most bytes of a field's values in a batch: a batch of the largest records, as far as the
// source knows their sizes.
func largestBatch(p *Planner, field int) int64 {
	f, rows := &p.Info.Fields[field], int64(p.BatchSize)
	most := f.MaxBytes * rows
	if f.Stats != nil && len(f.Stats.Sizes) > 0 {
		return min(most, largestCounted(f.Stats, rows))
	}
	if sizer, ok := driver.As[driver.Sizer](p.Source); ok && most > exactCapacity {
		if n, ok := largestAsked(sizer, field, p.Info.Len, p.BatchSize); ok {
			return min(most, n)
		}
	}
	return most
}

// largestCounted returns a limit for the bytes of the largest values of rows records, from the counts of sizes.
func largestCounted(s *driver.FieldStats, rows int64) int64 {
	total := int64(0)
	for i, from := range slices.Backward(slices.Sorted(maps.Keys(s.Sizes))) {
		n, size := min(rows, max(s.Sizes[from], 0)), s.MaxBytes
		if i < len(s.Sizes)-1 {
			size = nextSize(from) - 1
		}
		total += n * size
		rows -= n
	}
	return total
}

// nextSize returns the bound after one of those by which driver.FieldStats counts sizes: 0 and 1, 2 and 5 times a power
// of ten. There is none after the last.
func nextSize(n int64) int64 {
	power := int64(1)
	for power <= n/10 {
		power *= 10
	}
	switch {
	case n < 1:
		return 1
	case n < 2*power:
		return 2 * power
	case n < 5*power:
		return 5 * power
	}
	return 10 * power
}

// largestAsked returns the sum of the rows largest values of a field, and false
// when the source does not know their sizes.
func largestAsked(s driver.Sizer, field int, records int64, rows int) (int64, bool) {
	const step = 4096
	ids, sizes := make([]int64, step), make([]int64, step)
	largest := make([]int64, 0, rows+step)
	for at := int64(0); at < records; at += step {
		n := int(min(step, records-at))
		for i := range ids[:n] {
			ids[i] = at + int64(i)
		}
		if !s.Sizes(field, ids[:n], sizes[:n]) {
			return 0, false
		}
		largest = append(largest, sizes[:n]...)
		if len(largest) > rows {
			slices.SortFunc(largest, func(a, b int64) int { return int(min(max(b-a, -1), 1)) })
			largest = largest[:rows]
		}
	}
	total := int64(0)
	for _, n := range largest {
		total += n
	}
	return total, true
}
