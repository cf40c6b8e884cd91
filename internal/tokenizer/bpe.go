package tokenizer

import (
	"math"
	"math/bits"
	"unicode/utf8"
)

// none is the value for a missing token.
const none = math.MaxUint32

// model makes tokens of a word.
type model interface {
	// append appends the tokens of a word, which is not empty.
	append(to []uint32, word []byte, w *work) []uint32
	// vocabulary is one more than the largest token.
	vocabulary() int
}

// bpe merges pairs of symbols, those first that were merged first in training.
type bpe struct {
	vocab map[string]uint32
	pairs pairs
	size  int
	// symbols are the tokens of single bytes, for models that work on bytes. It is nil for models that work on
	// characters, which are looked up.
	symbols *[256]uint32
	// whole is true if a word that is a token becomes that token, regardless of merges.
	whole bool
	// Of characters:
	unknown        uint32 // none: unknown ones are left out
	fuse           bool   // unknown ones next to each other are one
	fallback       *[256]uint32
	prefix, suffix string // of symbols that do not begin a word, and of the last one
}

func (m *bpe) vocabulary() int { return m.size }

// pairs is a table of possible merges: open addressing, keys of two tokens.
type pairs struct {
	keys   []uint64
	values []merge
	shift  uint
}

type merge struct{ rank, token uint32 }

const emptyKey = math.MaxUint64 // two missing tokens

func newPairs(n int) pairs {
	size := 1 << bits.Len(uint(max(2*n, 8)))
	p := pairs{keys: make([]uint64, size), values: make([]merge, size), shift: uint(64 - bits.TrailingZeros(uint(size)))}
	for i := range p.keys {
		p.keys[i] = emptyKey
	}
	return p
}

func (p *pairs) at(a, b uint32) (slot int, found bool) {
	key := uint64(a)<<32 | uint64(b)
	slot = int(key * 0x9e3779b97f4a7c15 >> p.shift)
	for {
		switch p.keys[slot] {
		case key:
			return slot, true
		case emptyKey:
			return slot, false
		}
		if slot++; slot == len(p.keys) {
			slot = 0
		}
	}
}

// set stores the merge of two tokens. There must be space.
func (p *pairs) set(a, b uint32, m merge) {
	slot, _ := p.at(a, b)
	p.keys[slot], p.values[slot] = uint64(a)<<32|uint64(b), m
}

// get returns the merge of two tokens, with rank none if there is none.
func (p *pairs) get(a, b uint32) merge {
	if slot, ok := p.at(a, b); ok {
		return p.values[slot]
	}
	return merge{none, none}
}

// cacheWords and cacheTokens limit a worker's cache. longWord is the maximum length of cached words.
const (
	cacheWords  = 1 << 16
	cacheTokens = 1 << 18
	longWord    = 64
	// longMerge is the number of symbols above which a heap finds the next pair faster than a scan of all pairs.
	longMerge = 96
)

// append implements model.
func (m *bpe) append(to []uint32, word []byte, w *work) []uint32 {
	if m.whole {
		if id, ok := m.vocab[string(word)]; ok {
			return append(to, id)
		}
	}
	if len(word) > longWord {
		return append(to, m.merged(word, w)...)
	}
	if s, ok := w.cache[string(word)]; ok {
		return append(to, w.cached[s.from:s.to]...)
	}
	tokens := m.merged(word, w)
	if len(w.cache) >= cacheWords || len(w.cached)+len(tokens) > cacheTokens {
		clear(w.cache)
		w.cached = w.cached[:0]
	}
	from := len(w.cached)
	w.cached = append(w.cached, tokens...)
	w.cache[string(word)] = span{from, len(w.cached)}
	return append(to, tokens...)
}

type span struct{ from, to int }

// merged makes the tokens of a word, in memory of w.
func (m *bpe) merged(word []byte, w *work) []uint32 {
	s := w.symbols[:0]
	if m.symbols != nil {
		for _, b := range word {
			if id := m.symbols[b]; id != none {
				s = append(s, id)
			}
		}
	} else {
		s = m.characters(s, word, w)
	}
	w.symbols = s
	if len(s) > longMerge {
		return m.mergeLong(s, w)
	}
	return m.mergeShort(s, w)
}

