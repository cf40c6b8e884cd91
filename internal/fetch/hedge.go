package fetch

import "time"

// hedger has reads made again that are late: the first answer counts. Where one
// read in a hundred takes seconds, nobody has to wait for it; since among as many
// there is one whose second read is late too, that is looked after alike.
type hedger struct {
	// mean and dev are the moving average of what reads take and of how far they
	// are off, both in nanoseconds.
	mean, dev float64
	// high is about what all but a few reads take at most: see highShare.
	high    float64
	reads   int64
	made    int64
	out     int     // reads under way that are not the first ones of their goal
	stuck   int     // first reads under way that are late and made again
	again   []*goal // that are to be read again
	timer   *time.Timer
	stopped bool
}

const (
	// leastLate is how long a read may always take: below that a second one costs
	// more than it gains.
	leastLate = 30 * time.Millisecond
	// hedgeShare bounds the reads that are made again: one in so many.
	hedgeShare = 20
	// highShare is the share of reads that take longer than high. Where answers take
	// about as long as each other, one that takes longer is late; where they do not,
	// mean and dev say it earlier.
	highShare = 0.02
	// maxAgain bounds them for one goal.
	maxAgain = 3
	// watchEvery is how often reads that are under way are looked at.
	watchEvery = 15 * time.Millisecond
)

// ended learns from a read. What is far out counts as late, not as usual.
func (h *hedger) ended(took time.Duration) {
	h.reads++
	t := float64(took)
	if h.reads == 1 {
		h.mean, h.dev, h.high = t, t/2, 2*t
		return
	}
	// It goes up as often as it should be exceeded, by as much more as that is rarer.
	if t > h.high {
		h.high += (1 - highShare) * h.dev / 2
	} else {
		h.high -= highShare * h.dev / 2
	}
	t = min(t, h.mean+8*h.dev+float64(time.Millisecond))
	off := t - h.mean
	h.mean += off / 16
	if off < 0 {
		off = -off
	}
	h.dev += (off - h.dev) / 16
}

// late is how long a read takes that is late.
func (h *hedger) late() time.Duration {
	return max(leastLate, time.Duration(min(2*h.mean+6*h.dev, max(1.15*h.high, 1.25*h.mean))))
}

func (h *hedger) stop() {
	h.stopped = true
	if h.timer != nil {
		h.timer.Stop()
	}
}

// watch looks at the reads under way, now and then, while there are any. The
// lock is held.
func (f *Fetcher) watch() {
	h := &f.hedge
	if h.stopped || len(f.flights) == 0 {
		return
	}
	if h.timer == nil {
		h.timer = time.AfterFunc(watchEvery, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lookForLate()
			if w := f.queue.first(f.spare); w != nil && w.u.Epoch != f.epoch && f.mayRead() {
				f.wake() // what it waits for may be late by now
			}
			if !h.stopped && len(f.flights) > 0 {
				h.timer.Reset(watchEvery)
			} else {
				h.timer = nil
			}
		})
	}
}

func (f *Fetcher) lookForLate() {
	h := &f.hedge
	if h.reads < 2*hedgeShare {
		return // it is not known yet what is usual
	}
	now, late := time.Now(), h.late()
	for _, fl := range f.flights {
		if fl.newest != fl || fl.again == maxAgain || fl.done || fl.dst != nil && fl.cancel == nil || fl.ctx.Err() != nil ||
			now.Sub(fl.since) < late || h.made*hedgeShare > h.reads {
			continue
		}
		fl.newest = nil
		fl.again++
		h.made++
		h.again = append(h.again, fl.goal)
		if !fl.second { // it holds nobody up any more
			fl.stuck = true
			f.land(fl)
			h.stuck++
		}
		f.wake()
	}
}
