// Package lease keeps what ends, such as credentials: fetched once however many need
// it, and again a little before it ends.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/store/node"
)

// Lease is what ends. It is fetched by one who needs it; while there is one that has
// not ended nobody waits for the next.
type Lease[T any] struct {
	fetch func(ctx context.Context) (T, time.Time, error)
	// key says who shares it, "" for nobody. It is nil where nobody ever does.
	key func() string

	mu    sync.Mutex
	have  T
	ends  time.Time // zero for never
	got   time.Time
	known bool
	wait  chan struct{} // open while somebody fetches
	err   error         // of the last fetch
	after time.Time     // when to try again behind a failure
}

// Shared returns a lease that all processes of the user on this machine with the same key
// share. One of them fetches. The others take its result, or its error for a few seconds.
// Fetch says when its result ends, with zero for never: such a result is not shared. Key is
// called before each fetch; with "" nothing is shared.
func Shared[T any](key func() string, fetch func(ctx context.Context) (T, time.Time, error)) *Lease[T] {
	return &Lease[T]{fetch: fetch, key: key}
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
	// tellFor is how long others are told of a failure that may pass, which is enough for
	// those who wait; of one that will not they are for fetchAgain.
	tellFor = 200 * time.Millisecond
	// waitFor is how long another process is waited for that fetches.
	waitFor = 15 * time.Second
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
	return stateOf(l.got, l.ends, now)
}

func stateOf(got, ends, now time.Time) (good, due bool) {
	left := ends.Sub(now)
	return left > 0, left <= min(early, ends.Sub(got)/10)
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
	got, err := l.next(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err != nil {
		l.after = time.Now().Add(fetchAgain)
	} else {
		l.have, l.ends, l.got, l.known = got.Have, got.Ends, got.Got, true
	}
	close(l.wait)
	l.wait = nil
}

// record is what is shared.
type record[T any] struct {
	Have      T
	Ends, Got time.Time
	// Failure is why it could not be fetched at Failed, Passing that it may go better later.
	Failure string    `json:",omitempty"`
	Passing bool      `json:",omitempty"`
	Failed  time.Time `json:",omitzero"`
}

// told is the failure of another process.
type told struct {
	text    string
	passing bool
}

func (e *told) Error() string {
	return e.text + " (as another process on this machine was told just now)"
}
func (e *told) Transient() bool { return e.passing }

// failure is that of another process a moment ago.
func (r *record[T]) failure(now time.Time) error {
	tell := fetchAgain
	if r.Passing {
		tell = tellFor
	}
	if age := now.Sub(r.Failed); r.Failure == "" || age < 0 || age >= tell {
		return nil
	}
	return &told{r.Failure, r.Passing}
}

// fail notes why it could not be fetched.
func (r *record[T]) fail(err error) {
	var says interface{ Transient() bool }
	r.Failure, r.Failed = err.Error(), time.Now().Round(0)
	r.Passing = errors.As(err, &says) && says.Transient()
}

// next is another one than that which is known: what another process has got since, or
// what is fetched now.
func (l *Lease[T]) next(ctx context.Context) (r record[T], err error) {
	l.mu.Lock()
	last := l.got
	l.mu.Unlock()
	var f *node.File
	if key := l.key(); key != "" {
		f, err = node.Open("keys", key) // where there is none, nothing is shared
	}
	var old record[T]
	if f != nil && err == nil {
		defer f.Close()
		if !f.Lock(ctx, waitFor) {
			f = nil
		} else {
			var ok bool
			if old, ok = taken[T](f, last); ok {
				return old, nil
			}
			if err := old.failure(time.Now()); err != nil {
				return r, err
			}
		}
	} else {
		f = nil
	}
	r.Have, r.Ends, err = l.fetch(ctx)
	if r.Got = time.Now().Round(0); err == nil && !r.Ends.IsZero() && !r.Ends.After(r.Got) {
		err = errEnded
	}
	share := r
	if err != nil {
		share = old
		share.fail(err)
	}
	if f != nil && (err != nil || !r.Ends.IsZero()) {
		if text, merr := json.Marshal(share); merr == nil {
			_ = f.Write(text) // without it others fetch for themselves
		}
	}
	return r, err
}

// taken is what another process has got since a time, where it serves for a while.
func taken[T any](f *node.File, since time.Time) (r record[T], ok bool) {
	if json.Unmarshal(f.Read(), &r) != nil {
		return record[T]{}, false
	}
	if r.Ends.IsZero() || !r.Got.After(since) {
		return r, false
	}
	now := time.Now()
	good, due := stateOf(r.Got, r.Ends, now)
	return r, good && !due && !r.Got.After(now.Add(time.Minute))
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
