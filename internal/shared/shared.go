// Package shared lets several clients of an engine take the batches of one pipeline, so that each batch is built once.
//
// A hub has one pipeline and its members. A slot of its ring is free again when each member has released it. A member
// that is too far behind the others builds its batches with a pipeline of its own, and comes back when it has caught
// up. So no member waits for another one, and each gets the stream that it would get alone.
package shared

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/inflight"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
)

// Source is a pipeline; see *pipeline.Pipeline.
type Source interface {
	handoff.Pipeline
	// Stop ends the current stream.
	Stop()
	// Weigh sets the pipeline's share of the engine, 0 while it has nothing to do.
	Weigh(weight float64)
}

// catchUp is the factor of the weight of a member that began behind the others, so that it is behind for a short time. A
// member that was left behind is slower than the others and does not catch up: its weight is divided by that, so that
// its builds do not delay theirs.
const catchUp = 4

// stall is the time after which a member waits for a free slot although its client has more than one batch. The client
// may then keep these batches until it gets the next one.
const stall = 250 * time.Millisecond

// leastSlots is the smallest ring that members can share.
const leastSlots = 4

// credit is the number of batches that a client may hold, of a ring of n. The rest is for the other members.
func credit(n int) int { return max(3, n-max(2, n/4)) }

// Hubs are the hubs of an engine, by configuration.
type Hubs struct {
	mu   sync.Mutex
	keys map[string]*place
}

// single is a pipeline of one client, with its table.
type single struct {
	handoff.Pipeline
	table *inflight.Table
}

// Single returns p with its table of records in flight, which is closed with it.
func Single(p handoff.Pipeline, table *inflight.Table) handoff.Pipeline { return &single{p, table} }

// InFlight implements handoff.Noting.
func (s *single) InFlight() *os.File { return s.table.File() }

// Close closes the pipeline and its table.
func (s *single) Close() error { return errors.Join(s.Pipeline.Close(), s.table.Close()) }

// place is where the clients with one configuration meet. Its lock is held while a pipeline is opened.
type place struct {
	sync.Mutex
	hub   *hub
	users int
}

// Open returns a pipeline for a client: a member of the hub of key. open opens a pipeline with a table of records in
// flight. A ring that is too small is not shared.
func (h *Hubs) Open(ctx context.Context, key string, weight float64, pinned bool, open func(ctx context.Context, t *inflight.Table) (Source, error)) (handoff.Pipeline, error) {
	h.mu.Lock()
	if h.keys == nil {
		h.keys = map[string]*place{}
	}
	at := h.keys[key]
	if at == nil {
		at = &place{}
		h.keys[key] = at
	}
	at.users++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if at.users--; at.users == 0 && at.hub == nil {
			delete(h.keys, key)
		}
	}()
	at.Lock()
	defer at.Unlock()
	if weight == 0 {
		weight = 1
	}
	h.mu.Lock()
	found := at.hub
	h.mu.Unlock()
	if found != nil {
		if m := found.join(weight, pinned, open); m != nil { // first, so that the hub stays open
			own, err := open(ctx, found.table)
			if err != nil {
				return nil, errors.Join(err, m.Close())
			}
			m.own = own
			own.Weigh(0)
			// The data may have changed since the hub was opened. Then there is a new hub.
			if a, b := own.Info(), found.main.Info(); a.Fingerprint == b.Fingerprint && a.Len == b.Len && a.SlotBytes == b.SlotBytes {
				return m, nil
			}
			if err := m.Close(); err != nil {
				return nil, err
			}
		}
	}
	table, err := inflight.New()
	if err != nil {
		return nil, err
	}
	main, err := open(context.WithoutCancel(ctx), table) // others use it when this client has left
	if err != nil {
		_ = table.Close()
		return nil, err
	}
	if main.Ring().Slots() < leastSlots {
		return &single{main, table}, nil
	}
	made := &hub{main: main, table: table, slots: main.Ring().Slots(), members: map[*Member]bool{}}
	made.ctx, made.stop = context.WithCancel(context.Background())
	made.closed = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if at.hub == made {
			at.hub = nil
			if at.users == 0 {
				delete(h.keys, key)
			}
		}
	}
	h.mu.Lock()
	at.hub = made
	h.mu.Unlock()
	// It keeps its weight until its first stream ends. So the pipelines of ranks divide the memory for reading before
	// the first of them begins.
	made.pumping.Add(1)
	go made.pump()
	return made.join(weight, pinned, open), nil
}

