package fetch

import (
	"time"

	"github.com/stokerdata/stoker/internal/budget"
)

// gaps decides how far apart two extents may be that are read together. The bytes between them are also read if that
// costs less than a second read.
type gaps struct {
	remote, exact bool

	// For a remote store: about the shortest time that a read takes, and the number of bytes per second.
	least time.Duration
	rate  float64
	// trip is the shortest time of a small read, which is about a round trip.
	trip time.Duration

	since time.Time // of the present count
	bytes int64
	reads int
}

const (
	// maxGap is the largest gap that is read.
	maxGap = 16 << 10
	// readWork is the processor time that a read from a remote store takes.
	readWork = 60 * time.Microsecond
	// mostWay is the largest result of way.
	mostWay = 2 << 20
	// rateCount and rateReads are the minimum time and number of reads for a count of the rate.
	rateCount = 200 * time.Millisecond
	rateReads = 64
)

// most returns the largest gap at present. In a remote store, a read occupies one of the slots for a round trip and
// takes some processor time. Bytes that arrive in that time cost as much as the read.
func (g *gaps) most() int64 {
	switch {
	case g.exact:
		return 0
	case !g.remote || g.rate == 0:
		return maxGap
	}
	cost := g.least/budget.MaxReaders + readWork
	return min(int64(g.rate*cost.Seconds()), maxGap)
}

// way returns the number of bytes that arrive during a round trip, 0 if that is not known. The limit is mostWay,
// because on a full link the shortest read takes longer than a round trip.
func (g *gaps) way() int64 { return min(int64(g.rate*g.trip.Seconds()), mostWay) }

// ended counts a read.
func (g *gaps) ended(now time.Time, took time.Duration, size int64) {
	if !g.remote {
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
		// With little demand, fewer bytes come than the link allows.
		g.rate = max(float64(g.bytes)/span.Seconds(), g.rate-g.rate/16)
		g.since, g.bytes, g.reads = now, 0, 0
	}
}
