package fetch

import (
	"time"

	"github.com/stokerdata/stoker/internal/budget"
)

// depth finds out how many reads at a time pay. More are tried as long as there
// is more to read than may be out; they stay when the bytes per second grow with
// them, as they do where each read mostly waits: hundreds for a store that is far
// away, few for a disk that is at its limit.
type depth struct {
	now  int
	mean time.Duration // of a read, a moving average
	slow time.Duration // what the slowest of the last reads took, about

	since  time.Time // of the present count
	bytes  float64
	reads  int
	busy   int // of those, when more could have been out
	before float64
	trying int  // what now was before the try, 0 for no try
	again  bool // the first count of the try gave nothing
	mount  bool // the reads are of a mount: a try ends after two slow counts
	hold   int  // counts to wait before the next try

	pause int     // what hold was after the last try, 0 where that one paid
	held  float64 // bytes per second where that one gave nothing
	off   int     // counts in a row of another speed than that
}

const (
	firstDepth = budget.Readers
	maxDepth   = budget.MaxReaders
	// FarDepth is the first one where reads are far away: what the first batch needs is
	// there after few ways there and back.
	FarDepth = 64
	// mountDepth is the first one of files on a mount of a server or of another program (FUSE),
	// where a read mostly waits.
	mountDepth = 32
	// wholeRead is what a read weighs in the depth. Of something far away smallRead is what
	// one of smallBytes at most does, which takes the way there and back and nothing of the
	// link, and halfRead one of halfBytes at most, such as a photograph: a gigabit a second
	// holds 64 of them in 60 ms. One of more than largeBytes weighs as several of those: it
	// fills the link for as long, and what is needed first shares the link with all that is
	// out.
	wholeRead  = 4
	smallRead  = 1
	smallBytes = 32 << 10
	halfRead   = 2
	halfBytes  = 256 << 10
	largeBytes = 1 << 20
	// leastCount is how long a count lasts.
	leastCount = 50 * time.Millisecond
	// gain is what twice as many reads must give to be kept.
	gain = 1.1
	// holdCounts is how long nothing is tried after a try that gave nothing. It doubles up
	// to mostHold with each such try, as something at its limit mostly stays there, and
	// ends where otherCounts counts in a row are other times as fast or as slow as then:
	// what was learnt is of another link or another load.
	holdCounts  = 40
	mostHold    = 8 * holdCounts
	other       = 1.5
	otherCounts = 3
	// readCost is what a read costs beside its bytes, in bytes.
	readCost = 16 << 10
)

func (d *depth) init() { d.now, d.mean = firstDepth, time.Millisecond }

// latency is about how long a read takes.
func (d *depth) latency() time.Duration { return max(d.mean, time.Millisecond) }

// ended counts a read, which weighs as several, and says whether there may be more of them
// now.
func (d *depth) ended(now time.Time, took time.Duration, size int64, several int, busy bool) bool {
	d.slow = max(took, d.slow-d.slow/256)
	d.mean += (min(took, 8*d.mean+time.Millisecond) - d.mean) / 16
	if d.since.IsZero() {
		d.since = now
	}
	d.bytes += float64(size) + readCost
	d.reads += several
	if busy {
		d.busy += several
	}
	span := now.Sub(d.since)
	if span < max(leastCount, 2*d.mean) || d.reads < 2*d.now {
		return false
	}
	rate := d.bytes / span.Seconds()
	limited := d.busy > d.reads*3/4
	d.since, d.bytes, d.reads, d.busy = now, 0, 0, 0
	last := d.now
	switch {
	case !limited:
		// As many as there are to read: nothing can be learnt of it.
		d.trying, d.before = 0, 0
	case d.trying > 0 && rate < gain*d.before && d.mount && !d.again:
		// One count may be slow for other reasons: other processes, or a server that pauses.
		d.again = true
	case d.trying > 0 && rate < gain*d.before:
		d.pause = min(max(2*d.pause, holdCounts), mostHold)
		d.now, d.trying, d.hold, d.held, d.off = d.trying, 0, d.pause, d.before, 0
	case d.hold > 0:
		d.hold--
		d.trying = 0
		if rate < other*d.held && rate > d.held/other {
			d.off = 0
		} else if d.off++; d.off == otherCounts {
			d.hold, d.pause = 0, 0
		}
	case d.now < maxDepth:
		if d.trying > 0 {
			d.pause = 0
		}
		d.trying, d.before, d.again = d.now, rate, false
		d.now = min(2*d.now, maxDepth)
	default:
		d.trying = 0
	}
	return d.now > last
}

