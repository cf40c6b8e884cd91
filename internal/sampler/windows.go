package sampler

import (
	"fmt"
	"slices"
)

// Windows are the records of a source in chunks: runs of neighbours that are read together. In their order, a window of
// chunks is in use at a time. Each chunk is in use once, so a reader reads each chunk once.
//
// The chunks come in a permuted order. The sequence of all their records is cut into one lane per chunk of the window.
// The lanes have the same length except for one record. The order of the epoch takes a record from each lane in turn;
// within a chunk, records are permuted. So each lane is in one chunk at any time, and lanes change chunks at different
// times.
//
// Position p belongs to lane p mod the number of lanes. Suppose that this number is a multiple of the ranks and that
// ranks take positions in turn (Split.InTurn). Then each lane belongs to one rank, and so does each chunk, except the
// chunks in which a rank's lanes begin or end.
type Windows struct {
	starts []int64 // the first record of each chunk, and the number of records
	chain  *Chain  // of the chunks, nil if the window is whole
	window int
	// place is the position of each lane in the sequence of all records: from its place-th cut to the next. cuts are
	// the positions of the cuts. Lanes of one rank are neighbours.
	place []int
	lane  []int // the reverse
	cuts  []int64
}

// MaxChunks is the largest number of chunks. MaxWindow is the largest number of chunks in use at a time.
const (
	MaxChunks = 1 << 28
	MaxWindow = 1 << 20
)

// NewWindows returns windows of chunks. starts has the first record of each chunk and, at the end, the number of
// records. A window of all chunks or more gives the permutation of all records.
func NewWindows(starts []int64, window int) (*Windows, error) {
	chunks := len(starts) - 1
	switch {
	case chunks < 1 || chunks > MaxChunks:
		return nil, fmt.Errorf("%d chunks; there must be 1 to %d", chunks, MaxChunks)
	case window < 1 || window > MaxWindow:
		return nil, fmt.Errorf("a window of %d chunks; there must be 1 to %d", window, MaxWindow)
	case starts[0] != 0 || starts[chunks] > MaxLen:
		return nil, fmt.Errorf("chunks of records %d to %d; they must begin at 0 and end at %d at most", starts[0], starts[chunks], int64(MaxLen))
	}
	for c := range chunks {
		if starts[c] >= starts[c+1] {
			return nil, fmt.Errorf("chunk %d of records %d to %d has none", c, starts[c], starts[c+1])
		}
	}
	w := &Windows{starts: starts, window: window}
	if w.Whole() {
		return w, nil
	}
	n := starts[chunks]
	w.chain = NewChain(int64(chunks), func(c int64) int64 { return starts[c+1] - starts[c] })
	w.place, w.lane = make([]int, window), make([]int, window)
	for l := range window {
		w.place[l] = reversed(l, window)
		w.lane[w.place[l]] = l
	}
	w.cuts = make([]int64, window+1)
	for i, l := range w.lane {
		w.cuts[i+1] = w.cuts[i] + w.size(n, l)
	}
	return w, nil
}

// size is the number of records of a lane: positions that are it modulo the number of lanes.
func (w *Windows) size(n int64, lane int) int64 {
	m := int64(w.window)
	return (n - int64(lane) + m - 1) / m
}

// reversed returns l with its digits in reverse order. The digits are those of the prime factors of n, so that values
// that are equal modulo the first factors become neighbours.
func reversed(l, n int) int {
	out, left := 0, n
	for f := 2; left > 1; {
		if f*f > left {
			f = left
		}
		if left%f != 0 {
			f++
			continue
		}
		left /= f
		out += l % f * left
		l /= f
	}
	return out
}

// Window is the number of chunks of a window.
func (w *Windows) Window() int { return w.window }

// Chunks returns the number of chunks, Len the number of records.
func (w *Windows) Chunks() int { return len(w.starts) - 1 }

// Len is the number of records.
func (w *Windows) Len() int64 { return w.starts[len(w.starts)-1] }

// Whole reports that the window has all chunks. The order is then the permutation of all records.
func (w *Windows) Whole() bool { return w.window >= w.Chunks() }

// Chunk returns the chunk of a record. Records returns the record range of a chunk.
func (w *Windows) Chunk(record int64) int {
	c, found := slices.BinarySearch(w.starts, record)
	if !found {
		c--
	}
	return c
}

// Records are the records of a chunk: from one to before another one.
func (w *Windows) Records(chunk int) (from, to int64) { return w.starts[chunk], w.starts[chunk+1] }

// InUse returns the maximum number of chunks that one of world ranks uses at a time.
func (w *Windows) InUse(world int) int {
	if w.Whole() {
		return w.Chunks()
	}
	return w.window / divisor(w.window, world) // positions of a rank are equal modulo the divisor
}

