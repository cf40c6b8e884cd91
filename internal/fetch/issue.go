package fetch

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/stokerdata/stoker/internal/direct"
)

const (
	// maxRequest is the most that one read asks for: larger extents are read in
	// pieces, several at a time.
	maxRequest = 8 << 20
	// blockBits is the size of the pieces of an object by which view is sorted.
	blockBits = 16
)

// want is something that is to be read: an extent of a unit, a piece of a large
// one, or a piece of the index.
type want struct {
	u *Unit
	i int // extent
	x *indexRead

	object, off, size int64
	dst               []byte // where to, nil for memory of the request
	ctx               context.Context
	alone             bool // not together with others
	rush              bool // in that queue
	taken             bool
	later             bool  // of a unit that is only foreseen when it is taken
	start, end        *want // next in view
}

// before says whether w is needed before v: the index before what it is for.
func (w *want) before(v *want) bool {
	switch {
	case w.u == nil || v.u == nil:
		return w.u == nil && v.u != nil
	case w.u.order != v.u.order:
		return w.u.order < v.u.order
	}
	return w.i < v.i
}

// fifo is a queue of wants in order of need.
type fifo struct {
	ws   []*want
	head int
	n    int // that are not taken
}

func (q *fifo) push(w *want) {
	if q.head > 1024 && q.head > len(q.ws)/2 {
		q.ws = q.ws[:copy(q.ws, q.ws[q.head:])]
		q.head = 0
	}
	q.ws = append(q.ws, w)
	q.n++
}

// first returns the first want that nobody has taken, and leaves it there.
func (q *fifo) first(spare func(*want)) *want {
	for q.head < len(q.ws) {
		w := q.ws[q.head]
		if !w.taken {
			return w
		}
		q.ws[q.head] = nil
		q.head++
		spare(w) // it went with another one
	}
	q.ws, q.head = q.ws[:0], 0
	return nil
}

// pop is first, and takes it out.
func (q *fifo) pop(spare func(*want)) *want {
	w := q.first(spare)
	if w != nil {
		q.ws[q.head] = nil
		q.head++
		q.n--
	}
	return w
}

// view finds the neighbours of a want among all that are to be read: by the
// block of 64 KiB in which they begin, and in which they end.
type view struct {
	starts, ends map[blockKey]*want
	n            int
	// gap is how far apart two of them may be that are read together.
	gap int64
}

type blockKey struct{ object, block int64 }

func (v *view) init() {
	v.gap = maxGap
	v.starts, v.ends = map[blockKey]*want{}, map[blockKey]*want{}
}

func (v *view) add(w *want) {
	s := blockKey{w.object, w.off >> blockBits}
	e := blockKey{w.object, (w.off + w.size) >> blockBits}
	w.start, v.starts[s] = v.starts[s], w
	w.end, v.ends[e] = v.ends[e], w
	v.n++
}

func (v *view) remove(w *want) {
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
	v.n--
}

