package ranged

import (
	"encoding/binary"
	"math"
	"time"
)

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

// pace is what is known of how much an endpoint takes, by all who ask it. It does
// nothing until the first refusal. Then it lets requests out evenly, a little slower than
// they were answered; the rate grows again, slowly at first, near where it was too much,
// and faster the longer nothing is refused, until there is no limit any more.
//
// It has a fixed size, and times of it are nanoseconds since 1970, since processes share
// it.
type pace struct {
	Rate float64 // requests per second, 0 for no limit
	Next int64   // when the next request may go
	Seen int64   // when anybody last looked at it

	// The growth.
	Step     float64 // by how much the rate grows next
	Since    int64
	Ceiling  float64 // the rate at which it was too much last, 0 when it was never paced
	Cut      int64
	Answered window
	Refused  window
	Sent     int64 // since the last step
}

// window counts answers in the last second or so.
type window struct {
	Slots [10]int64
	Slot  int64 // number of the last slot that was counted in
	First int64
}

const windowSlot = 100 * time.Millisecond

func (w *window) add(now time.Time, n int64) {
	s := now.UnixNano() / int64(windowSlot)
	if w.First == 0 || s-w.Slot > 10*int64(len(w.Slots)) || s < w.Slot-1 {
		w.First, w.Slot = s, s
		clear(w.Slots[:])
	}
	for ; w.Slot < s; w.Slot++ {
		w.Slots[(w.Slot+1)%int64(len(w.Slots))] = 0
	}
	w.Slots[s%int64(len(w.Slots))] += n
}

// sane says whether somebody can have counted so.
func (w *window) sane() bool {
	for _, n := range w.Slots {
		if n < 0 || n > 1e9 {
			return false
		}
	}
	return w.Slot >= 0 && w.First >= 0
}

func (w *window) sum() (n int64) {
	for _, k := range w.Slots {
		n += k
	}
	return n
}

// rate is answers per second.
func (w *window) rate(now time.Time) float64 {
	w.add(now, 0)
	n := w.sum()
	span := min(max(w.Slot-w.First+1, 3), int64(len(w.Slots)))
	return float64(n) / (time.Duration(span) * windowSlot).Seconds()
}

// between is the time from one note to now.
func between(from int64, now time.Time) time.Duration { return time.Duration(now.UnixNano() - from) }

// wait is how long it is until the next request may go, 0 where there is no limit.
func (p *pace) wait(now time.Time) time.Duration {
	if p.Rate == 0 {
		return 0
	}
	return max(-between(p.Next, now), 0)
}

// take takes the turn of a request.
func (p *pace) take(now time.Time) {
	p.Sent++
	if p.Rate == 0 {
		return
	}
	// What was not used is not saved up: a burst is what is refused. Timers may be late,
	// though.
	p.Next = max(p.Next, now.Add(-late).UnixNano()) + int64(float64(time.Second)/p.Rate)
}

// due says whether it is time to look whether the rate grows.
func (p *pace) due(now time.Time) bool { return p.Rate > 0 && between(p.Since, now) >= growEvery }

// grow raises the rate when it is time.
func (p *pace) grow(now time.Time) {
	if !p.due(now) {
		return
	}
	span := between(p.Since, now)
	used := float64(p.Sent) >= 0.7*p.Rate*span.Seconds()-1
	p.Since, p.Sent = now.UnixNano(), 0
	if !used {
		return // nobody knows whether more would be answered
	}
	p.Rate *= 1 + p.Step
	if p.Ceiling > 0 {
		p.Step *= 2
	}
	if p.Rate > noLimit*max(p.Ceiling, 100) {
		p.Rate, p.Ceiling = 0, 0
	}
}

// refuse notes that what was sent at a time was refused, and says whether the rate was
// cut.
func (p *pace) refuse(sent, now time.Time) bool {
	p.Refused.add(now, 1)
	if sent.UnixNano() <= p.Cut {
		return false // it was sent before the rate was cut
	}
	good, bad := p.Answered.rate(now), p.Refused.rate(now)
	if bad <= stray*(good+bad) || p.Refused.sum() < fewStray {
		return false
	}
	good *= headroom
	if p.Rate == 0 {
		p.Rate, p.Step, p.Ceiling = max(good, leastRate), slowStart, 0
	} else {
		p.Ceiling = p.Rate
		p.Rate = max(min(good, p.Rate*headroom), p.Rate/2, leastRate)
		p.Step = firstStep
	}
	p.Cut, p.Sent = now.UnixNano(), 0
	p.Refused = window{} // those were answered by that
	p.Since = now.UnixNano()
	if p.Ceiling > 0 {
		p.Since = now.Add(holdFor - growEvery).UnixNano()
	}
	p.Next = now.UnixNano() + int64(float64(time.Second)/p.Rate)
	return true
}

const (
	// forgetAfter is how long nobody may have asked for what is known to count.
	forgetAfter = time.Minute
	// farAhead is more than any time of a pace lies ahead.
	farAhead = 10 * time.Second
)

// fresh makes a pace that says nothing of one that is old, or that nobody can have
// written.
func (p *pace) fresh(now time.Time) {
	ahead := func(at int64) bool { return between(at, now) < -farAhead }
	bad := func(v float64) bool { return math.IsNaN(v) || v < 0 || v > 1e9 }
	if bad(p.Rate) || bad(p.Step) || bad(p.Ceiling) || p.Rate > 0 && p.Rate < leastRate || ahead(p.Next) || ahead(p.Since) || ahead(p.Seen) || ahead(p.Cut) ||
		between(p.Seen, now) > forgetAfter || !p.Answered.sane() || !p.Refused.sane() {
		*p = pace{}
	}
	p.Seen = now.UnixNano()
}

// bytes is its form in a file.
func (p *pace) bytes() []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, p) // it has a fixed size
	return b
}

// parse reads it back; what cannot be one is a pace that says nothing.
func (p *pace) parse(b []byte) {
	if n, err := binary.Decode(b, binary.LittleEndian, p); err != nil || n != len(b) {
		*p = pace{}
	}
}
