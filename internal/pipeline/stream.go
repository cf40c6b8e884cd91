package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/invariants"
	"github.com/stokerdata/stoker/internal/item"
)

// streams are the present sequence of batches and its generation.
type streams struct {
	closed bool
	gen    uint64
	cur    *stream
	wake   chan struct{} // signalled when Next may have an event
}

// slots are the batches in the ring.
type slots struct {
	batches []batch
	free    chan int
	held    heldTime
}

// ErrClosed is returned by Next after Close.
var ErrClosed = errors.New("the loader is closed")

// stream is a sequence of batches from a position on, across epochs. It ends when the next Start replaces it, when it
// fails, or when the pipeline is closed.
//
// Its planner (planner.go) cuts batches into groups, has them read ahead with or without a free slot, and gives each
// batch a slot. Workers process groups of any stream in any order. The queue keeps the order in which batches are
// handed out.
type stream struct {
	gen   uint64
	pos   item.Position
	given *Given // the order, if the client gives it
	asked *Asked // the order, if batches are requested by number
	list  list   // given or asked; nil for neither
	// local and remote count the unfinished batches that are built here and by servers, if there are servers.
	local, remote atomic.Int64
	ctx           context.Context
	cancel        context.CancelFunc
	// stopped is set when the result is no longer needed.
	stopped atomic.Bool

	// Guarded by Pipeline.mu:
	queue   []entry
	missed  []group // that were to be in memory and are not
	ended   bool    // missed is not read any more
	skipped int64
	bad     []RecordError
	pace    pace
}

// entry is a batch or the end of an epoch in the order of a stream.
type entry struct {
	slot  int
	end   bool
	epoch int64
}

type batchState int32

const (
	batchFree    batchState = iota // slot is free
	batchFilling                   // groups are on their way
	batchReady                     // complete, waits for Next
	batchHeld                      // handed out, until Release
)

// batch is the batch in a slot. There is one for each slot, used again and
// again.
type batch struct {
	slot   int
	stream *stream
	state  batchState // guarded by Pipeline.mu
	epoch  int64
	step   int64
	number int64 // of the request for the batch (Asked)
	// here and remote report, if there are servers, that the batch is built here or by one of them. copied is set while
	// a batch of servers is built here as well, to compare them.
	here, remote bool
	copied       *RemoteBatch
	began        time.Time // when a batch that is built here got its slot, if there are servers
	// repeated is the number of rows at the end that have already come in the epoch.
	repeated int
	pos      item.Position // after the batch
	first    int64         // position of the first row in the epoch's order
	ids      []int64
	// fresh reports that the slot was never used. populate reports that its memory is not backed yet; each group does
	// that for its rows.
	fresh, populate bool
	p               *Pipeline
	rows            *collate.Batch // the destination
	// remaining counts the groups that are not done.
	remaining atomic.Int32
	// Guarded by Pipeline.mu while the batch is filled:
	err     error
	errRow  int
	skipped int64
	bad     []RecordError
	trouble map[int]*trouble // by row
}

// maxBadListed bounds the list of replaced records in an epoch's report.
const maxBadListed = 100

// group is a unit of work: rows [lo, hi) of a batch. order is its position in the order of need.
type group struct {
	b      *batch
	lo, hi int
	order  int64
}

// Start begins a new stream of batches at pos and returns its generation. Batches of older streams that Next has not
// returned are dropped. Start does not wait: groups of the older stream that are being read or decoded finish in the
// background, and their slots become free.
func (p *Pipeline) Start(pos item.Position) (gen uint64) { return p.StartGiven(pos, nil) }

// StartGiven is Start with the order that a client gives (Config.Order).
func (p *Pipeline) StartGiven(pos item.Position, given *Given) (gen uint64) {
	if given == nil {
		given = p.NewGiven(pos)
	}
	return p.start(pos, given, nil)
}

