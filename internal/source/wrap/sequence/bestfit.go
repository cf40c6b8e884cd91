package sequence

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sort"

	"github.com/stokerdata/stoker/internal/sampler"
)

// bestFit keeps documents whole. A document longer than a sequence is cut into full sequences and a
// rest of 1 to length tokens. Rests and shorter documents are packed, the longest first, each into
// the sequence in which it leaves the least free space (best-fit decreasing).
//
// The lengths in each sequence, and so the number of sequences, are the same in every epoch. The
// documents differ: documents of equal length swap places.
type bestFit struct {
	docs    *documents
	length  int64
	shift   int64
	shuffle bool
	seed    uint64

	// long are the documents that are longer than a sequence. full counts the full sequences up to
	// and including each of them.
	long []uint32
	full []int64
	// rests are the documents sorted by the length of their rest, the longest first. Rests of
	// length n are rests[class[n]:class[n-1]].
	rests []uint32
	class []int64
	// head is the index in rests of the last one put into a sequence. next links to the one put
	// there before it.
	head, next []uint32
}

// none ends the linked lists of bestFit.
const none = math.MaxUint32

// rest returns the length of the last part of a document of n tokens.
func (b *bestFit) rest(n int64) int64 { return (n-1)%b.length + 1 }

func newBestFit(docs *documents, o *Options) (*bestFit, error) {
	if docs.count() >= none {
		return nil, fmt.Errorf("%d documents are more than the limit of %d for %s: use %s", docs.count(), uint32(none), BestFit, Stream)
	}
	b := &bestFit{docs: docs, length: o.Length, shift: 1, shuffle: o.Shuffle, seed: o.Seed}
	if o.NoShift {
		b.shift = 0
	}
	if docs.tokens() == 0 {
		return nil, errors.New("its documents have no tokens")
	}
	count := make([]int64, b.length+2)
	total := int64(0)
	for doc := range docs.count() {
		n := docs.length(doc)
		if n == 0 {
			continue
		}
		count[b.rest(n)]++
		if n > b.length {
			total += (n - 1) / b.length
			b.long, b.full = append(b.long, uint32(doc)), append(b.full, total)
		}
	}
	b.class = make([]int64, b.length+1)
	at := int64(0)
	for n := b.length; n >= 0; n-- {
		b.class[n] = at
		at += count[n] // count[0] is 0
	}
	b.rests = make([]uint32, at)
	place := append([]int64(nil), b.class...)
	for doc := range docs.count() {
		if n := docs.length(doc); n > 0 {
			r := b.rest(n)
			b.rests[place[r]] = uint32(doc)
			place[r]++
		}
	}
	b.fill()
	return b, nil
}

// fill packs the rests. Sequences with n free tokens form a list, and a bit per n tells whether the
// list is empty.
func (b *bestFit) fill() {
	b.next = make([]uint32, len(b.rests))
	open := make([]uint32, b.length+1) // first sequence with n free tokens
	for i := range open {
		open[i] = none
	}
	var others []uint32 // by sequence, the next one with the same free space
	free := newRoom(b.length + 1)
	for n := b.length; n > 0; n-- {
		for r := b.class[n]; r < b.class[n-1]; r++ {
			room := free.atLeast(n)
			var seq uint32
			if room < 0 {
				room, seq = b.length, uint32(len(b.head))
				b.head, others = append(b.head, none), append(others, none)
			} else {
				seq = open[room]
				if open[room] = others[seq]; open[room] == none {
					free.clear(room)
				}
			}
			b.next[r], b.head[seq] = b.head[seq], uint32(r)
			if left := room - n; left > 0 {
				if open[left] == none {
					free.set(left)
				}
				others[seq], open[left] = open[left], seq
			}
		}
	}
}

func (b *bestFit) sequences() int64 { return b.fulls() + int64(len(b.head)) }

// fulls returns the number of full sequences of long documents.
func (b *bestFit) fulls() int64 {
	if len(b.full) == 0 {
		return 0
	}
	return b.full[len(b.full)-1]
}

// pieces implements index.
func (b *bestFit) pieces(to []piece, epoch, sequence int64) []piece {
	fulls := b.fulls()
	if sequence < fulls {
		i := sort.Search(len(b.full), func(i int) bool { return b.full[i] > sequence })
		if i > 0 {
			sequence -= b.full[i-1]
		}
		// At least one token of the document follows, so the target exists.
		return append(to, piece{doc: int64(b.long[i]), from: sequence * b.length, n: b.length, extra: b.shift})
	}
	first := len(to)
	for r := b.head[sequence-fulls]; r != none; r = b.next[r] {
		doc := int64(b.rests[b.traded(epoch, int64(r))])
		n := b.docs.length(doc)
		rest := b.rest(n)
		to = append(to, piece{doc: doc, from: n - rest, n: rest})
	}
	// Restore the order of insertion, the longest first.
	for i, j := first, len(to)-1; i < j; i, j = i+1, j-1 {
		to[i], to[j] = to[j], to[i]
	}
	return to
}

// traded returns the index of the rest that replaces rest r in an epoch.
func (b *bestFit) traded(epoch, r int64) int64 {
	if !b.shuffle {
		return r
	}
	doc := int64(b.rests[r])
	n := b.rest(b.docs.length(doc))
	lo := b.class[n]
	order := sampler.NewOrder(b.class[n-1]-lo, true, b.seed^docSeed+uint64(n), epoch)
	return lo + order.At(r-lo)
}

// room is a set of free-space sizes that finds the smallest one that is large enough.
type room struct {
	words []uint64
	any   []uint64 // words with at least one bit
}

func newRoom(n int64) *room {
	words := n/64 + 1
	return &room{make([]uint64, words), make([]uint64, words/64+1)}
}

func (r *room) set(n int64) {
	r.words[n/64] |= 1 << (n % 64)
	r.any[n/4096] |= 1 << (n / 64 % 64)
}

func (r *room) clear(n int64) {
	if r.words[n/64] &^= 1 << (n % 64); r.words[n/64] == 0 {
		r.any[n/4096] &^= 1 << (n / 64 % 64)
	}
}

// atLeast returns the smallest number in the set that is at least n, or -1.
func (r *room) atLeast(n int64) int64 {
	w := n / 64
	if b := r.words[w] >> (n % 64); b != 0 {
		return n + int64(bits.TrailingZeros64(b))
	}
	for w++; w < int64(len(r.words)); w = (w/64 + 1) * 64 {
		if b := r.any[w/64] >> (w % 64); b != 0 {
			w += int64(bits.TrailingZeros64(b))
			return w*64 + int64(bits.TrailingZeros64(r.words[w]))
		}
	}
	return -1
}
