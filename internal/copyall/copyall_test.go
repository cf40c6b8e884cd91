package copyall

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type one struct {
	i    int
	kept []byte
}

// feed hands out n jobs.
func feed(n int) func(context.Context, *Queue[one]) error {
	return func(_ context.Context, q *Queue[one]) error {
		for i := range n {
			j := q.Begin()
			*j = one{i: i, kept: j.kept[:0]}
			if err := q.Send(j); err != nil {
				return err
			}
		}
		return nil
	}
}

func workers(work func(ctx context.Context, j *one) error, ended *atomic.Int64) func() (func(context.Context, *one) error, func(), error) {
	return func() (func(context.Context, *one) error, func(), error) {
		return work, func() { ended.Add(1) }, nil
	}
}

// All jobs are processed and taken in their order, and their memory is reused.
func TestOrder(t *testing.T) {
	const n, threads, ahead = 2000, 4, 8
	var ended, made atomic.Int64
	next := 0
	c := &Copy[one]{
		Threads: threads, Ahead: ahead, Feed: feed(n),
		Worker: workers(func(_ context.Context, j *one) error {
			if cap(j.kept) == 0 {
				made.Add(1)
			}
			if j.i%7 == 0 {
				runtime.Gosched()
			}
			j.kept = append(j.kept, byte(j.i))
			return nil
		}, &ended),
		Take: func(_ context.Context, j *one) error {
			if j.i != next || len(j.kept) != 1 || j.kept[0] != byte(next) {
				t.Errorf("job %d with %v, want %d", j.i, j.kept, next)
			}
			next++
			return nil
		},
	}
	if err := c.Run(t.Context()); err != nil || next != n || ended.Load() != threads {
		t.Errorf("%v, %d jobs, %d of %d goroutines ended", err, next, ended.Load(), threads)
	}
	// Ahead jobs wait, each goroutine has one, one is handed out and one is taken.
	if most := int64(ahead + threads + 2); made.Load() > most {
		t.Errorf("%d jobs were made, want at most %d", made.Load(), most)
	}
}

// If several jobs fail, Run returns the error of the first one in order. All jobs before it are
// taken.
func TestFirstErrorInOrder(t *testing.T) {
	var ended atomic.Int64
	first, later := errors.New("first"), errors.New("later")
	failed := make(chan struct{})
	taken := 0
	c := &Copy[one]{
		Threads: 2, Ahead: 8, Feed: feed(100),
		Worker: workers(func(_ context.Context, j *one) error {
			switch j.i {
			case 5:
				<-failed // job 6 has failed before
				return first
			case 6:
				close(failed)
				return later
			}
			return nil
		}, &ended),
		Take: func(context.Context, *one) error { taken++; return nil },
	}
	if err := c.Run(t.Context()); !errors.Is(err, first) || taken != 5 || ended.Load() != 2 {
		t.Errorf("%v, %d taken, %d ended", err, taken, ended.Load())
	}
}

// A failure of any part stops the others, and so does the context.
func TestFailures(t *testing.T) {
	bad := errors.New("bad")
	var ended atomic.Int64
	good := func(context.Context, *one) error { return nil }
	for name, change := range map[string]func(c *Copy[one]){
		"feed": func(c *Copy[one]) { c.Feed = func(context.Context, *Queue[one]) error { return bad } },
		"worker": func(c *Copy[one]) {
			c.Worker = func() (func(context.Context, *one) error, func(), error) { return nil, nil, bad }
		},
		"take": func(c *Copy[one]) { c.Take = func(context.Context, *one) error { return bad } },
	} {
		c := &Copy[one]{Threads: 3, Ahead: 2, Feed: feed(1000), Worker: workers(good, &ended), Take: good}
		change(c)
		if err := c.Run(t.Context()); !errors.Is(err, bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	c := &Copy[one]{Threads: 3, Ahead: 2, Feed: feed(1000), Worker: workers(good, &ended), Take: func(_ context.Context, j *one) error {
		if j.i == 10 {
			cancel(bad)
		}
		return nil
	}}
	if err := c.Run(ctx); !errors.Is(err, bad) {
		t.Errorf("cancelled: %v", err)
	}
}
