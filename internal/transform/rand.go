package transform

import (
	"math"
	"math/bits"
)

// Rand gives the random numbers of one operation on one record. It is counter based: SplitMix64 mixes a counter with a
// key made from (seed, epoch, record, output, operation). So every number is a pure function of these, and no state
// goes from one record to the next. The construction is fixed, as any change would change the meaning of a seed.
//
//	base    = mix(mix(mix(seed + G) ^ epoch + G) ^ record + G) ^ output
//	key     = mix(base + (operation+1)*G)
//	n-th    = mix(key + n*G), n = 1, 2, ...
//
// with G = 0x9e3779b97f4a7c15, mix as the finaliser of SplitMix64 and output as the FNV-1a hash of the output's name.
type Rand struct {
	key   uint64
	count uint64
}

const golden = 0x9e3779b97f4a7c15

func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// recordKey is the part of the key that all operations of an output of a
// record share.
func recordKey(seed uint64, epoch, record int64, output uint64) uint64 {
	k := mix64(seed + golden)
	k = mix64((k ^ uint64(epoch)) + golden)
	k = mix64((k ^ uint64(record)) + golden)
	return k ^ output
}

// outputKey hashes the name of an output (FNV-1a).
func outputKey(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return h
}

func opRand(base uint64, op int) Rand {
	return Rand{key: mix64(base + uint64(op+1)*golden)}
}

// Sub returns an independent generator, for operation i inside a composite
// operation such as RandomApply. It does not advance r.
func (r *Rand) Sub(i int) Rand { return opRand(r.key, i) }

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	r.count++
	return mix64(r.key + r.count*golden)
}

// Float64 returns a number in [0, 1).
func (r *Rand) Float64() float64 { return float64(r.Uint64()>>11) * (1.0 / (1 << 53)) }

// Uniform returns a number in [lo, hi).
func (r *Rand) Uniform(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }

// Bool is true with probability p.
func (r *Rand) Bool(p float64) bool { return r.Float64() < p }

// IntN returns an integer in [0, n); n must be positive. The bias is below
// n / 2^64.
func (r *Rand) IntN(n int) int {
	hi, _ := bits.Mul64(r.Uint64(), uint64(n))
	return int(hi)
}

// Normal returns a number of the standard normal distribution. It always
// draws two numbers.
func (r *Rand) Normal() float64 {
	u := 1 - r.Float64() // (0, 1]
	v := r.Float64()
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// Perm fills p with a random permutation of 0 ... len(p)-1.
func (r *Rand) Perm(p []int) {
	for i := range p {
		p[i] = i
	}
	for i := len(p) - 1; i > 0; i-- {
		j := r.IntN(i + 1)
		p[i], p[j] = p[j], p[i]
	}
}
