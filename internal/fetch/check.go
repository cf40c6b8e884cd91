package fetch

import (
	"sync"

	"github.com/stokerdata/stoker/internal/invariants"
)

// guard is the lock of a Fetcher. In a build with checks (internal/invariants), each Unlock is the end of a step, after
// which the counters are computed again and compared.
type guard struct {
	sync.Mutex
	check func()
}

// Unlock releases the lock.
func (g *guard) Unlock() {
	if invariants.Enabled && g.check != nil {
		g.check()
	}
	g.Mutex.Unlock()
}

// ledger lists what the counters of a Fetcher count. It is nil except in a build with checks, and its methods then do
// nothing.
type ledger struct {
	units      map[*Unit]struct{}    // admitted and not released
	candidates map[*Unit]struct{}    // registered by Prefetch
	attempts   map[*attempt]struct{} // begun and not delivered
	ordered    map[*InOrder]struct{}
	steps      int // since the last check
}

// perStep is the number of listed things that a step may check. With n of them, every n/perStep-th step is checked, so
// that tests with many records stay fast.
const perStep = 64

// due reports whether this step is checked.
func (l *ledger) due(n int) bool {
	if l.steps++; l.steps < n/perStep {
		return false
	}
	l.steps = 0
	return true
}

func newLedger() *ledger {
	if !invariants.Enabled {
		return nil
	}
	return &ledger{
		units: map[*Unit]struct{}{}, candidates: map[*Unit]struct{}{}, attempts: map[*attempt]struct{}{}, ordered: map[*InOrder]struct{}{},
	}
}

func (l *ledger) admit(u *Unit) {
	if invariants.Enabled {
		l.units[u] = struct{}{}
	}
}

func (l *ledger) release(u *Unit) {
	if invariants.Enabled {
		delete(l.units, u)
	}
}

func (l *ledger) register(u *Unit) {
	if invariants.Enabled {
		l.candidates[u] = struct{}{}
	}
}

func (l *ledger) unregister(u *Unit) {
	if invariants.Enabled {
		delete(l.candidates, u)
	}
}

func (l *ledger) begin(fl *attempt) {
	if invariants.Enabled {
		l.attempts[fl] = struct{}{}
	}
}

func (l *ledger) end(fl *attempt) {
	if invariants.Enabled {
		delete(l.attempts, fl)
	}
}

func (l *ledger) start(r *InOrder) {
	if invariants.Enabled {
		l.ordered[r] = struct{}{}
	}
}

func (l *ledger) stop(r *InOrder) {
	if invariants.Enabled {
		delete(l.ordered, r)
	}
}

// same ends the program if a counter differs from the number that was counted.
func same[N int | int32 | int64](name string, counter, counted N) {
	if counter != counted {
		invariants.Broken("fetch: %s is %d, counted %d", name, counter, counted)
	}
}

// listed returns the number of reads in the queues, with those that other reads have taken along.
func (q *queues) listed() int {
	return len(q.records.ws) + len(q.index.ws) + len(q.urgent.ws) - q.records.head - q.index.head - q.urgent.head
}

// check computes every counter again. The caller holds the lock.
func (f *Fetcher) check() {
	if l := f.ledger; !l.due(f.queues.listed() + len(l.units) + len(l.candidates) + len(l.attempts)) {
		return
	}
	f.checkAccount()
	f.checkQueues()
	f.checkRunning()
	left := f.outstanding()
	for u := range f.ledger.units {
		same("Unit.left", u.left, left[u])
		if u.complete != (u.left == 0 && u != f.ledger.reading(u)) {
			invariants.Broken("fetch: a unit has %d reads left and is complete: %v", u.left, u.complete)
		}
	}
	same("ready.n", f.ready.n.Load(), int32(len(f.ready.heap)))
	if r := &f.readers; r.n < 0 || r.parked < 0 || r.parked > r.n {
		invariants.Broken("fetch: %d of %d readers are parked", r.parked, r.n)
	}
}

