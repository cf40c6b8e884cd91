package ranged

import (
	"encoding/binary"
	"math"
	"time"
)

const (
	// growEvery is how long a rate stays unchanged.
	growEvery = 250 * time.Millisecond
	// firstStep is the first step of the rate's growth. Without refusals the step doubles each time.
	firstStep = 0.01
	// slowStart is the growth before the maximum rate is known.
	slowStart = 0.7
	// holdFor is how long the rate does not grow after a refusal.
	holdFor = time.Second
	// headroom is the share of the answered rate that is used after a refusal.
	headroom = 0.95
	// noLimit: a rate of this many times the last refused rate means that there is no limit.
	noLimit = 32
	// late is the maximum delay of a timer that is made up for.
	late = 10 * time.Millisecond
	// stray is the share of refused requests that is ignored. Some servers refuse a few requests at any rate.
	stray    = 0.03
	fewStray = 4
	// leastRate is the minimum rate in requests per second.
	leastRate = 4
)

// pace is the known capacity of an endpoint, shared by all clients. It has no effect until the first refusal. Then
// it spaces requests evenly, a little slower than they were answered. The rate grows again: slowly near the refused
// rate, and faster the longer no request is refused, until there is no limit.
//
// It has a fixed size and its times are in nanoseconds since 1970, because processes share it.
type pace struct {
	Rate float64 // requests per second, 0 for no limit
	Next int64   // time of the next request
	Seen int64   // time of the last access

	// Growth.
	Step     float64 // next growth of the rate
	Since    int64
	Ceiling  float64 // last refused rate, 0 if never paced
	Cut      int64
	Answered window
	Refused  window
	Sent     int64 // requests since the last step
}

// window counts answers in the last second, approximately.
type window struct {
	Slots [10]int64
	Slot  int64 // number of the last used slot
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

// sane reports whether the counts are plausible.
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

// rate returns answers per second.
func (w *window) rate(now time.Time) float64 {
	w.add(now, 0)
	n := w.sum()
	span := min(max(w.Slot-w.First+1, 3), int64(len(w.Slots)))
	return float64(n) / (time.Duration(span) * windowSlot).Seconds()
}

// between returns the time from a stored time to now.
func between(from int64, now time.Time) time.Duration { return time.Duration(now.UnixNano() - from) }

// wait returns the time until the next request may go, 0 if there is no limit.
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
	// Unused turns are not saved up, because bursts are refused. Only the delay of a timer is made up for.
	p.Next = max(p.Next, now.Add(-late).UnixNano()) + int64(float64(time.Second)/p.Rate)
}

// due reports whether it is time to check for growth.
func (p *pace) due(now time.Time) bool { return p.Rate > 0 && between(p.Since, now) >= growEvery }

// grow raises the rate if it is due.
func (p *pace) grow(now time.Time) {
	if !p.due(now) {
		return
	}
	span := between(p.Since, now)
	used := float64(p.Sent) >= 0.7*p.Rate*span.Seconds()-1
	p.Since, p.Sent = now.UnixNano(), 0
	if !used {
		return // the rate was not used, so nothing is known
	}
	p.Rate *= 1 + p.Step
	if p.Ceiling > 0 {
		p.Step *= 2
	}
	if p.Rate > noLimit*max(p.Ceiling, 100) {
		p.Rate, p.Ceiling = 0, 0
	}
}

// refuse notes that a request sent at a time was refused, and reports whether the rate was cut.
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
	p.Refused = window{} // the cut accounts for them
	p.Since = now.UnixNano()
	if p.Ceiling > 0 {
		p.Since = now.Add(holdFor - growEvery).UnixNano()
	}
	p.Next = now.UnixNano() + int64(float64(time.Second)/p.Rate)
	return true
}

const (
	// forgetAfter is the age from which a pace is ignored.
	forgetAfter = time.Minute
	// farAhead is more than any valid time is ahead.
	farAhead = 10 * time.Second
)

// fresh resets a pace that is old or implausible.
func (p *pace) fresh(now time.Time) {
	ahead := func(at int64) bool { return between(at, now) < -farAhead }
	bad := func(v float64) bool { return math.IsNaN(v) || v < 0 || v > 1e9 }
	if bad(p.Rate) || bad(p.Step) || bad(p.Ceiling) || p.Rate > 0 && p.Rate < leastRate || ahead(p.Next) || ahead(p.Since) || ahead(p.Seen) || ahead(p.Cut) ||
		between(p.Seen, now) > forgetAfter || !p.Answered.sane() || !p.Refused.sane() {
		*p = pace{}
	}
	p.Seen = now.UnixNano()
}

// bytes encodes the pace.
func (p *pace) bytes() []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, p) // it has a fixed size
	return b
}

// parse decodes a pace. Invalid data gives an empty pace.
func (p *pace) parse(b []byte) {
	if n, err := binary.Decode(b, binary.LittleEndian, p); err != nil || n != len(b) {
		*p = pace{}
	}
}
