// Package sampler computes which record comes at which position of an epoch, and which rank has that position. It is
// arithmetic only: no memory per record, no I/O, no clock, no state. The order of an epoch is a pure function of (seed,
// epoch). So a training run resumes from its position alone, on any number of ranks, and each node computes its own
// part.
package sampler

import "math/bits"

// OrderVersion is part of saved states. It rises with each change of the order of records or of batches, so that a
// state of another order is refused.
const OrderVersion = 1

// MaxLen is the largest number of records.
const MaxLen = 1 << 40

const golden = 0x9e3779b97f4a7c15

// mix64 is the finaliser of SplitMix64.
func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Rounds of the Feistel network. Four make a pseudo-random permutation of a large domain. In a tiny domain a round has
// few functions to choose from, so it takes many rounds until all permutations are equally likely.
const (
	rounds     = 8
	tinyRounds = 32
	tinyBits   = 8
)

// Order is the order of the records in one epoch.
type Order struct {
	n       uint64
	shuffle bool
	// The keyed permutation works on numbers of aBits+bBits bits.
	aBits, bBits uint
	aMask, bMask uint64
	rounds       int
	keys         [tinyRounds]uint64
}

// NewOrder returns the order of n records, 0 <= n <= MaxLen, in an epoch.
// Without shuffle it is the order of the source.
func NewOrder(n int64, shuffle bool, seed uint64, epoch int64) Order {
	o := Order{n: uint64(n), shuffle: shuffle && n > 1}
	if !o.shuffle {
		return o
	}
	width := uint(max(bits.Len64(o.n-1), 2))
	o.aBits = width / 2
	o.bBits = width - o.aBits
	o.aMask = 1<<o.aBits - 1
	o.bMask = 1<<o.bBits - 1
	o.rounds = rounds
	if width <= tinyBits {
		o.rounds = tinyRounds
	}
	key := mix64(mix64(seed+golden) ^ uint64(epoch)*golden + golden)
	for i := range o.rounds {
		key += golden
		o.keys[i] = mix64(key)
	}
	return o
}

// Len returns the number of records.
func (o *Order) Len() int64 { return int64(o.n) }

// At returns the record at a position, both in [0, Len).
//
// It uses a Feistel network over the smallest power of two that holds n. It repeats the network until the result is
// below n, which gives a permutation of [0, n) in less than two steps on average.
func (o *Order) At(pos int64) int64 {
	if !o.shuffle {
		return pos
	}
	x := uint64(pos)
	for {
		x = o.encrypt(x)
		if x < o.n {
			return int64(x)
		}
	}
}

// Find returns the position of a record: the inverse of At.
func (o *Order) Find(record int64) int64 {
	if !o.shuffle {
		return record
	}
	x := uint64(record)
	for {
		x = o.decrypt(x)
		if x < o.n {
			return int64(x)
		}
	}
}

// Fill writes the records at positions pos, pos+1, ... into ids. It equals At for each of them, but processes several
// at a time, because each multiplication depends on the previous one.
func (o *Order) Fill(ids []int64, pos int64) {
	if !o.shuffle || len(ids) < lanes {
		for i := range ids {
			ids[i] = o.At(pos + int64(i))
		}
		return
	}
	var x [lanes]uint64
	var at [lanes]int // the place in ids that a lane works for
	for l := range x {
		x[l], at[l] = uint64(pos+int64(l)), l
	}
	next, busy := lanes, lanes
	for busy > 0 {
		o.encryptLanes(&x)
		for l := range x {
			if x[l] >= o.n || at[l] < 0 {
				continue
			}
			ids[at[l]] = int64(x[l])
			if next == len(ids) {
				at[l] = -1
				busy--
				continue
			}
			x[l], at[l] = uint64(pos+int64(next)), next
			next++
		}
	}
}

// scramble is the round function: a folded 64 x 64 bit product.
func scramble(x, key uint64) uint64 {
	hi, lo := bits.Mul64(x^key, golden^key<<1|1)
	return hi ^ lo ^ lo>>29
}

func (o *Order) encrypt(x uint64) uint64 {
	a, b := x&o.aMask, x>>o.aBits
	keys := o.keys[:o.rounds]
	for i := 0; i+1 < len(keys); i += 2 {
		a ^= scramble(b, keys[i]) & o.aMask
		b ^= scramble(a, keys[i+1]) & o.bMask
	}
	return b<<o.aBits | a
}

// lanes is the number of values that encryptLanes takes.
const lanes = 4

// encryptLanes is encrypt for each of x.
func (o *Order) encryptLanes(x *[lanes]uint64) {
	shift, aMask, bMask := o.aBits&63, o.aMask, o.bMask
	a0, a1, a2, a3 := x[0]&aMask, x[1]&aMask, x[2]&aMask, x[3]&aMask
	b0, b1, b2, b3 := x[0]>>shift, x[1]>>shift, x[2]>>shift, x[3]>>shift
	keys := o.keys[:o.rounds]
	for i := 0; i+1 < len(keys); i += 2 {
		k := keys[i]
		a0 ^= scramble(b0, k) & aMask
		a1 ^= scramble(b1, k) & aMask
		a2 ^= scramble(b2, k) & aMask
		a3 ^= scramble(b3, k) & aMask
		k = keys[i+1]
		b0 ^= scramble(a0, k) & bMask
		b1 ^= scramble(a1, k) & bMask
		b2 ^= scramble(a2, k) & bMask
		b3 ^= scramble(a3, k) & bMask
	}
	x[0], x[1], x[2], x[3] = b0<<shift|a0, b1<<shift|a1, b2<<shift|a2, b3<<shift|a3
}

