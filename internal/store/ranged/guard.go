package ranged

import (
	"sync"
	"sync/atomic"
	"time"
)

// guard ends an attempt if no data arrives for too long, or if it takes too long in total. One timer serves both. A
// reader only stores the new deadline, which the timer sees when it fires.
type guard struct {
	end   func(error)
	begun time.Time
	total time.Duration
	until atomic.Int64 // deadline for the next data, since begun

	mu    sync.Mutex // for timer
	timer *time.Timer
	next  time.Duration // when the timer fires, since begun
	over  bool
}

// looksAfter is the maximum interval of the timer, so that it need not be reset if the deadline moves forward, for
// example after a header.
const looksAfter = 10 * time.Second

// newGuard returns a guard that waits up to first for data.
func newGuard(total, first time.Duration, end func(error)) *guard {
	g := &guard{end: end, begun: time.Now(), total: total}
	g.expect(first)
	return g
}

// expect sets a new wait from now on.
func (g *guard) expect(wait time.Duration) {
	g.moved(wait)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == nil || time.Duration(g.until.Load()) < g.next {
		g.arm()
	}
}

// moved is expect for a wait that is not shorter than the last one.
func (g *guard) moved(wait time.Duration) { g.until.Store(int64(time.Since(g.begun) + wait)) }

// arm sets the timer. The lock is held.
func (g *guard) arm() {
	if g.over {
		return
	}
	now := time.Since(g.begun)
	g.next = min(time.Duration(g.until.Load()), g.total, now+looksAfter)
	in := g.next - now
	if g.timer == nil {
		g.timer = time.AfterFunc(in, g.look)
		return
	}
	g.timer.Reset(in)
}

// look is called by the timer.
func (g *guard) look() {
	switch now := time.Since(g.begun); {
	case now >= g.total:
		g.end(errTotal)
	case now >= time.Duration(g.until.Load()):
		g.end(errStall)
	default:
		g.mu.Lock()
		defer g.mu.Unlock()
		g.arm()
	}
}

// stop stops the guard.
func (g *guard) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	g.timer.Stop()
}
