package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/feed"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/sampler"
)

// Ask names a batch: rows of an epoch's order.
type Ask struct {
	Epoch int64
	// Step is the number of the global batch in its epoch; with buckets that of the batch, over all ranks.
	Step int64
	// Lo and Hi are the positions of the rows, and Stride is their distance if it is not 1 (sampler.Part).
	Lo, Hi, Stride int64
}

// maxEpoch bounds epochs so that no arithmetic overflows.
const maxEpoch = 1 << 40

// Asked is an order whose batches are requested one by one, by number, and finished in any order. It never ends.
type Asked struct {
	p    *Pipeline
	wake chan struct{}

	mu   sync.Mutex
	list []askedPart
	from int64 // the number of list[0]
}

type askedPart struct {
	epoch int64
	order *sampler.Epoch
	part  sampler.Part
}

// StartAsked starts a stream of the batches that Add requests. Their events have the number of the request, and a batch
// that fails is an event, too.
func (p *Pipeline) StartAsked() (*Asked, error) {
	if p.src.Info().Sequential {
		return nil, fmt.Errorf("%s can only be read in order, since it is compressed: make a pack of it (stoker pack)", p.info.URL)
	}
	if p.cfg.Order == OrderClient {
		return nil, fmt.Errorf("order is %q, and batches that are requested by number have an order of their own", OrderClient)
	}
	a := &Asked{p: p, wake: make(chan struct{}, 1)}
	p.start(item.Position{}, nil, a)
	return a, nil
}

// Add requests a batch and returns the number of the request. It refuses rows that the epoch does not have.
func (a *Asked) Add(ask Ask) (number int64, err error) {
	if ask.Epoch < 0 || ask.Epoch > maxEpoch {
		return 0, fmt.Errorf("epoch %d is out of range", ask.Epoch)
	}
	order := a.p.epoch(ask.Epoch)
	part, ok := order.Part(ask.Step, ask.Lo, ask.Hi, ask.Stride)
	if !ok {
		return 0, fmt.Errorf("batch %d with rows %d to %d is not a batch of epoch %d", ask.Step, ask.Lo, ask.Hi, ask.Epoch)
	}
	a.mu.Lock()
	number = a.from + int64(len(a.list))
	a.list = append(a.list, askedPart{ask.Epoch, order, part})
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return number, nil
}

func (a *Asked) at(number int64) (sampler.Part, int64, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := number - a.from
	if i < 0 || i >= int64(len(a.list)) {
		return sampler.Part{}, 0, false
	}
	part := a.list[i].part
	part.Next = number + 1
	return part, a.list[i].epoch, true
}

func (a *Asked) fill(ids []int64, c *cursor, k int) {
	a.mu.Lock()
	e := &a.list[c.row-a.from]
	order, part := e.order, e.part
	a.mu.Unlock()
	a.p.fill(ids, order, &part, k)
}

func (a *Asked) drop(number int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := number - a.from
	a.list = slices.Delete(a.list, 0, int(n))
	a.from = number
}

func (a *Asked) more() <-chan struct{} { return a.wake }

// The rest of this file is the other side: batches that another engine builds.

// Remote has batches built by other engines. Methods are called by any goroutine.
type Remote interface {
	// Credits is the number of batches that may be under way, and soonest the time in which another one is expected.
	Credits() (n int, soonest time.Duration)
	// Changed receives a value when there may be more credits.
	Changed() <-chan struct{}
	// Fetch writes a batch to its slot. After an error the batch is built here.
	Fetch(ctx context.Context, b *RemoteBatch) error
	// Built receives the checksum of a batch that was built here because it has Copies, after Fetch. It is empty if the
	// batch could not be built.
	Built(b *RemoteBatch, checksum string)
	// Stats are counters for stats().
	Stats() RemoteStats
	Close() error
}

