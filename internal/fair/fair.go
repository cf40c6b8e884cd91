// Package fair divides the cores and the memory of an engine among its pipelines.
//
// A worker takes a turn before it decodes a group of records. There are as many turns as cores. A free turn goes to the
// pipeline that has used the least CPU time for its weight. A pipeline with a limit waits until its time is below it.
package fair

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MaxWeight and MinWeight bound weights, so that each pipeline makes progress.
const (
	MinWeight = 0.01
	MaxWeight = 100
)

// burst is the time for which a pipeline below its limit may exceed it.
const burst = 250 * time.Millisecond

// Node is one engine.
type Node struct {
	mu    sync.Mutex
	turns int // that are free
	// now is the virtual time of the pipeline that got the last turn.
	now   time.Duration
	parts map[*Part]struct{}
	timer *time.Timer
	// process and thread are the clocks of CPU time.
	process, thread func() time.Duration
	// seen is the time of the process at the end of the last turn. In a window, turns took inTurns of the time inAll of
	// the process, of which ratio is the quotient.
	seen, inTurns, inAll time.Duration
	ratio                float64
	// budget is the memory for pipelines that choose none, and taken the part that pipelines have.
	budget, taken int64
}

// NewNode returns a node with that many cores.
func NewNode(cores int) *Node {
	n := &Node{turns: cores, parts: map[*Part]struct{}{}, process: clock(unix.CLOCK_PROCESS_CPUTIME_ID), thread: clock(unix.CLOCK_THREAD_CPUTIME_ID), ratio: 1}
	n.seen = n.process()
	return n
}

// Part is a pipeline's part of a node. A nil Part has no limits.
type Part struct {
	n      *Node
	weight float64
	limit  float64 // in cores, 0 for none
	memory int64

	// used is the CPU time divided by the weight. next is when a pipeline with a limit may go on.
	used    time.Duration
	next    time.Time
	running int
	waiting []*waiter
	closed  bool
	idle    bool
}

// waiter is a worker that waits for a turn. granted is set before come is closed.
type waiter struct {
	come    chan struct{}
	granted bool
}

// Join adds a pipeline. A weight of 0 means 1. The limit is a number of cores, 0 for none.
func (n *Node) Join(weight, limit float64) *Part {
	if weight == 0 {
		weight = 1
	}
	p := &Part{n: n, weight: weight, limit: limit}
	n.mu.Lock()
	defer n.mu.Unlock()
	p.used = n.now
	n.parts[p] = struct{}{}
	return p
}

// Weigh changes the weight of a pipeline. 0 means that it has nothing to do: it keeps its weight, which then does not
// count for the shares of the others.
func (p *Part) Weigh(weight float64) {
	if p == nil {
		return
	}
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	if p.idle = weight == 0; !p.idle {
		p.weight = weight
	}
}

// Share returns the part of the weights of all pipelines, 1 for a nil Part.
func (p *Part) Share() float64 {
	if p == nil {
		return 1
	}
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	sum := 0.0
	for q := range p.n.parts {
		if !q.idle {
			sum += q.weight
		}
	}
	return p.weight / max(sum, p.weight)
}

// Memory takes memory for a pipeline that chooses none, and returns its size. free is the memory that would be used
// without other pipelines, ranks the number of ranks of its job on this machine. The first half goes to pipelines by
// their weights, and each gets at most half of the rest. Of many pipelines, each gets a 32nd, up to twice the memory.
func (p *Part) Memory(free int64, ranks int) int64 {
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.budget == 0 {
		n.budget = free
	}
	left := (n.budget - n.taken) / 2
	want := int64(float64(n.budget) / float64(2*max(ranks, 1)) * p.weight)
	if least := n.budget / 32; left < least && n.taken+least <= 2*n.budget {
		left = least
	}
	return max(min(want, left), 0)
}

// Took notes the memory that the pipeline has, also if the user has chosen it.
func (p *Part) Took(bytes int64) {
	if p == nil {
		return
	}
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.n.taken += bytes - p.memory
	p.memory = bytes
}

// Close removes a pipeline. Waiting workers go on without a turn.
func (p *Part) Close() {
	if p == nil {
		return
	}
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	n.taken -= p.memory
	delete(n.parts, p)
	for _, w := range p.waiting {
		close(w.come)
	}
	p.waiting = nil
	n.dispatch()
}

