package sequence

import (
	"slices"
	"sort"
	"sync"

	"github.com/stokerdata/stoker/internal/sampler"
)

// stream joins the documents in an order that changes per epoch, and cuts them into n sequences.
// Sequence i starts at token skip + i*length.
type stream struct {
	docs   *documents
	length int64
	shift  int64 // 1 if the token after a sequence is its last target
	n      int64
	slack  int64 // remaining tokens
	seed   uint64
	chain  *sampler.Chain // of the documents, nil without shuffle

	mu     sync.Mutex
	orders []*shuffled // the last few, the newest one last
}

// keptOrders is the number of epochs in use at the same time, at most: one that ends, the next one,
// and one that a reader went back to.
const keptOrders = 3

func newStream(docs *documents, o *Options) *stream {
	s := &stream{docs: docs, length: o.Length, shift: 1, seed: o.Seed}
	if o.Shuffle {
		s.chain = sampler.NewChain(docs.count(), docs.length)
	}
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
	order *sampler.ChainEpoch
	skip  int64 // tokens before the first sequence
}

// The order of documents needs a seed that differs from the seed of the sequences.
const docSeed = 0x646f63756d656e74

// pieces implements index.
func (s *stream) pieces(to []piece, epoch, sequence int64) []piece {
	at := sequence * s.length
	if s.chain == nil {
		doc := int64(sort.Search(len(s.docs.ends), func(i int) bool { return s.docs.ends[i] > at })) - 1
		return s.collect(to, at-s.docs.ends[doc], func() int64 { doc++; return doc - 1 })
	}
	e := s.epoch(epoch)
	at += e.skip
	c := e.order.Find(at)
	from, _ := c.Bounds()
	first := true
	return s.collect(to, at-from, func() int64 {
		if !first {
			c.Next()
		}
		first = false
		return c.Item()
	})
}

// collect appends the pieces of a sequence. It starts at token from of the first document that next
// returns.
func (s *stream) collect(to []piece, from int64, next func() int64) []piece {
	left := s.length
	for {
		doc := next()
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
	}
}

// epoch returns the order of an epoch.
func (s *stream) epoch(epoch int64) *shuffled {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.orders {
		if e.epoch == epoch {
			return e
		}
	}
	slack := sampler.NewOrder(s.slack+1, true, s.seed^^uint64(docSeed), epoch)
	e := &shuffled{epoch, s.chain.Epoch(s.seed^docSeed, epoch), slack.At(0)}
	if len(s.orders) == keptOrders {
		s.orders = slices.Delete(s.orders, 0, 1)
	}
	s.orders = append(s.orders, e)
	return e
}