// entry is an event of a hub's stream.
type entry struct {
	ev     pipeline.Event
	err    error
	before item.Position
	leases int // members that have yet to release it
	freed  bool
}

// hub is a pipeline whose batches go to several members.
type hub struct {
	main    Source
	table   *inflight.Table
	slots   int
	ctx     context.Context
	stop    context.CancelFunc
	closed  func()
	pumping sync.WaitGroup

	mu      sync.Mutex
	members map[*Member]bool // true for those that follow the stream
	shut    bool
	running bool   // there is a stream
	gen     uint64 // of the stream
	window  []*entry
	live    int // slots that members have not released
	head    item.Position
	ending  bool // the end of an epoch comes next
}

// join adds a member. It returns nil if the hub is closed.
func (h *hub) join(weight float64, pinned bool, open func(context.Context, *inflight.Table) (Source, error)) *Member {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shut {
		return nil
	}
	m := &Member{hub: h, weight: weight, pinned: pinned, open: open, held: map[int]*entry{}, wake: make(chan struct{}, 1)}
	h.members[m] = false
	return m
}

// pump takes the events of the pipeline and appends them to the queues of the members that follow it.
func (h *hub) pump() {
	defer h.pumping.Done()
	for {
		ev, err := h.main.Next(h.ctx)
		if h.ctx.Err() != nil || errors.Is(err, pipeline.ErrClosed) {
			return
		}
		h.mu.Lock()
		h.add(ev, err)
		h.mu.Unlock()
	}
}

func (h *hub) add(ev pipeline.Event, err error) {
	e := &entry{ev: ev, err: err, before: h.head}
	batch := err == nil && ev.Kind == pipeline.EventBatch
	if !h.running || ev.Gen != h.gen {
		if batch {
			h.main.Release(ev.Slot)
		}
		return
	}
	for m, follows := range h.members {
		if follows {
			e.leases++
			m.queue = append(m.queue, e)
			m.notify()
		}
	}
	if err != nil {
		h.running = false
	} else {
		h.head = ev.Pos
		h.ending = batch && ev.Pos.Epoch != ev.Epoch
	}
	h.window = append(h.window, e)
	if batch {
		h.live++
	}
}

// followers returns the number of members that follow the stream.
func (h *hub) followers() (n int, weight float64) {
	for m, follows := range h.members {
		if follows {
			n++
			weight += m.weight
		}
	}
	return n, weight
}

// follow lets a member follow the stream from its position on. It returns false if the stream is elsewhere.
func (h *hub) follow(m *Member) bool {
	n, _ := h.followers()
	switch k := h.find(m.pos); {
	case n == 0 && h.live >= h.slots:
		return false // held by clients that have left the stream
	case n == 0:
		h.window, h.ending, h.running = nil, false, true
		h.gen, h.head = h.main.Start(m.pos), m.pos
	case !h.running:
		return false
	case k >= 0:
		for _, e := range h.window[k:] {
			e.leases++
			m.queue = append(m.queue, e)
		}
	case h.head != m.pos || h.ending:
		return false
	}
	h.members[m], m.slow = true, false
	h.weigh()
	return true
}

// find returns the entry from which on a stream that begins at pos can be followed, -1 if there is none.
func (h *hub) find(pos item.Position) int {
	for k := len(h.window) - 1; k >= 0; k-- {
		e := h.window[k]
		if e.freed || e.err != nil {
			return -1
		}
		if e.ev.Kind == pipeline.EventBatch && e.before == pos {
			return k
		}
	}
	return -1
}

// unfollow ends that a member follows the stream. The batches that its client has stay valid.
func (h *hub) unfollow(m *Member) {
	if !h.members[m] {
		return
	}
	h.members[m] = false
	for _, e := range m.queue {
		h.release(e)
	}
	m.queue = nil
	if n, _ := h.followers(); n == 0 {
		h.running = false
		h.main.Stop()
	}
	h.weigh()
}

func (h *hub) weigh() {
	_, weight := h.followers()
	h.main.Weigh(weight)
}

// release ends a lease of an entry.
func (h *hub) release(e *entry) {
	e.leases--
	if e.leases > 0 || e.err != nil || e.ev.Kind != pipeline.EventBatch || e.freed {
		return
	}
	e.freed = true
	h.live--
	h.main.Release(e.ev.Slot)
	for len(h.window) > 0 && (h.window[0].freed || h.window[0].leases <= 0) {
		h.window[0] = nil
		h.window = h.window[1:]
	}
}

