package bucket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/stokerdata/stoker/store"
)

// PartBytes is the initial size of a part. Parts grow with the object, because servers limit their number. Tests with
// servers that take smaller parts set it.
var PartBytes = 8 << 20

const (
	maxPart = 64 << 20
	// inFlight is the maximum number of parts in flight.
	inFlight = 3
)

// partSize returns the size of part n, from 0. Ten thousand parts are more than half a terabyte.
func partSize(n int) int { return min(PartBytes<<min(n/1000, 8), maxPart) }

// sender runs writes in the background, a few concurrently, and remembers the first error.
type sender struct {
	slots chan struct{}
	wg    sync.WaitGroup
	mu    sync.Mutex
	err   error
}

func newSender() *sender { return &sender{slots: make(chan struct{}, inFlight)} }

// send starts f as soon as a slot is free.
func (s *sender) send(f func() error) {
	s.slots <- struct{}{}
	s.wg.Go(func() {
		defer func() { <-s.slots }()
		if err := f(); err != nil {
			s.fail(err)
		}
	})
}

func (s *sender) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// failure returns the first error so far.
func (s *sender) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// wait waits for all writes.
func (s *sender) wait() error {
	s.wg.Wait()
	return s.failure()
}

// upload is an upload that does not outlive the process.
type upload struct {
	s     *Store
	name  string
	old   *left           // an unfinished upload of this name, which is removed at Commit
	ctx   context.Context // of background requests, not cancelled
	out   *sender
	parts Parts
	n     int // parts sent
	buf   []byte
	ended bool
}

// Create begins an object.
func (s *Store) Create(ctx context.Context, name string) (store.Upload, error) {
	if err := s.check(ctx, name); err != nil {
		return nil, s.failed("create", name, err)
	}
	if s.key(name) == "" {
		return nil, s.failed("create", name, errors.New("it is a bucket"))
	}
	old, err := s.leftOf(ctx, name)
	if err == nil && old.lock.Key != "" {
		var live bool
		if old.lock, err = s.d.Stat(ctx, old.lock.Key); err == nil { // includes the server's time
			live, _, err = s.lives(ctx, old.lock)
		}
		if err == nil && live {
			err = store.ErrLocked
		}
		if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged) {
			err = store.ErrLocked // another process locks or unlocks right now
		}
	}
	if err != nil {
		return nil, s.failed("create", name, err)
	}
	return &upload{s: s, name: name, old: old, ctx: context.WithoutCancel(ctx), out: newSender()}, nil
}

func (u *upload) failed(op string, err error) error { return u.s.failed(op, u.name, err) }

func (u *upload) usable() error {
	if u.ended {
		return u.failed("write", os.ErrClosed)
	}
	if err := u.out.failure(); err != nil {
		return u.failed("write", fmt.Errorf("an earlier write failed: %w", err))
	}
	return nil
}

// Write appends p.
func (u *upload) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if err := u.usable(); err != nil {
			return n, err
		}
		size := partSize(u.n)
		if u.buf == nil {
			u.buf = make([]byte, 0, min(size, max(len(p)-n, 64<<10)))
		}
		k := min(len(p)-n, size-len(u.buf))
		u.buf = append(u.buf, p[n:n+k]...)
		n += k
		// A full buffer is only sent when more data follows. Otherwise it is the last part, or the whole object.
		if len(u.buf) == size && n < len(p) {
			if err := u.send(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// send sends the buffer as a part.
func (u *upload) send() error {
	if u.parts == nil {
		parts, err := u.s.d.Begin(u.ctx, u.s.key(u.name))
		if err != nil {
			u.out.fail(err)
			return u.failed("write", err)
		}
		u.parts = parts
	}
	u.n++
	n, data := u.n, u.buf
	u.buf = nil
	u.out.send(func() error { return u.parts.Part(u.ctx, n, data) })
	return nil
}

// Sync has no effect: the object is not visible before Commit.
func (u *upload) Sync(ctx context.Context) error {
	if err := u.usable(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return u.failed("write", context.Cause(ctx))
	}
	return nil
}

// Commit creates the object.
func (u *upload) Commit(ctx context.Context) error {
	if err := u.Sync(ctx); err != nil {
		return err
	}
	if u.parts == nil {
		if _, err := u.s.d.Put(ctx, u.s.key(u.name), u.buf, Condition{}); err != nil {
			u.out.fail(err)
			return u.failed("write", err)
		}
	} else {
		if len(u.buf) > 0 {
			if err := u.send(); err != nil {
				return err
			}
		}
		err := u.out.wait()
		if err == nil {
			err = u.parts.Finish(ctx, u.n)
		}
		if err != nil {
			u.out.fail(err)
			return u.failed("write", err)
		}
	}
	u.ended, u.buf = true, nil
	if err := u.s.discard(ctx, u.old); err != nil {
		return u.failed("write", err)
	}
	return nil
}

// Abort discards the upload.
func (u *upload) Abort() error {
	if u.ended {
		return nil
	}
	u.ended, u.buf = true, nil
	_ = u.out.wait() // no request may arrive after the end
	if u.parts == nil {
		return nil
	}
	if err := u.parts.Abort(u.ctx); err != nil {
		return u.failed("remove", err)
	}
	return nil
}

// Remove removes an object.
func (s *Store) Remove(ctx context.Context, name string) error {
	err := s.check(ctx, name)
	if err == nil && s.key(name) == "" {
		err = errors.New("it is a bucket")
	}
	if err == nil {
		// Servers do not report whether the object existed.
		_, err = s.d.Stat(ctx, s.key(name))
	}
	if err == nil {
		err = s.d.Delete(ctx, s.key(name))
	}
	if err != nil {
		return s.failed("remove", name, err)
	}
	return nil
}