func (o *Order) decrypt(x uint64) uint64 {
	a, b := x&o.aMask, x>>o.aBits
	for i := o.rounds - 2; i >= 0; i -= 2 {
		b ^= scramble(a, o.keys[i+1]) & o.bMask
		a ^= scramble(b, o.keys[i]) & o.aMask
	}
	return b<<o.aBits | a
}

// Uneven selects how positions at the end of an epoch are shared if they do not fill a global batch and do not divide
// evenly by ranks.
type Uneven string

// The possible values. An empty string means the first one.
const (
	// Exact shares the positions without change: each record once. A rank may have fewer rows than another one, or
	// none.
	Exact Uneven = "exact"
	// Pad gives each rank the same number: records from the beginning of the epoch are repeated.
	Pad Uneven = "pad"
	// Drop gives each rank the same number and omits the remaining positions.
	Drop Uneven = "drop"
)

// Unevens lists them.
var Unevens = []Uneven{Exact, Pad, Drop}

// Split describes how an epoch is cut into batches and how ranks share them. A global batch is the next World*Batch
// positions of the epoch. Rank r takes its r-th run of Batch positions. The remaining positions at the end are shared
// in order, as Uneven sets, so that each rank has the same number of batches.
type Split struct {
	Len      int64
	Batch    int
	Rank     int
	World    int
	DropLast bool
	Uneven   Uneven
	// InTurn gives each rank the positions that equal its number modulo the number of ranks, instead of a run of
	// positions.
	InTurn bool
}

// Part is one rank's part of a global batch.
type Part struct {
	// Lo and Hi: positions [Lo, Hi) are the rank's, in the epoch or in the order of the bucket. Those from its end on
	// are Repeated ones: records from its beginning.
	Lo, Hi   int64
	Repeated int64
	// Stride is the distance between positions if it is not 1 (Split.InTurn). The positions are then Lo, Lo + Stride,
	// ..., and Hi is Lo + their number.
	Stride int64
	// Next is the position after the global batch, where the next one begins.
	Next int64
	// Step is the number of the global batch in its epoch, Bucket the bucket that its
	// records are of.
	Step   int64
	Bucket int
}

// Rows is the number of rows of the part.
func (p *Part) Rows() int { return int(p.Hi - p.Lo) }

// At returns the part of the global batch that begins at position row. It
// returns false when the epoch has no further batch there.
func (s *Split) At(row int64) (Part, bool) {
	if row < 0 || row >= s.Len {
		return Part{}, false
	}
	p, ok := s.share(row, s.Len-row, int64(s.Batch))
	p.Next = min(row+int64(s.Batch)*int64(s.World), s.Len)
	return p, ok
}

// share returns the rank's part of the positions that begin at row. These are rows for each rank, or the fewer last
// ones. It returns false if no rank has any.
func (s *Split) share(row, left, rows int64) (Part, bool) {
	// left < rows x World <= 2^40, World <= 2^20: no overflow.
	r, w := int64(s.Rank), int64(s.World)
	if s.InTurn {
		return s.shareInTurn(row, left, rows)
	}
	if left < rows*w {
		switch {
		case s.DropLast:
			return Part{}, false
		case s.Uneven == Pad:
			rows = (left + w - 1) / w
		case s.Uneven == Drop:
			rows = left / w
		default:
			return Part{Lo: row + r*left/w, Hi: row + (r+1)*left/w}, true
		}
	}
	p := Part{Lo: row + r*rows, Hi: row + (r+1)*rows}
	p.Repeated = max(p.Hi-max(p.Lo, row+left), 0)
	return p, rows > 0
}

// shareInTurn is share for positions that ranks take in turn.
func (s *Split) shareInTurn(row, left, rows int64) (Part, bool) {
	r, w := int64(s.Rank), int64(s.World)
	first := ((r-row)%w + w) % w // of the rank's positions, after row
	had := max(left-first+w-1, 0) / w
	p := Part{Lo: row + first, Stride: w}
	if left < rows*w {
		switch {
		case s.DropLast:
			return Part{}, false
		case s.Uneven == Pad:
			rows = (left + w - 1) / w
		case s.Uneven == Drop:
			rows = left / w
		default:
			p.Hi = p.Lo + had
			return p, true
		}
	}
	p.Hi = p.Lo + rows
	p.Repeated = max(rows-had, 0)
	return p, rows > 0
}

// steps returns the number of batches for that many positions.
func (s *Split) steps(positions, rows int64) int64 {
	global := rows * int64(s.World)
	n := positions / global
	if _, more := s.share(0, positions%global, rows); more && positions%global > 0 {
		n++
	}
	return n
}

// Steps returns the number of batches of a whole epoch.
func (s *Split) Steps() int64 { return s.steps(s.Len, int64(s.Batch)) }