// Turn is a worker's right to use a core. A worker keeps the right after Done, until it takes the next turn or leaves:
// otherwise its pipeline would lose it, because no worker of the pipeline may be waiting at that moment.
type Turn struct {
	p     *Part
	began time.Duration
	holds bool
}

// Next ends the right of the last turn and waits for the next one. The same goroutine calls Done, and stays on its
// thread until then. The worker goes on without a turn if ctx is done or the pipeline is closed.
func (t *Turn) Next(ctx context.Context, p *Part) {
	if p == nil {
		return
	}
	n := p.n
	n.mu.Lock()
	if p.running == 0 && len(p.waiting) == 0 {
		p.used = max(p.used, n.now) // time that was not used is not saved
	}
	t.release()
	if p.closed || ctx.Err() != nil {
		n.dispatch()
		n.mu.Unlock()
		return
	}
	w := &waiter{come: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	n.dispatch()
	n.mu.Unlock()
	select {
	case <-w.come:
	case <-ctx.Done():
	}
	n.mu.Lock()
	granted := w.granted
	if !granted {
		p.waiting = slices.DeleteFunc(p.waiting, func(o *waiter) bool { return o == w })
	}
	n.mu.Unlock()
	if !granted {
		return
	}
	runtime.LockOSThread()
	*t = Turn{p, n.thread(), true}
}

// Done charges the pipeline with the turn.
func (t *Turn) Done() {
	if !t.holds {
		return
	}
	p, n := t.p, t.p.n
	took := n.thread() - t.began
	runtime.UnlockOSThread()
	n.mu.Lock()
	defer n.mu.Unlock()
	p.used += time.Duration(float64(took) / p.weight)
	took = n.withOverhead(took)
	if p.limit > 0 {
		p.next = p.next.Add(time.Duration(float64(took) / p.limit))
	}
}

// Leave ends the right, because the worker has no work.
func (t *Turn) Leave() {
	if !t.holds {
		return
	}
	n := t.p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	t.release()
	n.dispatch()
}

func (t *Turn) release() {
	if t.holds {
		t.holds = false
		t.p.running--
		t.p.n.turns++
	}
}

// ratioWindow is the CPU time of turns after which the ratio is computed again. The ratio is at most maxRatio, because
// opening data also takes time.
const (
	ratioWindow = 100 * time.Millisecond
	maxRatio    = 4
)

// withOverhead adds to the time of a turn the time that the process takes outside of turns, such as for reading.
func (n *Node) withOverhead(took time.Duration) time.Duration {
	now := n.process()
	since := now - n.seen
	n.seen = now
	if len(n.parts) == 1 {
		return since
	}
	n.inTurns += took
	n.inAll += since
	if n.inTurns > ratioWindow {
		n.ratio = min(max(float64(n.inAll)/float64(n.inTurns), 1), maxRatio)
		n.inTurns, n.inAll = 0, 0
	}
	return time.Duration(float64(took) * n.ratio)
}

// dispatch gives free turns to waiting workers.
func (n *Node) dispatch() {
	for n.turns > 0 {
		var best *Part
		now := time.Now()
		wake := time.Duration(0)
		for p := range n.parts {
			if len(p.waiting) == 0 {
				continue
			}
			if wait := p.next.Sub(now); p.limit > 0 && wait > 0 {
				if wake == 0 || wait < wake {
					wake = wait
				}
				continue
			}
			if best == nil || p.used < best.used {
				best = p
			}
		}
		if best == nil {
			if wake > 0 {
				n.wakeIn(wake)
			}
			return
		}
		w := best.waiting[0]
		best.waiting = best.waiting[1:]
		best.running++
		// Time without work is not saved, but a turn may take longer than its CPU time.
		if oldest := now.Add(-burst); best.next.Before(oldest) {
			best.next = oldest
		}
		n.turns--
		n.now = max(n.now, best.used)
		w.granted = true
		close(w.come)
	}
}

// wakeIn dispatches again after d.
func (n *Node) wakeIn(d time.Duration) {
	if n.timer != nil {
		n.timer.Stop()
	}
	n.timer = time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.dispatch()
	})
}

// clock returns a clock of CPU time, of the thread or the process.
func clock(id int32) func() time.Duration {
	return func() time.Duration {
		var ts unix.Timespec
		if unix.ClockGettime(id, &ts) != nil {
			return 0
		}
		return time.Duration(ts.Nano())
	}
}