// reading returns u if it is being filled by an InOrder, and otherwise nil.
func (l *ledger) reading(u *Unit) *Unit {
	for r := range l.ordered {
		if r.u == u {
			return u
		}
	}
	return nil
}

// checkAccount counts the memory and the units.
func (f *Fetcher) checkAccount() {
	a, l := &f.account, f.ledger
	var c account
	for u := range l.units {
		c.units++
		switch {
		case u.rushed:
			c.urgent += u.reserved
		case u.attached:
			c.attached += u.reserved
			c.used += u.reserved
		default:
			c.used += u.reserved
		}
		same("Unit.ahead after Admit", u.ahead, 0)
	}
	for r := range l.ordered {
		c.used += r.taken
	}
	for u := range f.candidates.holding {
		early := int64(0)
		for _, w := range u.later {
			if w != nil && w.taken {
				early += pieceBytes(w.size)
			}
		}
		same("Unit.ahead", u.ahead, early)
		c.ahead += early
	}
	for fl := range l.attempts {
		c.transit += fl.brief
	}
	same("account.units", a.units, c.units)
	same("account.used", a.used, c.used)
	same("account.urgent", a.urgent, c.urgent)
	same("account.attached", a.attached, c.attached)
	same("account.ahead", a.ahead, c.ahead)
	same("account.transit", a.transit, c.transit)
	if a.peak < a.inUse() {
		invariants.Broken("fetch: account.peak is %d, but %d bytes are in use", a.peak, a.inUse())
	}
	n := 0
	for u := range l.candidates {
		n += len(u.IDs)
	}
	same("candidates.n", f.candidates.n, n)
}

// checkQueues counts the reads that have not begun, and the pieces of the index for which units wait.
func (f *Fetcher) checkQueues() {
	for name, q := range map[string]*fifo{"records": &f.queues.records, "index": &f.queues.index, "urgent": &f.queues.urgent} {
		n := 0
		for _, w := range q.ws[q.head:] {
			if !w.taken {
				n++
			}
		}
		same("queues."+name+".n", q.n, n)
	}
	missing := map[*Unit]int{}
	for _, x := range f.queues.pieces {
		for _, w := range x.waiters {
			missing[w.u]++
		}
	}
	for u, n := range missing {
		same("Unit.missing", u.missing, n)
	}
}

// checkRunning counts the reads under way.
func (f *Fetcher) checkRunning() {
	var c running
	for i, fl := range f.running.attempts {
		same("attempt.at", fl.at, i)
		switch {
		case fl.second:
			c.second++
		case fl.stuck:
			c.stuck++
		case fl.learns:
			c.learning++
		default:
			c.load += fl.weight
		}
	}
	r := &f.running
	same("running.second", r.second, c.second)
	same("running.stuck", r.stuck, c.stuck)
	same("running.load", r.load, c.load)
	same("running.learning", r.learning, c.learning)
	out := map[*request]int{}
	for fl := range f.ledger.attempts {
		out[fl.request]++
	}
	for g, n := range out {
		same("request.out", g.out, n)
	}
}

// outstanding counts the reads that have not finished, by unit.
func (f *Fetcher) outstanding() map[*Unit]int {
	left := map[*Unit]int{}
	for _, q := range []*fifo{&f.queues.records, &f.queues.urgent} {
		for _, w := range q.ws[q.head:] {
			if !w.taken && w.u != nil {
				left[w.u]++
			}
		}
	}
	seen := map[*request]bool{}
	for fl := range f.ledger.attempts {
		// sortOut marks a request as done while it copies, and takes the attempt from running before.
		sorting := fl.at >= len(f.running.attempts) || f.running.attempts[fl.at] != fl
		if seen[fl.request] || fl.done && !sorting {
			continue
		}
		seen[fl.request] = true
		for _, w := range fl.extents {
			if w.u != nil {
				left[w.u]++
			}
		}
	}
	return left
}
