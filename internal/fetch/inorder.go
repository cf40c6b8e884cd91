package fetch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// InOrder reads the records of a source that cannot locate them. One goroutine reads the source as far ahead as memory
// allows. It builds units that are ready when they come, in the order of the requests.
//
// Records are decompressed into the memory of the Fetcher. Memory is granted in the order of need: a goroutine that
// waits for memory only waits for earlier units. It delivers its unfinished unit before it waits.
type InOrder struct {
	f    *Fetcher
	src  driver.Sequential
	ctx  context.Context
	next func(ids []int64) (order int64, n int)

	ids   []int64 // of the current group, ascending
	k     int     // the next one of them
	order int64
	u     *Unit    // the part of the group that is read
	have  int      // records in u
	mine  []*block // of the record that is being read
	taken int64    // their bytes
	since time.Time

	// Guarded by Fetcher.mu:
	ready   []*Unit
	stopped bool
}

// ordered is shared by the InOrder of a Fetcher.
type ordered struct {
	reads      []*orderedRead
	turn       chan struct{} // held by the InOrder that reads
	memoryFree chan struct{} // signalled when memory for it may be free
}

func (o *ordered) init() { o.turn, o.memoryFree = make(chan struct{}, 1), make(chan struct{}, 1) }

// orderedRead is a read under way.
type orderedRead struct {
	driver.Extent
	since time.Time
}

// InOrder starts to read the records that the function next requests, group by group. That function fills ids with up
// to len(ids) ascending records and returns their position in the order of need. A group that begins before the end of
// the previous one restarts the source. The function is called from the reading goroutine, which ends with ctx. Close
// waits for it. If there are several InOrder, one reads at a time.
func (f *Fetcher) InOrder(ctx context.Context, group int, next func(ids []int64) (order int64, n int)) *InOrder {
	src, _ := driver.As[driver.Sequential](f.src)
	r := &InOrder{f: f, src: src, ctx: ctx, next: next, ids: make([]int64, 0, group)}
	f.mu.Lock()
	f.ledger.start(r)
	f.mu.Unlock()
	f.wg.Go(r.run)
	return r
}

// Take appends the units that are ready to list.
func (r *InOrder) Take(list []*Unit) []*Unit {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	list = append(list, r.ready...)
	clear(r.ready)
	r.ready = r.ready[:0]
	return list
}

// Stop gives up the units that were not taken, now and later. The context ends the reading.
func (r *InOrder) Stop() {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.stopped = true
	for _, u := range r.ready {
		r.f.freeLocked(u)
	}
	r.ready = nil
}

func (r *InOrder) run() {
	f := r.f
	select {
	case f.ordered.turn <- struct{}{}:
	case <-r.ctx.Done():
		return
	}
	defer func() {
		f.mu.Lock()
		f.ledger.stop(r)
		r.dropRecord()
		if r.u != nil {
			f.freeLocked(r.u)
		}
		f.mu.Unlock()
		<-f.ordered.turn
	}()
	in := &driver.InOrder{Read: r.read, Alloc: r.alloc, Record: r.record}
	for r.ctx.Err() == nil {
		first := r.wanted()
		before := r.order
		r.since = time.Now()
		err := recordread.Records(r.ctx, r.src, r.src.Token(first), in)
		if err == nil && r.order == before && r.wanted() == first {
			err = fmt.Errorf("internal error: %s did not give record %d", r.src.Info().Format, first)
		}
		if err != nil && r.ctx.Err() == nil {
			// A bug in the source: it returned nothing for the requested record.
			r.put(&driver.Record{ID: r.wanted(), Err: err, Values: make([]driver.Value, f.fields)})
		}
	}
}

// wanted returns the record that comes next.
func (r *InOrder) wanted() int64 {
	if r.k == len(r.ids) {
		var n int
		r.order, n = r.next(r.ids[:cap(r.ids)])
		r.ids, r.k = r.ids[:n], 0
	}
	return r.ids[r.k]
}

