package stoker_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
)

// whileNextWaits runs do while Next waits for the batch of record 9, and returns the result of Next. Time is
// synctest's: the hour passes when all goroutines wait.
func whileNextWaits(t *testing.T, do func(*stoker.Loader), check func(*testing.T, *stoker.Loader, []int64, error)) {
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Bool
		stuck.Store(true)
		src := sourcetest.Wrap(sourcetest.Raw(50, 8, 8, 3, 5), func(id int64) *sourcetest.Fault {
			if id == 9 && stuck.Load() {
				return &sourcetest.Fault{Delay: time.Hour}
			}
			return nil
		})
		l, err := stoker.Open(t.Context(), "memory:", &stoker.Options{BatchSize: 8, Source: src, Limits: stoker.Limits{Memory: 128 << 20, Threads: 2}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := next(t, l); got[0] != 0 {
			t.Fatalf("the first batch is %v", got)
		}
		type result struct {
			ids []int64
			err error
		}
		done := make(chan result)
		go func() {
			b, err := l.Next(context.Background())
			if err != nil {
				done <- result{err: err}
				return
			}
			defer b.Release()
			done <- result{ids: b.Ints("index")}
		}()
		synctest.Wait()
		stuck.Store(false)
		do(l)
		r := <-done
		check(t, l, r.ids, r.err)
	})
}

// If SetEpoch or Restore is called while Next waits, Next returns the batch at the new position.
func TestMovesDuringNext(t *testing.T) {
	for name, do := range map[string]func(*stoker.Loader){
		"SetEpoch": func(l *stoker.Loader) { l.SetEpoch(3) },
		"Restore": func(l *stoker.Loader) {
			s := l.State()
			s.Epoch, s.Position = 3, 0
			if err := l.Restore(s); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			whileNextWaits(t, do, func(t *testing.T, l *stoker.Loader, ids []int64, err error) {
				if err != nil || len(ids) != 8 || ids[0] != 0 {
					t.Fatalf("Next returns %v, %v", ids, err)
				}
				if s := l.State(); s.Epoch != 3 || s.Position != 8 {
					t.Errorf("the loader stands at %+v", s)
				}
				if got := next(t, l); len(got) != 8 || got[0] != 8 {
					t.Errorf("then comes %v", got)
				}
			})
		})
	}
}

func TestCloseDuringNext(t *testing.T) {
	whileNextWaits(t, func(l *stoker.Loader) { l.Close() }, func(t *testing.T, _ *stoker.Loader, ids []int64, err error) {
		if !errors.Is(err, stoker.ErrClosed) {
			t.Errorf("Next returns %v, %v", ids, err)
		}
	})
}

// Moves at any moment are never lost: the next batch after a move is of its epoch or, if Next had it already, of the
// one before.
func TestMovesAtAnyMoment(t *testing.T) {
	l := open(t, stoker.Options{BatchSize: 8})
	moved := make(chan int64)
	go func() {
		defer close(moved)
		for e := range int64(200) {
			l.SetEpoch(1000 * (e + 1))
			moved <- e
		}
	}()
	for {
		b, err := l.Next(context.Background())
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if err == nil {
			b.Release()
		}
		select {
		case e, more := <-moved:
			if !more {
				return
			}
			if s := l.State(); s.Epoch < 1000*(e+1) {
				t.Fatalf("SetEpoch(%d) is lost: the loader stands at %+v", 1000*(e+1), s)
			}
		default:
		}
	}
}

func TestCloseAtAnyMoment(t *testing.T) {
	for range 100 {
		l := open(t, stoker.Options{BatchSize: 8})
		closed := make(chan error)
		go func() { closed <- l.Close() }()
		for {
			if _, err := l.Next(context.Background()); errors.Is(err, stoker.ErrClosed) {
				break
			} else if err != nil && err != io.EOF && !errors.Is(err, stoker.ErrHeld) {
				t.Fatal(err)
			}
		}
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
	}
}

// An Open that fails also closes the source, exactly once, at whichever step it fails.
func TestRefusedOptionsCloseTheSource(t *testing.T) {
	for name, opts := range map[string]stoker.Options{
		"no batch size": {},
		"an operation that has no JSON": {BatchSize: 1, Outputs: []stoker.Output{{Name: "image",
			Ops: []stoker.Op{stoker.NewOp("CenterCrop", map[string]any{"size": make(chan int)})}}}},
		"a batch operation that has none": {BatchSize: 1, BatchOps: []stoker.Op{stoker.NewOp("MixUp", map[string]any{"alpha": make(chan int)})}},
		"an unknown operation":            {BatchSize: 1, Outputs: []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.NewOp("x", nil)}}}},
		"too little memory":               {BatchSize: 1 << 19, Limits: stoker.Limits{Memory: 1 << 20}},
	} {
		src := &closings{Memory: sourcetest.Raw(5, 8, 8, 3, 5)}
		opts.Source = src
		if l, err := stoker.Open(context.Background(), "memory:", &opts); err == nil {
			l.Close()
			t.Errorf("%s: it opens", name)
		}
		if src.n != 1 {
			t.Errorf("%s: the source was closed %d times", name, src.n)
		}
	}
}

type closings struct {
	*sourcetest.Memory
	n int
}

func (c *closings) Close() error {
	c.n++
	return c.Memory.Close()
}
