package ranged

import (
	"sync"
	"sync/atomic"
	"time"
)

// guard ends an attempt when nothing has moved for too long, and when it takes too long in
// all. There is one timer for both, and who reads a body does not touch it: it says when
// something has moved, which the timer sees when it goes off.
type guard struct {
	end   func(error)
	begun time.Time
	total time.Duration
	until atomic.Int64 // since begun: until when something has to move

	mu    sync.Mutex // of timer
	timer *time.Timer
	next  time.Duration // since begun: when the timer goes off
	over  bool
}

// looksAfter is how long the timer waits at most, so that it need not be set again where
// something is expected sooner than before, as the bytes behind a header are.
const looksAfter = 10 * time.Second

// newGuard returns a guard that waits as long as first for something to move.
func newGuard(total, first time.Duration, end func(error)) *guard {
	g := &guard{end: end, begun: time.Now(), total: total}
	g.expect(first)
	return g
}

// expect waits from now on as long as that for something to move.
func (g *guard) expect(wait time.Duration) {
	g.moved(wait)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == nil || time.Duration(g.until.Load()) < g.next {
		g.arm()
	}
}

// moved is expect where nothing shorter was expected before.
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

// look is what the timer does.
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

// stop ends it.
func (g *guard) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	g.timer.Stop()
}
