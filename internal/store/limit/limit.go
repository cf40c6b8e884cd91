// Package limit slows reading down to a rate: a shared file server or a bucket
// is not to be taken whole by one job.
package limit

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/stokerdata/stoker/store"
)

// Options are the limits. A limit of 0 is none.
type Options struct {
	// BytesPerSecond bounds what is read.
	BytesPerSecond float64
	// RequestsPerSecond bounds how often something is opened, listed, looked at
	// or read.
	RequestsPerSecond float64
}

// New returns s with a limit that all of its objects share. Their mappings are
// hidden, for what is read through them could not be counted; writing is not
// limited.
//
// A tenth of a second's worth may come at once. A read that is larger waits for
// all of its bytes first.
func New(s store.Store, opt Options) store.Store {
	return &limited{Store: s, bytes: limiter(opt.BytesPerSecond), requests: limiter(opt.RequestsPerSecond)}
}

func limiter(perSecond float64) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(1, int(min(perSecond/10, 1<<30))))
}

type limited struct {
	store.Store
	bytes, requests *rate.Limiter
}

// Unwrap finds the abilities of the store below. Those of objects are found from
// what Open returns.
func (l *limited) Unwrap() store.Store { return l.Store }

// wait takes n from a limiter, in pieces that it can give at once.
func wait(ctx context.Context, r *rate.Limiter, n int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for r != nil && n > 0 {
		k := min(n, r.Burst())
		if err := r.WaitN(ctx, k); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// The deadline of ctx would pass before its turn.
			return context.DeadlineExceeded
		}
		n -= k
	}
	return nil
}

func (l *limited) Open(ctx context.Context, name string) (store.Object, error) {
	if err := wait(ctx, l.requests, 1); err != nil {
		return nil, &store.Error{Op: "open", Path: l.Path(name), Err: err}
	}
	o, err := l.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return l.around(name, o), nil
}

// OpenEntry opens an object that was described. It counts as a request, also where the
// store below makes none.
func (l *limited) OpenEntry(ctx context.Context, e store.Entry) (store.Object, error) {
	if err := wait(ctx, l.requests, 1); err != nil {
		return nil, &store.Error{Op: "open", Path: l.Path(e.Name), Err: err}
	}
	o, err := store.OpenEntry(ctx, l.Store, e)
	if err != nil {
		return nil, err
	}
	return l.around(e.Name, o), nil
}

func (l *limited) around(name string, o store.Object) store.Object {
	return store.Intercept(o, true, func(ctx context.Context, next store.Next, p []byte, off int64) error {
		err := wait(ctx, l.requests, 1)
		if err == nil {
			err = wait(ctx, l.bytes, len(p))
		}
		if err != nil {
			return &store.Error{Op: "read", Path: l.Path(name), Off: off, Len: int64(len(p)), Err: err}
		}
		return next.Read(ctx, p, off)
	})
}

func (l *limited) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	if err := wait(ctx, l.requests, 1); err != nil {
		return &store.Error{Op: "list", Path: l.Path(dir), Err: err}
	}
	return l.Store.List(ctx, dir, opt, f)
}

func (l *limited) Stat(ctx context.Context, name string) (store.Entry, error) {
	if err := wait(ctx, l.requests, 1); err != nil {
		return store.Entry{}, &store.Error{Op: "look at", Path: l.Path(name), Err: err}
	}
	return l.Store.Stat(ctx, name)
}