// beside returns a want of the same turn as another one that touches bytes [lo, hi) of its
// object or has a gap of v.gap at most to them, such that both together are no larger than
// most: one that comes later than what is admitted, or not.
func (v *view) beside(of *want, lo, hi, most int64, later bool) *want {
	fits := func(w *want) bool {
		a, b := w.off, w.off+w.size
		// What one context ends must not end what belongs to another one.
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

func (f *Fetcher) newWant() *want {
	if n := len(f.wants); n > 0 {
		w := f.wants[n-1]
		f.wants = f.wants[:n-1]
		return w
	}
	return new(want)
}

func (f *Fetcher) spare(w *want) {
	if len(f.wants) < 4096 {
		*w = want{}
		f.wants = append(f.wants, w)
	}
}

// push adds what is to be read; wakeFor finds somebody to do it.
func (f *Fetcher) push(w *want, rush bool) {
	w.rush = rush
	switch {
	case rush:
		f.rush.push(w)
	case w.x != nil:
		f.learn.push(w)
	default:
		f.queue.push(w)
	}
	if !w.alone {
		f.view.add(w)
	}
}

// wakeFor gets readers going for n things that are to be read, if there is room for any: where
// there is none, who reads now goes on with them.
func (f *Fetcher) wakeFor(n int) {
	for ; n > 0 && (f.mayRead() || f.mayLearn()); n -= f.mostBegun() {
		f.wake()
	}
}

// wake gets a reader going, if there may be one more.
func (f *Fetcher) wake() {
	switch {
	case f.closed:
	case f.parked > 0:
		// It counts as woken from now on: it takes the lock only later, and until then
		// others may be woken, each of whom one signal reaches.
		f.parked--
		f.work.Signal()
	case f.readers < f.mostReads()+f.hedge.stuck+f.hedge.out+len(f.hedge.again):
		f.readers++
		f.wg.Add(1)
		go f.reader()
	}
}

// flight is one read that is under way. There may be more for the same wants, when
// it is late.
type flight struct {
	*goal
	at                int // in Fetcher.flights
	object, off, size int64
	bl                *block // what is read into, nil for dst
	dst               []byte
	ctx               context.Context
	since             time.Time
	second            bool  // not the first one
	weight            int   // what it counts for in load
	brief             int64 // what it counts for in transit
	learns            bool  // it counts in learning
	stuck             bool  // the first one, which is late: there is another one
}

// goal is what one or more flights are for.
type goal struct {
	wants  []*want
	out    int // flights
	done   bool
	again  int     // flights that were made since others were late
	newest *flight // the last one of them that has begun

	// along says that it brings more than is needed: each of its wants then gets a piece of
	// memory of its own.
	along  bool
	pieces []*block

	// Of what is read to its place, which one flight alone writes to: cancel ends that
	// one, ended says that it has; won is what another one has read meanwhile.
	cancel context.CancelFunc
	ended  bool
	won    *block
}

const (
	// mostBegun is how many reads one reader begins before it waits for the first of them,
	// which are beginBytes at most but for the last one.
	mostBegun  = 32
	beginBytes = 512 << 10
	// leastReaders are those that the reads that may be out are shared among.
	leastReaders = 4
)

// reader reads what is needed first, again and again.
//
// Who waits for a disk keeps one of the runtime's few processors until its monitor takes
// that away: reads that are small, each waited for by itself, begin no faster than that
// happens. So where the system reads while nobody waits, some begin together, and most are
// there once the first of them is.
func (f *Fetcher) reader() {
	defer f.wg.Done()
	var mem [mostBegun]*flight
	var begun [mostBegun]direct.Begun
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.closed {
		fl := f.next()
		if fl == nil {
			f.parked++
			f.work.Wait()
			continue
		}
		f.begin(fl)
		list := append(mem[:0], fl)
		for size := fl.size; size < beginBytes && len(list) < f.mostBegun(); size += fl.size {
			if fl = f.nextFirst(); fl == nil {
				break
			}
			f.begin(fl)
			list = append(list, fl)
		}
		if f.mayRead() && f.queue.n+f.rush.n > 0 || f.mayLearn() && f.learn.n > 0 {
			f.wake() // what has landed may have made room for more than one
		}
		f.mu.Unlock()
		for i, fl := range list {
			if len(list) > 1 {
				begun[i] = f.start(fl)
			}
		}
		if len(list) > 1 {
			// Whoever else has something to do goes first: most is there by then, and not even
			// the first of them is waited for with a processor.
			runtime.Gosched()
		}
		f.readAll(list, &begun)
	}
	f.readers--
}

// readAll waits for reads that have begun, and takes the lock. What has come is handed on
// together, so that the room that it leaves is room for as many: whoever takes it begins
// those together again, and not each by itself. Where reads come slowly, nothing that is
// there waits for the others.
func (f *Fetcher) readAll(list []*flight, begun *[mostBegun]direct.Begun) {
	var errs [mostBegun]error
	var ends [mostBegun]time.Time
	handedOn, since := 0, time.Now()
	for i, fl := range list {
		errs[i] = f.read(fl, begun[i])
		ends[i], begun[i] = time.Now(), direct.Begun{}
		if x := fl.wants[0].x; x != nil && errs[i] == nil {
			// A piece of the index: the source looks through it without the lock. What
			// it is for waits for that.
			errs[i] = direct.Learn(f.src, x.Extent, fl.bl.b)
		}
		last := i == len(list)-1
		if !last && ends[i].Sub(since) < slowRead {
			continue
		}
		f.mu.Lock()
		full := f.load > (f.depth.now-1)*wholeRead
		for ; handedOn <= i; handedOn++ {
			f.finish(list[handedOn], ends[handedOn], full, errs[handedOn])
			list[handedOn] = nil
		}
		if !last {
			since = ends[i]
			f.mu.Unlock()
		}
	}
}

// mostBegun is how many reads a reader may begin at a time. A mount may pass over what it is only
// asked to read ahead, as FUSE does where a part of its queue is full: those that have begun
// would then be read one after the other.
func (f *Fetcher) mostBegun() int {
	if f.cfg.Far || f.cfg.Mount || f.single.Load() {
		return 1
	}
	return min(f.depth.now/leastReaders, mostBegun)
}

// start has the system begin with a read. A panic of the store comes again when it is read.
func (f *Fetcher) start(fl *flight) (b direct.Begun) {
	defer func() { _ = recover() }()
	b, ok := f.obj.Begin(fl.ctx, fl.object, fl.off, fl.size)
	if !ok {
		f.single.Store(true)
	}
	return b
}

// read reads; a panic of the store becomes an error.
func (f *Fetcher) read(fl *flight, b direct.Begun) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error while reading: %v\n%s", p, debug.Stack())
		}
	}()
	dst := fl.dst
	if fl.bl != nil {
		dst = fl.bl.b
	}
	return f.obj.ReadBegun(fl.ctx, b, fl.object, dst, fl.off)
}

