package sequence

import (
	"runtime"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/sampler"
)

// stream joins the documents in an order that changes per epoch, and cuts them into n sequences.
// Sequence i starts at token skip + i*length.
type stream struct {
	docs    *documents
	length  int64
	shift   int64 // 1 if the token after a sequence is its last target
	n       int64
	slack   int64 // remaining tokens
	shuffle bool
	seed    uint64

	mu     sync.Mutex
	orders []*shuffled // the last few, the newest one last
}

// keptOrders is the number of epochs in use at the same time, at most: one that ends, the next one,
// and one that a reader went back to.
const keptOrders = 3

func newStream(docs *documents, o *Options) *stream {
	s := &stream{docs: docs, length: o.Length, shift: 1, shuffle: o.Shuffle, seed: o.Seed}
	if o.NoShift {
		s.shift = 0
	}
	usable := max(docs.tokens()-s.shift, 0)
	s.n = usable / s.length
	s.slack = usable - s.n*s.length
	return s
}

// shuffled is the order of documents in an epoch.
type shuffled struct {
	epoch int64
	order sampler.Order
	// starts has the stream offset of every step-th document.
	starts []int64
	skip   int64 // tokens before the first sequence
}

// step is the number of documents per number in shuffled.starts. It keeps the index of an epoch
// small compared with the index of documents, which stays in memory.
const step = 32

// The order of documents needs a seed that differs from the seed of the sequences.
const docSeed = 0x646f63756d656e74

// pieces implements index.
func (s *stream) pieces(to []piece, epoch, sequence int64) []piece {
	at := sequence * s.length
	if !s.shuffle {
		first := int64(sort.Search(len(s.docs.ends), func(i int) bool { return s.docs.ends[i] > at })) - 1
		return s.collect(to, at-s.docs.ends[first], first, func(pos int64) int64 { return pos })
	}
	e := s.epoch(epoch)
	at += e.skip
	k := sort.Search(len(e.starts), func(i int) bool { return e.starts[i] > at }) - 1
	pos, start := int64(k)*step, e.starts[k]
	for {
		n := s.docs.length(e.order.At(pos))
		if start+n > at {
			return s.collect(to, at-start, pos, e.order.At)
		}
		start += n
		pos++
	}
}

// collect appends the pieces of a sequence. It starts at token from of the document at position
// pos.
func (s *stream) collect(to []piece, from, pos int64, order func(pos int64) int64) []piece {
	left := s.length
	for {
		doc := order(pos)
		n := s.docs.length(doc) - from
		switch {
		case n == 0:
		case left == 0: // only the last target
			return append(to, piece{doc: doc, from: from, extra: 1})
		case n > left || n == left && s.shift == 0:
			return append(to, piece{doc: doc, from: from, n: left, extra: s.shift})
		default:
			to = append(to, piece{doc: doc, from: from, n: n})
			left -= n
		}
		from = 0
		pos++
	}
}

// epoch returns the order of an epoch, and computes it on first use.
func (s *stream) epoch(epoch int64) *shuffled {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.orders {
		if e.epoch == epoch {
			return e
		}
	}
	e := s.shuffled(epoch)
	if len(s.orders) == keptOrders {
		s.orders = slices.Delete(s.orders, 0, 1)
	}
	s.orders = append(s.orders, e)
	return e
}

// shuffled computes the order of an epoch.
func (s *stream) shuffled(epoch int64) *shuffled {
	docs := s.docs.count()
	e := &shuffled{epoch: epoch, order: sampler.NewOrder(docs, true, s.seed^docSeed, epoch), starts: make([]int64, (docs+step-1)/step)}
	slack := sampler.NewOrder(s.slack+1, true, s.seed^^uint64(docSeed), epoch)
	e.skip = slack.At(0)
	// Collect the lengths on all cores, then sum them.
	const share = 1 << 11 // of starts
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for lo := 0; lo < len(e.starts); lo += share {
		g.Go(func() error {
			var ids [step]int64
			for i := lo; i < min(lo+share, len(e.starts)); i++ {
				of := ids[:min(step, docs-int64(i)*step)]
				e.order.Fill(of, int64(i)*step)
				e.starts[i] = s.docs.lengths(of)
			}
			return nil
		})
	}
	_ = g.Wait() // the functions never fail
	at := int64(0)
	for i, n := range e.starts {
		e.starts[i] = at
		at += n
	}
	return e
}
