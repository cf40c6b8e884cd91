package pack

import (
	"encoding/binary"
	"math"

	"github.com/stokerdata/stoker/source/driver"
)

// elementStats are the statistics of the elements of an array.
func elementStats(t driver.DType, b []byte) (*driver.IntStats, *driver.FloatStats) {
	n := t.Size()
	switch t {
	case driver.Float16, driver.Float32, driver.Float64:
		return nil, floatStats(t, b)
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
			v := intAt(t, b[i:])
			s.Min, s.Max, sum = min(s.Min, v), max(s.Max, v), sum+float64(v)
		}
	}
	s.Mean = sum / float64(s.Count)
	return s, nil
}

func floatStats(t driver.DType, b []byte) *driver.FloatStats {
	s := &driver.FloatStats{Min: math.Inf(1), Max: math.Inf(-1)}
	n, sum := t.Size(), 0.0
	for i := 0; i+n <= len(b); i += n {
		v := floatAt(t, b[i:])
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

// intAt is the whole number at the beginning of b.
func intAt(t driver.DType, b []byte) int64 {
	switch t {
	case driver.Int8:
		return int64(int8(b[0]))
	case driver.Uint16:
		return int64(binary.LittleEndian.Uint16(b))
	case driver.Int16:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case driver.Uint32:
		return int64(binary.LittleEndian.Uint32(b))
	case driver.Int32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case driver.Int64:
		return int64(binary.LittleEndian.Uint64(b))
	case driver.Uint64: // beyond the largest int64 it is counted as that
		return int64(min(binary.LittleEndian.Uint64(b), math.MaxInt64))
	}
	return int64(b[0])
}

// floatAt is the number with a point at the beginning of b.
func floatAt(t driver.DType, b []byte) float64 {
	switch t {
	case driver.Float16:
		return halves(binary.LittleEndian.Uint16(b))
	case driver.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// halves is a number of IEEE 754 binary16.
func halves(h uint16) float64 {
	exp, frac := uint64(h>>10&31), uint64(h&1023)
	sign := uint64(h>>15) << 63
	switch exp {
	case 0:
		return math.Float64frombits(sign | math.Float64bits(float64(frac)/(1<<24)))
	case 31:
		return math.Float64frombits(sign | 0x7FF<<52 | frac<<42)
	}
	return math.Float64frombits(sign | (exp+1023-15)<<52 | frac<<42)
}
