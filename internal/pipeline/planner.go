package pipeline

import (
	"slices"
	"time"

	"github.com/stokerdata/stoker/internal/fetch"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/source/driver"
)

// planner is the first stage of a stream. It walks through the order of the epochs in groups of records. It locates
// these and has them read ahead, as far as memory allows. Batches, which need a slot, follow later:
//
//	cursor  ->  scouts  ->  ahead  ->  dispatch to the workers, as rows of a batch
//
// Scouts are units that are not being read yet: the source has to read its index first, or memory is short. The units
// in ahead are being read or have been. While records are found in memory, nothing has to be read ahead. Groups then go
// to the workers immediately, and only those that are not in memory come back (missed).
//
// If a source cannot locate its records, they are read in order instead (fetch.InOrder). An order by windows is read
// chunk by chunk (fetch.Chunked). The units in ahead then come from there, and there are no scouts.
//
// One goroutine does all of this. It waits in one place (run).
type planner struct {
	p *Pipeline
	s *stream

	cur    cursor
	ids    []int64
	order  int64
	first  fetch.Place // the start of the first batch
	scouts []scout
	seen   int // of the scouts, those that are candidates for readahead
	ahead  []*fetch.Unit
	missed []missedUnit
	// reader is set for a source that cannot locate, and cur is then its goroutine's;
	// and for an order by windows.
	reader reader
	// inMemory counts consecutive units that needed no reads.
	inMemory int
	// remotes is set if servers build some of the batches.
	remotes *remotes

	// The batch whose rows are being dispatched, nil between two.
	b      *batch
	row    int
	rows   int
	follow cursor // the position of the batches, after cur
}

// reader produces units on its own, in the order of need.
type reader interface {
	// Take appends the ready units to list, which has the unused ones.
	Take(list []*fetch.Unit) []*fetch.Unit
	// Stop gives up the units that were not taken.
	Stop()
}

// scout is a unit that is not being read yet. Without a unit, it stands for rows of the current batch whose unit is
// read before earlier ones.
type scout struct {
	u    *fetch.Unit
	rows int
}

// missedUnit is a unit of rows that were to be in memory, or whose record is read again or replaced.
type missedUnit struct {
	u *fetch.Unit
	group
	row int // the first one
}

const (
	// maxScouts is the number of units that may wait for the source's index, so that its pieces are read concurrently.
	maxScouts = 256
	// warmAfter is the number of groups in a row that must be in memory before the workers look there themselves.
	warmAfter = 32
	// epochsAhead is the number of epochs that are read ahead.
	epochsAhead = 16
	// prefetchUnits is the number of units that are candidates for readahead at a time.
	prefetchUnits = 16
)

func newPlanner(p *Pipeline, s *stream) *planner {
	pl := &planner{p: p, s: s, order: p.workers.orders.Add(1 << 40), ids: make([]int64, p.memory.groupRows)}
	pl.cur.list, pl.follow.list = s.list, s.list
	pl.remotes = p.newRemotes()
	pl.cur.set(p, s.pos.Epoch, s.pos.Row)
	pl.follow.set(p, s.pos.Epoch, s.pos.Row)
	if pl.first = (fetch.Place{Epoch: s.pos.Epoch, Pos: s.pos.Row}); s.list == nil && !pl.cur.ok { // the epoch is over
		pl.first = fetch.Place{Epoch: s.pos.Epoch + 1}
	}
	switch {
	case p.src.Info().Sequential:
		pl.reader = p.fetch.InOrder(s.ctx, p.memory.groupRows, pl.following)
	case p.order.window != nil && s.list == nil && pl.remotes == nil:
		pl.reader = p.fetch.Chunked(s.ctx, pl.order, p.order.window.reading(p, pl))
	}
	return pl
}

// following returns the next group to the goroutine that reads in order.
func (pl *planner) following(ids []int64) (order int64, n int) {
	pl.cur.settle(pl.p)
	c := &pl.cur
	n = min(pl.groupAt(), len(ids))
	c.fill(ids[:n], c.k, pl.p)
	c.k += n
	pl.order++
	return pl.order, n
}