// unblock is called for a member that has nothing to do. If all slots are taken, members with batches that they have
// not even begun leave the stream. If that is not enough, the member itself does.
func (h *hub) unblock(m *Member) {
	for h.live >= h.slots {
		var last *Member
		for o, follows := range h.members {
			if follows && o != m && len(o.queue) > 0 && (last == nil || len(o.queue) > len(last.queue)) {
				last = o
			}
		}
		if last == nil {
			h.unfollow(m)
			return
		}
		h.unfollow(last)
		last.slow = true
		last.notify()
	}
}

// leave removes a member and closes the hub after the last one.
func (h *hub) leave(m *Member) error {
	h.mu.Lock()
	h.unfollow(m)
	for slot, e := range m.held {
		delete(m.held, slot)
		h.release(e)
	}
	delete(h.members, m)
	last := len(h.members) == 0 && !h.shut
	h.shut = h.shut || last
	h.mu.Unlock()
	if !last {
		return nil
	}
	h.closed()
	h.stop()
	h.pumping.Wait()
	return errors.Join(h.main.Close(), h.table.Close())
}

// Member is the pipeline of one client. The slots of its own pipeline begin at handoff.MaxSlots.
type Member struct {
	hub    *hub
	weight float64
	pinned bool // see pipeline.Info
	open   func(context.Context, *inflight.Table) (Source, error)
	wake   chan struct{}

	// Next and Start belong to one goroutine. hub.mu guards what others use.
	gen     uint64
	started bool
	ownGen  uint64
	owns    bool // the stream comes from own
	ending  bool // the end of an epoch comes next
	stalled bool // it has waited for a free slot
	skipped int64
	bad     []pipeline.RecordError

	pos     item.Position // guarded by hub.mu from here on
	own     Source
	queue   []*entry
	held    map[int]*entry
	ownHeld int
	slow    bool // it left the stream because the others were faster
}

func (m *Member) notify() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Info implements handoff.Pipeline.
func (m *Member) Info() pipeline.Info {
	info := m.hub.main.Info()
	info.Slots = credit(info.Slots)
	info.Shared, info.Pinned = true, m.pinned
	return info
}

// Ring implements handoff.Pipeline.
func (m *Member) Ring() *arena.Ring { return m.hub.main.Ring() }

// OwnRing returns the ring of the member's own pipeline.
func (m *Member) OwnRing() *arena.Ring { return m.own.Ring() }

// InFlight implements handoff.Noting.
func (m *Member) InFlight() *os.File { return m.hub.table.File() }

// NewGiven implements handoff.Pipeline.
func (m *Member) NewGiven(item.Position) *pipeline.Given { return nil }

// StartGiven implements handoff.Pipeline.
func (m *Member) StartGiven(pos item.Position, _ *pipeline.Given) uint64 { return m.Start(pos) }

// Start implements handoff.Pipeline.
func (m *Member) Start(pos item.Position) uint64 {
	h := m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unfollow(m)
	m.endOwn()
	m.gen++
	m.started, m.ending, m.stalled = true, false, false
	m.skipped, m.bad = 0, nil
	pos.Row = max(pos.Row, 0)
	m.pos, m.slow = pos, false
	return m.gen
}

// endOwn ends the stream of the own pipeline.
func (m *Member) endOwn() {
	if m.owns {
		m.owns = false
		m.own.Stop()
		m.own.Weigh(0)
	}
}

// Next implements handoff.Pipeline.
func (m *Member) Next(ctx context.Context) (pipeline.Event, error) {
	for {
		ev, what, err := m.step()
		switch what {
		case have:
			return ev, err
		case useOwn:
			ev, err := m.takeOwn(ctx)
			if err != nil || ev.Kind != 0 {
				return ev, err
			}
			continue
		}
		var late <-chan time.Time
		if what == blocked {
			late = time.After(stall)
		}
		select {
		case <-m.wake:
		case <-late:
			m.stalled = true
		case <-ctx.Done():
			return pipeline.Event{}, ctx.Err()
		}
	}
}

// Poll implements handoff.Pipeline.
func (m *Member) Poll() (pipeline.Event, error, bool) {
	m.hub.mu.Lock()
	follows := m.hub.members[m] && len(m.queue) > 0
	m.hub.mu.Unlock()
	if !follows {
		return pipeline.Event{}, nil, false
	}
	ev, what, err := m.step()
	return ev, err, what == have
}

// The results of a step.
const (
	have    = iota // there is an event
	wait           // until notify is called
	blocked        // the same, and there is no free slot
	useOwn         // the next event comes from the own pipeline
)