// RemoteBatch is a batch that another engine builds.
type RemoteBatch struct {
	Ask
	// Rows is the number of rows, Arrays and Slot are their destination.
	Rows   int
	Arrays []item.Array
	Slot   []byte
	// Order is smaller for batches that are due earlier. Ahead is the number of batches that the trainer gets before it.
	Order int64
	Ahead int

	// The other fields are results. Skipped and Bad are as in Event.
	Skipped int64
	Bad     []RecordError
	// Copies are not empty if the batch is to be built here as well: what other engines built for it.
	Copies []Copy
}

// Copy is a batch of another engine.
type Copy struct{ From, Checksum string }

// RemoteStats are the counters of a Remote.
type RemoteStats struct {
	// Servers is the number of servers in the list, Usable that of those that answer.
	Servers int `json:"servers"`
	Usable  int `json:"usable"`
	// Batches came from servers. Failed ones were built here instead.
	Batches int64 `json:"batches"`
	Failed  int64 `json:"failed"`
	Bytes   int64 `json:"bytes"`
	// Retried and Hedged count additional requests, after a failure and because of a late answer.
	Retried int64 `json:"retried"`
	Hedged  int64 `json:"hedged"`
	// Compared batches were built twice: by two servers, or by a server and here. Different ones were not equal.
	Compared  int64 `json:"compared"`
	Different int64 `json:"different"`
}

// remotes decides in the planner which batches are built here: as many as the local workers can begin soon, and finish
// before they are due. The others are requested from servers.
type remotes struct {
	// here reports for the batches between the two cursors whether they are built here. at is the last such batch that
	// the read-ahead cursor has reached.
	here map[item.Position]bool
	at   item.Position
	// local is the number of unfinished local batches that keeps the workers busy.
	local   int
	decided int64 // batches
}

// pace is how fast a stream's batches are built here and handed out. Guarded by Pipeline.mu.
type pace struct {
	// service is the recent time per local batch while the workers are busy, spread its deviation.
	service, spread time.Duration
	finished        time.Time // the last local batch
	handed          int64     // batches
	times           [16]time.Time
}

// built learns from a local batch that got its slot at began.
func (c *pace) built(began, now time.Time) {
	if c.finished.After(began) { // it was queued until then
		began = c.finished
	}
	took := max(now.Sub(began), time.Microsecond)
	if c.finished = now; c.service == 0 {
		c.service = took
	}
	c.spread += (max(took-c.service, c.service-took) - c.spread) / 4
	c.service += (took - c.service) / 4
}

func (c *pace) handOut(now time.Time) {
	c.times[c.handed%int64(len(c.times))] = now
	c.handed++
}

// due returns the time after which the trainer asks for the batch after n others, which are not handed out.
func (c *pace) due(n int64, now time.Time) time.Duration {
	if c.handed < int64(len(c.times)) {
		return 0
	}
	return time.Duration(n) * now.Sub(c.times[c.handed%int64(len(c.times))]) / time.Duration(len(c.times))
}

// newRemotes returns nil if there are no servers.
func (p *Pipeline) newRemotes() *remotes {
	if p.feeders == nil {
		return nil
	}
	groups := max((p.cfg.BatchSize+p.memory.groupRows-1)/p.memory.groupRows, 1)
	return &remotes{here: map[item.Position]bool{}, at: item.Position{Epoch: -1}, local: 1 + max((2*len(p.workers.list)+groups-1)/groups, 1)}
}

// decide reports whether the batch at the read-ahead cursor is decided. It moves the cursor over batches that servers
// build.
func (pl *planner) decide() bool {
	r := pl.remotes
	for r != nil {
		pl.cur.settle(pl.p)
		at := item.Position{Epoch: pl.cur.epoch, Row: pl.cur.row}
		if at == r.at {
			return true
		}
		credits, soonest := pl.p.feeders.Credits()
		if n := pl.s.local.Load(); n < int64(r.local) && (credits == 0 || pl.inTime(n, soonest)) {
			r.here[at], r.at = true, at
			r.decided++
			pl.s.local.Add(1)
			return true
		}
		if pl.s.remote.Load() >= int64(credits) {
			return false
		}
		r.here[at] = false
		r.decided++
		pl.s.remote.Add(1)
		pl.cur.next(pl.p)
	}
	return true
}

