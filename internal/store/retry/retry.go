// Package retry repeats operations that failed for a reason that may go away: an I/O error of a network file
// system, a reset connection, too many open files.
package retry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"time"
)

// Options are the settings for retries. nil means the defaults.
type Options struct {
	// Attempts is the maximum number of attempts, 0 for 5.
	Attempts int
	// Backoff is the wait before the first retry, 0 for 20 ms. It doubles each time, up to MaxBackoff.
	Backoff time.Duration
	// MaxBackoff is the longest wait, 0 for 5 s.
	MaxBackoff time.Duration
	// Jitter returns the fraction of a wait to use, from 0 to below 1, so that many callers that fail together do
	// not retry together. nil means the full wait.
	Jitter func() float64
	// Sleep is for tests, nil waits for real. It ends early, with the cause, when ctx is done.
	Sleep func(ctx context.Context, d time.Duration) error
	// Retried is called before each retry with the error that caused it, from the goroutine that waits. It may be
	// nil.
	Retried func(err error)
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Attempts <= 0 {
		d.Attempts = 5
	}
	if d.Backoff <= 0 {
		d.Backoff = 20 * time.Millisecond
	}
	if d.MaxBackoff <= 0 {
		d.MaxBackoff = 5 * time.Second
	}
	if d.Sleep == nil {
		d.Sleep = sleep
	}
	return d
}

type watchKey struct{}

// Watch returns a context whose failed requests are reported to seen, each attempt by itself: see Failed.
func Watch(ctx context.Context, seen func(err error)) context.Context {
	return context.WithValue(ctx, watchKey{}, seen)
}

// Failed reports a failed attempt to the function of Watch. Stores call it before they try again.
func Failed(ctx context.Context, err error) {
	if seen, ok := ctx.Value(watchKey{}).(func(err error)); ok && ctx.Err() == nil {
		seen(err)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Do calls f until it succeeds, fails with a permanent error, or has failed Attempts times. It does not start or
// continue when ctx is done: the error then contains the cause of ctx and the last error of f.
func Do(ctx context.Context, opt *Options, f func() error) error {
	o := opt.withDefaults()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	wait := o.Backoff
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil || !Transient(err) {
			return err
		}
		if attempt >= o.Attempts {
			if attempt == 1 {
				return err
			}
			return fmt.Errorf("%w (tried %d times)", err, attempt)
		}
		if ctx.Err() != nil {
			return both(context.Cause(ctx), err)
		}
		if o.Retried != nil {
			o.Retried(err)
		}
		pause := wait
		if o.Jitter != nil {
			pause = time.Duration(float64(wait) * o.Jitter())
		}
		var least interface{ Wait() time.Duration }
		if errors.As(err, &least) {
			pause += least.Wait() // plus the jitter, so that not all retry at that moment
		}
		if serr := o.Sleep(ctx, pause); serr != nil {
			return both(serr, err)
		}
		wait = min(2*wait, o.MaxBackoff)
	}
}

// both is the error of an operation that was cancelled while it failed.
func both(ended, err error) error {
	if errors.Is(err, ended) {
		return err
	}
	return fmt.Errorf("%w (given up: %w)", err, ended)
}

// Transient reports whether an error may go away on a retry. Errors can decide this themselves with a method
// Transient() bool, and set a minimum wait with a method Wait() time.Duration.
func Transient(err error) bool {
	var says interface{ Transient() bool }
	if errors.As(err, &says) {
		return says.Transient()
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	for _, e := range []error{
		syscall.EIO, syscall.EAGAIN, syscall.EINTR, syscall.ETIMEDOUT, syscall.ESTALE, syscall.ECONNRESET,
		syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EBUSY, syscall.EMFILE, syscall.ENFILE,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