// step takes the next event of the hub, if the member follows it or can do so.
func (m *Member) step() (pipeline.Event, int, error) {
	h := m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if !m.started || len(m.held)+m.ownHeld >= credit(h.slots) {
		return pipeline.Event{}, wait, nil
	}
	if !h.members[m] {
		if m.ending && !m.owns {
			// It left the stream before the end of the epoch came. A stream from its position on begins after that.
			return m.delivered(pipeline.Event{Kind: pipeline.EventEpochEnd, Epoch: m.pos.Epoch - 1, Pos: m.pos}), have, nil
		}
		// Between the last batch of an epoch and its end, a position does not tell which of them comes next.
		if m.ending || !h.follow(m) {
			return pipeline.Event{}, useOwn, nil
		}
		m.endOwn()
	}
	if len(m.queue) == 0 {
		if m.stalled || len(m.held)+m.ownHeld <= 1 { // the client has at most the batch that it works on
			h.unblock(m)
		}
		m.stalled = false
		switch {
		case !h.members[m]:
			return pipeline.Event{}, useOwn, nil
		case h.live >= h.slots:
			return pipeline.Event{}, blocked, nil
		}
		return pipeline.Event{}, wait, nil
	}
	e := m.queue[0]
	m.queue = m.queue[1:]
	if e.err != nil {
		h.unfollow(m)
		m.started = false
		return pipeline.Event{Gen: m.gen}, have, e.err
	}
	ev := e.ev
	if ev.Kind == pipeline.EventBatch {
		m.held[ev.Slot] = e
	} else {
		h.release(e)
	}
	return m.delivered(ev), have, nil
}

// delivered notes the position after an event, and returns it for the client.
func (m *Member) delivered(ev pipeline.Event) pipeline.Event {
	ev.Gen = m.gen
	m.pos = ev.Pos
	if ev.Kind == pipeline.EventBatch {
		m.ending = ev.Pos.Epoch != ev.Epoch
		m.skipped += ev.Skipped
		m.bad = append(m.bad, ev.Bad...)
		return ev
	}
	m.ending = false
	ev.Skipped, ev.Bad = m.skipped, m.bad
	m.skipped, m.bad = 0, nil
	return ev
}

// takeOwn takes the next event of the own pipeline, which begins at the member's position. The event is empty if it is
// of another stream.
func (m *Member) takeOwn(ctx context.Context) (pipeline.Event, error) {
	h := m.hub
	if m.own == nil {
		own, err := m.open(ctx, h.table)
		if err != nil {
			return pipeline.Event{}, err
		}
		h.mu.Lock()
		m.own = own
		h.mu.Unlock()
	}
	if !m.owns {
		h.mu.Lock()
		m.owns = true
		weight := m.weight
		switch {
		case m.slow:
			weight /= catchUp
		case before(m.pos, h.head):
			weight *= catchUp
		}
		m.own.Weigh(weight)
		m.ownGen = m.own.Start(m.pos)
		h.mu.Unlock()
	}
	ev, err := m.own.Next(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	batch := err == nil && ev.Kind == pipeline.EventBatch
	switch {
	case ev.Gen != m.ownGen && ctx.Err() == nil:
		if batch {
			m.own.Release(ev.Slot)
		}
		return pipeline.Event{}, nil
	case err != nil:
		if ctx.Err() == nil {
			m.endOwn()
			m.started = false
		}
		return pipeline.Event{Gen: m.gen}, err
	case batch:
		m.ownHeld++
		ev.Slot += handoff.MaxSlots
	}
	if ctx.Err() != nil {
		// The session drops the event, and starts another stream.
		return ev, nil
	}
	return m.delivered(ev), nil
}

// before reports whether a position is before another one.
func before(a, b item.Position) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Row < b.Row
}

// Release implements handoff.Pipeline.
func (m *Member) Release(slot int) {
	h := m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if slot >= handoff.MaxSlots {
		m.own.Release(slot - handoff.MaxSlots)
		m.ownHeld--
	} else if e := m.held[slot]; e != nil {
		delete(m.held, slot)
		h.release(e)
	}
	m.notify()
}

// Stats implements handoff.Pipeline.
func (m *Member) Stats() pipeline.Stats {
	m.hub.mu.Lock()
	own, owns := m.own, m.owns
	m.hub.mu.Unlock()
	if owns {
		return own.Stats()
	}
	return m.hub.main.Stats()
}

// Close implements handoff.Pipeline: the leases of the client end.
func (m *Member) Close() error {
	err := m.hub.leave(m)
	if m.own != nil {
		err = errors.Join(err, m.own.Close())
	}
	return err
}
