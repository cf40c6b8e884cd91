package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/direct"
	"github.com/stokerdata/stoker/internal/fetch"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// panicError describes a bug that was caught, with the place in the code.
func panicError(what string, r any) error {
	return fmt.Errorf("internal error while %s: %v\n%s", what, r, debug.Stack())
}

// worker decodes and transforms groups of records into batch slots.
type worker struct {
	p      *Pipeline
	unit   fetch.Unit   // of groups that are in memory
	one    driver.Group // of records that are parsed one by one
	mem    *arena.Bump  // of what sources make of bytes
	alloc  func(n int) ([]byte, error)
	where  func(k, field int, n int64) []byte
	budget *arena.Budget
	rows   *kind.Rows
	locked bool // to a thread

	// Of the group that is being parsed:
	b                 *batch
	first             int
	decode, transform time.Duration
}

func (p *Pipeline) newWorker() (*worker, error) {
	w := &worker{p: p, mem: arena.NewBump(arena.NewBudget(p.workerParse), arena.PurposeRead), budget: arena.NewBudget(p.workerScratch)}
	w.alloc, w.where = w.mem.Alloc, w.place // here, so that a group allocates nothing
	var err error
	w.rows, err = p.set.NewRows(p.groupRows, w.budget, p.workerDecode, p.large)
	return w, err
}

func (w *worker) close() {
	w.mem.Release()
	if w.rows != nil {
		w.rows.Close()
	}
}

func (w *worker) loop() {
	p := w.p
	// A mapped page that cannot be read is then a panic, which is the record's
	// error, and not the end of the process.
	debug.SetPanicOnFault(true)
	defer w.keepThread(0)
	for {
		// What was read ahead was planned before what is in memoryQ.
		if u := p.fetch.Pop(); u != nil {
			start := time.Now()
			w.fetched(u)
			w.keepThread(time.Since(start))
		} else {
			select {
			case g := <-p.memoryQ:
				w.keepThread(0)
				w.fromMemory(g)
			default:
				p.fetch.Dry()
				select {
				case <-p.fetch.Kick():
				case g := <-p.memoryQ:
					w.keepThread(0)
					w.fromMemory(g)
				case <-p.ctx.Done():
					return
				}
			}
		}
		// A goroutine that always finds work looks stuck to the runtime's
		// monitor, which then does not sleep (SpareProcs).
		runtime.Gosched()
	}
}

// longGroup is how long a worker takes for a group that is worth a thread of its
// own: changing to one costs tens of microseconds.
const longGroup = 500 * time.Microsecond

// keepThread gives the worker a thread of its own while groups that were read
// take long, and gives it up for others. Goroutines that read come and go between
// the workers' calls into C; workers that go on in whichever thread is free leave
// the system to move them between cores, which it does late: 4 to 8% of two
// cores were idle although there was work.
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
		w.group(b, u.Lo, u, time.Now())
	}
	w.p.fetch.Done(u)
	w.p.groupsDone(b, 1)
}

// fromMemory does a group whose records are in memory, or else gives it back to
// the planner, and has the next ones read ahead, until records are found in
// memory again.
func (w *worker) fromMemory(g group) {
	p, s := w.p, g.b.stream
	if !s.stopped.Load() {
		start := time.Now()
		if !p.fetch.Memory(&w.unit, g.b.ids[g.lo:g.hi]) {
			p.warm.Store(false)
			p.mu.Lock()
			if !s.ended {
				s.missed = append(s.missed, g)
				p.mu.Unlock()
				p.fetch.Wake()
				return
			}
			p.mu.Unlock()
		} else {
			w.group(g.b, g.lo, &w.unit, start)
		}
	}
	p.groupsDone(g.b, 1)
}

// group makes rows of a batch, from lo on, of records that were looked for since
// found.
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
	var err error
	if !u.Parsed {
		err = w.parse(&u.Group, u.Err())
	}
	start := time.Now()
	p.fetch.Count(u, start.Sub(found))
	if err == nil {
		w.make(b, lo, u.Records)
	} else {
		w.oneByOne(b, lo, &u.Group)
	}
	total := time.Since(start)
	p.kept.made(u.Records, total)
	n := int64(len(u.IDs))
	p.stage[stageDecode].addFor(w.decode, n)
	p.stage[stageTransform].addFor(w.transform, n)
	p.stage[stageCollate].addFor(max(total-w.decode-w.transform, 0), n)
}

