// Package lease keeps what ends, such as credentials: fetched once however many need
// it, and again a little before it ends.
package lease

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Lease is what ends. It is fetched by one who needs it; while there is one that has
// not ended nobody waits for the next.
type Lease[T any] struct {
	fetch func(ctx context.Context) (T, time.Time, error)

	mu    sync.Mutex
	have  T
	ends  time.Time // zero for never
	got   time.Time
	known bool
	wait  chan struct{} // open while somebody fetches
	err   error         // of the last fetch
	after time.Time     // when to try again behind a failure
}

// New returns a lease. Fetch says when what it gives ends, zero for never.
func New[T any](fetch func(ctx context.Context) (T, time.Time, error)) *Lease[T] {
	return &Lease[T]{fetch: fetch}
}

const (
	// early is how long before its end it is fetched again, but not before nine tenths
	// of its time are over.
	early = 5 * time.Minute
	// fetchTakes bounds a fetch.
	fetchTakes = time.Minute
	// fetchAgain is how long a failure to fetch is not tried again while the old one
	// still serves.
	fetchAgain = 5 * time.Second
)

var errEnded = errors.New("what was fetched has ended already")

// state says whether it serves, and whether it is time for another. The lock is held.
func (l *Lease[T]) state(now time.Time) (good, due bool) {
	switch {
	case !l.known:
		return false, true
	case l.ends.IsZero():
		return true, false
	}
	left := l.ends.Sub(now)
	return left > 0, left <= min(early, l.ends.Sub(l.got)/10)
}

// Get returns one that serves.
func (l *Lease[T]) Get(ctx context.Context) (T, error) {
	var none T
	for {
		l.mu.Lock()
		now := time.Now()
		good, due := l.state(now)
		if due && l.wait == nil && (!good || !now.Before(l.after)) {
			l.wait = make(chan struct{})
			go l.renew(context.WithoutCancel(ctx))
		}
		have, wait := l.have, l.wait
		l.mu.Unlock()
		if good {
			return have, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
		l.mu.Lock()
		err := l.err
		l.mu.Unlock()
		if err != nil {
			return none, err
		}
	}
}

func (l *Lease[T]) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fetchTakes)
	defer cancel()
	got, ends, err := l.fetch(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if err == nil && !ends.IsZero() && !ends.After(now) {
		err = errEnded
	}
	if l.err = err; err != nil {
		l.after = now.Add(fetchAgain)
	} else {
		l.have, l.ends, l.got, l.known = got, ends, now, true
	}
	close(l.wait)
	l.wait = nil
}

// Refused says that somebody took it for one that has ended. Where there may be another
// that is fetched for the next attempt, once for all who were refused.
func (l *Lease[T]) Refused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends.IsZero() {
		return false
	}
	if l.known && time.Since(l.got) > fetchAgain {
		l.known = false
	}
	return true
}
