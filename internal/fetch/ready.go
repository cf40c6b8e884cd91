package fetch

import "sync/atomic"

// ready holds the units that wait for a worker.
type ready struct {
	heap readyHeap
	n    atomic.Int32 // the length of heap, for workers that do not hold the lock
	kick chan struct{}
	turn Turn // of the unit that was handed out last
}

func (r *ready) init() { r.kick = make(chan struct{}, 1) }

// offer passes a unit to the workers.
func (r *ready) offer(u *Unit) {
	r.heap.push(u)
	r.n.Store(int32(len(r.heap)))
	signal(r.kick)
}

// pop returns the unit that is needed first, or nil.
func (r *ready) pop() *Unit {
	u := r.heap.pop()
	if u == nil {
		return nil
	}
	r.turn = u.Turn
	r.n.Store(int32(len(r.heap)))
	if len(r.heap) > 0 {
		signal(r.kick)
	}
	return u
}

// Kick is signalled when units may be ready. A worker that takes a unit and leaves others signals it again.
func (f *Fetcher) Kick() <-chan struct{} { return f.ready.kick }

// Ready returns the number of units that are ready.
func (f *Fetcher) Ready() int { return int(f.ready.n.Load()) }

// Pop returns the ready unit that is needed first, or nil.
func (f *Fetcher) Pop() *Unit {
	if f.ready.n.Load() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.ready.pop()
	if u != nil {
		f.window.inTime()
	}
	return u
}

// readyHeap holds the ready units. The one that is needed first is on top.
type readyHeap []*Unit

func (h readyHeap) less(i, j int) bool {
	return h[i].order < h[j].order || h[i].order == h[j].order && h[i].Lo < h[j].Lo
}

func (h *readyHeap) push(u *Unit) {
	*h = append(*h, u)
	for i := len(*h) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		(*h)[i], (*h)[(i-1)/2] = (*h)[(i-1)/2], (*h)[i]
	}
}

func (h *readyHeap) pop() *Unit {
	n := len(*h) - 1
	if n < 0 {
		return nil
	}
	u := (*h)[0]
	(*h)[0], (*h)[n] = (*h)[n], nil
	*h = (*h)[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < n && h.less(c+1, c) {
			c++
		}
		if c >= n || !h.less(c, i) {
			return u
		}
		(*h)[i], (*h)[c] = (*h)[c], (*h)[i]
		i = c
	}
}
