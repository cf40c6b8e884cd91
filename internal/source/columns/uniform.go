package columns

import (
	"math"

	"github.com/stokerdata/stoker/source/driver"
)

// Uniform is what is seen of the values of a column.
type Uniform struct {
	Missing int64
	Sizes   Sizes
	// Least and Most are the elements of the outermost lists, Sides those of the
	// lists in them, -1 where there are none.
	Least, Most int64
	Sides       []int64
	Uneven      bool
	Mask        driver.DType
}

// NewUniform has seen nothing.
func NewUniform(c *Column) *Uniform {
	u := &Uniform{Least: math.MaxInt64, Mask: driver.Uint8}
	for i := 1; i < len(c.Levels); i++ {
		u.Sides = append(u.Sides, -1)
	}
	return u
}

// Merge adds what another one has seen.
func (u *Uniform) Merge(o *Uniform) {
	u.Missing += o.Missing
	u.Sizes.merge(&o.Sizes)
	u.Least, u.Most = min(u.Least, o.Least), max(u.Most, o.Most)
	u.Uneven = u.Uneven || o.Uneven
	for i, n := range o.Sides {
		u.Side(i, n)
	}
}

// Side takes note of lists with n elements, n < 0 of none.
func (u *Uniform) Side(i int, n int64) {
	switch {
	case n < 0:
	case u.Sides[i] < 0:
		u.Sides[i] = n
	case u.Sides[i] != n:
		u.Uneven = true
	}
}

// Sizes counts values by their size.
type Sizes struct {
	count, bytes, least, most int64
	by                        map[int64]int64
	bound, upto, run          int64 // sizes from bound to upto that by does not have yet
}

// Add counts one.
func (s *Sizes) Add(n int64) {
	if s.count == 0 {
		s.least = n
	}
	s.count++
	s.bytes += n
	s.least, s.most = min(s.least, n), max(s.most, n)
	if n < s.bound || n >= s.upto || s.run == 0 {
		s.flush()
		s.bound = driver.SizeBound(n)
		s.upto = n + 1
	}
	s.run++
}

func (s *Sizes) flush() {
	if s.run > 0 {
		if s.by == nil {
			s.by = map[int64]int64{}
		}
		s.by[s.bound] += s.run
	}
	s.run = 0
}

func (s *Sizes) merge(o *Sizes) {
	s.flush()
	o.flush()
	if o.count == 0 {
		return
	}
	if s.count == 0 {
		s.least, s.by = o.least, map[int64]int64{}
	}
	s.count += o.count
	s.bytes += o.bytes
	s.least, s.most = min(s.least, o.least), max(s.most, o.most)
	for k, n := range o.by {
		s.by[k] += n
	}
}

// Stats is what was counted.
func (s *Sizes) Stats() *driver.FieldStats {
	s.flush()
	return &driver.FieldStats{Count: s.count, Bytes: s.bytes, MinBytes: s.least, MaxBytes: s.most, Sizes: s.by}
}
