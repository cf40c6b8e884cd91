package pipeline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// outage is a time in which the store or the machine fails. One row is retried, and the others wait for the result, so
// that a failing server does not get all requests.
type outage struct {
	on    atomic.Bool
	hold  func(on bool) // stops and starts other reads
	mu    sync.Mutex
	end   *outageEnd // nil without an outage
	b     *batch     // with row: the one that is tried
	row   int
	s     *stream
	since time.Time // of the first failure after a success
	tries int
}

// outageEnd is the event that the other rows wait for.
type outageEnd struct {
	over chan struct{}
	err  error // why the run ends, nil if the rows are to be tried again
}

// retry builds a row again after a failure of the run, or fails if that lasts too long.
func (w *worker) retry(b *batch, row int, id int64, cause error) {
	p := w.p
	var counted interface{ Reason() string } // the store has reported it already
	if !errors.As(cause, &counted) {
		p.faults.answers.note(cause)
	}
	patience := p.patience(cause)
	end, tries, since := p.faults.outage.join(b, row)
	took := time.Since(since)
	switch {
	case b.stream.stopped.Load():
		p.faults.outage.release()
	case end != nil:
		p.await(b, row, w.order, end)
	case took >= patience:
		text, _ := p.faults.answers.since(since)
		err := &RunError{Cause: cause, Tries: tries, Took: took, Answers: text}
		p.batchFailed(b, row, err)
		p.faults.outage.finish(err)
	case p.src.Info().Sequential: // sources that are read in order read it again here
		sleep(b.stream.ctx, min(pause(tries-1), patience-took))
		w.anew(b, row, id)
	default:
		p.requeue(b, row, w.order, min(pause(tries-1), patience-took))
	}
}

// join adds a row to the outage, and starts the outage if necessary. It returns the event that the row has to wait for.
// For the row that is retried, it returns nil with the number of tries and the start of the outage.
func (o *outage) join(b *batch, row int) (end *outageEnd, tries int, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since, o.tries = time.Now(), 0
	}
	if o.end != nil && !(o.b == b && o.row == row && o.s == b.stream) {
		return o.end, 0, o.since
	}
	if o.end == nil && !b.stream.stopped.Load() { // Start, which stops it first, ends the outage
		o.end, o.b, o.row, o.s = &outageEnd{over: make(chan struct{})}, b, row, b.stream
		o.on.Store(true)
		o.hold(true)
	}
	o.tries++
	return nil, o.tries, o.since
}

// release restarts other reads unless there is an outage.
func (o *outage) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end == nil {
		o.hold(false)
	}
}

// others reports whether there is an outage in which another row is retried.
func (o *outage) others(b *batch, row int) bool {
	if !o.on.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end != nil && !(o.b == b && o.row == row && o.s == b.stream)
}

// await has a row made again after an outage.
func (p *Pipeline) await(b *batch, row int, order int64, end *outageEnd) {
	b.remaining.Add(1)
	ctx := b.stream.ctx
	p.wg.Go(func() {
		select {
		case <-end.over:
		case <-ctx.Done():
		}
		if ctx.Err() == nil && end.err != nil {
			p.batchFailed(b, row, end.err)
			p.groupsDone(b, 1)
			return
		}
		p.miss(group{b, row, row + 1, order})
	})
}

// finish ends the outage: with err the run ends, otherwise the rows that wait are tried again.
func (o *outage) finish(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.since = time.Time{}
	}
	if o.end != nil {
		o.end.err = err
		close(o.end.over)
		o.end, o.b, o.s = nil, nil, nil
		o.on.Store(false)
	}
	o.hold(false)
}

// tried ends the outage if a row of a batch in [lo, hi) is the one that is retried. It is called when the row has been
// read, or is not needed any more.
func (p *Pipeline) tried(b *batch, lo, hi int) {
	o := &p.faults.outage
	if !o.on.Load() {
		return
	}
	o.mu.Lock()
	is := o.b == b && o.s == b.stream && lo <= o.row && o.row < hi
	o.mu.Unlock()
	if is {
		o.finish(nil)
	}
}

// sleep waits, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