// parse has the source make values of bytes. unit is the failure of the group
// before that.
func (w *worker) parse(g *driver.Group, unit error) error {
	if unit != nil {
		return unit
	}
	return direct.Parse(w.p.src, g)
}

// oneByOne makes rows of the records of a group each on its own, to find the one
// that is to blame, or because together they do not fit the memory.
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
		if len(g.Extents) == 0 && len(g.IDs) > 0 && g.Records[k].Err == nil {
			// The group may not have been located at all.
			if err := direct.LocateOnce(w.p.src, o); err == nil && len(o.Extents) > 0 {
				g.Records[k].Err = errors.New("internal error: the source did not locate it")
			} else if err != nil {
				g.Records[k].Err = err
			}
		}
		if g.Records[k].Err == nil {
			g.Records[k].Err = direct.Parse(w.p.src, o)
		}
		if errors.Is(g.Records[k].Err, arena.ErrBudget) {
			w.alone(b, lo+k, o)
			continue
		}
		w.make(b, lo+k, o.Records)
	}
}

// alone makes a row of a record whose values need more memory than a worker has:
// one at a time, with what is enough for any.
func (w *worker) alone(b *batch, row int, o *driver.Group) {
	p := w.p
	p.aloneMu.Lock()
	defer p.aloneMu.Unlock()
	p.aloneMem.Reset()
	o.Alloc = p.aloneMem.Alloc
	clear(o.Records[0].Values)
	o.Records[0].Err = nil // Parse leaves records alone that have one
	o.Records[0].Err = direct.Parse(p.src, o)
	w.make(b, row, o.Records)
}

// place is where a value of the group that is being parsed is wanted.
func (w *worker) place(k, field int, n int64) []byte { return w.b.Place(w.first+k, field, n) }

// make makes the rows of recs, from row first on.
func (w *worker) make(b *batch, first int, recs []driver.Record) {
	g := w.fill(b, first, recs)
	w.decode += g.DecodeTime
	w.transform += g.TransformTime
	for k, err := range g.Errs { // replace makes rows too, and what it leaves in g is its own
		if err != nil {
			w.replace(b, first+k, recs[k].ID, err)
		}
	}
}

// fill makes the rows of recs as far as they are good.
func (w *worker) fill(b *batch, first int, recs []driver.Record) *kind.Group {
	if w.p.epochs && w.p.cfg.Sequence == nil { // what is drawn is drawn for a record, however it is read
		for k := range recs {
			recs[k].ID = w.p.number(recs[k].ID)
		}
	}
	draw := int64(-1)
	if b.stream.given != nil {
		draw = b.first + int64(first)
	}
	g := w.rows.Make(b.rows, first, b.epoch, draw, recs)
	index := b.rows.Span(w.p.indexArray, first, first+len(recs))
	for k := range recs {
		if g.Errs[k] == nil {
			binary.LittleEndian.PutUint64(index[8*k:], uint64(w.p.number(recs[k].ID)))
		}
	}
	return g
}

// populate backs the rows of a group with memory before their first use, so
// that no decoder faults them in page by page. Doing it here and not when the
// ring is made lets the first batch go out before the other slots have memory.
func (w *worker) populate(b *batch, lo, hi int) {
	for i := range w.p.layout.Arrays {
		a := &w.p.layout.Arrays[i]
		w.p.ring.Prefault(b.slot, a.Offset+int64(lo)*a.RowBytes, a.Offset+int64(hi)*a.RowBytes)
	}
}

// maxSubstitutes is how many records in a row may be bad before skipping gives
// up.
const maxSubstitutes = 1000

