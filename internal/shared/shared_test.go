package shared

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/inflight"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
)

const (
	slots = 8
	steps = 50
)

// fake hands out batches of one row: the row of the epoch is in the slot.
type fake struct {
	ring *arena.Ring
	data string

	mu      sync.Mutex
	wake    chan struct{}
	pos     item.Position
	gen     uint64
	running bool
	free    []int
	built   int
	closed  bool
	weight  float64
}

func newFake(data string) *fake {
	ring, err := arena.NewRing(arena.NewBudget(1<<30), slots, 64)
	if err != nil {
		panic(err)
	}
	f := &fake{ring: ring, data: data, wake: make(chan struct{}, 1)}
	for k := range slots {
		f.free = append(f.free, k)
	}
	return f
}

func (f *fake) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *fake) Info() pipeline.Info {
	return pipeline.Info{Slots: slots, SlotBytes: 64, Fingerprint: f.data}
}
func (f *fake) Ring() *arena.Ring                                    { return f.ring }
func (f *fake) NewGiven(item.Position) *pipeline.Given               { return nil }
func (f *fake) StartGiven(p item.Position, _ *pipeline.Given) uint64 { return f.Start(p) }
func (f *fake) Poll() (pipeline.Event, error, bool)                  { return pipeline.Event{}, nil, false }
func (f *fake) Stats() pipeline.Stats                                { return pipeline.Stats{} }

func (f *fake) Weigh(weight float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.weight = weight
}

func (f *fake) Start(p item.Position) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gen++
	f.pos, f.running = p, true
	f.notify()
	return f.gen
}

func (f *fake) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = false
}

func (f *fake) Next(ctx context.Context) (pipeline.Event, error) {
	for {
		f.mu.Lock()
		switch {
		case !f.running:
		case f.pos.Row == steps:
			f.pos = item.Position{Epoch: f.pos.Epoch + 1}
			ev := pipeline.Event{Kind: pipeline.EventEpochEnd, Gen: f.gen, Epoch: f.pos.Epoch - 1, Pos: f.pos}
			f.mu.Unlock()
			return ev, nil
		case len(f.free) > 0:
			k := f.free[0]
			f.free = f.free[1:]
			f.built++
			f.ring.Slot(k)[0] = byte(f.pos.Row)
			ev := pipeline.Event{Kind: pipeline.EventBatch, Gen: f.gen, Slot: k, Rows: 1, Epoch: f.pos.Epoch, Step: f.pos.Row}
			f.pos.Row++
			ev.Pos = f.pos
			if f.pos.Row == steps {
				ev.Pos = item.Position{Epoch: f.pos.Epoch + 1}
			}
			f.mu.Unlock()
			return ev, nil
		}
		f.mu.Unlock()
		select {
		case <-f.wake:
		case <-ctx.Done():
			return pipeline.Event{}, ctx.Err()
		}
	}
}

func (f *fake) Release(slot int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.free, slot) {
		panic(fmt.Sprint("slot ", slot, " is released twice"))
	}
	f.free = append(f.free, slot)
	f.notify()
}

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		panic("closed twice")
	}
	f.closed = true
	return f.ring.Close()
}

// world opens members of one hub and checks that all pipelines are closed at the end.
type world struct {
	t     *testing.T
	hubs  Hubs
	fakes []*fake
	data  string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, data: "a"}
	t.Cleanup(func() {
		for i, f := range w.fakes {
			if !f.closed {
				t.Errorf("pipeline %d stays open", i)
			}
		}
		if len(w.hubs.keys) != 0 {
			t.Errorf("%d hubs stay", len(w.hubs.keys))
		}
	})
	return w
}

// client is a member with the batches that it holds.
type client struct {
	*Member
	t    *testing.T
	held []pipeline.Event
}

