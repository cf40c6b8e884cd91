// Package copyall copies all records of a source in order. One goroutine hands out jobs,
// several goroutines work on them, and one goroutine takes the finished jobs in their original
// order. Packages pack and sink write their outputs with it.
//
// The callers choose the number of records and the memory limit of a job. Packing decodes
// images, so pack uses one record per job and reads from its header how much memory decoding
// takes. The other formats need little more memory than the bytes that are read, so sink uses a
// group of records per job.
package copyall

import (
	"context"
	"runtime/pprof"

	"golang.org/x/sync/errgroup"
)

// Copy describes a run over jobs of type J.
type Copy[J any] struct {
	// Threads is the number of goroutines that work on jobs.
	Threads int
	// Ahead is the number of jobs that may wait to be taken.
	Ahead int
	// Stage is the label of the work in profiles.
	Stage string
	// Feed hands out all jobs through the queue, in order.
	Feed func(ctx context.Context, q *Queue[J]) error
	// Worker prepares a working goroutine. It returns a function that works on a job and a
	// function that releases the resources of the goroutine.
	Worker func() (work func(ctx context.Context, j *J) error, end func(), err error)
	// Take takes the next job in order. The queue may reuse its memory afterwards.
	Take func(ctx context.Context, j *J) error
}

// Queue receives the jobs of Feed.
type Queue[J any] struct {
	ctx         context.Context
	order, work chan *job[J]
	free        chan *J
}

type job[J any] struct {
	j    *J
	err  error
	done chan struct{}
}

// Begin returns a job to fill: a job that was taken, with its old content, or a new one.
func (q *Queue[J]) Begin() *J {
	select {
	case j := <-q.free:
		return j
	default:
		return new(J)
	}
}

// Send hands out a job. It waits while too many jobs are unfinished.
func (q *Queue[J]) Send(j *J) error {
	next := &job[J]{j: j, done: make(chan struct{})}
	for _, to := range []chan *job[J]{q.order, q.work} {
		select {
		case to <- next:
		case <-q.ctx.Done():
			return context.Cause(q.ctx)
		}
	}
	return nil
}

// Run runs all jobs and returns after all goroutines have ended. The error is the first error
// of Feed, Worker or Take, or the error of the first failed job in order.
func (c *Copy[J]) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	q := &Queue[J]{ctx, make(chan *job[J], c.Ahead), make(chan *job[J]), make(chan *J, c.Ahead+c.Threads)}
	g.Go(func() error {
		defer close(q.work)
		defer close(q.order)
		return c.Feed(ctx, q)
	})
	for range c.Threads {
		g.Go(func() error {
			work, end, err := c.Worker()
			if err != nil {
				return err
			}
			defer end()
			pprof.Do(ctx, pprof.Labels("stage", c.Stage), func(ctx context.Context) {
				for next := range q.work {
					next.err = work(ctx, next.j)
					close(next.done)
				}
			})
			return nil
		})
	}
	g.Go(func() error {
		for {
			var next *job[J]
			select {
			case next = <-q.order:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if next == nil { // Feed has ended
				return nil
			}
			select {
			case <-next.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if next.err != nil {
				return next.err
			}
			if err := c.Take(ctx, next.j); err != nil {
				return err
			}
			select {
			case q.free <- next.j:
			default:
			}
		}
	})
	return g.Wait()
}
