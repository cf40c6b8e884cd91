package store

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// Pool keeps the objects of a store open between uses. So reading many objects does not open each of them every
// time, and does not exceed the system's limit of open files. Its methods are safe for concurrent use, except
// Close.
type Pool struct {
	s     Store
	limit int

	mu   sync.Mutex
	open map[string]*pooled
	idle list.List // unused objects, the most recently used first
}

type pooled struct {
	Object
	entry Entry
	users int
	at    *list.Element // in idle
	ready chan struct{} // closed when Object or err is set
	err   error
	old   bool // removed from open
}

// NewPool returns a pool that keeps up to limit objects of s open. More are open only while more are in use.
func NewPool(s Store, limit int) *Pool {
	return &Pool{s: s, limit: max(limit, 1), open: map[string]*pooled{}}
}

// Open returns the object that e describes, like OpenEntry. Its Close returns it to the pool.
func (p *Pool) Open(ctx context.Context, e Entry) (Object, error) {
	for {
		p.mu.Lock()
		o := p.open[e.Name]
		if o == nil || o.entry.Version != e.Version { // not open, or opened for an older listing
			out := p.forget(o)
			o = &pooled{entry: e, users: 1, ready: make(chan struct{})}
			p.open[e.Name] = o
			out = append(out, p.evict()...)
			p.mu.Unlock()
			closeAll(out)
			return p.first(ctx, o)
		}
		o.users++
		if o.at != nil {
			p.idle.Remove(o.at)
			o.at = nil
		}
		p.mu.Unlock()
		select {
		case <-o.ready:
		case <-ctx.Done():
			p.release(o)
			return nil, context.Cause(ctx)
		}
		if o.err == nil {
			return &lent{Object: o.Object, p: p, o: o}, nil
		}
		p.release(o)
		if !isContext(o.err) {
			return nil, o.err
		}
		// The context of the goroutine that opened it has ended, but ours may not have.
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// first opens o for all goroutines that wait for it.
func (p *Pool) first(ctx context.Context, o *pooled) (Object, error) {
	o.Object, o.err = OpenEntry(ctx, p.s, o.entry)
	if o.err != nil {
		p.mu.Lock()
		p.forget(o)
		p.mu.Unlock()
	}
	close(o.ready)
	if o.err != nil {
		return nil, o.err
	}
	return &lent{Object: o.Object, p: p, o: o}, nil
}

// forget removes o from the pool. It returns o if it is unused. Otherwise the last user closes it. The lock is
// held.
func (p *Pool) forget(o *pooled) []*pooled {
	if o == nil || o.old {
		return nil
	}
	o.old = true
	delete(p.open, o.entry.Name)
	if o.at == nil {
		return nil
	}
	p.idle.Remove(o.at)
	o.at = nil
	return []*pooled{o}
}

// evict removes unused objects above the limit and returns them. The lock is held.
func (p *Pool) evict() []*pooled {
	var out []*pooled
	for len(p.open) > p.limit && p.idle.Len() > 0 {
		out = append(out, p.forget(p.idle.Back().Value.(*pooled))...)
	}
	return out
}

func closeAll(list []*pooled) {
	for _, o := range list {
		_ = o.Object.Close()
	}
}

// release ends one use of o.
func (p *Pool) release(o *pooled) {
	p.mu.Lock()
	o.users--
	var out []*pooled
	if o.users == 0 && o.err == nil && o.Object != nil {
		if o.old {
			out = append(out, o)
		} else {
			o.at = p.idle.PushFront(o)
			out = p.evict()
		}
	}
	p.mu.Unlock()
	closeAll(out)
}

// Close closes the unused objects. Objects in use are closed by their last user.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first error
	for _, o := range p.open {
		o.old = true
		if o.at == nil {
			continue
		}
		p.idle.Remove(o.at)
		o.at = nil
		if err := o.Object.Close(); err != nil && first == nil {
			first = err
		}
	}
	clear(p.open)
	return first
}

// lent is one use of an object of a pool.
type lent struct {
	Object
	p    *Pool
	o    *pooled
	once sync.Once
}

func (l *lent) Unwrap() Object { return l.Object }

// Close returns the object to the pool.
func (l *lent) Close() error {
	l.once.Do(func() { l.p.release(l.o) })
	return nil
}
