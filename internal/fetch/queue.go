package fetch

import "context"

const (
	// maxRequest is the size limit of a read. Larger extents are read in pieces, several at a time.
	maxRequest = 8 << 20
	// blockBits is the binary logarithm of the block size by which view is indexed.
	blockBits = 16
	// maxSpare limits the unused extents that are kept for later reads.
	maxSpare = 4096
)

// queues are the reads that have not begun.
type queues struct {
	records, index, urgent fifo
	// held reports that reads of records that are not urgent wait (Fetcher.Hold).
	held bool
	view view // the reads of the queues that may become part of a larger read
	// pieces are the reads of the index that are queued or under way, by object and offset.
	pieces map[[2]int64]*indexRead
	spare  spare[extent]
}

func (q *queues) init() {
	q.view.init()
	q.pieces = map[[2]int64]*indexRead{}
}

// extent is a read to be made: an extent of a unit, a piece of a large extent, or a piece of the index.
type extent struct {
	u *Unit
	i int // extent
	x *indexRead

	object, off, size int64
	dst               []byte // destination, nil for memory of the request
	ctx               context.Context
	alone             bool // never joined with other reads
	rush              bool // in the urgent queue
	taken             bool
	later             bool       // belongs to a candidate for readahead
	next              [2]*extent // in the chains of view
}

// before reports whether w is needed before v. The index comes before records.
func (w *extent) before(v *extent) bool {
	switch {
	case w.u == nil || v.u == nil:
		return w.u == nil && v.u != nil
	case w.u.order != v.u.order:
		return w.u.order < v.u.order
	}
	return w.i < v.i
}

// fifo is a queue of extents in the order of need.
type fifo struct {
	ws   []*extent
	head int
	n    int // not taken
}

func (q *fifo) push(w *extent) {
	if q.head > 1024 && q.head > len(q.ws)/2 {
		q.ws = q.ws[:copy(q.ws, q.ws[q.head:])]
		q.head = 0
	}
	q.ws = append(q.ws, w)
	q.n++
}

// first returns the first extent that is not taken, and leaves it in the queue.
func (q *fifo) first(spare func(*extent)) *extent {
	for q.head < len(q.ws) {
		w := q.ws[q.head]
		if !w.taken {
			return w
		}
		q.ws[q.head] = nil
		q.head++
		spare(w) // another read has taken it along
	}
	q.ws, q.head = q.ws[:0], 0
	return nil
}

// pop returns the same extent as first and removes it.
func (q *fifo) pop(spare func(*extent)) *extent {
	w := q.first(spare)
	if w != nil {
		q.ws[q.head] = nil
		q.head++
		q.n--
	}
	return w
}

// view finds the neighbours of an extent among all queued reads.
type view struct {
	// chains has lists of extents by the 64 KiB block of their first byte, and by that of their last one.
	chains [2]map[blockKey]*extent
	// gap is the largest distance between two extents that are read together.
	gap int64
}

type blockKey struct{ object, block int64 }

func (v *view) init() {
	v.gap = maxGap
	v.chains = [2]map[blockKey]*extent{{}, {}}
}

// keys returns the key of an extent in each of the chains.
func (w *extent) keys() [2]blockKey {
	return [2]blockKey{{w.object, w.off >> blockBits}, {w.object, (w.off + w.size) >> blockBits}}
}

func (v *view) add(w *extent) {
	for i, key := range w.keys() {
		w.next[i], v.chains[i][key] = v.chains[i][key], w
	}
}

func (v *view) remove(w *extent) {
	for i, key := range w.keys() {
		switch first := v.chains[i][key]; {
		case first != w:
			for first.next[i] != w {
				first = first.next[i]
			}
			first.next[i] = w.next[i]
		case w.next[i] != nil:
			v.chains[i][key] = w.next[i]
		default:
			delete(v.chains[i], key)
		}
		w.next[i] = nil
	}
}

// beside finds an extent that can join a read of bytes [lo, hi) for another extent. It has the same turn and object and
// is at most v.gap away. Both together have at most most bytes. With later, the result belongs to a unit of prefetch
// candidates.
func (v *view) beside(of *extent, lo, hi, most int64, later bool) *extent {
	for i, bytes := range [2][2]int64{{lo, hi + v.gap}, {max(lo-v.gap, 0), lo}} {
		for b := bytes[0] >> blockBits; b <= bytes[1]>>blockBits; b++ {
			for w := v.chains[i][blockKey{of.object, b}]; w != nil; w = w.next[i] {
				from, to := w.off, w.off+w.size
				// One context must not end the reads of another context.
				if w.later == later && w.ctx == of.ctx && w.u.Turn == of.u.Turn && from <= hi+v.gap && to >= lo-v.gap && max(to, hi)-min(from, lo) <= most {
					return w
				}
			}
		}
	}
	return nil
}

// spare are values that are used again.
type spare[T any] []*T

func (s *spare[T]) take() *T {
	n := len(*s)
	if n == 0 {
		return new(T)
	}
	x := (*s)[n-1]
	*s = (*s)[:n-1]
	return x
}

// give takes a value that is not used any more, and keeps it if there are fewer than most.
func (s *spare[T]) give(x *T, most int) {
	if len(*s) < most {
		*s = append(*s, x)
	}
}

// recycle takes an extent that is not used any more.
func (q *queues) recycle(w *extent) {
	*w = extent{}
	q.spare.give(w, maxSpare)
}

// push queues a read; Fetcher.wakeFor starts readers for it.
func (q *queues) push(w *extent, rush bool) {
	w.rush = rush
	switch {
	case rush:
		q.urgent.push(w)
	case w.x != nil:
		q.index.push(w)
	default:
		q.records.push(w)
	}
	if !w.alone {
		q.view.add(w)
	}
}

// joined counts a queued extent that another read takes along. It stays in its queue until its turn.
func (q *queues) joined(w *extent) {
	if w.rush {
		q.urgent.n--
	} else {
		q.records.n--
	}
}

// len returns the number of reads that have not begun.
func (q *queues) len() int { return q.records.n + q.index.n + q.urgent.n }
