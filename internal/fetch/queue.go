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
	spare  []*extent
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
	later             bool    // belongs to a candidate for readahead
	start, end        *extent // next in view
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

// view finds the neighbours of an extent among all queued reads. It is indexed by the 64 KiB blocks of their first and
// last bytes.
type view struct {
	starts, ends map[blockKey]*extent
	// gap is the largest distance between two extents that are read together.
	gap int64
}

type blockKey struct{ object, block int64 }

func (v *view) init() {
	v.gap = maxGap
	v.starts, v.ends = map[blockKey]*extent{}, map[blockKey]*extent{}
}

func (v *view) add(w *extent) {
	s := blockKey{w.object, w.off >> blockBits}
	e := blockKey{w.object, (w.off + w.size) >> blockBits}
	w.start, v.starts[s] = v.starts[s], w
	w.end, v.ends[e] = v.ends[e], w
}

func (v *view) remove(w *extent) {
	s := blockKey{w.object, w.off >> blockBits}
	e := blockKey{w.object, (w.off + w.size) >> blockBits}
	if first := v.starts[s]; first != w {
		for first.start != w {
			first = first.start
		}
		first.start = w.start
	} else if w.start != nil {
		v.starts[s] = w.start
	} else {
		delete(v.starts, s)
	}
	if first := v.ends[e]; first != w {
		for first.end != w {
			first = first.end
		}
		first.end = w.end
	} else if w.end != nil {
		v.ends[e] = w.end
	} else {
		delete(v.ends, e)
	}
	w.start, w.end = nil, nil
}

// beside finds an extent that can join a read of bytes [lo, hi) for another extent. It has the same turn and object and
// is at most v.gap away. Both together have at most most bytes. With later, the result belongs to a unit of prefetch
// candidates.
func (v *view) beside(of *extent, lo, hi, most int64, later bool) *extent {
	fits := func(w *extent) bool {
		a, b := w.off, w.off+w.size
		// One context must not end the reads of another context.
		return w.later == later && w.ctx == of.ctx && w.u.Turn == of.u.Turn && a <= hi+v.gap && b >= lo-v.gap && max(b, hi)-min(a, lo) <= most
	}
	object := of.object
	for b := lo >> blockBits; b <= (hi+v.gap)>>blockBits; b++ {
		for w := v.starts[blockKey{object, b}]; w != nil; w = w.start {
			if fits(w) {
				return w
			}
		}
	}
	for b := max(lo-v.gap, 0) >> blockBits; b <= lo>>blockBits; b++ {
		for w := v.ends[blockKey{object, b}]; w != nil; w = w.end {
			if fits(w) {
				return w
			}
		}
	}
	return nil
}

func (q *queues) newExtent() *extent {
	if n := len(q.spare); n > 0 {
		w := q.spare[n-1]
		q.spare = q.spare[:n-1]
		return w
	}
	return new(extent)
}

// recycle takes an extent that is not used any more.
func (q *queues) recycle(w *extent) {
	if len(q.spare) < maxSpare {
		*w = extent{}
		q.spare = append(q.spare, w)
	}
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