// next chooses what is read now: the want that is needed first, and its
// neighbours among all that are in view.
func (f *Fetcher) next() *flight {
	for len(f.hedge.again) > 0 {
		g := f.hedge.again[0]
		f.hedge.again = f.hedge.again[:copy(f.hedge.again, f.hedge.again[1:])]
		if !g.done {
			if fl := f.flight(g, true); fl != nil {
				return fl
			}
		}
	}
	return f.nextFirst()
}

// nextFirst is next of what nobody reads yet.
func (f *Fetcher) nextFirst() *flight {
	for {
		w := f.choose()
		if w == nil {
			return nil
		}
		if fl := f.flight(f.together(w), false); fl != nil {
			return fl
		}
	}
}

// together makes one goal of a want and its neighbours.
func (f *Fetcher) together(w *want) *goal {
	g := &goal{wants: []*want{w}}
	if w.alone {
		return g
	}
	w.taken = true
	f.view.remove(w)
	lo, hi, most := w.off, w.off+w.size, int64(maxRequest)
	for {
		n := f.view.beside(w, lo, hi, most, false)
		if n == nil {
			if n = f.view.beside(w, lo, hi, f.alongRoom(w, hi-lo), true); n == nil || !f.takeAlong(n, max(hi, n.off+n.size)-min(lo, n.off)) {
				return g
			}
			g.along, most = true, maxAlong
		}
		n.taken = true
		f.view.remove(n)
		lo, hi = min(lo, n.off), max(hi, n.off+n.size)
		if n.later {
			g.wants = append(g.wants, n) // it is in no queue
			continue
		}
		if n.rush {
			f.rush.n--
		} else {
			f.queue.n--
		}
		c := f.newWant() // n itself stays in the queue until it is its turn
		*c = *n
		g.wants = append(g.wants, c)
	}
}

// flight makes a read for a goal.
func (f *Fetcher) flight(g *goal, second bool) *flight {
	w := g.wants[0]
	lo, hi := w.off, w.off+w.size
	for _, o := range g.wants[1:] {
		lo, hi = min(lo, o.off), max(hi, o.off+o.size)
	}
	fl := &flight{goal: g, object: w.object, off: lo, size: hi - lo, dst: w.dst, ctx: w.ctx, second: second}
	if w.dst != nil && second {
		fl.dst = nil
	} else if w.dst != nil && f.depth.slow >= slowRead { // otherwise it is not worth it
		fl.ctx, g.cancel = context.WithCancel(w.ctx)
	}
	if fl.dst == nil {
		alloc := f.mem.alloc
		if g.along {
			alloc = f.mem.allocBrief
		}
		bl, err := alloc(int(hi-lo), lo)
		if err != nil {
			if second {
				return nil
			}
			g.out++
			f.deliver(fl, err)
			return nil
		}
		bl.refs = 1 // of the flight
		fl.bl = bl
		if g.along {
			fl.brief = pieceBytes(hi - lo)
			f.transit += fl.brief
			f.peak = max(f.peak, f.inUse())
		}
	}
	return fl
}
