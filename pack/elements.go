package pack

import (
	"encoding/binary"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/source/driver"
)

// elementStats returns the statistics of the elements of an array.
func elementStats(t driver.DType, b []byte) (*driver.IntStats, *driver.FloatStats) {
	n, e := t.Size(), t.Type()
	if e.Floating() {
		return nil, floatStats(e, b)
	}
	if len(b) < n {
		return &driver.IntStats{}, nil
	}
	s := &driver.IntStats{Count: int64(len(b) / n)}
	s.Min, s.Max = math.MaxInt64, math.MinInt64
	sum := 0.0
	switch t {
	case driver.Uint8, driver.Bool:
		lo, hi, total := uint8(255), uint8(0), uint64(0)
		for _, v := range b {
			lo, hi, total = min(lo, v), max(hi, v), total+uint64(v)
		}
		s.Min, s.Max, sum = int64(lo), int64(hi), float64(total)
	case driver.Uint16:
		lo, hi, total := uint16(math.MaxUint16), uint16(0), uint64(0)
		for i := 0; i+2 <= len(b); i += 2 {
			v := binary.LittleEndian.Uint16(b[i:])
			lo, hi, total = min(lo, v), max(hi, v), total+uint64(v)
		}
		s.Min, s.Max, sum = int64(lo), int64(hi), float64(total)
	case driver.Int32:
		lo, hi, total := int32(math.MaxInt32), int32(math.MinInt32), int64(0)
		for i := 0; i+4 <= len(b); i += 4 {
			v := int32(binary.LittleEndian.Uint32(b[i:]))
			lo, hi, total = min(lo, v), max(hi, v), total+int64(v)
		}
		s.Min, s.Max, sum = int64(lo), int64(hi), float64(total)
	case driver.Int64:
		for i := 0; i+8 <= len(b); i += 8 {
			v := int64(binary.LittleEndian.Uint64(b[i:]))
			s.Min, s.Max, sum = min(s.Min, v), max(s.Max, v), sum+float64(v)
		}
	default:
		for i := 0; i+n <= len(b); i += n {
			v := e.Int(b[i:])
			s.Min, s.Max, sum = min(s.Min, v), max(s.Max, v), sum+float64(v)
		}
	}
	s.Mean = sum / float64(s.Count)
	return s, nil
}

// finite has the statistics of numbers, collected one after the other.
type finite struct {
	min, max, sum float64
	count, not    int64
}

func (f *finite) add(v float64) {
	if v-v != 0 { // not a number, or infinite
		f.not++
		return
	}
	f.count++
	f.min, f.max = min(f.min, v), max(f.max, v)
	f.sum += v
}

// lanes is the number of sums that are computed in parallel, because each addition waits for the previous one.
const lanes = 4

func floatStats(t dtype.Type, b []byte) *driver.FloatStats {
	f := finite{min: math.Inf(1), max: math.Inf(-1)}
	n := t.Size()
	if t == dtype.F32 {
		b = f.addAll32(b)
	}
	for i := 0; i+n <= len(b); i += n {
		f.add(t.Float(b[i:]))
	}
	s := &driver.FloatStats{Min: f.min, Max: f.max, Count: f.count, NotFinite: f.not}
	sum := f.sum
	if s.Count == 0 {
		s.Min, s.Max = 0, 0
		return s
	}
	if s.Mean = sum / float64(s.Count); s.Mean-s.Mean != 0 {
		s.Mean = 0 // the numbers are too large to have one
	}
	return s
}

// addAll32 adds float32s, a few at a time, and returns the rest of b.
func (f *finite) addAll32(b []byte) []byte {
	const exponent = 0x7f800000 // all bits are set for NaN and infinity
	const most = math.MaxFloat32
	l0, l1, l2, l3 := float32(most), float32(most), float32(most), float32(most)
	h0, h1, h2, h3 := -l0, -l1, -l2, -l3
	var s0, s1, s2, s3 float64
	for ; len(b) >= 4*lanes; b = b[4*lanes:] {
		x, y := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		a0, a1, a2, a3 := uint32(x), uint32(x>>32), uint32(y), uint32(y>>32)
		if a0&exponent == exponent || a1&exponent == exponent || a2&exponent == exponent || a3&exponent == exponent {
			for _, a := range [lanes]uint32{a0, a1, a2, a3} {
				f.add(float64(math.Float32frombits(a)))
			}
			continue
		}
		v0, v1, v2, v3 := math.Float32frombits(a0), math.Float32frombits(a1), math.Float32frombits(a2), math.Float32frombits(a3)
		s0, s1, s2, s3 = s0+float64(v0), s1+float64(v1), s2+float64(v2), s3+float64(v3)
		if v0 < l0 {
			l0 = v0
		}
		if v0 > h0 {
			h0 = v0
		}
		if v1 < l1 {
			l1 = v1
		}
		if v1 > h1 {
			h1 = v1
		}
		if v2 < l2 {
			l2 = v2
		}
		if v2 > h2 {
			h2 = v2
		}
		if v3 < l3 {
			l3 = v3
		}
		if v3 > h3 {
			h3 = v3
		}
		f.count += lanes
	}
	if l, h := min(l0, l1, l2, l3), max(h0, h1, h2, h3); l <= h {
		f.min, f.max = min(f.min, float64(l)), max(f.max, float64(h))
	}
	f.sum += (s0 + s1) + (s2 + s3)
	return b
}