// start begins a stream whose order is given or asked, or else that of the sampler.
func (p *Pipeline) start(pos item.Position, given *Given, asked *Asked) (gen uint64) {
	pos.Row = max(pos.Row, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLocked(p.streams.cur)
	p.faults.outage.finish(nil) // from the stopped stream
	p.streams.gen++
	if p.streams.closed {
		return p.streams.gen
	}
	s := &stream{gen: p.streams.gen, pos: pos, given: given, asked: asked, queue: make([]entry, 0, 2*len(p.slots.batches)+4)}
	if given != nil {
		s.list = given
	} else if asked != nil {
		s.list = asked
	}
	s.ctx, s.cancel = context.WithCancel(p.ctx)
	p.streams.cur = s
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		newPlanner(p, s).run()
	}()
	p.notify()
	return s.gen
}

// Stop ends the current stream. Start begins another one.
func (p *Pipeline) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLocked(p.streams.cur)
}

// Weigh sets the pipeline's share of the engine, 0 while it has nothing to do.
func (p *Pipeline) Weigh(weight float64) { p.memory.part.Weigh(weight) }

// stopLocked drops a stream: its complete batches are freed immediately, the others when their last group is done.
func (p *Pipeline) stopLocked(s *stream) {
	if s == nil || s.stopped.Swap(true) {
		return
	}
	s.cancel()
	for _, e := range s.queue {
		if !e.end && p.slots.batches[e.slot].state == batchReady {
			p.freeLocked(&p.slots.batches[e.slot])
		}
	}
	s.queue = nil
	if p.streams.cur == s {
		p.streams.cur = nil
	}
}

func (p *Pipeline) freeLocked(b *batch) {
	if invariants.Enabled {
		if b.state == batchFree {
			invariants.Broken("slot %d is freed twice", b.slot)
		}
		invariants.Mangle(p.memory.ring.Slot(b.slot))
	}
	b.state, b.stream, b.err, b.bad = batchFree, nil, nil, b.bad[:0]
	p.slots.free <- b.slot // never blocks: the channel has space for each slot
}

func (p *Pipeline) notify() {
	select {
	case p.streams.wake <- struct{}{}:
	default:
	}
}

// enqueue appends to the order of the stream, unless it was stopped.
func (p *Pipeline) enqueue(s *stream, e entry, b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.stopped.Load() {
		return false
	}
	if b != nil {
		b.stream, b.state = s, batchFilling
	}
	s.queue = append(s.queue, e)
	if e.end {
		p.notify()
	}
	return true
}

// groupsDone counts groups of a batch as done. The last one completes it.
func (p *Pipeline) groupsDone(b *batch, n int32) {
	if b.remaining.Add(-n) > 0 {
		return
	}
	if !b.stream.stopped.Load() && !b.remote {
		p.finishBatch(b)
	}
	p.compareBatch(b)
	if b.here {
		b.stream.local.Add(-1)
		p.fetch.Wake()
	}
	p.mu.Lock()
	if b.here {
		b.stream.pace.built(b.began, time.Now())
	}
	if b.stream.stopped.Load() {
		p.freeLocked(b)
	} else {
		b.state = batchReady
		if q := b.stream.queue; b.stream.asked != nil || len(q) > 0 && !q[0].end && q[0].slot == b.slot {
			p.notify()
		}
	}
	p.mu.Unlock()
}

// Next returns the next event of the current stream, in order. It waits for Start if there is no stream. After an error
// the stream has ended until the next Start.
func (p *Pipeline) Next(ctx context.Context) (Event, error) {
	var waited time.Time
	for {
		ev, err, ok := p.tryNext()
		if ok {
			if !waited.IsZero() {
				p.counters.waitSince.Store(0)
				p.counters.consumerWait.Add(int64(time.Since(waited)))
			}
			return ev, err
		}
		if waited.IsZero() {
			waited = time.Now()
			p.counters.waitSince.Store(waited.UnixNano())
		}
		select {
		case <-p.streams.wake:
		case <-ctx.Done():
			p.counters.waitSince.Store(0)
			return Event{}, ctx.Err()
		case <-p.ctx.Done():
			p.counters.waitSince.Store(0)
			return Event{}, ErrClosed
		}
	}
}

