// Package lease is for things that expire, such as credentials: they are fetched once for all users, and again a
// little before they expire.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/store/node"
)

// Lease is a value that expires. One caller fetches it, and as long as the old value is valid the others do not
// wait for the new one.
type Lease[T any] struct {
	fetch func(ctx context.Context) (T, time.Time, error)
	// key identifies who shares the value. "" means that it is not shared.
	key func() string

	mu    sync.Mutex
	have  T
	ends  time.Time // zero for never
	got   time.Time
	known bool
	wait  chan struct{} // open during a fetch
	err   error         // of the last fetch
	after time.Time     // when to try again after a failure

	refused bool // the value was refused, and a new one is due
	checked bool // the value was fetched after a refusal
	same    bool // and it was the refused one
}

// Shared returns a lease that all processes of the user on this machine with the same key
// share. One of them fetches. The others take its result, or its error for a few seconds.
// Fetch says when its result ends, with zero for never: such a result is not shared. Key is
// called before each fetch; with "" nothing is shared.
func Shared[T any](key func() string, fetch func(ctx context.Context) (T, time.Time, error)) *Lease[T] {
	return &Lease[T]{fetch: fetch, key: key}
}

const (
	// early is the time before its end when a value is fetched again, but not before 90% of its time are over.
	early = 5 * time.Minute
	// fetchTakes is the time limit of a fetch.
	fetchTakes = time.Minute
	// fetchAgain is the pause after a failed fetch while the old value is still valid.
	fetchAgain = 5 * time.Second
	// tellFor is the time in which other processes get a transient error: enough for those that wait. They get a
	// permanent error for fetchAgain.
	tellFor = 200 * time.Millisecond
	// rereadAgain is the pause between two fetches of a value that does not expire, from a file.
	rereadAgain = 250 * time.Millisecond
	// waitFor is the maximum wait for another process that fetches.
	waitFor = 15 * time.Second
)

var errEnded = errors.New("it had already expired when it was fetched")

// state reports whether the value is valid, and whether to fetch a new one. The lock is held.
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

// Get returns a valid value.
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
		l.checked, l.same = l.refused, l.refused && reflect.DeepEqual(l.have, got.Have)
		l.have, l.ends, l.got, l.known, l.refused = got.Have, got.Ends, got.Got, true, false
	}
	close(l.wait)
	l.wait = nil
}

// record is the content of the shared file.
type record[T any] struct {
	Have      T
	Ends, Got time.Time
	// Failure is the error of the last fetch, at the time Failed. Passing means that it may go away.
	Failure string    `json:",omitempty"`
	Passing bool      `json:",omitempty"`
	Failed  time.Time `json:",omitzero"`
}

// told is an error of another process.
type told struct {
	text    string
	passing bool
}

func (e *told) Error() string {
	return e.text + " (the error of another process on this machine a moment ago)"
}
func (e *told) Transient() bool { return e.passing }

// failure returns the error of another process if it is recent.
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

// fail records an error of a fetch.
func (r *record[T]) fail(err error) {
	var says interface{ Transient() bool }
	r.Failure, r.Failed = err.Error(), time.Now().Round(0)
	r.Passing = errors.As(err, &says) && says.Transient()
}

// next returns a new value: the one that another process has fetched in the meantime, or one that it fetches.
func (l *Lease[T]) next(ctx context.Context) (r record[T], err error) {
	l.mu.Lock()
	last := l.got
	l.mu.Unlock()
	var f *node.File
	if key := l.key(); key != "" {
		f, err = node.Open("keys", key) // without a runtime folder nothing is shared
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
			_ = f.Write(text) // without it other processes fetch for themselves
		}
	}
	return r, err
}

// taken returns a value that another process has fetched after since, if it is valid for a while.
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

// Refused tells the lease that a server does not accept the value. It returns whether a retry may help: there may be a
// new value, which the next attempt fetches, once for all callers. A value that does not expire, such as one in a
// file, is fetched again at least once. If it is still the same, a retry does not help.
func (l *Lease[T]) Refused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	age := time.Since(l.got)
	switch {
	case !l.known: // it is being fetched
		return true
	case !l.ends.IsZero() && age <= fetchAgain:
		return true
	case l.ends.IsZero() && l.checked && age <= rereadAgain:
		return !l.same
	}
	l.known, l.refused = false, true
	return true
}