// leave ends a try without a verdict: something else is tried.
func (d *depth) leave() {
	if d.trying > 0 {
		d.now, d.trying = d.trying, 0
	}
}

// mostLoad is what the reads that are out may weigh together, and mostLearning how many
// pieces of the index of something far away may be read beside that: what is wanted now
// does not wait for the index of what comes later, nor the other way round.
func (f *Fetcher) mostLoad() int { return wholeRead * f.depth.now }

func (f *Fetcher) mostLearning() int { return min(wholeRead*f.depth.now, maxDepth/2) }

// mostReads is how many reads may be out.
func (f *Fetcher) mostReads() int {
	if !f.cfg.Far {
		return f.depth.now
	}
	return min(f.mostLoad()/smallRead+f.mostLearning(), maxDepth)
}

// mayRead says whether another read may go out, mayLearn whether one of the index may.
func (f *Fetcher) mayRead() bool {
	return f.load < f.mostLoad() && (!f.cfg.Far || f.flying < maxDepth)
}

func (f *Fetcher) mayLearn() bool {
	if !f.cfg.Far {
		return f.mayRead()
	}
	return f.learning < f.mostLearning() && f.flying < maxDepth
}

// choose takes the want that is needed first out of those for which there is room.
func (f *Fetcher) choose() *want {
	read, learn := f.mayRead(), f.mayLearn()
	if read {
		if w := f.rush.pop(f.spare); w != nil {
			return w
		}
	}
	var w, x *want
	if read && !f.held {
		w = f.queue.first(f.spare)
		if w != nil && f.early(w, time.Now()) {
			w = nil
		}
	}
	if learn {
		x = f.learn.first(f.spare)
	}
	switch {
	case x != nil && (w == nil || x.x.order <= w.u.order):
		return f.learn.pop(f.spare)
	case w != nil:
		return f.queue.pop(f.spare)
	}
	return nil
}

// early says whether a read of something far away has to wait since it is of another turn
// than those that are out: it would share the link with what the end of the epoch waits for,
// or the first batch. It may go once what they lack is no more than what comes on the way
// there and back, so that the link does not stand still. What is late holds nobody up.
func (f *Fetcher) early(w *want, now time.Time) bool {
	if !f.cfg.Far || w.u.Turn == f.last {
		return false
	}
	lack := int64(0)
	for _, fl := range f.flights {
		if !fl.done && fl.wants[0].x == nil && fl.ctx.Err() == nil && now.Sub(fl.since) < f.heldUp(fl) {
			lack += fl.size
		}
	}
	return lack > f.gaps.way()
}

// heldUp is how long a flight may hold others up.
func (f *Fetcher) heldUp(fl *flight) time.Duration {
	if !f.hedge.known() {
		return max(firstLate, f.hedge.lateFor(fl.size))
	}
	return f.hedge.lateFor(fl.size)
}

// takeOff counts a flight that begins, land one that has ended or holds nobody up any more.
func (f *Fetcher) takeOff(fl *flight) {
	f.flying++
	switch w := fl.wants[0]; {
	case !f.cfg.Far:
		fl.weight = wholeRead
	case w.x != nil && !w.rush:
		fl.learns = true
		f.learning++
		return
	case fl.size <= smallBytes || fl.size <= halfBytes && w.u != nil && w.u.Awaited:
		fl.weight = smallRead
	case fl.size <= halfBytes:
		fl.weight = halfRead
	default:
		fl.weight = wholeRead * int((fl.size+largeBytes-1)/largeBytes)
	}
	f.load += fl.weight
	if w := fl.wants[0]; w.u != nil && !w.rush {
		f.last = w.u.Turn
	}
}

func (f *Fetcher) land(fl *flight) {
	f.flying--
	f.load -= fl.weight
	if fl.learns {
		f.learning--
	}
}
