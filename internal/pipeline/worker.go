package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/fair"
	"github.com/stokerdata/stoker/internal/fetch"
	"github.com/stokerdata/stoker/internal/inflight"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// panicError describes a bug that was caught, with the place in the code.
func panicError(what string, r any) error {
	return fmt.Errorf("internal error while %s: %v\n%s", what, r, debug.Stack())
}

// workers build the rows of batches.
type workers struct {
	list []*worker
	// While records are found in memory, warm is set and groups go to the workers directly through memoryQ.
	memoryQ chan group
	warm    atomic.Bool
	orders  atomic.Int64 // the first order of need of the latest stream
}

// openWorkers makes the workers. They start when everything is open.
func (p *Pipeline) openWorkers(plan *budget.Plan, threads int) error {
	p.streams.wake = make(chan struct{}, 1)
	p.workers.memoryQ = make(chan group, 2*threads)
	p.memory.heapScratch = plan.Scratch + plan.InOrder
	limitHeap(p.memory.heapScratch)
	for range threads {
		w, err := p.newWorker()
		if err != nil {
			return err
		}
		p.workers.list = append(p.workers.list, w)
	}
	return nil
}

// worker decodes and transforms groups of records into batch slots.
type worker struct {
	p      *Pipeline
	unit   fetch.Unit   // of groups that are in memory
	one    driver.Group // of records that are parsed one by one
	mem    *arena.Bump  // for data that sources unpack
	alloc  func(n int) ([]byte, error)
	where  func(k, field int, n int64) []byte
	budget *arena.Budget
	rows   *kind.Rows
	locked bool          // to a thread
	turn   fair.Turn     // on a core of the engine
	note   *inflight.Row // the records in flight

	// State of the group that is being parsed:
	b                 *batch
	first             int
	order             int64
	decode, transform time.Duration
	since, at         atomic.Int64 // when it began, in nanoseconds since 1970, 0 for none; its first record
}

func (p *Pipeline) newWorker() (*worker, error) {
	w := &worker{p: p, mem: arena.NewBump(arena.NewBudget(p.memory.workerParse), arena.PurposeRead), budget: arena.NewBudget(p.memory.workerScratch)}
	w.alloc, w.where = w.mem.Alloc, w.place // here, so that a group does not allocate
	var err error
	if w.note, err = p.cfg.InFlight.Row(p.memory.groupRows); err != nil {
		return w, err
	}
	w.rows, err = p.arrays.set.NewRows(p.memory.groupRows, w.budget, p.memory.workerDecode, p.memory.large)
	return w, err
}

func (w *worker) close() {
	w.mem.Release()
	if w.note != nil {
		w.note.Close()
	}
	if w.rows != nil {
		w.rows.Close()
	}
}

func (w *worker) loop() {
	p := w.p
	// An unreadable mapped page then causes a panic, which becomes the record's error, and does not end the process.
	debug.SetPanicOnFault(true)
	defer w.keepThread(0)
	defer w.turn.Leave()
	for {
		// Units that were read ahead were planned before the groups in memoryQ.
		if u := p.fetch.Pop(); u != nil {
			w.turn.Next(p.ctx, p.memory.part)
			start := time.Now()
			w.fetched(u)
			took := time.Since(start)
			w.turn.Done()
			w.keepThread(took)
		} else {
			select {
			case g := <-p.workers.memoryQ:
				w.keepThread(0)
				w.inTurn(g)
			default:
				w.turn.Leave()
				p.fetch.Dry()
				select {
				case <-p.fetch.Kick():
				case g := <-p.workers.memoryQ:
					w.keepThread(0)
					w.inTurn(g)
				case <-p.ctx.Done():
					return
				}
			}
		}
		// A goroutine that always finds work looks stuck to the runtime's monitor, which then does not sleep
		// (SpareProcs).
		runtime.Gosched()
	}
}

// longGroup is the time per group from which a worker gets its own thread: switching to one costs tens of microseconds.
const longGroup = 500 * time.Microsecond

// keepThread locks the worker to a thread while groups that were read take long, and otherwise unlocks it. Reading
// goroutines run between the workers' calls into C. Workers without a locked thread leave it to the system to move them
// between cores, which happens late: 4 to 8% of two cores were idle although there was work.
func (w *worker) keepThread(took time.Duration) {
	if long := took > longGroup; long && !w.locked {
		runtime.LockOSThread()
		w.locked = true
	} else if !long && w.locked {
		runtime.UnlockOSThread()
		w.locked = false
	}
}