// characters appends the symbols of the characters of a word.
func (m *bpe) characters(to []uint32, word []byte, w *work) []uint32 {
	pending := false // unknown ones that are not in to yet
	for at := 0; at < len(word); {
		_, n := utf8.DecodeRune(word[at:])
		c := word[at : at+n]
		if m.prefix != "" && at > 0 || m.suffix != "" && at+n == len(word) {
			w.text = w.text[:0]
			if at > 0 {
				w.text = append(w.text, m.prefix...)
			}
			w.text = append(w.text, c...)
			if at+n == len(word) {
				w.text = append(w.text, m.suffix...)
			}
			c = w.text
		}
		at += n
		if id, ok := m.vocab[string(c)]; ok {
			if pending {
				to, pending = append(to, m.unknown), false
			}
			to = append(to, id)
			continue
		}
		if m.fallback != nil {
			for _, b := range c {
				to = append(to, m.fallback[b])
			}
			continue
		}
		if m.unknown != none {
			if pending && !m.fuse {
				to = append(to, m.unknown)
			}
			pending = true
		}
	}
	if pending {
		to = append(to, m.unknown)
	}
	return to
}

// mergeShort checks all pairs for the next merge.
func (m *bpe) mergeShort(s []uint32, w *work) []uint32 {
	if len(s) < 2 {
		return s
	}
	next := w.merges[:0]
	for i := range len(s) - 1 {
		next = append(next, m.pairs.get(s[i], s[i+1]))
	}
	for len(next) > 0 {
		best, rank := 0, uint32(none)
		for i := range next {
			if next[i].rank < rank {
				best, rank = i, next[i].rank
			}
		}
		if rank == none {
			break
		}
		s[best] = next[best].token
		s = append(s[:best+1], s[best+2:]...)
		next = append(next[:best], next[best+1:]...)
		if best > 0 {
			next[best-1] = m.pairs.get(s[best-1], s[best])
		}
		if best < len(next) {
			next[best] = m.pairs.get(s[best], s[best+1])
		}
	}
	w.merges = next[:0]
	return s
}

// candidate is a pair that may be merged: a symbol and the next one.
type candidate struct {
	merge
	at   int32
	a, b uint32
}

func (c *candidate) before(o *candidate) bool {
	return c.rank < o.rank || c.rank == o.rank && c.at < o.at
}

// mergeLong merges with symbols in a list and pairs in a heap.
func (m *bpe) mergeLong(s []uint32, w *work) []uint32 {
	n := len(s)
	if cap(w.left) < n {
		w.left, w.right = make([]int32, n), make([]int32, n)
	}
	left, right := w.left[:n], w.right[:n]
	h := w.heap[:0]
	push := func(at int32) {
		to := right[at]
		if at < 0 || int(to) >= n {
			return
		}
		if x := m.pairs.get(s[at], s[to]); x.rank != none {
			h = append(h, candidate{x, at, s[at], s[to]})
			up(h)
		}
	}
	for i := range n {
		left[i], right[i] = int32(i-1), int32(i+1)
	}
	for i := range n {
		push(int32(i))
	}
	for len(h) > 0 {
		c := h[0]
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		down(h)
		to := right[c.at]
		if s[c.at] != c.a || int(to) >= n || s[to] != c.b {
			continue // one of the two is a part of something else by now
		}
		s[c.at], s[to] = c.token, none
		right[c.at] = right[to]
		if r := right[to]; int(r) < n {
			left[r] = c.at
		}
		if left[c.at] >= 0 {
			push(left[c.at])
		}
		push(c.at)
	}
	w.heap = h
	out := s[:0]
	for i := int32(0); int(i) < n; i = right[i] {
		out = append(out, s[i])
	}
	return out
}

func up(h []candidate) {
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if !h[i].before(&h[p]) {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

func down(h []candidate) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// rankedPairs makes the table of pairs of a vocabulary whose tokens are their ranks. Two tokens become the token of
// their concatenated bytes.
func rankedPairs(vocab map[string]uint32) pairs {
	n := 0
	each := func(f func(a, b, token uint32)) {
		for text, token := range vocab {
			for cut := 1; cut < len(text); cut++ {
				if a, ok := vocab[text[:cut]]; ok {
					if b, ok := vocab[text[cut:]]; ok {
						f(a, b, token)
					}
				}
			}
		}
	}
	each(func(_, _, _ uint32) { n++ })
	p := newPairs(n)
	each(func(a, b, token uint32) { p.set(a, b, merge{token, token}) })
	return p
}

// byteSymbols returns the tokens of single bytes of a vocabulary of bytes.
func byteSymbols(vocab map[string]uint32) *[256]uint32 {
	s := new([256]uint32)
	for b := range s {
		s[b] = none
		if id, ok := vocab[string([]byte{byte(b)})]; ok {
			s[b] = id
		}
	}
	return s
}
