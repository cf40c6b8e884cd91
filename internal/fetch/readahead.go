package fetch

import "time"

// readahead measures whether reading ahead is free. It is free if a read costs more than its bytes. On a full link it
// delays records that are needed now. So the bytes per second are counted with it and without it from time to time.
type readahead struct {
	// may reports that readahead is allowed. on reports that it is active at present.
	may, on bool
	// slack reports that the reads kept up during the last count, so no worker waits for records that are read ahead.
	slack bool
	// hold is the number of counts before the next measurement. pause is the last value of hold after a measurement
	// without benefit.
	hold, pause int
	// skip is the number of reads that began before the present count and have not ended.
	skip          int
	since         time.Time
	count         rate
	with, without rate // counted since hold was 0
}

const (
	// readaheadCount and readaheadReads are the minimum time and number of reads of a count.
	readaheadCount = 150 * time.Millisecond
	readaheadReads = 48
	// readaheadHold is the number of counts before the next try when readahead did not pay. It grows up to
	// readaheadMost when that happens again. readaheadStays is the number of counts before the next check when it did
	// pay.
	readaheadHold  = 16
	readaheadMost  = 16 * readaheadHold
	readaheadStays = 32
	// comesFree is the fraction of the bytes read ahead by which the bytes per second must grow.
	comesFree = 0.2
)

// rate is the number of bytes and reads in a time span.
type rate struct {
	bytes int64
	reads int
	busy  int // of those, when more could have been out
	span  time.Duration
}

// begin starts a count. The out reads that are under way are excluded from it.
func (a *readahead) begin(out int) { a.skip, a.since, a.count = out, time.Time{}, rate{} }

// needsMemory reports that the admitted units should stay within the window, to leave memory for readahead.
func (a *readahead) needsMemory() bool { return a.on || a.may && a.undecided() }

// undecided reports that a measurement is in progress.
func (a *readahead) undecided() bool { return a.hold == 0 }

// ended counts a read while out others are under way. It reports whether the next count tries the other setting. busy
// reports that more reads could have been under way.
func (a *readahead) ended(now time.Time, size int64, out int, busy bool) bool {
	if a.skip > 0 {
		a.skip--
		return false
	}
	if a.since.IsZero() {
		a.since = now
		return false
	}
	a.count.bytes += size
	a.count.reads++
	if busy {
		a.count.busy++
	}
	a.count.span = now.Sub(a.since)
	if a.count.span < readaheadCount || a.count.reads < readaheadReads {
		return false
	}
	c := a.count
	a.begin(0)
	a.slack = c.busy <= c.reads*3/4
	switch {
	case a.slack: // nothing can be learnt from it
		if a.hold == 0 {
			a.on, a.with, a.without = true, rate{}, rate{}
		}
		return false
	case a.hold > 0:
		a.hold--
		return false
	case a.on:
		a.with = c
	default:
		a.without = c
	}
	if a.with.reads == 0 || a.without.reads == 0 {
		a.on = !a.on
		a.begin(out)
		return true
	}
	if a.on = a.without.less(&a.with); a.on {
		a.pause, a.hold = 0, readaheadStays
	} else {
		a.pause = min(max(2*a.pause, readaheadHold), readaheadMost)
		a.hold = a.pause
	}
	a.with, a.without = rate{}, rate{}
	return false
}

// less reports whether the larger reads of with bring enough more bytes per second than the reads of r.
func (r *rate) less(with *rate) bool {
	larger := float64(with.bytes) / float64(with.reads) / (float64(r.bytes) / float64(r.reads))
	faster := float64(with.bytes) / with.span.Seconds() / (float64(r.bytes) / r.span.Seconds())
	return larger > 1 && faster > 1+comesFree*(larger-1)
}
