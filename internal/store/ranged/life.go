package ranged

import (
	"context"
	"slices"
	"sync"
)

// life is the context of an attempt. It ends with the caller's context, or with end. It is a cheaper
// context.WithCancelCause, because there are ten thousand per second. Only why returns its cause.
type life struct {
	context.Context // the caller's
	leave           func() bool

	mu         sync.Mutex
	done       chan struct{} // nil until Done is called
	err, cause error
	after      []*func()
}

func newLife(outer context.Context) *life {
	l := &life{Context: outer}
	if outer.Done() != nil {
		l.leave = context.AfterFunc(outer, func() { l.over(outer.Err(), context.Cause(outer)) })
	}
	return l
}

// end ends the context with a cause, which may be nil.
func (l *life) end(cause error) {
	if l.leave != nil {
		l.leave()
	}
	l.over(context.Canceled, cause)
}

func (l *life) over(err, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if l.err, l.cause = err, cause; l.done != nil {
		close(l.done)
	}
	for _, f := range l.after {
		go (*f)()
	}
	l.after = nil
}

// why returns the cause, nil while the context has not ended.
func (l *life) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Err implements context.Context.
func (l *life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Done implements context.Context.
func (l *life) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		if l.done = make(chan struct{}); l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// AfterFunc is what context.AfterFunc calls if a context has it.
func (l *life) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		go f()
		return func() bool { return false }
	}
	l.after = append(l.after, &f)
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(l.after, &f)
		if i >= 0 {
			l.after = slices.Delete(l.after, i, i+1)
		}
		return i >= 0
	}
}

// afterFunc is context.AfterFunc without its cost for a life.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if l, ok := ctx.(*life); ok {
		return l.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}
