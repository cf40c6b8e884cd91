package dynvalue

import "github.com/stokerdata/stoker/source/driver"

// Sizes counts values by their size, for driver.FieldStats.
type Sizes struct {
	count, bytes, least, most int64
	by                        map[int64]int64
	// last are the sizes that were counted last: many are alike.
	bound, n int64
}

// Add counts a value of n bytes.
func (s *Sizes) Add(n int64) {
	if s.count == 0 {
		s.least = n
	}
	s.count++
	s.bytes += n
	s.least, s.most = min(s.least, n), max(s.most, n)
	if b := driver.SizeBound(n); b != s.bound {
		s.flush()
		s.bound = b
	}
	s.n++
}

func (s *Sizes) flush() {
	if s.n == 0 {
		return
	}
	if s.by == nil {
		s.by = map[int64]int64{}
	}
	s.by[s.bound] += s.n
	s.n = 0
}

// Merge adds what another one has counted.
func (s *Sizes) Merge(o *Sizes) {
	if o.count == 0 {
		return
	}
	s.flush()
	o.flush()
	if s.count == 0 {
		s.least = o.least
	}
	s.count += o.count
	s.bytes += o.bytes
	s.least, s.most = min(s.least, o.least), max(s.most, o.most)
	if s.by == nil {
		s.by = map[int64]int64{}
	}
	for b, n := range o.by {
		s.by[b] += n
	}
}

// Stats are those of a field with this many records, those without a value taken for
// empty.
func (s *Sizes) Stats(records int64) *driver.FieldStats {
	s.flush()
	out := &driver.FieldStats{Count: records, Bytes: s.bytes, MinBytes: s.least, MaxBytes: s.most, Sizes: map[int64]int64{}}
	for b, n := range s.by {
		out.Sizes[b] = n
	}
	if n := records - s.count; n > 0 {
		out.MinBytes = 0
		out.Sizes[0] += n
	}
	return out
}
