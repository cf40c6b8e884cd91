package view

import (
	"encoding/binary"
	"math/bits"
)

// set is a set of records of a source: one bit per record, and the number of records before every
// blockWords-th word. With these counts, the k-th record of the view is found without a list.
type set struct {
	n     int64 // records of the source
	words []uint64
	ranks []int64 // before each block, and after the last one
}

const blockWords = 8

func newSet(n int64) *set { return &set{n: n, words: make([]uint64, (n+63)/64)} }

func (s *set) add(id int64)      { s.words[id/64] |= 1 << (id % 64) }
func (s *set) has(id int64) bool { return s.words[id/64]>>(id%64)&1 != 0 }

// index sets the counts, once the set is complete.
func (s *set) index() {
	s.ranks = make([]int64, 0, len(s.words)/blockWords+2)
	total := int64(0)
	for i, w := range s.words {
		if i%blockWords == 0 {
			s.ranks = append(s.ranks, total)
		}
		total += int64(bits.OnesCount64(w))
	}
	s.ranks = append(s.ranks, total)
}

// len returns the number of records in the set.
func (s *set) len() int64 { return s.ranks[len(s.ranks)-1] }

// at returns the k-th record of the set, 0 <= k < len.
func (s *set) at(k int64) int64 {
	lo, hi := 0, len(s.ranks)-1 // ranks[lo] <= k < ranks[hi]
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; s.ranks[mid] <= k {
			lo = mid
		} else {
			hi = mid
		}
	}
	left := int(k - s.ranks[lo])
	for i := lo * blockWords; ; i++ {
		n := bits.OnesCount64(s.words[i])
		if left < n {
			return int64(i)*64 + int64(nth(s.words[i], left))
		}
		left -= n
	}
}

// nth returns the position of the k-th bit that is set.
func nth(w uint64, k int) int {
	for range k {
		w &= w - 1
	}
	return bits.TrailingZeros64(w)
}

// rank returns the number of records of the set before id.
func (s *set) rank(id int64) int64 {
	if id >= s.n {
		return s.len()
	}
	word := int(id / 64)
	n := s.ranks[word/blockWords]
	for i := word / blockWords * blockWords; i < word; i++ {
		n += int64(bits.OnesCount64(s.words[i]))
	}
	return n + int64(bits.OnesCount64(s.words[word]&(1<<(id%64)-1)))
}

// bytes and setOf convert a set to and from the format of cache files.
func (s *set) bytes() []byte {
	b := make([]byte, 0, 8*len(s.words))
	for _, w := range s.words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func setOf(n int64, b []byte) (*set, bool) {
	s := newSet(n)
	if len(b) != 8*len(s.words) {
		return nil, false
	}
	for i := range s.words {
		s.words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	if n%64 != 0 && s.words[len(s.words)-1]>>(n%64) != 0 {
		return nil, false
	}
	s.index()
	return s, true
}
