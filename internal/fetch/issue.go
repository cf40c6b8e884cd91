package fetch

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/recordread"
)

// readers are the goroutines that read.
type readers struct {
	n      int
	parked int         // waiting for work
	work   sync.Cond   // of Fetcher.mu: there is a read to start, or the depth has grown
	single atomic.Bool // the reader waits for each read separately
	closed bool
}

const (
	// mostBegun is the number of reads that a reader begins before it waits for the first one. All but the last have at
	// most beginBytes together.
	mostBegun  = 32
	beginBytes = 512 << 10
	// leastReaders is the number of readers that share the allowed reads.
	leastReaders = 4
)

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
	case f.readers.closed:
	case f.readers.parked > 0:
		// The reader counts as woken from now on. It takes the lock only later, and until then others may be woken,
		// each by its own signal.
		f.readers.parked--
		f.readers.work.Signal()
	case f.readers.n < f.mostReaders():
		f.readers.n++
		f.wg.Add(1)
		go f.reader()
	}
}

// mostLoad returns the limit for the weight of the reads under way. mostLearning returns the limit for reads of a
// remote index, which are counted separately. So the next records do not wait for the index of later records, or the
// other way round.
func (f *Fetcher) mostLoad() int { return wholeRead * f.share(f.depth.now) }

// share returns the part of n reads that this pipeline of an engine may use.
func (f *Fetcher) share(n int) int {
	if f.cfg.Share == nil {
		return n
	}
	return max(int(float64(n)*f.cfg.Share()), min(n, firstDepth))
}

func (f *Fetcher) mostLearning() int { return min(wholeRead*f.depth.now, maxDepth/2) }

// mostReaders returns the number of goroutines that may read. Late reads and their repetitions need more, unless the
// owner limits the reads.
func (f *Fetcher) mostReaders() int {
	n := f.mostReads() + f.running.stuck + f.running.second + len(f.hedge.again)
	if f.cfg.MostReads > 0 {
		n = min(n, f.cfg.MostReads)
	}
	return n
}

// mostReads returns the number of reads that may be under way.
func (f *Fetcher) mostReads() int {
	if !f.cfg.Remote {
		return f.depth.now
	}
	return min(f.mostLoad()/smallRead+f.mostLearning(), maxDepth)
}

// mayRead reports whether another read may start. mayLearn reports the same for a read of the index.
func (f *Fetcher) mayRead() bool {
	return f.running.load < f.mostLoad() && (!f.cfg.Remote || f.running.count() < f.share(maxDepth))
}

func (f *Fetcher) mayLearn() bool {
	if !f.cfg.Remote {
		return f.mayRead()
	}
	return f.running.learning < f.mostLearning() && f.running.count() < f.share(maxDepth)
}

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
	for !f.readers.closed {
		fl := f.next()
		if fl == nil {
			f.readers.parked++
			f.readers.work.Wait()
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
		if f.mayRead() && f.queues.records.n+f.queues.urgent.n > 0 || f.mayLearn() && f.queues.index.n > 0 {
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
	f.readers.n--
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
		full := f.running.load > (f.depth.now-1)*wholeRead
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
	if f.cfg.Remote || f.cfg.Mount || f.readers.single.Load() {
		return 1
	}
	return min(f.depth.now/leastReaders, mostBegun)
}

// start asks the system to begin a read. If the store panics, read handles it.
func (f *Fetcher) start(fl *attempt) (b recordread.Begun) {
	defer func() { _ = recover() }()
	b, ok := f.obj.Begin(fl.ctx, fl.object, fl.off, fl.size)
	if !ok {
		f.readers.single.Store(true)
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

// choose removes and returns the extent that is needed first among those that may be read now.
func (f *Fetcher) choose() *extent {
	read, learn := f.mayRead(), f.mayLearn()
	if read {
		if w := f.queues.urgent.pop(f.queues.recycle); w != nil {
			return w
		}
	}
	var w, x *extent
	if read && !f.queues.held {
		w = f.queues.records.first(f.queues.recycle)
		if w != nil && f.early(w, time.Now()) {
			w = nil
		}
	}
	if learn {
		x = f.queues.index.first(f.queues.recycle)
	}
	switch {
	case x != nil && (w == nil || x.x.order <= w.u.order):
		return f.queues.index.pop(f.queues.recycle)
	case w != nil:
		return f.queues.records.pop(f.queues.recycle)
	}
	return nil
}

// early reports whether a read from a remote store has to wait because it has a different turn than the reads under
// way. It would share the link with reads for the end of the epoch or the first batch. It may start when their missing
// bytes arrive within a round trip, so that the link stays busy. Late reads delay no other read.
func (f *Fetcher) early(w *extent, now time.Time) bool {
	if !f.cfg.Remote || w.u.Turn == f.running.last {
		return false
	}
	lack := int64(0)
	for _, fl := range f.running.attempts {
		if !fl.done && fl.extents[0].x == nil && fl.ctx.Err() == nil && now.Sub(fl.since) < f.heldUp(fl) {
			lack += fl.size
		}
	}
	return lack > f.gaps.way()
}

// heldUp returns how long an attempt may delay others.
func (f *Fetcher) heldUp(fl *attempt) time.Duration {
	if !f.hedge.known() {
		return max(firstLate, f.hedge.lateFor(fl.size))
	}
	return f.hedge.lateFor(fl.size)
}

// together joins an extent and its neighbours to a request.
func (f *Fetcher) together(w *extent) *request {
	g := &request{extents: []*extent{w}}
	if w.alone {
		return g
	}
	w.taken = true
	f.queues.view.remove(w)
	lo, hi, most := w.off, w.off+w.size, int64(maxRequest)
	for {
		n := f.queues.view.beside(w, lo, hi, most, false)
		if n == nil {
			if n = f.queues.view.beside(w, lo, hi, f.readaheadSpace(w, hi-lo), true); n == nil || !f.takeReadahead(n, max(hi, n.off+n.size)-min(lo, n.off)) {
				return g
			}
			g.readahead, most = true, maxReadahead
		}
		n.taken = true
		f.queues.view.remove(n)
		lo, hi = min(lo, n.off), max(hi, n.off+n.size)
		if n.later {
			g.extents = append(g.extents, n) // it is not in a queue
			continue
		}
		f.queues.joined(n)
		c := f.queues.spare.take() // n stays in the queue until its turn
		*c = *n
		g.extents = append(g.extents, c)
	}
}

// newAttempt returns a read for a request.
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
			f.account.begin(fl, pieceBytes(hi-lo))
		}
	}
	return fl
}