// replace deals with a record that failed. By default the batch fails. With
// on_error=skip the record's place is taken by the next one in the order of the
// source that is good, (id+1) mod N, (id+2) mod N, ...: a rule that depends on
// nothing else, so that a resumed run gives the same batch.
func (w *worker) replace(b *batch, row int, id int64, cause error) {
	p := w.p
	if damaged(cause) {
		if cause = w.repair(b, row, id, cause); cause == nil {
			return
		}
	}
	rec := RecordError{ID: p.number(id), Name: p.find(b.stream.ctx, id), Reason: oneLine(cause), Cause: cause}
	if p.cfg.OnError == OnErrorMark {
		index := b.rows.Span(p.indexArray, row, row+1)
		binary.LittleEndian.PutUint64(index, uint64(-1-rec.ID))
		return
	}
	// An image of another size than the first is not damaged: the operations are wrong.
	if size := new(transform.SizeError); p.cfg.OnError != OnErrorSkip || errors.As(cause, &size) {
		p.batchFailed(b, row, &rec)
		return
	}
	n := p.split.Len
	if p.buckets != nil {
		n = math.MaxInt64 // substitute says when the bucket is at its end
	}
	for try := int64(1); try < n && try <= maxSubstitutes; try++ {
		if b.stream.stopped.Load() {
			return
		}
		var err error
		if try, err = w.substitute(b, row, id, try); errors.Is(err, errNoSubstitute) {
			n = try
			break
		} else if err == nil {
			p.mu.Lock()
			b.skipped++
			if len(b.bad) < maxBadListed {
				b.bad = append(b.bad, rec)
			}
			p.mu.Unlock()
			return
		}
	}
	rec.Reason += fmt.Sprintf("; none of the %d records after it could be used instead", min(n-1, maxSubstitutes))
	p.batchFailed(b, row, &rec)
}

// errNoSubstitute ends looking for one.
var errNoSubstitute = errors.New("no other record can take its place")

// substitute makes one row from the record that is try places behind record id, or
// from a later one where it is known that those before it are bad. It returns
// which one.
func (w *worker) substitute(b *batch, row int, id, try int64) (int64, error) {
	p := w.p
	n := p.split.Len
	// One at a time, with memory of its own: a worker holds the buffer of its
	// group, so it must not wait for those of other groups.
	p.subMu.Lock()
	defer p.subMu.Unlock()
	p.subMem.Reset()
	var recs []driver.Record
	var err error
	if p.src.Info().Sequential {
		// Those that cannot be reached are many, and each is tried by decompressing
		// what lies before it: that is done once.
		from := (id + try) % n
		if bad := &p.subBad; from >= bad[0] && from < bad[1] {
			try += bad[1] - from
			from = bad[1] % n
		}
		if try >= n || try > maxSubstitutes {
			return try, errNoSubstitute
		}
		recs, err = p.sub.Good(b.stream.ctx, from, min(maxSubstitutes-try+1, n-try, n-from))
		if len(recs) > 0 {
			if last := recs[0].ID; last > from {
				p.subBad = [2]int64{from, last}
				try += last - from
			}
		}
	} else {
		ids := [1]int64{(p.number(id) + try) % n}
		if p.buckets != nil { // one of its like
			var ok bool
			if ids[0], ok = p.buckets.After(p.number(id), try); !ok {
				return try, errNoSubstitute
			}
		}
		if p.epochs {
			ids[0] = p.inEpoch(b.epoch, ids[0])
		}
		recs, err = p.sub.Read(b.stream.ctx, ids[:])
	}
	if err != nil {
		return try, err
	}
	return try, w.fill(b, row, recs).Errs[0]
}

// batchFailed makes a batch fail, with the error of its first bad row.
func (p *Pipeline) batchFailed(b *batch, row int, err *RecordError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.err == nil || row < b.errRow {
		b.err, b.errRow = err, row
	}
}

// inEpoch is the number by which a record is asked for in an epoch, of a source that has
// others in each, or several variants of each.
func (p *Pipeline) inEpoch(epoch, id int64) int64 {
	if p.variants > 1 {
		epoch = int64(sampler.Variant(p.cfg.Seed, epoch, id, p.variants))
	}
	return driver.InEpoch(epoch, id)
}

// number is the number of a record among those of the source.
func (p *Pipeline) number(id int64) int64 {
	if p.epochs {
		_, id = driver.OfEpoch(id)
	}
	return id
}

// name says where a record lies; a panic of the source does not matter here.
func (p *Pipeline) name(id int64) (name string) {
	defer func() {
		if recover() != nil {
			name = "unknown"
		}
	}()
	return p.src.Name(id)
}

// find is name with what the source has to read to know.
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
