package pack

import (
	"encoding/binary"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/source/driver"
)

// elementStats are the statistics of the elements of an array.
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
	default:
		for i := 0; i+n <= len(b); i += n {
			v := e.Int(b[i:])
			s.Min, s.Max, sum = min(s.Min, v), max(s.Max, v), sum+float64(v)
		}
	}
	s.Mean = sum / float64(s.Count)
	return s, nil
}

func floatStats(t dtype.Type, b []byte) *driver.FloatStats {
	s := &driver.FloatStats{Min: math.Inf(1), Max: math.Inf(-1)}
	n, sum := t.Size(), 0.0
	for i := 0; i+n <= len(b); i += n {
		v := t.Float(b[i:])
		if v-v != 0 { // not a number, or infinite
			s.NotFinite++
			continue
		}
		s.Count++
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
		sum += v
	}
	if s.Count == 0 {
		s.Min, s.Max = 0, 0
		return s
	}
	if s.Mean = sum / float64(s.Count); s.Mean-s.Mean != 0 {
		s.Mean = 0 // the numbers are too large to have one
	}
	return s
}
