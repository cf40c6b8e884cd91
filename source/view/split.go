package view

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/sampler"
)

// This file splits records into parts. The part of a record depends only on the seed, the number of
// records and, if requested, the values of a field. The computation uses whole numbers only, so
// that it gives the same result on every machine.

// Share is a requested part: a fraction of all records, a number of records, or the rest.
type Share struct {
	Name     string
	Fraction float64
	Count    int64
	Rest     bool
}

// maxParts limits the parts of a split.
const maxParts = 64

// ParseSplit parses "train:0.9,val:0.1", "val:5000,train:rest" or "a:80%,b:20%".
func ParseSplit(text string) ([]Share, error) {
	fail := func(format string, a ...any) ([]Share, error) {
		return nil, fmt.Errorf("split %q: %s; write it like train:0.9,val:0.1 or val:5000,train:rest", text, fmt.Sprintf(format, a...))
	}
	var all []Share
	sum, rests := 0.0, 0
	for part := range strings.SplitSeq(text, ",") {
		name, size, ok := strings.Cut(strings.TrimSpace(part), ":")
		s := Share{Name: strings.TrimSpace(name)}
		size = strings.TrimSpace(size)
		if !ok || s.Name == "" || strings.ContainsAny(s.Name, "/\\&#=") || s.Name == "." || s.Name == ".." {
			return fail("%q is not a part", part)
		}
		if slices.ContainsFunc(all, func(o Share) bool { return o.Name == s.Name }) {
			return fail("the part %q is there twice", s.Name)
		}
		digits, percent := strings.CutSuffix(size, "%")
		n, err := strconv.ParseInt(size, 10, 64)
		switch {
		case size == "rest" || size == "*":
			s.Rest = true
			rests++
		case err == nil && n >= 0 && n <= sampler.MaxLen:
			s.Count = n
		case err == nil:
			return fail("the part %q of %s records is out of range", s.Name, size)
		default:
			s.Fraction, err = strconv.ParseFloat(digits, 64)
			if percent {
				s.Fraction /= 100
			}
			if err != nil || !(s.Fraction >= 0 && s.Fraction <= 1) {
				return fail("%q is not a share of the records", size)
			}
			sum += s.Fraction
		}
		if all = append(all, s); len(all) > maxParts {
			return fail("there are more than %d parts", maxParts)
		}
	}
	if rests > 1 {
		return fail("only one part can have the rest")
	}
	if sum > 1+1e-9 {
		return fail("the shares are %g together, more than all", sum)
	}
	return all, nil
}

// unit is the denominator of fractions.
const unit = 1_000_000_000

// sizes returns the number of records of each part of n, followed by the number of records in no
// part. The end of a part that is a fraction is rounded to the nearest record, half a record
// upwards.
func sizes(shares []Share, n int64) ([]int64, error) {
	out := make([]int64, len(shares)+1)
	fraction, given, rest := int64(0), int64(0), -1
	for i, s := range shares {
		switch {
		case s.Rest:
			rest = i
		case s.Fraction > 0:
			from := scale(n, fraction)
			fraction = min(fraction+int64(math.Round(s.Fraction*unit)), unit)
			out[i] = scale(n, fraction) - from
		default:
			out[i] = s.Count
		}
		given += out[i]
	}
	if given > n {
		return nil, fmt.Errorf("the parts have %d records together and there are %d", given, n)
	}
	out[len(shares)] = n - given
	if rest >= 0 {
		out[rest], out[len(shares)] = n-given, 0
	}
	return out, nil
}

// scale returns n*fraction/unit, rounded to the nearest.
func scale(n, fraction int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(fraction))
	lo, carry := bits.Add64(lo, unit/2, 0)
	q, _ := bits.Div64(hi+carry, lo, unit)
	return int64(q)
}

// random returns a part of a random permutation of the records 0 to n-1.
func random(n int64, sizes []int64, part int, seed uint64) *set {
	order := sampler.NewOrder(n, true, seed, 0)
	from := int64(0)
	for _, size := range sizes[:part] {
		from += size
	}
	out := newSet(n)
	for pos := from; pos < from+sizes[part]; pos++ {
		out.add(order.At(pos))
	}
	return out
}

