package kind

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/units"
)

// Large is memory for images that need more than a worker has of its own, to be
// decoded or kept between two steps. Images wait until there is as much as they
// need; what needs more than there is in all is refused.
type Large struct {
	total int64
	// enough says with how much memory in all an image would find so much here.
	enough func(need int64) (memory int64)

	sem        *semaphore.Weighted
	used, peak atomic.Int64
	mu         sync.Mutex
	waiting    int
	// garbage is what images took on the Go heap that are done, as far as nobody
	// knows it to be free again.
	garbage int64
}

// NewLarge returns memory of total bytes.
func NewLarge(total int64, enough func(need int64) (memory int64)) *Large {
	return &Large{total: total, enough: enough, sem: semaphore.NewWeighted(total)}
}

// Used is how much is taken, Peak the most that was.
func (l *Large) Used() int64 { return l.used.Load() }

// Peak is the most that was taken at a time.
func (l *Large) Peak() int64 { return l.peak.Load() }

// wish is what a record needs that did not fit a worker's own memory.
type wish struct {
	// decode are bytes to decode an image in, of the Go heap if heap is set.
	decode int64
	heap   bool
	// scratch is for an image between two steps. Nobody knows how much that is
	// before it is done, so that it takes all that is left.
	scratch bool
}

// learn adds to a wish what err says. It is false when there is nothing new.
func (w *wish) learn(err error) bool {
	var short *decode.MemoryError
	switch {
	case errors.As(err, &short) && short.Need > w.decode:
		w.decode, w.heap = short.Need, w.heap || short.Heap
	case errors.Is(err, arena.ErrBudget) && !w.scratch:
		w.scratch = true
	default:
		return false
	}
	return true
}

// with calls f while the tools have what is wished for. It fails when that is more
// than there is.
func (l *Large) with(t *Tools, w *wish, f func()) error {
	if w.decode > l.total {
		err := &decode.MemoryError{Need: w.decode, Limit: l.total}
		return fmt.Errorf("%w; set memory to %d MiB or more", err, units.MiB(l.enough(w.decode)))
	}
	n := w.decode
	if w.scratch {
		n = l.total
	}
	l.take(n)
	defer l.give(n, w.heap)
	if w.decode > t.decodeMemory {
		t.dec.SetMemory(w.decode)
		defer t.dec.SetMemory(t.decodeMemory)
	}
	if w.scratch {
		own := t.scratch
		t.scratch = newScratch(t.dec, arena.NewBudget(l.total-w.decode))
		defer func() {
			t.scratch.free()
			t.scratch = own
		}()
	}
	f()
	return nil
}

// take waits for n bytes.
func (l *Large) take(n int64) {
	l.mu.Lock()
	l.waiting++
	l.mu.Unlock()
	if !l.sem.TryAcquire(n) {
		l.collect()
		_ = l.sem.Acquire(context.Background(), n) // those who have it give it back
	}
	l.mu.Lock()
	l.waiting--
	l.mu.Unlock()
	used := l.used.Add(n)
	for peak := l.peak.Load(); used > peak && !l.peak.CompareAndSwap(peak, used); peak = l.peak.Load() {
	}
}

// give gives n bytes back. What was taken on the Go heap is free when it has been
// collected, which is not done before somebody needs it.
func (l *Large) give(n int64, heap bool) {
	l.used.Add(-n)
	if !heap {
		l.sem.Release(n)
		return
	}
	l.mu.Lock()
	l.garbage += n
	wanted := l.waiting > 0
	l.mu.Unlock()
	if wanted {
		l.collect()
	}
}

func (l *Large) collect() {
	l.mu.Lock()
	n := l.garbage
	l.garbage = 0
	l.mu.Unlock()
	if n > 0 {
		debug.FreeOSMemory()
		l.sem.Release(n)
	}
}
