package fetch

import (
	"time"

	"github.com/stokerdata/stoker/internal/budget"
)

// depth measures how many concurrent reads pay. It tries more while more reads are waiting than may be under way. It
// keeps the higher number if the bytes per second grow. That is the case if each read mostly waits: a remote store
// takes hundreds of reads, a disk at its limit few.
type depth struct {
	most int // the limit of now
	now  int
	mean time.Duration // of a read, a moving average
	slow time.Duration // about the time of the slowest recent read

	since  time.Time // of the present count
	bytes  float64
	reads  int
	busy   int // of those, when more could have been out
	before float64
	trying int  // what now was before the try, 0 for no try
	again  bool // the first count of the try brought no gain
	mount  bool // the reads are of a mount: a try ends after two slow counts
	hold   int  // counts to wait before the next try

	pause int     // hold after the last try, 0 if that one paid
	held  float64 // bytes per second before that try
	off   int     // counts in a row of another speed than that
}

const (
	firstDepth = budget.Readers
	maxDepth   = budget.MaxReaders
	// RemoteDepth is the initial number for a remote store: the first batch is complete after few round trips.
	RemoteDepth = 64
	// mountDepth is the initial number for files on a network or FUSE mount, where a read mostly waits.
	mountDepth = 32
	// wholeRead is the weight of a read in the depth. In a remote store, reads of up to smallBytes weigh smallRead:
	// they take a round trip and almost none of the link. Reads of up to halfBytes, such as photographs, weigh
	// halfRead: a gigabit link holds 64 of them in 60 ms. A read of more than largeBytes weighs as much as several,
	// because it fills the link for as long and delays the reads that are needed first.
	wholeRead  = 4
	smallRead  = 1
	smallBytes = 32 << 10
	halfRead   = 2
	halfBytes  = 256 << 10
	largeBytes = 1 << 20
	// leastCount is the minimum time of a count.
	leastCount = 50 * time.Millisecond
	// gain is the speed-up that twice as many reads must bring to be kept.
	gain = 1.1
	// holdCounts is the number of counts without a try after a try without gain. It doubles up to mostHold with each
	// such try, because a store at its limit mostly stays there. The wait ends after otherCounts counts in a row that
	// are faster or slower by the factor other: the link or the load has changed.
	holdCounts  = 40
	mostHold    = 8 * holdCounts
	other       = 1.5
	otherCounts = 3
	// readCost is the cost of a read in addition to its bytes, in bytes.
	readCost = 16 << 10
)

func (d *depth) init() { d.now, d.most, d.mean = firstDepth, maxDepth, time.Millisecond }

// start sets the first number of reads and the limit for a store.
func (d *depth) start(cfg *Config) {
	if cfg.Mount {
		d.now, d.mount = mountDepth, true
	}
	if cfg.Remote {
		d.now = RemoteDepth
	}
	if n := cfg.MostReads; n > 0 {
		d.most, d.now = n, min(d.now, n)
	}
}

// latency returns about how long a read takes.
func (d *depth) latency() time.Duration { return max(d.mean, time.Millisecond) }

// ended counts a read with a weight of several reads. It reports whether more reads may be under way now.
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
		// Everything that waits is being read, so nothing can be learnt.
		d.trying, d.before = 0, 0
	case d.trying > 0 && rate < gain*d.before && d.mount && !d.again:
		// One count may be slow for other reasons, for example other processes or a server that pauses.
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
	case d.now < d.most:
		if d.trying > 0 {
			d.pause = 0
		}
		d.trying, d.before, d.again = d.now, rate, false
		d.now = min(2*d.now, d.most)
	default:
		d.trying = 0
	}
	return d.now > last
}

// leave ends a try without a result, because something else is being tried.
func (d *depth) leave() {
	if d.trying > 0 {
		d.now, d.trying = d.trying, 0
	}
}