// cursor is a position in the order of the epochs: row k of this rank's part of a global batch.
type cursor struct {
	// list is the order if it is given batch by batch, and ok then reports that the next batch is known.
	list  list
	epoch int64
	order *sampler.Epoch
	begun bool
	row   int64 // of the part in the epoch
	part  sampler.Part
	ok    bool // there is such a part; otherwise the epoch is over
	k     int
}

func (c *cursor) set(p *Pipeline, epoch, row int64) {
	if c.list != nil {
		c.epoch, c.row, c.k = epoch, row, 0
		part, epoch, ok := c.list.at(row)
		if c.part, c.ok = part, ok; ok && epoch >= 0 {
			c.epoch = epoch
		}
		return
	}
	if !c.begun || c.epoch != epoch {
		c.begun = true
		c.order = p.epoch(epoch)
	}
	c.epoch, c.row, c.k = epoch, row, 0
	c.part, c.ok = c.order.At(row)
}

// next moves to the next part, or over the end of the epoch to the first one.
func (c *cursor) next(p *Pipeline) {
	switch {
	case c.ok:
		c.set(p, c.epoch, c.part.Next)
	case c.list != nil:
		c.set(p, c.epoch, c.row)
	default:
		c.set(p, c.epoch+1, 0)
	}
}

// known reports whether there is a row at the cursor, or will be after settle. If the client gives the order, there may
// be none yet.
func (c *cursor) known(p *Pipeline) bool {
	if c.list != nil && (!c.ok || c.k >= c.rows()) {
		c.next(p)
		return c.ok
	}
	return true
}

// fill writes the records of rows k, k+1, ... of the part into ids, numbered for the epoch if the source's records
// differ per epoch.
func (c *cursor) fill(ids []int64, k int, p *Pipeline) {
	if c.list != nil {
		c.list.fill(ids, c, k)
	} else {
		p.fill(ids, c.order, &c.part, k)
	}
	if p.records.epochs && p.order.mix == nil {
		for i, id := range ids {
			ids[i] = p.inEpoch(c.epoch, id)
		}
	}
}

// fill writes records of an epoch's order. Each record of a mixture has the round of its dataset.
func (p *Pipeline) fill(ids []int64, order *sampler.Epoch, part *sampler.Part, k int) {
	if p.order.mix == nil {
		order.Fill(ids, part, k)
		return
	}
	for i := range ids {
		id, round := order.Mixed(part, k+i)
		ids[i] = driver.InEpoch(round, id)
	}
}

// rows is the number of rows of the part.
func (c *cursor) rows() int { return c.part.Rows() }

// settle moves on until there is a row at the cursor.
func (c *cursor) settle(p *Pipeline) {
	for !c.ok || c.k >= c.rows() {
		c.next(p)
	}
}

// run plans until the stream is stopped.
func (pl *planner) run() {
	p, s := pl.p, pl.s
	defer pl.end()
	for s.ctx.Err() == nil {
		if pl.reader != nil {
			pl.ahead = pl.reader.Take(pl.ahead)
		}
		pl.takeMissed()
		if !pl.epochEnds() {
			return
		}
		if p.caches.disk.again.Swap(false) {
			p.caches.disk.lend(p)
		}
		var free <-chan int
		var more <-chan struct{}
		if s.list != nil {
			more = s.list.more()
		} else if pl.remotes != nil {
			more = p.feeders.Changed()
		}
		switch {
		case pl.b == nil:
			if pl.follow.known(p) && pl.decided() {
				free = p.slots.free
			}
		case pl.dispatch():
			pl.b = nil
			continue
		}
		if pl.reader == nil && !p.workers.warm.Load() && !p.faults.outage.on.Load() {
			pl.lookAhead(pl.b == nil)
		}
		select {
		case slot := <-free:
			if !pl.begin(slot) {
				return
			}
		case <-p.fetch.Space():
		case <-more:
		case <-s.ctx.Done():
		}
	}
}

// epochEnds announces the end of an epoch when the batches have reached it. It returns false if the stream was stopped.
func (pl *planner) epochEnds() bool {
	for pl.b == nil && !pl.follow.ok && pl.s.list == nil {
		if !pl.p.enqueue(pl.s, entry{end: true, epoch: pl.follow.epoch}, nil) {
			return false
		}
		pl.follow.next(pl.p)
	}
	return true
}