func (w *world) open() *client {
	w.t.Helper()
	p, err := w.hubs.Open(w.t.Context(), "key", 1, false, func(context.Context, *inflight.Table) (Source, error) {
		f := newFake(w.data)
		w.fakes = append(w.fakes, f)
		return f, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return &client{Member: p.(*Member), t: w.t}
}

func (c *client) close() {
	if err := c.Close(); err != nil {
		c.t.Error(err)
	}
}

// next takes an event, checks its memory and keeps its slot.
func (c *client) next() pipeline.Event {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	ev, err := c.Next(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	if ev.Kind == pipeline.EventBatch {
		ring, slot := c.Ring(), ev.Slot
		if slot >= handoff.MaxSlots {
			ring, slot = c.OwnRing(), slot-handoff.MaxSlots
		}
		if got := ring.Slot(slot)[0]; got != byte(ev.Step) {
			c.t.Errorf("the memory of step %d is that of step %d", ev.Step, got)
		}
		c.held = append(c.held, ev)
	}
	return ev
}

// release releases all but the last n batches.
func (c *client) release(n int) {
	for len(c.held) > n {
		c.Release(c.held[0].Slot)
		c.held = c.held[1:]
	}
}

// goThrough takes events from a step on to the end of the epoch, as a loop does.
func (c *client) goThrough(epoch, from int64) {
	c.t.Helper()
	for step := from; ; step++ {
		ev := c.next()
		if ev.Gen != c.gen || ev.Epoch != epoch {
			c.t.Fatalf("step %d: %+v", step, ev)
		}
		if ev.Kind == pipeline.EventEpochEnd {
			if step != steps {
				c.t.Fatalf("the epoch ends at step %d", step)
			}
			c.release(0)
			return
		}
		if ev.Step != step {
			c.t.Fatalf("step %d, want %d", ev.Step, step)
		}
		c.release(1)
	}
}

func (w *world) built() (n int) {
	for _, f := range w.fakes {
		f.mu.Lock()
		n += f.built
		f.mu.Unlock()
	}
	return n
}

// Members that go on together get the same slots, and each batch is built once.
func TestTogether(t *testing.T) {
	w := newWorld(t)
	a, b := w.open(), w.open()
	a.Start(item.Position{})
	b.Start(item.Position{})
	for step := range int64(steps) {
		x, y := a.next(), b.next()
		if x.Step != step || x.Slot != y.Slot {
			t.Fatalf("step %d: %+v and %+v", step, x, y)
		}
		a.release(1)
		b.release(1)
	}
	if n := w.built(); n > steps+slots {
		t.Errorf("%d batches were built for %d steps", n, steps)
	}
	a.close()
	if ev := b.next(); ev.Kind != pipeline.EventEpochEnd {
		t.Errorf("%+v", ev)
	}
	b.goThrough(1, 0)
	b.close()
}

// A member that stops keeps what it has, and the other one goes on. Later it goes on itself, and joins.
func TestLag(t *testing.T) {
	w := newWorld(t)
	a, b := w.open(), w.open()
	a.Start(item.Position{})
	b.Start(item.Position{})
	for range credit(slots) {
		b.next()
	}
	a.goThrough(0, 0)
	a.goThrough(1, 0)
	first := b.held[0].Slot
	if first >= handoff.MaxSlots {
		t.Error("a batch that the member has already moved")
	}
	b.release(1)
	b.goThrough(0, int64(credit(slots)))
	if b.own == nil {
		t.Error("the member that was behind has no pipeline of its own")
	}
	b.goThrough(1, 0)
	// Both are at the beginning of epoch 2. Now they are together, at the latest after a few steps.
	for step := range int64(steps) {
		x, y := a.next(), b.next()
		if x.Step != step || y.Step != step {
			t.Fatalf("step %d: %+v and %+v", step, x, y)
		}
		if step == steps-1 && x.Slot != y.Slot {
			t.Error("the member that caught up has not joined")
		}
		a.release(1)
		b.release(1)
	}
	a.close()
	b.close()
}

// A member that was left behind gets little of the engine, and one that began late gets much.
func TestWeightOfAMemberThatIsBehind(t *testing.T) {
	w := newWorld(t)
	a, late := w.open(), w.open()
	a.Start(item.Position{})
	for range 20 {
		a.next()
		a.release(1)
	}
	late.Start(item.Position{})
	late.next()
	if got := w.fakes[1].weight; got != catchUp {
		t.Errorf("a member that began late has the weight %v", got)
	}
	late.close()

	slow := w.open()
	slow.Start(item.Position{Row: 20})
	slow.next()
	a.goThrough(0, 20)
	for range slots {
		slow.next()
		slow.release(1)
	}
	if got := w.fakes[2].weight; got != 1./catchUp {
		t.Errorf("a member that was left behind has the weight %v", got)
	}
	if got := w.fakes[0].weight; got != 1 {
		t.Errorf("the stream has the weight %v", got)
	}
	a.close()
	slow.close()
}

// A client that keeps two batches while it waits does not wait for a member that does nothing.
func TestClientThatKeepsBatches(t *testing.T) {
	for _, taken := range []int{0, credit(slots)} {
		w := newWorld(t)
		a, b := w.open(), w.open()
		a.Start(item.Position{})
		b.Start(item.Position{})
		for range taken {
			b.next()
		}
		if taken == 0 {
			b.hub.mu.Lock()
			b.hub.follow(b.Member)
			b.hub.mu.Unlock()
		}
		for step := range int64(steps) {
			if ev := a.next(); ev.Step != step {
				t.Fatalf("step %d: %+v", step, ev)
			}
			a.release(2)
		}
		a.close()
		b.close()
	}
}

// A member that leaves the stream between the last batch of an epoch and its end gets the end.
func TestLagAtTheEnd(t *testing.T) {
	w := newWorld(t)
	a, b := w.open(), w.open()
	a.Start(item.Position{})
	b.Start(item.Position{})
	for range steps {
		a.next()
		b.next()
		a.release(1)
		b.release(1)
	}
	if ev := a.next(); ev.Kind != pipeline.EventEpochEnd {
		t.Errorf("%+v", ev)
	}
	a.goThrough(1, 0)
	if ev := b.next(); ev.Kind != pipeline.EventEpochEnd || ev.Epoch != 0 {
		t.Errorf("%+v", ev)
	}
	b.goThrough(1, 0)
	a.close()
	b.close()
}

// A member that begins in the middle gets all batches from there on, wherever the others are.
func TestJoin(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	a.Start(item.Position{})
	for range 20 {
		a.next()
		a.release(1)
	}
	for _, row := range []int64{0, 3, 19, 20, 40} {
		b := w.open()
		b.Start(item.Position{Row: row})
		b.goThrough(0, row)
		b.goThrough(1, 0)
		b.close()
	}
	a.goThrough(0, 20)
	a.close()
}

// The leases of a client that dies end.
func TestDeath(t *testing.T) {
	w := newWorld(t)
	a, b := w.open(), w.open()
	a.Start(item.Position{})
	b.Start(item.Position{})
	for range credit(slots) {
		b.next()
	}
	b.close()
	a.goThrough(0, 0)
	if a.own != nil {
		t.Error("the slots of a dead client were not free")
	}
	a.Start(item.Position{Epoch: 7, Row: 5})
	a.goThrough(7, 5)
	a.close()
}

// Data that has changed has another hub.
func TestOtherData(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.data = "b"
	b, c := w.open(), w.open()
	if a.hub == b.hub || b.hub != c.hub {
		t.Error("clients of other data share a hub")
	}
	a.close()
	b.close()
	c.close()
}

// Many clients at different speeds that come and go get their streams.
func TestMany(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	clients := make([]*client, 6)
	for i := range clients {
		clients[i] = w.open()
	}
	for i, c := range clients {
		wg.Go(func() {
			defer c.close()
			for epoch := range int64(3) {
				row := (int64(i) * 7 * epoch) % steps
				c.Start(item.Position{Epoch: epoch, Row: row})
				for step := row; step < steps; step++ {
					if ev := c.next(); ev.Step != step || ev.Epoch != epoch {
						t.Errorf("client %d, epoch %d, step %d: %+v", i, epoch, step, ev)
						return
					}
					c.release(int(step+int64(i)) % 3)
				}
				c.release(0)
			}
		})
	}
	wg.Wait()
}
