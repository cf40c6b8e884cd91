package fetch

import "time"

// hedger repeats late reads: the first answer counts. If one read in a hundred takes seconds, no batch has to wait for
// it. A repeated read can also be late, so it is watched in the same way.
type hedger struct {
	// mean and dev are moving averages of the read time and of its deviation, both in nanoseconds.
	mean, dev float64
	// high is about the read time that all but a few reads stay below: see highShare.
	high float64
	// size is the moving average of the read sizes, and sizes that of their squared deviation. The field both averages
	// the product of both deviations. The slope of read time over size is both/sizes.
	size, sizes, both float64

	reads   int64
	made    int64
	again   []*request // to be read again
	timer   *time.Timer
	stopped bool
}

const (
	// leastLate is the time below which a read is never late: a second read would cost more than it gains.
	leastLate = 30 * time.Millisecond
	// firstLate is the time after which a read is late while typical times are unknown.
	firstLate = time.Second
	// hedgeShare limits the repeated reads to one in hedgeShare.
	hedgeShare = 20
	// highShare is the fraction of reads that take longer than high. If read times vary little, a read above high is
	// late. Otherwise mean and dev detect it earlier.
	highShare = 0.02
	// maxAgain limits the repeated reads of one request.
	maxAgain = 3
	// watchEvery is the interval between checks of the reads under way.
	watchEvery = 15 * time.Millisecond
	// perByteTimes is the factor by which a large read may exceed the extra time that its bytes predict.
	perByteTimes = 1.5
)

// ended learns from a read. Outliers count as late, not as typical.
func (h *hedger) ended(took time.Duration, n int64) {
	h.reads++
	t := float64(took)
	if h.reads == 1 {
		h.mean, h.dev, h.high, h.size = t, t/2, 2*t, float64(n)
		// Before other reads have ended, a read of twice as many bytes may take twice as long.
		h.sizes, h.both = h.size*h.size/64, h.size*t/64
		return
	}
	h.learn(t, n)
	// The rises and falls of high balance when highShare of the reads exceed it.
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

// known reports whether enough reads have ended to know typical times.
func (h *hedger) known() bool { return h.reads >= 2*hedgeShare }

// late returns the time after which a read is late.
func (h *hedger) late() time.Duration {
	return max(leastLate, time.Duration(min(2*h.mean+6*h.dev, max(1.15*h.high, 1.25*h.mean))))
}

// lateFor returns the time after which a read of n bytes is late. On a full link a large read takes longer without
// being late, and repeating it would only add load.
func (h *hedger) lateFor(n int64) time.Duration {
	more := perByteTimes * h.perByte() * max(float64(n)-h.size, 0)
	return h.late() + time.Duration(more)
}

// perByte returns the additional read time per byte.
func (h *hedger) perByte() float64 {
	if h.sizes == 0 {
		return 0
	}
	return max(h.both/h.sizes, 0)
}

// learn updates the dependence of read time on size.
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

// watch checks the reads under way regularly while there are any. The caller holds the lock.
func (f *Fetcher) watch() {
	h := &f.hedge
	if h.stopped || len(f.running.attempts) == 0 {
		return
	}
	if h.timer == nil {
		h.timer = time.AfterFunc(watchEvery, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.hedgeLate()
			if w := f.queues.records.first(f.queues.recycle); w != nil && w.u.Turn != f.running.last && f.mayRead() {
				f.wake() // the read that it waits for may be late by now
			}
			if !h.stopped && len(f.running.attempts) > 0 {
				h.timer.Reset(watchEvery)
			} else {
				h.timer = nil
			}
		})
	}
}

func (f *Fetcher) hedgeLate() {
	h := &f.hedge
	if !h.known() {
		return
	}
	now := time.Now()
	for _, fl := range f.running.attempts {
		if fl.newest != fl || fl.again == maxAgain || fl.done || fl.dst != nil && fl.cancel == nil || fl.ctx.Err() != nil ||
			h.made*hedgeShare > h.reads || now.Sub(fl.since) < h.lateFor(fl.size) {
			continue
		}
		fl.newest = nil
		fl.again++
		h.made++
		h.again = append(h.again, fl.request)
		f.running.late(fl)
		f.wake()
	}
}
