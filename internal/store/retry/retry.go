// Package retry repeats what failed for a reason that may pass: an I/O error of a
// network file system, a connection that was reset, too many open files.
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

// Options say how often and how fast something is tried again. Nil means the
// defaults.
type Options struct {
	// Attempts is how often it is tried at most, 0 for 5.
	Attempts int
	// Backoff is the wait before the first repetition, 0 for 20 ms. It doubles
	// each time, up to MaxBackoff.
	Backoff time.Duration
	// MaxBackoff is the longest wait, 0 for 5 s.
	MaxBackoff time.Duration
	// Jitter, from 0 to below 1, says which part of a wait is waited, so that many who
	// fail at once do not come back at once; nil means all of it.
	Jitter func() float64
	// Sleep waits, for tests; nil waits for real. It ends early, with the cause,
	// when ctx is done.
	Sleep func(ctx context.Context, d time.Duration) error
	// Retried is called before each repetition with the error that made it
	// necessary, from the goroutine that waits. It may be nil.
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

// Do calls f until it succeeds, fails for good, or has failed often enough. It
// does not begin, or go on, when ctx is done: the error then has both what ended
// ctx and how f failed last.
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
			pause += least.Wait() // and not all at that moment
		}
		if serr := o.Sleep(ctx, pause); serr != nil {
			return both(serr, err)
		}
		wait = min(2*wait, o.MaxBackoff)
	}
}

// both is the error of something that was given up while it was failing.
func both(ended, err error) error {
	if errors.Is(err, ended) {
		return err
	}
	return fmt.Errorf("%w (given up: %w)", err, ended)
}

// Transient says whether an error may go away when the same is tried again.
// Errors can say so themselves, with a method Transient() bool, and how long to wait
// at least, with a method Wait() time.Duration.
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
