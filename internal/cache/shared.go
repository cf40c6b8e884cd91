package cache

import (
	"container/list"
	"context"
	"sync"

	"github.com/stokerdata/stoker/internal/store/disk"
)

// handles are files that stay open between uses: the most recently used ones, up to a limit.
type handles[K comparable, F interface{ close() }] struct {
	mu    sync.Mutex
	most  int
	open  map[K]*list.Element // of *handle[K, F], by name
	order list.List           // the one used last in front
}

// handle is an open file with a count of its users.
type handle[K comparable, F interface{ close() }] struct {
	f    F
	name K
	refs int
	gone bool // from the list: its last user closes it
}

// take opens a file, or returns it if it is open.
func (h *handles[K, F]) take(name K, open func() (F, error)) (*handle[K, F], error) {
	h.mu.Lock()
	if e := h.open[name]; e != nil {
		f := e.Value.(*handle[K, F])
		f.refs++
		h.order.MoveToFront(e)
		h.mu.Unlock()
		return f, nil
	}
	h.mu.Unlock()
	file, err := open()
	if err != nil {
		return nil, err
	}
	f := &handle[K, F]{f: file, name: name, refs: 1}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open[name] != nil {
		f.gone = true // another one was faster: this one is used once
		return f, nil
	}
	if h.open == nil {
		h.open = map[K]*list.Element{}
	}
	h.open[name] = h.order.PushFront(f)
	for len(h.open) > h.most {
		h.forgetLocked(h.order.Back().Value.(*handle[K, F]))
	}
	return f, nil
}

func (h *handles[K, F]) forgetLocked(f *handle[K, F]) {
	f.gone = true
	h.order.Remove(h.open[f.name])
	delete(h.open, f.name)
	if f.refs == 0 {
		f.f.close()
	}
}

// hold adds a user to an open file.
func (h *handles[K, F]) hold(f *handle[K, F]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.refs++
}

func (h *handles[K, F]) giveBack(f *handle[K, F]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.refs--; f.refs == 0 && f.gone {
		f.f.close()
	}
}

// forget closes a file when its last user has finished.
func (h *handles[K, F]) forget(name K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.open[name]; e != nil {
		h.forgetLocked(e.Value.(*handle[K, F]))
	}
}

func (h *handles[K, F]) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.open {
		h.forgetLocked(e.Value.(*handle[K, F]))
	}
}

// claims are the chunks that this process is about to cache: one goroutine reads, others wait.
type claims struct {
	mu   sync.Mutex
	busy map[disk.Key]chan struct{} // closed when it is done
}

// begin claims a chunk, or waits for the claim of another goroutine to end. It reports whether the chunk is then
// cached.
func (c *claims) begin(ctx context.Context, k disk.Key, has func(disk.Key) bool) (mine, there bool, err error) {
	for {
		c.mu.Lock()
		busy := c.busy[k]
		if busy == nil {
			if c.busy == nil {
				c.busy = map[disk.Key]chan struct{}{}
			}
			c.busy[k] = make(chan struct{})
		}
		c.mu.Unlock()
		if busy == nil {
			return true, false, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return false, false, context.Cause(ctx)
		}
		if has(k) {
			return false, true, nil
		}
	}
}

// end ends a claim.
func (c *claims) end(k disk.Key) {
	c.mu.Lock()
	close(c.busy[k])
	delete(c.busy, k)
	c.mu.Unlock()
}
