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
	trying int // what now was before the try, 0 for no try
	hold   int // counts to wait before the next try
}

const (
	firstDepth = budget.Readers
	maxDepth   = budget.MaxReaders
	// farDepth is the first one where reads are far away: what the first batch needs is
	// there after few ways there and back.
	farDepth = 64
	// leastCount is how long a count lasts.
	leastCount = 50 * time.Millisecond
	// gain is what twice as many reads must give to be kept.
	gain = 1.1
	// holdCounts is how long nothing is tried after a try that gave nothing.
	holdCounts = 40
	// readCost is what a read costs beside its bytes, in bytes.
	readCost = 16 << 10
)

func (d *depth) init() { d.now, d.mean = firstDepth, time.Millisecond }

// latency is about how long a read takes.
func (d *depth) latency() time.Duration { return max(d.mean, time.Millisecond) }

// ended counts a read, and says whether there may be more of them now.
func (d *depth) ended(now time.Time, took time.Duration, size int64, busy bool) bool {
	d.slow = max(took, d.slow-d.slow/256)
	d.mean += (min(took, 8*d.mean+time.Millisecond) - d.mean) / 16
	if d.since.IsZero() {
		d.since = now
	}
	d.bytes += float64(size) + readCost
	d.reads++
	if busy {
		d.busy++
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
	case d.trying > 0 && rate < gain*d.before:
		d.now, d.trying, d.hold = d.trying, 0, holdCounts
	case d.hold > 0:
		d.hold--
		d.trying = 0
	case d.now < maxDepth:
		d.trying, d.before = d.now, rate
		d.now = min(2*d.now, maxDepth)
	default:
		d.trying = 0
	}
	return d.now > last
}