// record takes a record and returns the next one to read.
func (r *InOrder) record(rec *driver.Record) (int64, error) {
	r.f.stats.busy.Add(int64(time.Since(r.since)))
	defer func() { r.since = time.Now() }()
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	if want := r.wanted(); rec.ID != want {
		return 0, fmt.Errorf("internal error: %s gave record %d in the place of %d", r.src.Info().Format, rec.ID, want)
	}
	r.put(rec)
	if id := r.wanted(); id > rec.ID {
		return id, nil
	}
	return r.src.Info().Len, nil // the next epoch
}

// put adds a record to the unit.
func (r *InOrder) put(rec *driver.Record) {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if rec.Err != nil {
		r.dropRecord()
	}
	if r.u == nil {
		u := f.pool.take()
		u.ctx, u.order, u.Want = r.ctx, r.order, f.cfg.Fields
		u.ids = append(u.ids[:0], r.ids[r.k:]...)
		u.Begin(u.ids, f.fields)
		u.blocks = u.blocks[:0]
		f.account.admit(u)
		f.ledger.admit(u)
		r.u, r.have = u, 0
	}
	u := r.u
	to := &u.Records[r.have]
	to.Err = rec.Err
	copy(to.Values, rec.Values)
	u.Next()
	u.blocks = append(u.blocks, r.mine...)
	u.reserved += r.taken
	r.mine, r.taken = r.mine[:0], 0
	r.have++
	if r.k++; r.k == len(r.ids) {
		r.flush()
	}
}

// flush delivers the unit with the records that it has. The caller holds the lock.
func (r *InOrder) flush() {
	u := r.u
	r.u = nil
	u.ids = u.ids[:r.have]
	u.IDs, u.Records = u.ids, u.Records[:r.have]
	u.Parsed, u.complete = true, true
	if r.stopped {
		r.f.freeLocked(u)
		return
	}
	r.ready = append(r.ready, u)
	signal(r.f.space)
}

// dropRecord frees the memory of the record that is being read. The caller holds the lock.
func (r *InOrder) dropRecord() {
	for _, bl := range r.mine {
		r.f.mem.release(bl)
	}
	r.f.account.give(r.taken)
	r.mine, r.taken = r.mine[:0], 0
}

// alloc returns memory for a value of the next record, and waits until it is free.
func (r *InOrder) alloc(_ int64, _ int, n int64) ([]byte, error) {
	f := r.f
	r.f.stats.busy.Add(int64(time.Since(r.since)))
	defer func() { r.since = time.Now() }()
	need, most := pieceBytes(n), f.cfg.Memory
	if v := f.cfg.MaxValue; v > 0 && n > v {
		return nil, f.TooLarge(n, v)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.taken+need > most {
		return nil, f.TooLarge(r.taken+need, most)
	}
	for f.account.used+need > most {
		if r.u != nil {
			r.flush()
		}
		f.mu.Unlock()
		select {
		case <-f.ordered.memoryFree:
		case <-r.ctx.Done():
		}
		f.mu.Lock()
		if r.ctx.Err() != nil {
			return nil, context.Cause(r.ctx)
		}
	}
	bl, err := f.mem.alloc(int(n), 0)
	if err != nil {
		return nil, err
	}
	bl.refs = 1
	r.mine, r.taken = append(r.mine, bl), r.taken+need
	f.account.take(need)
	return bl.b, nil
}

// read reads from the source and registers the read for Oldest.
func (r *InOrder) read(ctx context.Context, object int64, p []byte, off int64) error {
	f := r.f
	rd := &orderedRead{driver.Extent{Object: object, Offset: off, Size: int64(len(p))}, time.Now()}
	f.mu.Lock()
	f.ordered.reads = append(f.ordered.reads, rd)
	f.mu.Unlock()
	f.stats.requests.Add(1)
	err := f.obj.Read(ctx, object, p, off)
	f.mu.Lock()
	f.ordered.reads = slices.DeleteFunc(f.ordered.reads, func(o *orderedRead) bool { return o == rd })
	f.mu.Unlock()
	if err == nil {
		f.stats.bytes.Add(int64(len(p)))
	}
	return err
}
