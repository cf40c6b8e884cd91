package dtype

import (
	"encoding/binary"
	"math"
)

// Floating says whether elements are numbers with a point.
func (t Type) Floating() bool {
	switch t {
	case F16, BF16, F32, F64:
		return true
	}
	return false
}

// Bits are those of the element at the beginning of b, as a number.
func (t Type) Bits(b []byte) uint64 {
	switch t.Size() {
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8:
		return binary.LittleEndian.Uint64(b)
	}
	return uint64(b[0])
}

// Int is the whole number at the beginning of b, of a type that is not Floating.
// What is beyond the largest int64 is counted as that.
func (t Type) Int(b []byte) int64 {
	u := t.Bits(b)
	switch t {
	case I8:
		return int64(int8(u))
	case I16:
		return int64(int16(u))
	case I32:
		return int64(int32(u))
	case I64:
		return int64(u)
	}
	return int64(min(u, math.MaxInt64))
}

// Float is the number at the beginning of b, of any type.
func (t Type) Float(b []byte) float64 {
	switch u := t.Bits(b); t {
	case F16:
		return Float16(uint16(u))
	case BF16:
		return float64(math.Float32frombits(uint32(u) << 16))
	case F32:
		return float64(math.Float32frombits(uint32(u)))
	case F64:
		return math.Float64frombits(u)
	case U64:
		return float64(u)
	}
	return float64(t.Int(b))
}

// Append appends v as an element. A number with a point is rounded to the nearest
// one, of two to the even one. A whole number is cut off and wraps around, as a
// cast in torch does. Bool is whether v is not 0.
func (t Type) Append(b []byte, v float64) []byte {
	var u uint64
	switch t {
	case F16:
		u = uint64(float16Bits(v))
	case BF16:
		u = uint64(bfloat16Bits(v))
	case F32:
		u = uint64(math.Float32bits(float32(v)))
	case F64:
		u = math.Float64bits(v)
	case Bool:
		if v != 0 {
			u = 1
		}
	case U64:
		if u = uint64(int64(v)); v >= 1<<63 {
			u = uint64(v)
		}
	default:
		u = uint64(int64(v))
	}
	switch t.Size() {
	case 1:
		return append(b, byte(u))
	case 2:
		return binary.LittleEndian.AppendUint16(b, uint16(u))
	case 4:
		return binary.LittleEndian.AppendUint32(b, uint32(u))
	}
	return binary.LittleEndian.AppendUint64(b, u)
}

// Float16 is a number of IEEE 754 binary16.
func Float16(h uint16) float64 {
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

// float16Bits rounds to binary16.
func float16Bits(v float64) uint16 {
	u := math.Float64bits(v)
	sign := uint16(u >> 48 & 0x8000)
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return sign | 0x7E00
	case a >= 65520: // rounds to 65536 or more
		return sign | 0x7C00
	case a < 1.0/(1<<14): // below the smallest normal number: steps of 2^-24
		return sign | uint16(math.RoundToEven(a*(1<<24)))
	}
	// Ten bits of the fraction stay. What rounding carries goes into the exponent.
	u = u&^(1<<63) - (1023-15)<<52
	u += 1<<41 - 1 + u>>42&1
	return sign | uint16(u>>42)
}

// bfloat16Bits rounds to the upper half of a float32, by way of it.
func bfloat16Bits(v float64) uint16 {
	u := math.Float32bits(float32(v))
	if v != v {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7FFF + u>>16&1) >> 16)
}