// begin assigns a slot to the next batch.
func (pl *planner) begin(slot int) bool {
	start := time.Now()
	p, c := pl.p, &pl.follow
	b := &p.slots.batches[slot]
	rows := c.rows()
	b.ids = b.ids[:rows]
	c.fill(b.ids, 0, p)
	b.epoch, b.first = c.epoch, c.part.Lo
	if p.order.buckets != nil { // where Lo is a position in the bucket
		b.first = c.row + int64(p.cfg.Rank)
		if s := pl.s; s.asked != nil {
			b.first = c.part.Step
		}
	}
	b.populate, b.fresh = b.fresh, false
	b.step, b.repeated = c.part.Step, int(c.part.Repeated)
	b.number = c.row
	part, at := c.part, item.Position{Epoch: c.epoch, Row: c.row}
	b.pos = item.Position{Epoch: c.epoch, Row: c.part.Next}
	if c.list == nil {
		if _, more := c.order.At(c.part.Next); !more {
			b.pos = item.Position{Epoch: c.epoch + 1}
		}
	}
	c.next(p)
	if c.list != nil {
		c.list.drop(min(c.row, pl.cur.row))
	}
	elsewhere := pl.elsewhere(at, b)
	b.err, b.errRow, b.skipped, b.bad = nil, 0, 0, b.bad[:0]
	clear(b.trouble)
	p.faults.bad.begin(b.epoch)
	// One for the planner itself, so that the batch is not complete before all of its groups are out.
	b.remaining.Store(1)
	if err := p.arrays.set.Begin(b.rows, p.memory.ring.Slot(slot), b.ids); err != nil {
		p.batchFailed(b, 0, &RecordError{ID: p.number(b.ids[0]), Name: p.name(b.ids[0]), Reason: oneLine(err), Cause: err})
	}
	if !p.enqueue(pl.s, entry{slot: slot}, b) {
		p.mu.Lock()
		b.state = batchFilling // enqueue would have set it
		p.freeLocked(b)
		p.mu.Unlock()
		return false
	}
	p.counters.stage[stageSample].add(start, rows)
	if elsewhere {
		pl.request(b, &part)
		return true
	}
	pl.b, pl.row, pl.rows = b, 0, rows
	return true
}

// dispatch passes rows of the batch to the workers, in the order of the reads ahead. It reports whether all rows are
// out.
func (pl *planner) dispatch() bool {
	p, b := pl.p, pl.b
	for pl.row < pl.rows {
		switch {
		case len(pl.ahead) > 0:
			u := pl.ahead[0]
			pl.ahead = pl.ahead[:copy(pl.ahead, pl.ahead[1:])]
			pl.attach(u)
		case pl.reader != nil:
			return false
		case len(pl.scouts) > 0 || !p.workers.warm.Load():
			// The first rows that are not being read yet: wherever their values
			// have a place in the batch, they are read to there.
			if len(pl.scouts) == 0 {
				pl.scout()
			}
			if pl.scouts[0].u != nil {
				if !pl.located(0) {
					pl.overtake()
					return false
				}
				if !pl.send(0, pl.row) {
					return false
				}
			}
			pl.row += pl.scouts[0].rows
			pl.takeScout()
		default:
			pl.settle()
			n := pl.groupAt()
			pl.order++
			b.remaining.Add(1)
			select {
			case p.workers.memoryQ <- group{b, pl.row, pl.row + n, pl.order}:
			case <-pl.s.ctx.Done():
				p.groupsDone(b, 2)
				return true
			}
			pl.cur.k += n
			pl.row += n
		}
	}
	p.groupsDone(b, 1)
	return true
}

// send has the unit of a scout read for the batch, as rows from row on. It reports whether there was memory for it.
func (pl *planner) send(scout, row int) bool {
	p, b, s := pl.p, pl.b, &pl.scouts[scout]
	u := s.u
	p.fetch.Attach(u, b, row, pl.place(b, row))
	// Once it is admitted, a worker may finish it at any moment. So its values are read before that.
	n, inMemory := len(u.IDs), u.InMemory
	b.remaining.Add(1)
	if !p.fetch.Admit(u) {
		b.remaining.Add(-1)
		return false
	}
	s.u, s.rows = nil, n
	pl.count(inMemory)
	return true
}

