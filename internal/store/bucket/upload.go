package bucket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/stokerdata/stoker/store"
)

const (
	// partBytes is what is written at once; it grows with the object, since servers
	// have limits to the number of parts.
	partBytes = 8 << 20
	maxPart   = 64 << 20
	// inFlight is how many parts are on their way at once.
	inFlight = 3
)

// partSize is the size of the part of a number, from 0 on: ten thousand of them are
// more than half a terabyte.
func partSize(n int) int { return min(partBytes<<min(n/1000, 8), maxPart) }

// sender does what is written in the background, a few at once, and keeps the first
// failure.
type sender struct {
	slots chan struct{}
	wg    sync.WaitGroup
	mu    sync.Mutex
	err   error
}

func newSender() *sender { return &sender{slots: make(chan struct{}, inFlight)} }

// send begins f, when there is a slot for it.
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

// failure is what made it useless, so far.
func (s *sender) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// wait waits for everything that was sent.
func (s *sender) wait() error {
	s.wg.Wait()
	return s.failure()
}

// upload is an object that is being written and does not outlive the process.
type upload struct {
	s     *Store
	name  string
	old   *left           // an unfinished upload of that name, which ends with this one
	ctx   context.Context // of what is sent in the background, not cancelled
	out   *sender
	parts Parts
	n     int // parts that were sent
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
		if old.lock, err = s.d.Stat(ctx, old.lock.Key); err == nil { // with the server's time
			live, _, err = s.lives(ctx, old.lock)
		}
		if err == nil && live {
			err = store.ErrLocked
		}
		if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged) {
			err = store.ErrLocked // somebody comes and goes at this moment
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
		// Only when more comes is it known that this is not the last part, which with
		// the first one is the whole object.
		if len(u.buf) == size && n < len(p) {
			if err := u.send(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// send sends what is in the buffer as a part.
func (u *upload) send() error {
	if u.parts == nil {
		var err error
		if u.parts, err = u.s.d.Begin(u.ctx, u.s.key(u.name)); err != nil {
			u.out.fail(err)
			return u.failed("write", err)
		}
	}
	u.n++
	n, data := u.n, u.buf
	u.buf = nil
	u.out.send(func() error { return u.parts.Part(u.ctx, n, data) })
	return nil
}

// Sync does nothing: until Commit nobody but the server knows of the object.
func (u *upload) Sync(ctx context.Context) error {
	if err := u.usable(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return u.failed("write", context.Cause(ctx))
	}
	return nil
}

// Commit makes the object.
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

// Abort leaves nothing of it.
func (u *upload) Abort() error {
	if u.ended {
		return nil
	}
	u.ended, u.buf = true, nil
	_ = u.out.wait() // what was sent may not arrive behind the end
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
		// Servers do not say whether there was one.
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
