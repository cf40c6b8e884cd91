package retry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/store"
)

// waits returns options that record waits instead of sleeping.
func waits() (*retry.Options, *[]time.Duration) {
	var list []time.Duration
	return &retry.Options{MaxBackoff: 100 * time.Millisecond, Sleep: func(ctx context.Context, d time.Duration) error {
		list = append(list, d)
		return context.Cause(ctx)
	}}, &list
}

func TestRetries(t *testing.T) {
	bad := errors.New("bad")
	for _, c := range []struct {
		err   error
		times int64
		waits int
		fails bool
	}{
		{syscall.EIO, 3, 3, false},
		{fmt.Errorf("x: %w", syscall.ETIMEDOUT), 1, 1, false},
		{syscall.EIO, 0, 4, true},
		{syscall.ENOENT, 0, 0, true},
		{bad, 0, 0, true},
		{store.ErrShort, 0, 0, true},
	} {
		opt, list := waits()
		retried, calls := 0, int64(0)
		opt.Retried = func(error) { retried++ }
		err := retry.Do(t.Context(), opt, func() error {
			if calls++; c.times > 0 && calls > c.times {
				return nil
			}
			return c.err
		})
		if (err != nil) != c.fails || c.fails && !errors.Is(err, c.err) || len(*list) != c.waits || retried != c.waits {
			t.Errorf("%v: %v after %v", c.err, err, *list)
		}
		if c.waits == 4 && !strings.Contains(err.Error(), "tried 5 times") {
			t.Errorf("%v", err)
		}
	}
}

func TestBackoff(t *testing.T) {
	opt, list := waits()
	_ = retry.Do(t.Context(), opt, func() error { return syscall.EIO })
	if want := []time.Duration{20e6, 40e6, 80e6, 100e6}; !slices.Equal(*list, want) {
		t.Errorf("waits are %v, want %v", *list, want)
	}
}

// An error of a cancelled operation has both causes.
func TestCancelled(t *testing.T) {
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	err := retry.Do(ctx, &retry.Options{Backoff: time.Hour}, func() error {
		calls++
		time.AfterFunc(time.Millisecond, func() { cancel(why) })
		return syscall.EIO
	})
	if calls != 1 || !errors.Is(err, why) || !errors.Is(err, syscall.EIO) {
		t.Errorf("%d calls, %v", calls, err)
	}
	if err := retry.Do(ctx, nil, func() error { calls++; return nil }); err != why || calls != 1 {
		t.Errorf("it was called when ctx was done: %v", err)
	}
}

type transientError bool

func (transientError) Error() string     { return "x" }
func (e transientError) Transient() bool { return bool(e) }

func TestTransient(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EIO: true,
		fmt.Errorf("reading: %w", syscall.ESTALE): true,
		&store.Error{Err: syscall.EMFILE}:         true,
		syscall.ENOENT:                            false,
		context.Canceled:                          false,
		context.DeadlineExceeded:                  false,
		errors.New("checksum"):                    false,
		transientError(true):                      true,
		transientError(false):                     false,
		store.ErrShort:                            false,
		store.ErrChanged:                          false,
	} {
		if retry.Transient(err) != want {
			t.Errorf("Transient(%v) is %v", err, !want)
		}
	}
}