// overtake reads those records of the first batch that are already located while earlier ones wait for the index. The
// trainer is waiting for this batch, and answers from a remote store take different times. The first scout stays in its
// place, because it may be located by now.
func (pl *planner) overtake() {
	row := pl.row + len(pl.scouts[0].u.IDs)
	for i := 1; i < len(pl.scouts) && row < pl.rows; i++ {
		if u := pl.scouts[i].u; u != nil {
			if !u.Awaited || pl.located(i) && !pl.send(i, row) {
				return
			}
			if pl.scouts[i].u != nil { // which may be fewer by now
				row += len(pl.scouts[i].u.IDs)
				continue
			}
		}
		row += pl.scouts[i].rows
	}
}

// groupAt is the number of rows of the group at the cursor.
func (pl *planner) groupAt() int {
	n := pl.p.memory.groupRows
	if pl.p.remote && pl.awaited() {
		// Units of the first batch are small, so that a record waits for few others.
		n = min(n, max(pl.cur.rows()/maxScouts, 1))
	}
	return min(n, pl.cur.rows()-pl.cur.k)
}

// attach makes a unit rows of the batch.
func (pl *planner) attach(u *fetch.Unit) {
	pl.b.remaining.Add(1)
	n := len(u.IDs) // the unit is not ours any more afterwards
	pl.p.fetch.Attach(u, pl.b, pl.row, pl.place(pl.b, pl.row))
	pl.row += n
}

// place returns the function for the destinations of values, for rows from lo on.
func (pl *planner) place(b *batch, lo int) func(k, field int, n int64) []byte {
	return func(k, field int, n int64) []byte { return b.Place(lo+k, field, n) }
}

// awaited reports whether the row at the cursor belongs to the first batch of the stream.
func (pl *planner) awaited() bool {
	return fetch.Place{Epoch: pl.cur.epoch, Pos: pl.cur.row} == pl.first
}

// scout locates the records at the cursor.
func (pl *planner) scout() {
	p := pl.p
	pl.settle()
	c := &pl.cur
	n := pl.groupAt()
	ids := pl.ids[:n]
	c.fill(ids, c.k, p)
	pl.order++
	u, n := p.fetch.Locate(pl.s.ctx, pl.order, ids, false)
	u.Turn = fetch.Turn{Epoch: c.epoch, Awaited: pl.awaited()}
	if len(u.Missing) > 0 {
		p.fetch.Learn(u)
	}
	c.k += n
	pl.scouts = append(pl.scouts, scout{u: u})
}

// takeScout takes the first scout off.
func (pl *planner) takeScout() {
	pl.scouts = pl.scouts[:copy(pl.scouts, pl.scouts[1:])]
	pl.seen = max(pl.seen-1, 0)
}

// located reports whether the positions of the records of scout i are known.
func (pl *planner) located(i int) bool {
	u := pl.scouts[i].u
	if len(u.Missing) == 0 {
		return true
	}
	if !pl.p.fetch.Learned(u) {
		return false
	}
	ids := append([]int64(nil), u.IDs...)
	n := pl.p.fetch.Relocate(u)
	if n < len(ids) { // too much for one unit: the others become a second one
		rest, m := pl.p.fetch.Locate(pl.s.ctx, u.Order(), ids[n:], false)
		rests := []scout{{u: rest}}
		for n += m; n < len(ids); n += m {
			rest, m = pl.p.fetch.Locate(pl.s.ctx, u.Order(), ids[n:], false)
			rests = append(rests, scout{u: rest})
		}
		for _, r := range rests {
			r.u.Turn = u.Turn
		}
		pl.scouts = slices.Insert(pl.scouts, i+1, rests...)
	}
	if len(u.Missing) > 0 {
		pl.p.fetch.Learn(u)
		return false
	}
	return true
}

// more reports whether there is anything to read ahead. For small data sets, that is limited to a few epochs.
func (pl *planner) more() bool {
	return pl.cur.epoch-pl.follow.epoch <= epochsAhead && pl.cur.known(pl.p) && pl.decide()
}

