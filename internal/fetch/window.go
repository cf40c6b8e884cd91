package fetch

import "time"

// window limits the memory of units that are read ahead and have no batch yet. It grows when the workers run dry, so
// that no more is read ahead than needed. Memory that it leaves free is used for readahead (prefetch.go).
type window struct {
	now         int64 // the limit at present
	least, most int64
	grown       time.Time
	sinceDry    int // units handed out since the workers last ran dry
}

const (
	// firstWindow is the number of bytes that are read ahead at first.
	firstWindow = 16 << 20
	// remoteWindow is firstWindow for a remote store: more than one batch of photographs.
	remoteWindow = 64 << 20
	// slowRead is the latency of the slowest reads from which a larger window helps. Faster reads come from the
	// system's cache and take processor time, which reading ahead does not save.
	slowRead = 5 * time.Millisecond
	// shrinkAfter is the number of units that must be ready in time before the window shrinks.
	shrinkAfter = 2048
)

func (w *window) init(most int64, remote bool) {
	w.least, w.most = min(firstWindow, most), most
	if w.now = w.least; remote {
		w.now = min(remoteWindow, most)
	}
}

// inTime counts a unit that was ready when a worker asked for one.
func (w *window) inTime() {
	if w.sinceDry++; w.sinceDry >= shrinkAfter {
		w.sinceDry = 0
		w.now = max(w.now-w.now/8, w.least)
	}
}

// grow doubles the window and reports whether it did. The effect of the last growth shows after the reads that it
// allowed, which take latency.
func (w *window) grow(now time.Time, latency time.Duration) bool {
	if now.Sub(w.grown) < latency {
		return false
	}
	w.grown = now
	w.now = min(2*w.now, w.most)
	return true
}

// attachedFactor is the factor by which units with a batch may have more memory than units without one, if several
// pipelines of an engine divide it.
const attachedFactor = 2

// ahead returns the limit of the memory of units without a batch: the window, or this pipeline's part of it. All
// pipelines of an engine together then read as far ahead as one of them alone, because the same cores use the records.
func (f *Fetcher) ahead() int64 {
	if share := f.memoryShare(); share < 1 {
		return int64(float64(f.window.now) * share)
	}
	return f.window.now
}

// attachedLimit returns the limit of the memory of all units for a unit with a batch that needs need bytes. A pipeline
// with a part of the window has enough for all workers.
func (f *Fetcher) attachedLimit(need int64) int64 {
	most := f.account.planned
	share := f.memoryShare()
	if share == 1 {
		return most
	}
	return min(most, max(int64(attachedFactor*float64(f.window.now)*share), int64(f.cfg.Workers+2)*need))
}

// memoryShare returns this pipeline's part of the window. Reads of a remote store and whole chunks take longer than
// their use, so each pipeline has its own window for them.
func (f *Fetcher) memoryShare() float64 {
	if f.cfg.Share == nil || f.cfg.Remote || f.cfg.Mount || !f.cfg.Ahead {
		return 1
	}
	return f.cfg.Share()
}

// Dry is called by a worker that found nothing to do. If it waits for reads, the window grows.
func (f *Fetcher) Dry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &f.window
	w.sinceDry = 0
	if f.running.count() == 0 || w.now >= w.most || f.account.used < f.ahead()/2 || f.depth.slow < slowRead {
		return
	}
	if f.queues.records.n+f.queues.urgent.n > 0 {
		return // the worker waits for reads that are under way: more reads would delay them
	}
	if w.grow(time.Now(), f.depth.latency()) {
		signal(f.space)
	}
}