// fetched does a group that was read.
func (w *worker) fetched(u *fetch.Unit) {
	b := u.Owner.(*batch)
	if !b.stream.stopped.Load() {
		w.order = u.Order()
		w.group(b, u.Lo, u, time.Now())
	}
	w.p.fetch.Done(u)
	w.p.groupsDone(b, 1)
}

// inTurn is fromMemory when it is the pipeline's turn.
func (w *worker) inTurn(g group) {
	w.turn.Next(w.p.ctx, w.p.memory.part)
	defer w.turn.Done()
	w.fromMemory(g)
}

// fromMemory processes a group whose records are in memory. Otherwise it returns the group to the planner. The next
// groups are then read ahead until records are found in memory again.
func (w *worker) fromMemory(g group) {
	p, s := w.p, g.b.stream
	if !s.stopped.Load() {
		start := time.Now()
		if !p.fetch.Memory(&w.unit, g.b.ids[g.lo:g.hi]) {
			p.workers.warm.Store(false)
			p.miss(g)
			return
		}
		w.order = g.order
		w.group(g.b, g.lo, &w.unit, start)
	}
	p.groupsDone(g.b, 1)
}

// miss returns a group to the planner, which reads it. The group still counts in the rest of its batch.
func (p *Pipeline) miss(g group) {
	p.mu.Lock()
	if s := g.b.stream; !s.ended {
		s.missed = append(s.missed, g)
		p.mu.Unlock()
		p.fetch.Wake()
		return
	}
	p.mu.Unlock()
	p.groupsDone(g.b, 1)
}

// requeue schedules a row of a batch to be read and built again after a pause. The worker does not wait, because others
// need the memory of its group.
func (p *Pipeline) requeue(b *batch, row int, order int64, pause time.Duration) {
	b.remaining.Add(1)
	g := group{b, row, row + 1, order}
	if pause == 0 {
		p.miss(g)
		return
	}
	ctx := b.stream.ctx
	p.wg.Go(func() {
		sleep(ctx, pause)
		p.miss(g)
	})
}

// group builds rows of a batch, from lo on. The work on its records began at the time found.
func (w *worker) group(b *batch, lo int, u *fetch.Unit, found time.Time) {
	p := w.p
	if b.populate {
		w.populate(b, lo, lo+len(u.IDs))
	}
	w.mem.Reset()
	u.Alloc = w.alloc
	w.b, w.first = b, lo
	u.Place = w.where
	w.decode, w.transform = 0, 0
	w.at.Store(u.IDs[0])
	w.since.Store(found.UnixNano())
	defer w.since.Store(0)
	defer w.note.Clear(len(u.IDs))
	var err error
	apart := p.suspected(u.IDs)
	if apart {
		decoding.Lock()
		defer decoding.Unlock()
	} else if p.cfg.Node != nil {
		decoding.RLock()
		defer decoding.RUnlock()
	}
	if !apart {
		w.inFlight(u.IDs, u.Records)
		if !u.Parsed {
			err = w.parse(&u.Group, u.Err())
		}
	}
	start := time.Now()
	p.fetch.Count(u, start.Sub(found))
	switch {
	case apart && u.Parsed:
		for k := range u.Records {
			w.note.Clear(1)
			w.inFlight(u.IDs[k:k+1], u.Records[k:k+1])
			w.make(b, lo+k, u.Records[k:k+1])
		}
	case apart || err != nil:
		w.oneByOne(b, lo, &u.Group)
	default:
		w.make(b, lo, u.Records)
	}
	total := time.Since(start)
	p.caches.kept.made(u.Records, total)
	n := int64(len(u.IDs))
	p.counters.stage[stageDecode].addFor(w.decode, n)
	p.counters.stage[stageTransform].addFor(w.transform, n)
	p.counters.stage[stageCollate].addFor(max(total-w.decode-w.transform, 0), n)
}

// inFlight notes that these records are decoded from now on. Records that have an error are not decoded.
func (w *worker) inFlight(ids []int64, recs []driver.Record) {
	for k, id := range ids {
		if recs[k].Err != nil {
			continue
		}
		w.note.Set(k, id)
		if w.p.cfg.Decoding != nil {
			w.p.cfg.Decoding(w.p.number(id))
		}
	}
}

// decoding is held by a worker that decodes a record of Config.Suspects. In an engine with several pipelines, workers
// hold it for reading while they decode other records. So a crash during a suspect has one record to blame.
var decoding sync.RWMutex