// Readers returns the number of ranks, of world, that read each chunk.
func (w *Windows) Readers(world int) int {
	if w.Whole() {
		return world
	}
	return world / divisor(w.window, world)
}

// WindowEpoch is the order of one epoch. It does not change once it is made.
type WindowEpoch struct {
	w      *Windows
	seed   uint64
	epoch  int64
	order  Order       // of all records, if the window is whole
	chunks *ChainEpoch // of the chunks otherwise
}

// Epoch returns the order of an epoch. The work does not depend on the number of chunks.
func (w *Windows) Epoch(seed uint64, epoch int64) *WindowEpoch {
	e := &WindowEpoch{w: w, seed: seed, epoch: epoch}
	if w.Whole() {
		e.order = NewOrder(w.Len(), true, seed, epoch)
	} else {
		e.chunks = w.chain.Epoch(mix64(seed^golden), epoch)
	}
	return e
}

// piece is the part of a chunk in a lane: its records from one on, at the turns [from, to) of the lane.
type piece struct {
	from, to int64
	record   int64
	order    Order
}

// piece returns the piece at a turn of the lane at a place.
func (e *WindowEpoch) piece(place int, turn int64) piece {
	a, b := e.w.cuts[place], e.w.cuts[place+1]
	at := a + turn
	if place%2 == 1 {
		at = b - 1 - turn
	}
	c := e.chunks.Find(at)
	from, to := c.Bounds()
	lo, hi := max(from, a), min(to, b)
	p := piece{record: e.w.starts[c.Item()] + lo - from}
	p.from, p.to = turns(place, a, b, lo, hi)
	p.order = NewOrder(hi-lo, true, mix64(e.seed+uint64(lo+1)*golden), e.epoch)
	return p
}

// turns returns the turns of the lane from a to b that have records from lo to hi. Every other lane goes backward, so
// that two lanes use a shared chunk at about the same time.
func turns(place int, a, b, lo, hi int64) (from, to int64) {
	if place%2 == 1 {
		return b - hi, b - lo
	}
	return lo - a, hi - a
}

// Last returns the last position with a record of a chunk.
func (e *WindowEpoch) Last(chunk int) int64 {
	w := e.w
	if w.Whole() {
		return w.Len() - 1
	}
	last := int64(0)
	e.lanes(chunk, func(lane int, _, to int64) {
		last = max(last, (to-1)*int64(w.window)+int64(lane))
	})
	return last
}

// First returns the first position with a record of a chunk for one of world ranks that take positions in turn, -1 if
// there is none.
func (e *WindowEpoch) First(chunk, rank, world int) int64 {
	w := e.w
	if w.Whole() {
		return 0
	}
	first := int64(-1)
	e.lanes(chunk, func(lane int, from, to int64) {
		for turn := from; turn < to && turn < from+int64(world); turn++ { // ranks repeat after world turns
			pos := turn*int64(w.window) + int64(lane)
			if int(pos%int64(world)) == rank {
				if first < 0 || pos < first {
					first = pos
				}
				return
			}
		}
	})
	return first
}

// lanes calls f for the lanes that have records of a chunk, with the range of turns, without its end.
func (e *WindowEpoch) lanes(chunk int, f func(lane int, from, to int64)) {
	w := e.w
	lo := e.chunks.Start(int64(chunk))
	hi := lo + w.starts[chunk+1] - w.starts[chunk]
	place, found := slices.BinarySearch(w.cuts, lo)
	if !found {
		place--
	}
	for ; place < w.window && w.cuts[place] < hi; place++ {
		a, b := w.cuts[place], w.cuts[place+1]
		if a == b { // fewer records than lanes
			continue
		}
		from, to := turns(place, a, b, max(a, lo), min(b, hi))
		f(w.lane[place], from, to)
	}
}

// At returns the record at a position. For many positions, a walk is faster.
func (e *WindowEpoch) At(pos int64) int64 {
	if e.w.Whole() {
		return e.order.At(pos)
	}
	m := int64(e.w.window)
	p := e.piece(e.w.place[pos%m], pos/m)
	return p.record + p.order.At(pos/m-p.from)
}

// walk iterates over an order and remembers the piece of each lane.
type walk struct {
	*WindowEpoch
	lanes []piece
}

func newWalk(e *WindowEpoch) *walk {
	k := &walk{WindowEpoch: e}
	if !e.w.Whole() {
		k.lanes = make([]piece, e.w.window)
	}
	return k
}

// at is At.
func (k *walk) at(pos int64) int64 {
	if k.lanes == nil {
		return k.order.At(pos)
	}
	m := int64(len(k.lanes))
	lane, turn := pos%m, pos/m
	p := &k.lanes[lane]
	if turn < p.from || turn >= p.to {
		*p = k.piece(k.w.place[lane], turn)
	}
	return p.record + p.order.At(turn-p.from)
}