// stratified is like random, but the records of each key have the same shares in all parts, up to
// rounding. keys must be small numbers.
func stratified(keys []uint32, nkeys int, sizes []int64, part int, seed uint64) *set {
	n := int64(len(keys))
	// Sort all records by key, and shuffle the records of each key.
	first := make([]int64, nkeys+1)
	for _, k := range keys {
		first[k+1]++
	}
	for k := range nkeys {
		first[k+1] += first[k]
	}
	order := sampler.NewOrder(n, true, seed, 0)
	sorted := make([]int64, n)
	at := slices.Clone(first)
	for pos := range n {
		id := order.At(pos)
		sorted[at[keys[id]]] = id
		at[keys[id]]++
	}
	out := newSet(n)
	d := newDealer(sizes)
	for _, id := range sorted {
		if d.next() == part {
			out.add(id)
		}
	}
	return out
}

// dealer assigns records to parts, one after the other. After each record every part has its share
// of the records so far, up to less than one record (the chairman assignment of Tijdeman). At the
// end each part has its exact size.
type dealer struct {
	sizes []int64
	total int64
	// owed is the number of records that a part lacks, in units of 1/total.
	owed []int64
}

func newDealer(sizes []int64) *dealer {
	d := &dealer{sizes: sizes, owed: make([]int64, len(sizes))}
	for _, s := range sizes {
		d.total += s
	}
	return d
}

func (d *dealer) next() int {
	parts := int64(0)
	for _, s := range d.sizes {
		parts += int64(bool01(s > 0))
	}
	best := -1
	for i, s := range d.sizes {
		if s == 0 {
			continue
		}
		d.owed[i] += s
		// A part that would otherwise lack a record goes first. A part that has more than its share
		// waits.
		if (2*parts-2)*d.owed[i] < d.total && parts > 1 {
			continue
		}
		if best < 0 || d.sooner(i, best, parts) {
			best = i
		}
	}
	d.owed[best] -= d.total
	return best
}

// sooner reports whether part i will lack a whole record before part j does.
func (d *dealer) sooner(i, j int, parts int64) bool {
	a := (2*parts-3)*d.total - (2*parts-2)*d.owed[i]
	b := (2*parts-3)*d.total - (2*parts-2)*d.owed[j]
	return less(a, d.sizes[j], b, d.sizes[i])
}

// less reports whether a*x < b*y, for positive x and y.
func less(a, x, b, y int64) bool {
	if a < 0 != (b < 0) {
		return a < 0
	}
	ah, al := bits.Mul64(uint64(abs(a)), uint64(x))
	bh, bl := bits.Mul64(uint64(abs(b)), uint64(y))
	if a < 0 {
		ah, al, bh, bl = bh, bl, ah, al
	}
	return ah < bh || ah == bh && al < bl
}

func abs(a int64) int64 {
	if a < 0 {
		return -a
	}
	return a
}

// grouped puts all records with the same key into the same part. Groups come in random order. Each
// group goes to the part that lacks the most records.
func grouped(keys []uint32, nkeys int, sizes []int64, part int, seed uint64) *set {
	count := make([]int64, nkeys)
	for _, k := range keys {
		count[k]++
	}
	order := sampler.NewOrder(int64(nkeys), true, seed, 0)
	left := slices.Clone(sizes)
	mine := make([]bool, nkeys)
	for pos := range int64(nkeys) {
		k := order.At(pos)
		to := 0
		for i := range left {
			if left[i] > left[to] {
				to = i
			}
		}
		left[to] -= count[k]
		mine[k] = to == part
	}
	out := newSet(int64(len(keys)))
	for id, k := range keys {
		if mine[k] {
			out.add(int64(id))
		}
	}
	return out
}

// maxKeys limits the distinct values that records are grouped by.
const maxKeys = 1 << 28

// keys numbers the values of records. Values are numbered in sorted order, so that the numbers do
// not depend on which goroutine reads a value first.
type keys struct {
	of []uint64 // hashes of the values
}

// number returns the number of each record's value, and the count of distinct values.
func (k *keys) number() ([]uint32, int, error) {
	all := slices.Clone(k.of)
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) > maxKeys {
		return nil, 0, errors.New("there are too many different values")
	}
	out := make([]uint32, len(k.of))
	for id, h := range k.of {
		i, _ := slices.BinarySearch(all, h)
		out[id] = uint32(i)
	}
	return out, len(all), nil
}

// key returns a function that maps a value to a number: a text to 64 bits of its hash.
func (o *operand) key() func(r *row) uint64 {
	switch {
	case o.ints != nil:
		return func(r *row) uint64 { return uint64(o.ints(r)) }
	case o.floats != nil:
		return func(r *row) uint64 { return math.Float64bits(o.floats(r)) }
	case o.many != nil:
		return func(r *row) uint64 { return xxh3.Hash(o.many(r)) }
	}
	return func(r *row) uint64 { return xxh3.Hash(o.text(r)) }
}
