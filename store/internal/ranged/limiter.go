package ranged

import (
	"context"
	"sync"
	"time"
)

// limiter keeps the requests to an endpoint below the rate at which it begins to
// refuse them. It does nothing until the first refusal. Then it lets requests out
// evenly, a little slower than they were answered; the rate grows again, slowly at
// first, near where it was too much, and faster the longer nothing is refused, until
// there is no limit any more.
type limiter struct {
	mu    sync.Mutex
	rate  float64 // requests per second, 0 for no limit
	next  time.Time
	queue []chan struct{} // who waits, in order
	timer *time.Timer

	// The growth.
	step     float64 // by how much the rate grows next
	since    time.Time
	ceiling  float64 // the rate at which it was too much last, 0 when it was never paced
	cut      time.Time
	answered window
	refused  window
	sent     int // since the last step
}

const (
	// growEvery is how long a rate stays.
	growEvery = 250 * time.Millisecond
	// firstStep is by how much it grows first; each time nothing is refused it is
	// twice as much.
	firstStep = 0.01
	// slowStart is how it grows until the rate is known that is too much.
	slowStart = 0.7
	// holdFor is how long it does not grow after a refusal.
	holdFor = time.Second
	// headroom is the share of what was answered that is asked for after a refusal.
	headroom = 0.95
	// noLimit is how many times the last rate that was too much ends the limit.
	noLimit = 32
	// late is how long a timer may be late for what was missed to be made up.
	late = 10 * time.Millisecond
	// stray is the share of requests that may be refused without it being too much:
	// some servers do that now and then, however little is asked.
	stray    = 0.03
	fewStray = 4
	// leastRate is the least that is asked for, in requests per second.
	leastRate = 4
)

// window counts answers in the last second or so.
type window struct {
	slots [10]int
	slot  int64 // number of the last slot that was counted in
	first int64
}

const windowSlot = 100 * time.Millisecond

func (w *window) add(now time.Time, n int) {
	s := now.UnixNano() / int64(windowSlot)
	if w.first == 0 || s-w.slot > 10*int64(len(w.slots)) {
		w.first, w.slot = s, s
		clear(w.slots[:])
	}
	for ; w.slot < s; w.slot++ {
		w.slots[(w.slot+1)%int64(len(w.slots))] = 0
	}
	w.slots[s%int64(len(w.slots))] += n
}

func (w *window) sum() (n int) {
	for _, k := range w.slots {
		n += k
	}
	return n
}

// rate is answers per second.
func (w *window) rate(now time.Time) float64 {
	w.add(now, 0)
	n := w.sum()
	span := min(max(w.slot-w.first+1, 3), int64(len(w.slots)))
	return float64(n) / (time.Duration(span) * windowSlot).Seconds()
}

// wait waits for its turn.
func (l *limiter) wait(ctx context.Context) error {
	l.mu.Lock()
	if l.rate == 0 && len(l.queue) == 0 {
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.queue = append(l.queue, turn)
	l.release()
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, c := range l.queue {
			if c == turn {
				l.queue = append(l.queue[:i], l.queue[i+1:]...)
				break
			}
		}
		return context.Cause(ctx)
	}
}

// release lets those go whose turn it is, and comes back when it is the next one's.
// The lock is held.
func (l *limiter) release() {
	now := time.Now()
	l.grow(now)
	for len(l.queue) > 0 {
		if l.rate > 0 {
			if wait := l.next.Sub(now); wait > 0 {
				l.wake(wait)
				return
			}
			// What was not used is not saved up: a burst is what is refused. Timers may
			// be late, though.
			if now.Sub(l.next) > late {
				l.next = now.Add(-late)
			}
			l.next = l.next.Add(time.Duration(float64(time.Second) / l.rate))
		}
		close(l.queue[0])
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.sent++
	}
}

func (l *limiter) wake(in time.Duration) {
	if l.timer != nil {
		l.timer.Reset(in)
		return
	}
	l.timer = time.AfterFunc(in, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.release()
	})
}

// grow raises the rate when it is time. The lock is held.
func (l *limiter) grow(now time.Time) {
	span := now.Sub(l.since)
	if l.rate == 0 || span < growEvery {
		return
	}
	used := float64(l.sent) >= 0.7*l.rate*span.Seconds()-1
	l.since, l.sent = now, 0
	if !used {
		return // nobody knows whether more would be answered
	}
	l.rate *= 1 + l.step
	if l.ceiling > 0 {
		l.step *= 2
	}
	if l.rate > noLimit*max(l.ceiling, 100) {
		l.rate, l.ceiling = 0, 0
	}
}

// done notes an answer to what was sent at a time.
func (l *limiter) done(sent time.Time, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !refused {
		l.answered.add(now, 1)
		return
	}
	l.refused.add(now, 1)
	if !sent.After(l.cut) {
		return // it was sent before the rate was cut
	}
	good, bad := l.answered.rate(now), l.refused.rate(now)
	if bad <= stray*(good+bad) || l.refused.sum() < fewStray {
		return
	}
	good *= headroom
	if l.rate == 0 {
		l.rate, l.step, l.ceiling = max(good, leastRate), slowStart, 0
	} else {
		l.ceiling = l.rate
		l.rate = max(min(good, l.rate*headroom), l.rate/2, leastRate)
		l.step = firstStep
	}
	l.cut, l.sent = now, 0
	l.refused = window{} // those were answered by that
	l.since = now
	if l.ceiling > 0 {
		l.since = now.Add(holdFor - growEvery)
	}
	l.next = now.Add(time.Duration(float64(time.Second) / l.rate))
	if len(l.queue) > 0 {
		l.wake(l.next.Sub(now))
	}
}
