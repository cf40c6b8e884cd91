package fetch

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/stokerdata/stoker/internal/recordread"
)

const (
	// maxRequest is the size limit of a read. Larger extents are read in pieces, several at a time.
	maxRequest = 8 << 20
	// blockBits is the binary logarithm of the block size by which view is indexed.
	blockBits = 16
)

// extent is a read to be made: an extent of a unit, a piece of a large extent, or a piece of the index.
type extent struct {
	u *Unit
	i int // extent
	x *indexRead

	object, off, size int64
	dst               []byte // destination, nil for memory of the request
	ctx               context.Context
	alone             bool // never joined with other wants
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
		spare(w) // it was joined with another want
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
	n            int
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
	v.n++
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
	v.n--
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

func (f *Fetcher) newExtent() *extent {
	if n := len(f.spareExtents); n > 0 {
		w := f.spareExtents[n-1]
		f.spareExtents = f.spareExtents[:n-1]
		return w
	}
	return new(extent)
}

func (f *Fetcher) spare(w *extent) {
	if len(f.spareExtents) < 4096 {
		*w = extent{}
		f.spareExtents = append(f.spareExtents, w)
	}
}

// push queues a read; wakeFor starts readers for it.
func (f *Fetcher) push(w *extent, rush bool) {
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

// wakeFor starts readers for n queued reads if the limits allow. Otherwise the readers that are running take them
// later.
func (f *Fetcher) wakeFor(n int) {
	for ; n > 0 && (f.mayRead() || f.mayLearn()); n -= f.mostBegun() {
		f.wake()
	}
}

// wake starts a reader if one more is allowed.
func (f *Fetcher) wake() {
	switch {
	case f.closed:
	case f.parked > 0:
		// The reader counts as woken from now on. It takes the lock only later, and until then others may be woken,
		// each by its own signal.
		f.parked--
		f.work.Signal()
	case f.readers < f.mostReads()+f.hedge.stuck+f.hedge.out+len(f.hedge.again):
		f.readers++
		f.wg.Add(1)
		go f.reader()
	}
}

// attempt is one read under way. A late read has more than one attempt for the same extents.
type attempt struct {
	*request
	at                int // in Fetcher.attempts
	object, off, size int64
	bl                *block // destination, nil for dst
	dst               []byte
	ctx               context.Context
	since             time.Time
	second            bool  // a hedged read
	weight            int   // its share of load
	brief             int64 // its share of transit
	learns            bool  // counted in learning
	stuck             bool  // the first attempt, which is late and was repeated
}

// request is a set of extents that one or more attempts read.
type request struct {
	extents []*extent
	out     int // attempts under way
	done    bool
	again   int      // repeated attempts
	newest  *attempt // the attempt that began last

	// readahead reports that the read brings more than is needed. Each of its extents then gets its own piece of
	// memory.
	readahead bool
	pieces    []*block

	// The next fields are for a read straight into the batch, which one attempt alone writes to. Cancel ends that
	// attempt, ended reports that it has ended, and won is the result of a hedged read.
	cancel context.CancelFunc
	ended  bool
	won    *block
}

const (
	// mostBegun is the number of reads that a reader begins before it waits for the first one. All but the last have at
	// most beginBytes together.
	mostBegun  = 32
	beginBytes = 512 << 10
	// leastReaders is the number of readers that share the allowed reads.
	leastReaders = 4
)

// reader reads the extents that are needed first, in a loop.
//
// A goroutine that waits for a disk occupies one of the runtime's few processors until the runtime's monitor releases
// it. That limits how fast small reads start if each is waited for separately. If the system can read in the
// background, a reader therefore begins several reads together. Most are done when the first one is.
func (f *Fetcher) reader() {
	defer f.wg.Done()
	var mem [mostBegun]*attempt
	var begun [mostBegun]recordread.Begun
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
			f.wake() // finished reads may have made way for more than one
		}
		f.mu.Unlock()
		for i, fl := range list {
			if len(list) > 1 {
				begun[i] = f.start(fl)
			}
		}
		if len(list) > 1 {
			// Let other goroutines run first: most reads are done by then, and the wait for the first one occupies no
			// processor.
			runtime.Gosched()
		}
		f.readAll(list, &begun)
	}
	f.readers--
}

