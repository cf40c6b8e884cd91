package fetch

import (
	"time"

	"github.com/stokerdata/stoker/internal/budget"
)

// gaps decides how far apart two extents may be that are read together: what lies
// between them is read along where that costs less than a read of its own.
type gaps struct {
	far, exact bool

	// Of what is far away: the shortest time that a read takes, about, and how many bytes
	// a second come.
	least time.Duration
	rate  float64
	// trip is the shortest of the reads that are mostly a way there and back.
	trip time.Duration

	since time.Time // of the present count
	bytes int64
	reads int
}

const (
	// maxGap is the most that is read along.
	maxGap = 16 << 10
	// readWork is what a read of something far away takes of this machine's time.
	readWork = 60 * time.Microsecond
	// mostWay is the most that way says.
	mostWay = 2 << 20
	// rateCount and rateReads are how long the rate of bytes is counted at least.
	rateCount = 200 * time.Millisecond
	rateReads = 64
)

// most is how far apart extents may be at present. Of what is far away as many may be
// read at a time as there are slots, so that one read costs a slot for as long as a way
// there and back takes, and the work of asking: bytes that come in that time cost as
// much.
func (g *gaps) most() int64 {
	switch {
	case g.exact:
		return 0
	case !g.far || g.rate == 0:
		return maxGap
	}
	cost := g.least/budget.MaxReaders + readWork
	return min(int64(g.rate*cost.Seconds()), maxGap)
}

// way is how many bytes come while a question is on its way there, and its answer back: mostWay
// at most, for of a link that is full the shortest read is longer than that. 0 while it is
// not known.
func (g *gaps) way() int64 { return min(int64(g.rate*g.trip.Seconds()), mostWay) }

// ended counts a read.
func (g *gaps) ended(now time.Time, took time.Duration, size int64) {
	if !g.far {
		return
	}
	if g.least == 0 || took < g.least {
		g.least = took
	} else {
		g.least += min(took-g.least, g.least) / 8192
	}
	if size <= halfBytes && (g.trip == 0 || took < g.trip) {
		g.trip = took
	}
	if g.since.IsZero() {
		g.since = now
	}
	g.bytes += size
	g.reads++
	if span := now.Sub(g.since); span >= rateCount && g.reads >= rateReads {
		// While nobody wants more, fewer come than could.
		g.rate = max(float64(g.bytes)/span.Seconds(), g.rate-g.rate/16)
		g.since, g.bytes, g.reads = now, 0, 0
	}
}
