package pipeline

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/fetch"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/source/driver"
)

// filled is a group whose records were read.
type filled struct {
	group
	buf *fetch.Buffer
}

// fetchLoop is one reader: it takes groups, reads their records and passes them
// to the workers.
func (p *Pipeline) fetchLoop(n int) {
	for {
		select {
		case g := <-p.fetchQ:
			p.fetchGroup(n, g)
		case g := <-p.missedQ:
			p.memoryOut.Add(-1)
			p.fetchGroup(n, g)
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *Pipeline) fetchGroup(n int, g group) {
	s := g.b.stream
	if s.stopped.Load() {
		p.groupsDone(g.b, 1)
		return
	}
	buf, err := p.reader.Get(s.ctx)
	if err != nil {
		p.groupsDone(g.b, 1)
		return
	}
	if p.inMemory && p.reader.ReadMemory(buf, g.b.ids[g.lo:g.hi]) {
		p.warm.Store(true)
		p.decodeQ <- filled{g, buf}
		return
	}
	buf.Into(g.b, g.lo)
	err = p.reader.Read(s.ctx, n, buf, g.b.ids[g.lo:g.hi])
	switch {
	case err == nil:
		p.decodeQ <- filled{g, buf} // never blocks: there is room for each buffer
	case s.stopped.Load() || s.ctx.Err() != nil:
		p.reader.Done(buf)
		p.groupsDone(g.b, 1)
	case g.hi-g.lo == 1:
		buf.Records[0].Err = err
		p.decodeQ <- filled{g, buf}
	default:
		// Read the halves, to find the record that is to blame, or because
		// the group is too large for the memory at hand.
		p.reader.Done(buf)
		g.b.remaining.Add(1)
		mid := (g.lo + g.hi) / 2
		p.fetchGroup(n, group{g.b, g.lo, mid})
		p.fetchGroup(n, group{g.b, mid, g.hi})
	}
}

// panicError describes a bug that was caught, with the place in the code.
func panicError(what string, r any) error {
	return fmt.Errorf("internal error while %s: %v\n%s", what, r, debug.Stack())
}

// worker decodes and transforms groups of records into batch slots.
type worker struct {
	p      *Pipeline
	buf    *fetch.Buffer // of groups that are in memory
	budget *arena.Budget
	rows   *kind.Rows
}

func (p *Pipeline) newWorker() (*worker, error) {
	w := &worker{p: p, buf: p.reader.NewBuffer(p.groupRows), budget: arena.NewBudget(p.workerScratch)}
	var err error
	w.rows, err = p.set.NewRows(p.groupRows, w.budget, &p.large)
	return w, err
}

func (w *worker) close() {
	if w.rows != nil {
		w.rows.Close()
	}
}

func (w *worker) loop() {
	p := w.p
	for {
		select {
		case f := <-p.decodeQ: // read before those in memoryQ were planned
			w.filled(f)
		default:
			select {
			case f := <-p.decodeQ:
				w.filled(f)
			case g := <-p.memoryQ:
				w.fromMemory(g)
			case <-p.ctx.Done():
				return
			}
		}
		// A goroutine that always finds work looks stuck to the runtime's
		// monitor, which then does not sleep (SpareProcs).
		runtime.Gosched()
	}
}

// filled does a group that a reader has read.
func (w *worker) filled(f filled) {
	p := w.p
	if !f.b.stream.stopped.Load() {
		w.group(f)
	}
	p.reader.Done(f.buf)
	p.groupsDone(f.b, 1)
}

// fromMemory does a group whose records are in memory, or else leaves it to the
// readers, and the next ones too, until they find records in memory again.
func (w *worker) fromMemory(g group) {
	p := w.p
	switch {
	case g.b.stream.stopped.Load():
	case p.reader.ReadMemory(w.buf, g.b.ids[g.lo:g.hi]):
		w.group(filled{g, w.buf})
		p.reader.Done(w.buf)
	default:
		p.warm.Store(false)
		p.missedQ <- g // never blocks
		return
	}
	p.memoryOut.Add(-1)
	p.groupsDone(g.b, 1)
}

// group makes rows [f.lo, f.hi) of a batch.
func (w *worker) group(f filled) {
	p, start := w.p, time.Now()
	if f.b.populate {
		w.populate(f)
	}
	g := w.make(f.b, f.lo, f.buf.Records)
	decode, transform := g.DecodeTime, g.TransformTime
	for k, err := range g.Errs { // replace makes rows too, and what it leaves in g is its own
		if err != nil {
			w.replace(f.b, f.lo+k, f.buf.Records[k].ID, err)
		}
	}
	total := time.Since(start)
	n := int64(f.hi - f.lo)
	p.stage[stageDecode].addFor(decode, n)
	p.stage[stageTransform].addFor(transform, n)
	p.stage[stageCollate].addFor(max(total-decode-transform, 0), n)
}

// make makes the rows of recs, from row first on.
func (w *worker) make(b *batch, first int, recs []driver.Record) *kind.Group {
	g := w.rows.Make(b.rows, first, b.epoch, recs)
	for k := range recs {
		if g.Errs[k] == nil {
			b.rows.PutInt(w.p.indexArray, first+k, recs[k].ID)
		}
	}
	return g
}

// populate backs the rows of a group with memory before their first use, so
// that no decoder faults them in page by page. Doing it here and not when the
// ring is made lets the first batch go out before the other slots have memory.
func (w *worker) populate(f filled) {
	for i := range w.p.layout.Arrays {
		a := &w.p.layout.Arrays[i]
		w.p.ring.Prefault(f.b.slot, a.Offset+int64(f.lo)*a.RowBytes, a.Offset+int64(f.hi)*a.RowBytes)
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
	rec := RecordError{ID: id, Name: p.name(id), Reason: oneLine(cause), Cause: cause}
	if p.cfg.OnError != OnErrorSkip {
		p.batchFailed(b, row, &rec)
		return
	}
	n := p.split.Len
	for try := int64(1); try < n && try <= maxSubstitutes; try++ {
		if b.stream.stopped.Load() {
			return
		}
		if w.substitute(b, row, (id+try)%n) == nil {
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

// substitute makes one row from record id.
func (w *worker) substitute(b *batch, row int, id int64) error {
	ids := [1]int64{id}
	// One at a time, with memory of its own: a worker holds the buffer of its
	// group, so it must not wait for those of other groups.
	w.p.subMu.Lock()
	defer w.p.subMu.Unlock()
	buf, err := w.p.subReader.Get(b.stream.ctx)
	if err != nil {
		return err
	}
	defer w.p.subReader.Done(buf)
	if err := w.p.subReader.Read(b.stream.ctx, 0, buf, ids[:]); err != nil {
		return err
	}
	return w.make(b, row, buf.Records).Errs[0]
}

// batchFailed makes a batch fail, with the error of its first bad row.
func (p *Pipeline) batchFailed(b *batch, row int, err *RecordError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.err == nil || row < b.errRow {
		b.err, b.errRow = err, row
	}
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

// oneLine is the first line of an error.
func oneLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
