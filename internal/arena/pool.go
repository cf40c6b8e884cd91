package arena

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Pool counts memory that it does not hold. A caller that takes a part waits until enough is available, allocates it
// anywhere and releases it. Memory taken on the Go heap is free again after a garbage collection, which runs only if
// a caller waits for memory.
type Pool struct {
	total int64
	sem   *semaphore.Weighted

	used, peak atomic.Int64
	mu         sync.Mutex
	waiting    int
	// garbage is the memory on the Go heap that was released but may not be collected yet.
	garbage int64
}

// NewPool returns a pool of total bytes.
func NewPool(total int64) *Pool {
	return &Pool{total: total, sem: semaphore.NewWeighted(total)}
}

// Total returns the size of the pool.
func (p *Pool) Total() int64 { return p.total }

// Used returns the amount of memory taken.
func (p *Pool) Used() int64 { return p.used.Load() }

// Peak returns the maximum amount taken at any time.
func (p *Pool) Peak() int64 { return p.peak.Load() }

// Take waits for n bytes, at most until ctx is done. More than there are in all
// is never there.
func (p *Pool) Take(ctx context.Context, n int64) error {
	p.wait(1)
	defer p.wait(-1)
	if !p.sem.TryAcquire(n) {
		p.collect()
		if err := p.sem.Acquire(ctx, n); err != nil {
			return context.Cause(ctx)
		}
	}
	p.took(n)
	return nil
}

// TryTake takes n bytes if they are available and no caller waits.
func (p *Pool) TryTake(n int64) bool {
	ok := p.sem.TryAcquire(n)
	if ok {
		p.took(n)
	}
	return ok
}

func (p *Pool) wait(n int) {
	p.mu.Lock()
	p.waiting += n
	p.mu.Unlock()
}

func (p *Pool) took(n int64) {
	used := p.used.Add(n)
	for peak := p.peak.Load(); used > peak && !p.peak.CompareAndSwap(peak, used); peak = p.peak.Load() {
	}
}

// Give releases n bytes. heap is true if they are garbage on the Go heap.
func (p *Pool) Give(n int64, heap bool) {
	p.used.Add(-n)
	if !heap {
		p.sem.Release(n)
		return
	}
	p.mu.Lock()
	p.garbage += n
	wanted := p.waiting > 0
	p.mu.Unlock()
	if wanted {
		p.collect()
	}
}

func (p *Pool) collect() {
	p.mu.Lock()
	n := p.garbage
	p.garbage = 0
	p.mu.Unlock()
	if n > 0 {
		debug.FreeOSMemory()
		p.sem.Release(n)
	}
}