// lookAhead admits as many units as memory allows. Without admit, it only lets the source read its index, because the
// first scout belongs to the current batch.
func (pl *planner) lookAhead(admit bool) {
	p := pl.p
	for pl.s.ctx.Err() == nil {
		if len(pl.scouts) == 0 {
			if !pl.more() {
				return
			}
			pl.scout()
		}
		u := pl.scouts[0].u // dispatch leaves none without a unit in front
		if pl.located(0) {
			if !admit || !p.fetch.Admit(u) {
				pl.prefetch()
				return
			}
			pl.takeScout()
			pl.ahead = append(pl.ahead, u)
			if pl.count(u.InMemory) {
				return
			}
			continue
		}
		if len(pl.scouts) >= maxScouts || !pl.more() {
			return
		}
		pl.scout()
	}
}

// prefetch passes later units to the fetcher, a few each time, because the current batch waits meanwhile.
func (pl *planner) prefetch() {
	for range prefetchUnits {
		if pl.seen == len(pl.scouts) {
			if !pl.p.fetch.Prefetches() || !pl.more() {
				return
			}
			pl.scout()
		}
		if u := pl.scouts[pl.seen].u; u != nil && (!pl.located(pl.seen) || !pl.p.fetch.Prefetch(u)) {
			return
		}
		pl.seen++
	}
}

// count registers whether a unit was in memory. It reports whether the workers should look there themselves from now
// on.
func (pl *planner) count(inMemory bool) bool {
	if !inMemory {
		pl.inMemory = 0
		return false
	}
	if pl.inMemory++; pl.inMemory >= warmAfter {
		pl.p.workers.warm.Store(true)
		return true
	}
	return false
}

// takeMissed has rows read that were to be in memory.
func (pl *planner) takeMissed() {
	p, s := pl.p, pl.s
	for {
		p.mu.Lock()
		groups := s.missed
		s.missed = nil
		p.mu.Unlock()
		for _, g := range groups {
			pl.inMemory = 0
			for lo := g.lo; lo < g.hi; {
				u, n := p.fetch.Locate(s.ctx, g.order, g.b.ids[lo:g.hi], true)
				if len(u.Missing) > 0 {
					p.fetch.Learn(u)
				}
				g.b.remaining.Add(1)
				pl.missed = append(pl.missed, missedUnit{u, g, lo})
				lo += n
			}
			p.groupsDone(g.b, 1)
		}
		kept := pl.missed[:0]
		for _, m := range pl.missed {
			if !pl.admitMissed(m) {
				kept = append(kept, m)
			}
		}
		pl.missed = kept
		p.mu.Lock()
		more := len(s.missed) > 0
		p.mu.Unlock()
		if !more {
			return
		}
	}
}

func (pl *planner) admitMissed(m missedUnit) bool {
	p, u := pl.p, m.u
	if len(u.Missing) > 0 {
		if !p.fetch.Learned(u) {
			return false
		}
		had := len(u.IDs)
		if n := p.fetch.Relocate(u); n < had { // the others become their own units
			m.b.remaining.Add(1)
			p.mu.Lock()
			pl.s.missed = append(pl.s.missed, group{m.b, m.row + n, m.row + had, m.order})
			p.mu.Unlock()
		}
		if len(u.Missing) > 0 {
			p.fetch.Learn(u)
			return false
		}
	}
	p.fetch.Attach(u, m.b, m.row, pl.place(m.b, m.row))
	return p.fetch.AdmitUrgent(u)
}

// end gives up the units that are not in a batch.
func (pl *planner) end() {
	p, s := pl.p, pl.s
	if s.list != nil { // whose epochs have no end here
		p.caches.disk.lend(p)
	}
	if pl.reader != nil {
		pl.reader.Stop()
	}
	for _, u := range pl.ahead {
		p.fetch.Drop(u)
	}
	for _, s := range pl.scouts {
		if s.u != nil {
			p.fetch.Drop(s.u)
		}
	}
	for _, m := range pl.missed {
		p.fetch.Drop(m.u)
		p.groupsDone(m.b, 1)
	}
	p.mu.Lock()
	s.ended = true
	groups := s.missed
	s.missed = nil
	p.mu.Unlock()
	for _, g := range groups {
		p.groupsDone(g.b, 1)
	}
	if pl.b != nil {
		p.groupsDone(pl.b, 1)
	}
	s.cancel()
	// The signal may have been for the planner of the next stream.
	p.fetch.Wake()
}