// readAll waits for reads that have begun, and takes the lock. It delivers fast reads together, so that the memory they
// free is enough for as many new reads. If reads are slow, it delivers each one immediately.
func (f *Fetcher) readAll(list []*attempt, begun *[mostBegun]recordread.Begun) {
	var errs [mostBegun]error
	var ends [mostBegun]time.Time
	handedOn, since := 0, time.Now()
	for i, fl := range list {
		errs[i] = f.read(fl, begun[i])
		ends[i], begun[i] = time.Now(), recordread.Begun{}
		if x := fl.extents[0].x; x != nil && errs[i] == nil {
			// The source parses a piece of the index without the lock. The units that need it wait.
			errs[i] = recordread.Learn(f.src, x.Extent, fl.bl.b)
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

// mostBegun returns the number of reads that a reader may begin at a time. A mount may ignore readahead requests, as
// FUSE does when part of its queue is full. Reads that have begun would then run one after the other.
func (f *Fetcher) mostBegun() int {
	if f.cfg.Remote || f.cfg.Mount || f.single.Load() {
		return 1
	}
	return min(f.depth.now/leastReaders, mostBegun)
}

// start asks the system to begin a read. If the store panics, read handles it.
func (f *Fetcher) start(fl *attempt) (b recordread.Begun) {
	defer func() { _ = recover() }()
	b, ok := f.obj.Begin(fl.ctx, fl.object, fl.off, fl.size)
	if !ok {
		f.single.Store(true)
	}
	return b
}

// read reads the bytes of an attempt. A panic of the store becomes an error.
func (f *Fetcher) read(fl *attempt, b recordread.Begun) (err error) {
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

// next chooses the next read: repeated reads first, then the extent that is needed first and its neighbours.
func (f *Fetcher) next() *attempt {
	for len(f.hedge.again) > 0 {
		g := f.hedge.again[0]
		f.hedge.again = f.hedge.again[:copy(f.hedge.again, f.hedge.again[1:])]
		if !g.done {
			if fl := f.newAttempt(g, true); fl != nil {
				return fl
			}
		}
	}
	return f.nextFirst()
}

// nextFirst is next without repeated reads.
func (f *Fetcher) nextFirst() *attempt {
	for {
		w := f.choose()
		if w == nil {
			return nil
		}
		if fl := f.newAttempt(f.together(w), false); fl != nil {
			return fl
		}
	}
}

// together joins an extent and its neighbours to a request.
func (f *Fetcher) together(w *extent) *request {
	g := &request{extents: []*extent{w}}
	if w.alone {
		return g
	}
	w.taken = true
	f.view.remove(w)
	lo, hi, most := w.off, w.off+w.size, int64(maxRequest)
	for {
		n := f.view.beside(w, lo, hi, most, false)
		if n == nil {
			if n = f.view.beside(w, lo, hi, f.readaheadSpace(w, hi-lo), true); n == nil || !f.takeReadahead(n, max(hi, n.off+n.size)-min(lo, n.off)) {
				return g
			}
			g.readahead, most = true, maxReadahead
		}
		n.taken = true
		f.view.remove(n)
		lo, hi = min(lo, n.off), max(hi, n.off+n.size)
		if n.later {
			g.extents = append(g.extents, n) // it is not in a queue
			continue
		}
		if n.rush {
			f.rush.n--
		} else {
			f.queue.n--
		}
		c := f.newExtent() // n stays in the queue until its turn
		*c = *n
		g.extents = append(g.extents, c)
	}
}

// attempt returns a read for a request.
func (f *Fetcher) newAttempt(g *request, second bool) *attempt {
	w := g.extents[0]
	lo, hi := w.off, w.off+w.size
	for _, o := range g.extents[1:] {
		lo, hi = min(lo, o.off), max(hi, o.off+o.size)
	}
	fl := &attempt{request: g, object: w.object, off: lo, size: hi - lo, dst: w.dst, ctx: w.ctx, second: second}
	if w.dst != nil && second {
		fl.dst = nil
	} else if w.dst != nil && f.depth.slow >= slowRead { // otherwise it is not worth it
		fl.ctx, g.cancel = context.WithCancel(w.ctx)
	}
	if fl.dst == nil {
		alloc := f.mem.alloc
		if g.readahead {
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
		bl.refs = 1 // held by the attempt
		fl.bl = bl
		if g.readahead {
			fl.brief = pieceBytes(hi - lo)
			f.transit += fl.brief
			f.peak = max(f.peak, f.inUse())
		}
	}
	return fl
}