// suspected reports whether one of the records was in flight when an earlier engine crashed.
func (p *Pipeline) suspected(ids []int64) bool {
	if len(p.cfg.Suspects) == 0 {
		return false
	}
	return slices.ContainsFunc(ids, func(id int64) bool { return slices.Contains(p.cfg.Suspects, id) })
}

// parse has the source make values of bytes. unit is the failure of the group
// before that.
func (w *worker) parse(g *driver.Group, unit error) error {
	if unit != nil {
		return unit
	}
	return recordread.Parse(w.p.src, g)
}

// oneByOne builds the rows of a group one at a time. That finds the record that fails, or is needed because the records
// together do not fit the memory.
func (w *worker) oneByOne(b *batch, lo int, g *driver.Group) {
	for k := range g.IDs {
		o := &w.one
		from, to := g.First[k], g.First[k+1]
		*o = driver.Group{
			IDs: g.IDs[k : k+1], Extents: g.Extents[from:to], First: append(o.First[:0], 0, to-from),
			Bytes: g.Bytes[from:to], Records: g.Records[k : k+1], Alloc: g.Alloc,
		}
		if g.Place != nil {
			o.Place = func(_, field int, n int64) []byte { return b.Place(lo+k, field, n) }
		}
		w.mem.Reset()
		w.note.Clear(len(g.IDs))
		w.inFlight(o.IDs, o.Records)
		if len(g.Extents) == 0 && len(g.IDs) > 0 && g.Records[k].Err == nil {
			// The group may not have been located at all.
			if err := recordread.LocateOnce(w.p.src, o); err == nil && len(o.Extents) > 0 {
				g.Records[k].Err = errors.New("internal error: the source did not locate it")
			} else if err != nil {
				g.Records[k].Err = err
			}
		}
		if g.Records[k].Err == nil {
			g.Records[k].Err = recordread.Parse(w.p.src, o)
		}
		if errors.Is(g.Records[k].Err, arena.ErrBudget) {
			w.alone(b, lo+k, o)
			continue
		}
		w.make(b, lo+k, o.Records)
	}
}

// alone is the memory of a record that needs more than a worker has. One record at a time uses it.
type alone struct {
	mu   sync.Mutex
	most int64 // the size of mem
	mem  *arena.Bump
}

// alone builds the row of a record whose values need more memory than a worker has: one at a time, with enough for any
// record.
func (w *worker) alone(b *batch, row int, o *driver.Group) {
	p := w.p
	p.alone.mu.Lock()
	defer p.alone.mu.Unlock()
	p.alone.mem.Reset()
	asked := int64(0)
	o.Alloc = func(n int) ([]byte, error) {
		asked += int64(n)
		return p.alone.mem.Alloc(n)
	}
	clear(o.Records[0].Values)
	o.Records[0].Err = nil // Parse leaves records alone that have one
	if o.Records[0].Err = recordread.Parse(p.src, o); errors.Is(o.Records[0].Err, arena.ErrBudget) {
		o.Records[0].Err = p.fetch.TooLarge(asked, p.alone.most)
	}
	w.make(b, row, o.Records)
}

// place returns the memory in the batch for a value of the group that is being parsed.
func (w *worker) place(k, field int, n int64) []byte { return w.b.Place(w.first+k, field, n) }

// make builds the rows of recs, from row first on.
func (w *worker) make(b *batch, first int, recs []driver.Record) {
	p := w.p
	g := w.fill(b, first, recs)
	w.decode += g.DecodeTime
	w.transform += g.TransformTime
	for k, err := range g.Errs { // replace also builds rows, and its entries in g are separate
		if err != nil {
			w.replace(b, first+k, &recs[k], err)
		} else if p.faults.outage.on.Load() {
			p.tried(b, first+k, first+k+1)
		}
	}
}

// fill fills the rows of recs that have no error.
func (w *worker) fill(b *batch, first int, recs []driver.Record) *kind.RowGroup {
	// Random numbers depend on the record, however it is read. A mixture may have a record twice in an epoch.
	if w.p.records.epochs && w.p.cfg.Sequence == nil && w.p.order.mix == nil {
		for k := range recs {
			recs[k].ID = w.p.number(recs[k].ID)
		}
	}
	draw := int64(-1)
	if b.stream.given != nil {
		draw = b.first + int64(first)
	}
	w.rows.Without = -1
	if w.p.order.align != nil {
		w.p.markAligned(b, first, len(recs))
		if !w.p.order.align.of(w.p.number(b.ids[first])) {
			w.rows.Without = w.p.order.align.field
		}
	}
	g := w.rows.Make(b.rows, first, b.epoch, draw, recs)
	index := b.rows.Span(w.p.arrays.indexArray, first, first+len(recs))
	for k := range recs {
		if g.Errs[k] == nil {
			binary.LittleEndian.PutUint64(index[8*k:], uint64(w.p.number(recs[k].ID)))
		}
	}
	return g
}

