// Package copyall copies all records of a source in order: one goroutine hands out jobs,
// several work on them at the same time, and one takes the finished jobs in the order in
// which they were handed out. Package pack writes packs with it, package sink writes the
// other formats.
//
// The users decide how many records a job has and how much memory it may take. Packing
// decodes images, so it has one record per job and asks headers what decoding takes.
// The other formats take small multiples of what is read, so a job is a group of records.
package copyall

import (
	"context"
	"runtime/pprof"

	"golang.org/x/sync/errgroup"
)

// Copy is a run over jobs of type J.
type Copy[J any] struct {
	// Threads is the number of goroutines that work.
	Threads int
	// Ahead is the number of jobs that may wait to be taken.
	Ahead int
	// Stage is the label of the work in profiles.
	Stage string
	// Feed hands out all jobs through the queue, in order.
	Feed func(ctx context.Context, q *Queue[J]) error
	// Worker prepares a goroutine that works. It returns a function that works on a job,
	// and one that releases what the goroutine holds.
	Worker func() (work func(ctx context.Context, j *J) error, end func(), err error)
	// Take takes the next job in order. The queue may hand out its memory again afterwards.
	Take func(ctx context.Context, j *J) error
}

// Queue is where Feed puts jobs.
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

// Begin returns memory for a job: that of a job that was taken, as it was left, or new
// memory.
func (q *Queue[J]) Begin() *J {
	select {
	case j := <-q.free:
		return j
	default:
		return new(J)
	}
}

// Send hands out a job. It waits while too many jobs are under way.
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

// Run hands out, works on and takes all jobs. It returns the first error of Feed, Worker
// or Take, or of the first job in order whose work failed, after all goroutines have
// ended.
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
