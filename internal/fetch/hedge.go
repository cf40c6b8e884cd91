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
	high float64
	// size is the moving average of their bytes; sizes is that of how far those are off,
	// squared, and both of that times how far the times are off: the slope of the line
	// through the two is both/sizes.
	size, sizes, both float64

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
	// firstLate is how long a read takes that is late while nobody knows what is usual.
	firstLate = time.Second
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
	// perByteTimes is how many times as long as its bytes make it take a large read may take.
	perByteTimes = 1.5
)

// ended learns from a read. What is far out counts as late, not as usual.
func (h *hedger) ended(took time.Duration, n int64) {
	h.reads++
	t := float64(took)
	if h.reads == 1 {
		h.mean, h.dev, h.high, h.size = t, t/2, 2*t, float64(n)
		// Until others have ended, one of twice as many bytes may take twice as long.
		h.sizes, h.both = h.size*h.size/64, h.size*t/64
		return
	}
	h.learn(t, n)
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

// known says whether enough reads have ended to say what is usual.
func (h *hedger) known() bool { return h.reads >= 2*hedgeShare }

// late is how long a read takes that is late.
func (h *hedger) late() time.Duration {
	return max(leastLate, time.Duration(min(2*h.mean+6*h.dev, max(1.15*h.high, 1.25*h.mean))))
}

// lateFor is how long a read of n bytes takes that is late. Where all that are out share a
// link that is full, one of many bytes takes longer without anybody being late, and would
// only make the link fuller if it was made again.
func (h *hedger) lateFor(n int64) time.Duration {
	more := perByteTimes * h.perByte() * max(float64(n)-h.size, 0)
	return h.late() + time.Duration(more)
}

// perByte is about how much longer a read takes for each byte that it is larger.
func (h *hedger) perByte() float64 {
	if h.sizes == 0 {
		return 0
	}
	return max(h.both/h.sizes, 0)
}

// learn learns how what a read takes depends on its size.
func (h *hedger) learn(t float64, n int64) {
	more := float64(n) - h.size
	usual := h.mean + h.perByte()*more
	far := max(8*h.dev, usual)
	t = min(max(t, usual-far), usual+far)
	h.both += (more*(t-h.mean) - h.both) / 64
	h.sizes += (more*more - h.sizes) / 64
	h.size += more / 64
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
			if w := f.queue.first(f.spare); w != nil && w.u.Turn != f.last && f.mayRead() {
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
	if !h.known() {
		return
	}
	now := time.Now()
	for _, fl := range f.flights {
		if fl.newest != fl || fl.again == maxAgain || fl.done || fl.dst != nil && fl.cancel == nil || fl.ctx.Err() != nil ||
			h.made*hedgeShare > h.reads || now.Sub(fl.since) < h.lateFor(fl.size) {
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
