package gen

import (
	"math"
	"math/rand/v2"
)

// The generator must give the same bytes on every machine. So everything is computed in integers. Go may fuse x*y+z
// into one rounding on some processors, and transcendental functions differ in their last bits. math.Sqrt of an integer
// is exact everywhere, as IEEE 754 defines it.

// one is 1.0 in the fixed-point numbers of this package.
const (
	oneBits = 12
	one     = 1 << oneBits
)

// stream is a stream of random numbers. PCG's output is fixed by its definition;
// the helpers of rand.Rand are not, so they are not used.
type stream struct{ pcg rand.PCG }

// newStream returns the stream of one image, or of one class (index < 0).
func newStream(seed uint64, index int64) *stream {
	s := &stream{}
	s.pcg.Seed(mix(seed), mix(uint64(index)^0x9e3779b97f4a7c15))
	return s
}

// mix is the finaliser of splitmix64: neighbouring numbers get unrelated results.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below returns a number in [0, n).
func (s *stream) below(n int) int {
	return int((s.pcg.Uint64() >> 32) * uint64(n) >> 32)
}

// between returns a number in [lo, hi].
func (s *stream) between(lo, hi int) int { return lo + s.below(hi-lo+1) }

// bell returns a number in [-spread, spread], more often near 0.
func (s *stream) bell(spread int) int {
	return (s.between(-spread, spread) + s.between(-spread, spread) + s.between(-spread, spread)) / 3
}

// chance is true in percent of 100 cases.
func (s *stream) chance(percent int) bool { return s.below(100) < percent }

// radius returns a radius between lo and hi, both in 1/16 pixel. Its density falls with its third power. Under this law
// a picture of occluding discs looks alike at every scale, as photographs do.
func (s *stream) radius(lo, hi int) int {
	l2, h2 := uint64(lo*lo), uint64(hi*hi)
	u := s.pcg.Uint64() >> 44 // 20 bits
	// r^2 = l2*h2 / (h2 - u*(h2-l2)), with u in [0, 1).
	d := h2 - (h2-l2)*u>>20
	return isqrt(int64(l2 * h2 / d))
}

// isqrt returns the integer part of the square root of n, for n < 2^52.
func isqrt(n int64) int {
	if n <= 0 {
		return 0
	}
	return int(math.Sqrt(float64(n)))
}

// quarter is sin(i * 90/64 degrees) in fixed point.
var quarter = [65]int{
	0, 101, 201, 301, 401, 501, 601, 700, 799, 897, 995, 1092, 1189, 1285, 1380, 1474, 1567,
	1660, 1751, 1842, 1931, 2019, 2106, 2191, 2276, 2359, 2440, 2520, 2598, 2675, 2751, 2824,
	2896, 2967, 3035, 3102, 3166, 3229, 3290, 3349, 3406, 3461, 3513, 3564, 3612, 3659, 3703,
	3745, 3784, 3822, 3857, 3889, 3920, 3948, 3973, 3996, 4017, 4036, 4052, 4065, 4076, 4085,
	4091, 4095, 4096,
}

// sincos returns sine and cosine of angle/256 of a turn, in fixed point.
func sincos(angle int) (sin, cos int) { return sine(angle), sine(angle + 64) }

func sine(angle int) int {
	a := angle & 255
	switch {
	case a <= 64:
		return quarter[a]
	case a <= 128:
		return quarter[128-a]
	case a <= 192:
		return -quarter[a-128]
	}
	return -quarter[256-a]
}