// inTime reports whether this machine, with n unfinished batches, would build another one before it is due, or at least
// before a server. Batches are handed out in order, so the servers would wait for a late one.
func (pl *planner) inTime(n int64, soonest time.Duration) bool {
	pl.p.mu.Lock()
	defer pl.p.mu.Unlock()
	c := &pl.s.pace
	if c.service == 0 { // the first batch tells
		return n == 0
	}
	expected := time.Duration(n+1) * (c.service + 2*c.spread)
	return expected <= max(soonest, c.due(pl.remotes.decided-c.handed, time.Now()))
}

// decided reports whether it is known where the next batch is built.
func (pl *planner) decided() bool {
	if pl.remotes == nil || !pl.follow.ok || pl.follow.rows() == 0 {
		return true
	}
	pl.decide()
	_, known := pl.remotes.here[item.Position{Epoch: pl.follow.epoch, Row: pl.follow.row}]
	return known
}

// settle moves the read-ahead cursor to the next row that is read here.
func (pl *planner) settle() {
	if pl.remotes == nil {
		pl.cur.settle(pl.p)
		return
	}
	pl.decide() // it is decided already, and the cursor moves only behind the end of a batch
}

// elsewhere reports whether a server builds the batch at a position, and forgets the decision.
func (pl *planner) elsewhere(at item.Position, b *batch) bool {
	b.here, b.remote, b.copied = false, false, nil
	if pl.remotes == nil || len(b.ids) == 0 {
		return false
	}
	b.here, b.began = pl.remotes.here[at], time.Now()
	delete(pl.remotes.here, at)
	b.remote = !b.here
	return b.remote
}

// request has a server build a batch.
func (pl *planner) request(b *batch, part *sampler.Part) {
	p, s := pl.p, pl.s
	pl.order++
	rows, order := len(b.ids), pl.order
	p.mu.Lock()
	ahead := len(s.queue)
	p.mu.Unlock()
	r := &RemoteBatch{
		Ask:  Ask{Epoch: b.epoch, Step: part.Step, Lo: part.Lo, Hi: part.Hi, Stride: part.Stride},
		Rows: rows, Arrays: p.arrays.layout.Arrays, Slot: p.memory.ring.Slot(b.slot), Order: order, Ahead: ahead,
	}
	if p.order.buckets != nil {
		r.Step = b.first
	}
	p.spawn("remote", func() {
		err := p.feeders.Fetch(s.ctx, r)
		s.remote.Add(-1)
		if err == nil && len(r.Copies) == 0 {
			p.mu.Lock()
			b.skipped, b.bad = r.Skipped, append(b.bad[:0], r.Bad...)
			p.mu.Unlock()
			p.groupsDone(b, 1)
			p.fetch.Wake()
			return
		}
		p.mu.Lock()
		b.remote = false
		if err == nil {
			b.copied = r
		}
		ended := s.ended
		for lo := 0; lo < rows && !ended; lo += p.memory.groupRows {
			if lo > 0 {
				b.remaining.Add(1)
			}
			s.missed = append(s.missed, group{b, lo, min(lo+p.memory.groupRows, rows), order})
		}
		p.mu.Unlock()
		if ended {
			p.groupsDone(b, 1)
		}
		p.fetch.Wake()
	})
}

// compareBatch has a batch that was built here compared with those of servers. Slot and error are those of a batch whose
// groups are all done.
func (p *Pipeline) compareBatch(b *batch) {
	if b.copied == nil {
		return
	}
	checksum := ""
	if b.err == nil && !b.stream.stopped.Load() {
		checksum = feed.Checksum(p.arrays.layout.Arrays, p.memory.ring.Slot(b.slot), len(b.ids))
	}
	p.feeders.Built(b.copied, checksum)
	b.copied = nil
}
