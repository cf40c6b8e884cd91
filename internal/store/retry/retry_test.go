package retry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

// waits returns options whose waits are noted instead of waited for.
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
		memory := storetest.NewMemory(map[string][]byte{"x": []byte("hello")})
		for _, op := range []faulttest.Op{faulttest.Open, faulttest.Read, faulttest.Stat} {
			opt, list := waits()
			retried := 0
			opt.Retried = func(error) { retried++ }
			s := retry.New(faulttest.New(memory, 1, faulttest.Error(c.err).On(op).Times(c.times)), opt)
			b := make([]byte, 5)
			err := func() error {
				if op == faulttest.Stat {
					_, err := s.Stat(t.Context(), "x")
					return err
				}
				o, err := s.Open(t.Context(), "x")
				if err != nil {
					return err
				}
				defer o.Close()
				return o.ReadAt(t.Context(), b, 0)
			}()
			if (err != nil) != c.fails || c.fails && !errors.Is(err, c.err) || len(*list) != c.waits || retried != c.waits {
				t.Errorf("%v on %s: %v after %v", c.err, op, err, *list)
			}
			if err == nil && op == faulttest.Read && string(b) != "hello" {
				t.Errorf("%v: read %q", c.err, b)
			}
			if c.waits == 4 && !strings.Contains(err.Error(), "tried 5 times") {
				t.Errorf("%v", err)
			}
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

// An error of something that was given up has both causes.
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

// A listing that fails in the middle goes on where it was.
func TestList(t *testing.T) {
	memory := storetest.NewMemory(map[string][]byte{"a": nil, "b/c": nil, "b/d": nil, "e": nil})
	for _, shallow := range []bool{false, true} {
		s := &breaking{Store: memory}
		opt, _ := waits()
		opt.Attempts = 10
		var got []string
		if err := retry.New(s, opt).List(t.Context(), "", &store.ListOptions{Shallow: shallow}, func(e store.Entry) error {
			got = append(got, e.Name)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		want := []string{"a", "b/c", "b/d", "e"}
		if shallow {
			want = []string{"a", "b", "e"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %q, want %q", got, want)
		}
	}
	// What cannot be listed is handed on once.
	dir := t.TempDir()
	for _, name := range []string{"b", "d"} {
		if err := os.Symlink("nowhere", dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "c", "e", "f"} {
		if err := os.WriteFile(dir+"/"+name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	opt, _ := waits()
	opt.Attempts = 10
	got := ""
	if err := retry.New(&breaking{Store: localstore.New(dir)}, opt).List(t.Context(), "", &store.ListOptions{Bad: func(e store.Entry, _ error) error {
		got += e.Name + "! "
		return nil
	}}, func(e store.Entry) error {
		got += e.Name + " "
		return nil
	}); err != nil || got != "a b! c d! e f " {
		t.Errorf("listed %s, %v", got, err)
	}
	// An error of the one who lists is not tried again, even if it may pass.
	calls := 0
	err := retry.New(memory, nil).List(t.Context(), "", nil, func(store.Entry) error { calls++; return syscall.EIO })
	if err != syscall.EIO || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// breaking fails each listing behind one more entry.
type breaking struct {
	store.Store
	at int
}

func (b *breaking) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	b.at++
	n := 0
	return b.Store.List(ctx, dir, opt, func(e store.Entry) error {
		if n++; n > b.at {
			return syscall.EIO
		}
		return f(e)
	})
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
