package bucket

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/store"
)

// An unfinished upload is locked by an object next to its pieces that names the owner. It is created only if it
// does not exist, and renewed regularly. A lock belongs to a dead process if it is old, or if its process on this
// machine no longer exists.

const (
	// beat is the interval of renewals.
	beat = 20 * time.Second
	// lockEnds is the age from which a lock has no owner.
	lockEnds = 2 * time.Minute
	// maxLock is the size limit of a lock.
	maxLock = 4 << 10
)

// holder is the content of a lock.
type holder struct {
	Token string `json:"token"`
	// Machine, PID and Start identify the process.
	Machine string `json:"machine"`
	PID     int    `json:"pid"`
	Start   uint64 `json:"start"`
}

// lock is a held lock.
type lock struct {
	s     *Store
	name  string
	data  []byte
	token string

	mu      sync.Mutex
	version string
	lost    error

	cancel context.CancelFunc
	done   chan struct{}
}

func (s *Store) lockKey(name string) string { return s.pieces(name) + "lock" }

// held are the tokens of all locks of this process.
var held struct {
	sync.Mutex
	tokens map[string]bool
}

func hold(token string, yes bool) {
	held.Lock()
	defer held.Unlock()
	if held.tokens == nil {
		held.tokens = map[string]bool{}
	}
	if yes {
		held.tokens[token] = true
	} else {
		delete(held.tokens, token)
	}
}

// lock acquires the lock of an upload, or fails with ErrLocked.
func (s *Store) lock(ctx context.Context, name string) (*lock, error) {
	me := holder{Token: rand.Text()}
	me.Machine, me.PID, me.Start = proc.Identity()
	data, err := json.Marshal(me)
	if err != nil {
		return nil, err
	}
	hold(me.Token, true)
	i, err := s.take(ctx, name, me.Token, data)
	if err != nil {
		hold(me.Token, false)
		return nil, err
	}
	lctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &lock{s: s, name: name, data: data, token: me.Token, version: i.Version, cancel: cancel, done: make(chan struct{})}
	go l.keep(lctx)
	return l, nil
}

func (s *Store) take(ctx context.Context, name, me string, data []byte) (Info, error) {
	key := s.lockKey(name)
	for range 10 {
		i, err := s.d.Put(ctx, key, data, Condition{Absent: true})
		if !errors.Is(err, store.ErrChanged) {
			return i, err
		}
		old, err := s.d.Stat(ctx, key)
		if errors.Is(err, store.ErrNotExist) {
			continue // it has just been released
		}
		if err != nil {
			return i, err
		}
		live, token, err := s.lives(ctx, old)
		if err == nil && token == me {
			return old, nil // the response was lost
		}
		if errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrNotExist) {
			continue
		}
		if err != nil {
			return i, err
		}
		if live {
			return i, store.ErrLocked
		}
		i, err = s.d.Put(ctx, key, data, Condition{Version: old.Version})
		if err == nil || !errors.Is(err, store.ErrChanged) && !errors.Is(err, store.ErrNotExist) {
			return i, err
		}
	}
	return Info{}, store.ErrLocked
}

// lives reports whether a lock has an owner, and returns its token.
func (s *Store) lives(ctx context.Context, i Info) (live bool, token string, err error) {
	if i.Size > maxLock {
		return false, "", fmt.Errorf("%s is not a lock: it has %d bytes", s.d.URL()+"/"+i.Key, i.Size)
	}
	b := make([]byte, i.Size)
	if len(b) > 0 {
		if err := s.d.ReadAt(ctx, i, b, 0); err != nil {
			return false, "", err
		}
	}
	var h holder
	if err := json.Unmarshal(b, &h); err != nil {
		return false, "", fmt.Errorf("%s is not a lock: %w", s.d.URL()+"/"+i.Key, err)
	}
	machine, pid, start := proc.Identity()
	switch {
	case h.Machine == "" || h.Machine != machine:
		return i.Now.IsZero() || i.ModTime.IsZero() || i.Now.Sub(i.ModTime) < lockEnds, h.Token, nil
	case h.PID == pid && h.Start == start:
		held.Lock()
		defer held.Unlock()
		return held.tokens[h.Token], h.Token, nil
	}
	return proc.Lives(h.PID, h.Start), h.Token, nil
}

// keep renews the lock regularly.
func (l *lock) keep(ctx context.Context) {
	defer close(l.done)
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		l.mu.Lock()
		version := l.version
		l.mu.Unlock()
		// Not cancelled, so that the renewal cannot come after the removal of the lock.
		i, err := l.s.d.Put(context.WithoutCancel(ctx), l.s.lockKey(l.name), l.data, Condition{Version: version})
		l.mu.Lock()
		switch {
		case err == nil:
			l.version = i.Version
		case errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrNotExist):
			l.lost = fmt.Errorf("%w: it took this upload over as abandoned", store.ErrLocked)
		}
		lost := l.lost
		l.mu.Unlock()
		if lost != nil {
			return
		}
	}
}

// mine returns an error if another process has taken the lock.
func (l *lock) mine() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// end releases the lock.
func (l *lock) end(ctx context.Context) error {
	l.cancel()
	<-l.done
	var err error
	if l.mine() == nil {
		err = l.s.d.Delete(ctx, l.s.lockKey(l.name))
		if errors.Is(err, store.ErrNotExist) {
			err = nil
		}
	}
	hold(l.token, false)
	return err
}
