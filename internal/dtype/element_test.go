package dtype

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// What is appended is read again, for every type.
func TestElements(t *testing.T) {
	for _, typ := range All() {
		values := []float64{0, 1, 2, 100, 127}
		switch typ {
		case Bool:
			values = []float64{0, 1}
		case I8, I16, I32, I64, F16, BF16, F32, F64:
			values = append(values, -1, -128)
		}
		switch typ {
		case U16, U32, U64:
			values = append(values, 65535)
		case I16:
			values = append(values, 32767, -32768)
		case I32:
			values = append(values, math.MaxInt32, math.MinInt32)
		case I64:
			values = append(values, 1<<62, math.MinInt64)
		}
		if typ == U64 {
			values = append(values, 1<<63, 1<<63+1<<62)
		}
		if typ.Floating() {
			values = append(values, 0.5, -0.25, math.Inf(1), math.Inf(-1), math.Copysign(0, -1))
		}
		for _, v := range values {
			b := typ.Append([]byte{7}, v)
			if len(b) != 1+typ.Size() || b[0] != 7 {
				t.Fatalf("%s: %v is %d bytes", typ, v, len(b)-1)
			}
			if got := typ.Float(b[1:]); got != v || math.Signbit(got) != math.Signbit(v) {
				t.Errorf("%s: %v becomes %v", typ, v, got)
			}
			if want := int64(min(v, math.MaxInt64)); !typ.Floating() && v < 1<<63 && typ.Int(b[1:]) != want {
				t.Errorf("%s: %v is %d", typ, v, typ.Int(b[1:]))
			}
		}
		if nan := typ.Append(nil, math.NaN()); typ.Floating() && !math.IsNaN(typ.Float(nan)) {
			t.Errorf("%s: NaN is %x", typ, nan)
		}
	}
	if n := U64.Int(U64.Append(nil, 1<<63)); n != math.MaxInt64 {
		t.Errorf("2^63 as an int64 is %d", n)
	}
	for _, c := range []struct {
		typ  Type
		v    float64
		want []byte
	}{
		{U8, 300.9, []byte{44}}, {U8, -1, []byte{255}}, {I16, -2.7, []byte{0xFE, 0xFF}}, {U16, 65537, []byte{1, 0}}, {Bool, 0.5, []byte{1}},
	} {
		if got := c.typ.Append(nil, c.v); !bytes.Equal(got, c.want) {
			t.Errorf("%v as %s is %x, want %x", c.v, c.typ, got, c.want)
		}
	}
}

// nearest16 is the binary16 number that is nearest to v, of two the even one, found
// among all that there are.
func nearest16(v float64) uint16 {
	lo, hi := 0, 0x7C00 // the numbers from 0 to infinity grow with their bits
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; Float16(uint16(mid)) <= v {
			lo = mid
		} else {
			hi = mid
		}
	}
	above := new(big.Float).SetFloat64(Float16(uint16(hi)))
	if hi == 0x7C00 {
		above.SetFloat64(65536)
	}
	x := new(big.Float).SetFloat64(v)
	down, up := new(big.Float).Sub(x, new(big.Float).SetFloat64(Float16(uint16(lo)))), new(big.Float).Sub(above, x)
	if c := down.Cmp(up); c < 0 || c == 0 && lo%2 == 0 {
		return uint16(lo)
	}
	return uint16(hi)
}

func TestHalves(t *testing.T) {
	for h := range 1 << 16 {
		v := Float16(uint16(h))
		if math.IsNaN(v) {
			if h&0x7C00 != 0x7C00 || h&1023 == 0 || float16Bits(v)&0x7E00 != 0x7E00 {
				t.Fatalf("%04x is %v", h, v)
			}
			continue
		}
		// By the definition of the format.
		exp, frac := h>>10&31, float64(h&1023)
		want := math.Ldexp(frac, -24)
		if exp > 0 {
			want = math.Ldexp(1024+frac, exp-25)
		}
		if exp == 31 {
			want = math.Inf(1)
		}
		if h>>15 != 0 {
			want = -want
		}
		if v != want || math.Signbit(v) != (h>>15 != 0) || float16Bits(v) != uint16(h) {
			t.Fatalf("%04x is %v, want %v, and becomes %04x", h, v, want, float16Bits(v))
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	check := func(v float64) {
		t.Helper()
		if got, want := float16Bits(v), nearest16(v); got != want {
			t.Fatalf("%v becomes %04x, want %04x", v, got, want)
		}
		if got, want := float16Bits(-v), nearest16(v)|0x8000; got != want {
			t.Fatalf("%v becomes %04x, want %04x", -v, got, want)
		}
	}
	for h := range 0x7BFF { // half way between two, and just beside
		v := (Float16(uint16(h)) + Float16(uint16(h+1))) / 2
		check(v)
		check(math.Nextafter(v, 0))
		check(math.Nextafter(v, 1e9))
	}
	for range 100_000 {
		check(math.Ldexp(1+rng.Float64(), rng.IntN(50)-30))
	}
	for _, v := range []float64{65504, 65519.99, 65520, 65536, 1e300, 5e-324, 1.0 / (1 << 25), math.Nextafter(1.0/(1<<25), 1), 6.1e-5} {
		check(v)
	}
}

func TestBFloat16(t *testing.T) {
	for h := range 1 << 16 {
		b := []byte{byte(h), byte(h >> 8)}
		if v := BF16.Float(b); !math.IsNaN(v) && !bytes.Equal(BF16.Append(nil, v), b) {
			t.Fatalf("%04x is %v, which becomes %x", h, v, BF16.Append(nil, v))
		}
	}
	for _, c := range []struct {
		v    float64
		want uint16
	}{
		{1 + 1.0/256, 0x3F80}, {1 + 3.0/256, 0x3F82}, {1 + 1.1/256, 0x3F81}, {math.MaxFloat32, 0x7F80}, {1e300, 0x7F80}, {1e-45, 0},
	} {
		if got := bfloat16Bits(c.v); got != c.want {
			t.Errorf("%v becomes %04x, want %04x", c.v, got, c.want)
		}
	}
	if v := BF16.Float(BF16.Append(nil, math.Float64frombits(1<<63-1))); !math.IsNaN(v) {
		t.Errorf("NaN becomes %v", v)
	}
}