// populate backs the rows of a group with memory before their first use, so that decoders do not cause a page fault per
// page. Since this happens here and not at the creation of the ring, the first batch does not wait for the memory of
// the other slots.
func (w *worker) populate(b *batch, lo, hi int) {
	for i := range w.p.arrays.layout.Arrays {
		a := &w.p.arrays.layout.Arrays[i]
		w.p.memory.ring.Prefault(b.slot, a.Offset+int64(lo)*a.RowBytes, a.Offset+int64(hi)*a.RowBytes)
	}
}

// replace deals with a record that failed, for the reason cause.
func (w *worker) replace(b *batch, row int, rec *driver.Record, cause error) {
	p := w.p
	if b.stream.stopped.Load() || p.lost(b) {
		p.tried(b, row, row+1)
		return
	}
	id := p.number(rec.ID)
	bad, known := cause.(*RecordError)
	if !known && damaged(cause) {
		if cause = w.repair(b, row, id, cause); cause == nil {
			p.tried(b, row, row+1)
			return
		}
	}
	if p.cfg.OnError == OnErrorMark {
		index := b.rows.Span(p.arrays.indexArray, row, row+1)
		binary.LittleEndian.PutUint64(index, uint64(-1-id))
		return
	}
	t := p.troubleOf(b, row, id)
	if !known {
		switch p.blame(b, row, id, cause, time.Now(), t.confirmed) {
		case ofRun:
			w.retry(b, row, id, cause)
			return
		case unsure:
			p.tried(b, row, row+1)
			t.confirmed = true
			w.anew(b, row, id)
			return
		}
		p.tried(b, row, row+1)
		bad = &RecordError{ID: id, Name: p.find(b.stream.ctx, rec.ID), Reason: oneLine(cause), Cause: cause}
	}
	// An image of another size than the first is not damaged: the operations are wrong.
	if size := new(transform.SizeError); errors.As(cause, &size) {
		p.batchFailed(b, row, bad)
		return
	}
	switch p.cfg.OnError {
	case OnErrorSkip:
		w.skip(b, row, t, bad, known || p.everyEpoch(rec))
	default:
		p.batchFailed(b, row, bad)
	}
}

// lost reports whether a batch or the run has already failed. Then no record is replaced in it.
func (p *Pipeline) lost(b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return b.err != nil
}

// batchFailed fails a batch with the error of its first bad row.
func (p *Pipeline) batchFailed(b *batch, row int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.err == nil || row < b.errRow {
		b.err, b.errRow = err, row
	}
}

// inEpoch returns the number by which a record is requested in an epoch. It differs if the source has other records in
// each epoch or several variants of each record.
func (p *Pipeline) inEpoch(epoch, id int64) int64 {
	if p.records.variants > 1 {
		epoch = int64(sampler.Variant(p.cfg.Seed, epoch, id, p.records.variants))
	}
	return driver.InEpoch(epoch, id)
}

// asked returns the number by which the source identifies record id in an epoch.
func (p *Pipeline) asked(epoch, id int64) int64 {
	if p.records.epochs {
		return p.inEpoch(epoch, id)
	}
	return id
}

// askedIn is asked for a row of a batch. In a mixture, the record of the row has the round of its dataset.
func (p *Pipeline) askedIn(b *batch, row int, id int64) int64 {
	if p.order.mix == nil {
		return p.asked(b.epoch, id)
	}
	round, _ := driver.OfEpoch(b.ids[row])
	return driver.InEpoch(round, id)
}

// number returns the number of a record in the source.
func (p *Pipeline) number(id int64) int64 {
	if p.records.epochs {
		_, id = driver.OfEpoch(id)
	}
	return id
}

// name returns the place of a record. A panic of the source is ignored here.
func (p *Pipeline) name(id int64) (name string) {
	defer func() {
		if recover() != nil {
			name = "unknown"
		}
	}()
	return p.src.Name(id)
}

// find is name, with a read of the source if necessary.
func (p *Pipeline) find(ctx context.Context, id int64) (name string) {
	f, ok := driver.As[driver.Finder](p.src)
	if !ok {
		return p.name(id)
	}
	defer func() {
		if recover() != nil {
			name = "unknown"
		}
	}()
	return f.Find(ctx, id)
}

// oneLine is the first line of an error.
func oneLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