// Poll is Next without waiting: it returns false if there is no event yet.
func (p *Pipeline) Poll() (Event, error, bool) { return p.tryNext() }

func (p *Pipeline) tryNext() (Event, error, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams.closed {
		return Event{}, ErrClosed, true
	}
	s := p.streams.cur
	if s == nil || len(s.queue) == 0 {
		return Event{}, nil, false
	}
	if s.asked != nil {
		return p.tryAskedLocked(s)
	}
	e := s.queue[0]
	if e.end {
		ev := Event{Kind: EventEpochEnd, Gen: s.gen, Epoch: e.epoch, Skipped: s.skipped, Bad: s.bad,
			Pos: item.Position{Epoch: e.epoch + 1}}
		s.skipped, s.bad = 0, nil
		s.pop()
		p.caches.disk.epochEnded()
		return ev, nil, true
	}
	b := &p.slots.batches[e.slot]
	if b.state != batchReady {
		return Event{}, nil, false
	}
	if err := b.err; err != nil {
		p.stopLocked(s)
		return Event{Gen: s.gen}, err, true
	}
	s.pop()
	if b.skipped > 0 {
		s.skipped += b.skipped
		s.bad = append(s.bad, b.bad[:min(len(b.bad), maxBadListed-len(s.bad))]...)
	}
	return p.handOutLocked(s, b), nil, true
}

// tryAskedLocked returns the event of any finished batch that was requested by number.
func (p *Pipeline) tryAskedLocked(s *stream) (Event, error, bool) {
	for i, e := range s.queue {
		b := &p.slots.batches[e.slot]
		if b.state != batchReady {
			continue
		}
		s.queue = slices.Delete(s.queue, i, i+1)
		if err := b.err; err != nil {
			ev := Event{Kind: EventFailed, Gen: s.gen, Number: b.number, Err: err}
			p.freeLocked(b)
			return ev, nil, true
		}
		ev := p.handOutLocked(s, b)
		ev.Number = b.number
		return ev, nil, true
	}
	return Event{}, nil, false
}

// handOutLocked makes a finished batch the trainer's.
func (p *Pipeline) handOutLocked(s *stream, b *batch) Event {
	p.countHeldLocked(+1)
	b.state = batchHeld
	p.caches.disk.handedOut(b.epoch, len(p.slots.batches))
	p.counters.skipped.Add(b.skipped)
	p.counters.batches.Add(1)
	if p.feeders != nil {
		s.pace.handOut(time.Now())
	}
	p.counters.records.Add(int64(len(b.ids)))
	if p.order.mix != nil {
		p.countMixed(b.ids)
	}
	ev := Event{Kind: EventBatch, Gen: s.gen, Slot: b.slot, Rows: len(b.ids), Repeated: b.repeated, Epoch: b.epoch, Step: b.step, Pos: b.pos}
	if b.skipped > 0 {
		ev.Skipped, ev.Bad = b.skipped, slices.Clone(b.bad)
	}
	return ev
}

// pop removes the head. The queue is short: it moves up in place.
func (s *stream) pop() {
	copy(s.queue, s.queue[1:])
	s.queue = s.queue[:len(s.queue)-1]
}

// Release frees a slot. Slots that are not held are ignored.
func (p *Pipeline) Release(slot int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot < 0 || slot >= len(p.slots.batches) || p.streams.closed || p.slots.batches[slot].state != batchHeld {
		return
	}
	p.countHeldLocked(-1)
	p.freeLocked(&p.slots.batches[slot])
}

// Held returns the number of slots that were handed out and not released. When
// it equals Info.Slots, Next waits for a Release.
func (p *Pipeline) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for i := range p.slots.batches {
		if p.slots.batches[i].state == batchHeld {
			n++
		}
	}
	return n
}
