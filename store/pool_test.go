package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

// tracked counts the open objects.
type tracked struct {
	*storetest.Memory
	open, most, opened atomic.Int64
}

func (s *tracked) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Memory.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	s.opened.Add(1)
	n := s.open.Add(1)
	for m := s.most.Load(); n > m && !s.most.CompareAndSwap(m, n); m = s.most.Load() {
	}
	return &trackedObject{o, s, new(atomic.Bool)}, nil
}

type trackedObject struct {
	store.Object
	s      *tracked
	closed *atomic.Bool
}

func (o *trackedObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	if o.closed.Load() {
		return errors.New("read after close")
	}
	return o.Object.ReadAt(ctx, p, off)
}

func (o *trackedObject) Close() error {
	if o.closed.Swap(true) {
		return errors.New("closed twice")
	}
	o.s.open.Add(-1)
	return nil
}

func newTracked(n int) (*tracked, []store.Entry) {
	s := &tracked{Memory: storetest.NewMemory(nil)}
	var entries []store.Entry
	for i := range n {
		name := fmt.Sprintf("o%03d", i)
		s.Put(name, bytes.Repeat([]byte{byte(i)}, 100))
		e, _ := s.Stat(context.Background(), name)
		entries = append(entries, e)
	}
	return s, entries
}

func TestPool(t *testing.T) {
	s, entries := newTracked(50)
	p := store.NewPool(s, 10)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 400 {
				e := entries[(i*7+w*13)%len(entries)]
				o, err := p.Open(t.Context(), e)
				if err != nil {
					t.Error(err)
					return
				}
				b := make([]byte, 100)
				if err := o.ReadAt(t.Context(), b, 0); err != nil || fmt.Sprintf("o%03d", b[99]) != e.Name {
					t.Errorf("%s: %v", e.Name, err)
				}
				if err := o.Close(); err != nil {
					t.Error(err)
				}
				_ = o.Close() // has no effect
			}
		})
	}
	wg.Wait()
	if s.most.Load() > 10+6 || s.open.Load() > 10 {
		t.Errorf("%d objects are open, %d were", s.open.Load(), s.most.Load())
	}
	before := s.opened.Load()
	for range 100 {
		o, err := p.Open(t.Context(), entries[3])
		if err != nil {
			t.Fatal(err)
		}
		o.Close()
	}
	if n := s.opened.Load() - before; n > 1 {
		t.Errorf("an object was opened %d times", n)
	}
	// An object in use outlives the pool.
	o, err := p.Open(t.Context(), entries[4])
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := o.ReadAt(t.Context(), make([]byte, 1), 0); err != nil {
		t.Error(err)
	}
	o.Close()
	if s.open.Load() != 0 {
		t.Errorf("%d objects are open after Close", s.open.Load())
	}
}

func TestPoolSeesChanges(t *testing.T) {
	s, entries := newTracked(2)
	p := store.NewPool(s, 10)
	o, err := p.Open(t.Context(), entries[0])
	if err != nil {
		t.Fatal(err)
	}
	s.Put(entries[0].Name, []byte("other"))
	now, err := s.Stat(t.Context(), entries[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.Open(t.Context(), entries[0]); err != nil {
		t.Errorf("the old version is still open, and yet: %v", err)
	} else {
		again.Close()
	}
	other, err := p.Open(t.Context(), now)
	if err != nil || other.Size() != 5 {
		t.Fatalf("the new version: %v", err)
	}
	o.Close()
	other.Close()
	if _, err := p.Open(t.Context(), entries[0]); !errors.Is(err, store.ErrChanged) {
		t.Errorf("the old version: error is %v", err)
	}
	if err := p.Close(); err != nil || s.open.Load() != 0 {
		t.Errorf("%d objects are open: %v", s.open.Load(), err)
	}
}

// Several goroutines that need one object wait for a single Open. One that gives up does not take it from the
// others.
func TestPoolOpensOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, entries := newTracked(1)
		slow := faulttest.Delay(time.Second).On(faulttest.Open)
		p := store.NewPool(faulttest.New(s, 1, slow), 10)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 4)
		for i := range 4 {
			time.Sleep(time.Millisecond)
			mine := t.Context()
			if i == 0 {
				mine = ctx // the first one opens it
			}
			go func() {
				o, err := p.Open(mine, entries[0])
				if err == nil {
					err = o.Close()
				}
				errs <- err
			}()
		}
		time.Sleep(100 * time.Millisecond)
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if slow.Hits() != 2 || s.opened.Load() != 1 {
			t.Errorf("opened %d times, tried %d times", s.opened.Load(), slow.Hits())
		}
		if err := p.Close(); err != nil || s.open.Load() != 0 {
			t.Errorf("%d objects are open: %v", s.open.Load(), err)
		}
	})
}

func TestPoolFailure(t *testing.T) {
	s, entries := newTracked(1)
	p := store.NewPool(faulttest.New(s, 1, faulttest.Error(syscall.EMFILE).On(faulttest.Open).Times(1)), 10)
	if _, err := p.Open(t.Context(), entries[0]); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("error is %v", err)
	}
	o, err := p.Open(t.Context(), entries[0])
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	if err := p.Close(); err != nil || s.open.Load() != 0 {
		t.Errorf("%d objects are open: %v", s.open.Load(), err)
	}
}
