package doctor

// Threads of the trainer may make its batches: a pool that parses ahead, a thread with a queue, an event loop that
// fetches. Their names and libraries vary widely. Two things identify them: they work, or wait for something external,
// in their own code, and the trainer waits for them.

// feeding is the evidence that a thread makes batches.
type feeding uint8

const (
	notFeeding  feeding = iota
	maySleep            // only ever seen asleep in its own code, like a thread that reports from time to time
	surelyFeeds         // worked, read, or put values into a queue
)

// maxLaneThreads limits the number of a trainer's threads that are sampled in a tick.
const maxLaneThreads = 32

// lane is a sample of one thread that makes batches.
type lane struct {
	t     *thread
	m     moment
	cause cause
}

// sampleThreads samples the Python threads of a trainer without worker processes, and reports whether any of them makes
// batches.
func (c *collector) sampleThreads(p *process) bool {
	var lanes []lane
	strong := false
	for tid, t := range p.threads {
		v, ok := p.frames[tid]
		if !ok || tid == p.pid || p.trainsIn(t) || !v.known || v.duty == dutyPin || v.duty == dutyFeeder || len(lanes) >= maxLaneThreads || c.hot >= maxHot {
			continue
		}
		if v.part == partStep || v.part == partUnknown {
			if !v.user && v.duty == dutyUnknown {
				continue // belongs to a library with other work
			}
		}
		if v.steps {
			continue
		}
		v = v.asFeeder()
		m, file, ok := c.look(p, tid, nil)
		if !ok {
			continue
		}
		m.view = v
		x := workerCause(m)
		if x == causeNetwork && !p.stalled && c.lookedIdle(v) {
			x = causeIdle // an event loop between requests
		}
		switch x {
		case causeIdle:
			if v.part == partPut {
				t.feeds = surelyFeeds
			}
		case causeLatency:
			t.feeds = max(t.feeds, maySleep)
		default:
			t.feeds = surelyFeeds
		}
		if x == causeStorage {
			c.noteFile(p.pid, file)
		}
		if m.block == blockFlock {
			c.noteLock(file)
		}
		strong = strong || t.feeds == surelyFeeds
		lanes = append(lanes, lane{t, m, x})
	}
	busy, n := 0, 0
	for _, l := range lanes {
		if l.t.feeds == notFeeding || strong && l.t.feeds == maySleep {
			continue
		}
		n++
		if l.cause != causeIdle {
			busy++
		}
	}
	for _, l := range lanes {
		if l.t.feeds == notFeeding || strong && l.t.feeds == maySleep {
			continue
		}
		c.countLane(l.cause)
		c.bin.threadLanes++
		if l.m.interpreter() {
			c.bin.interpreter++
		}
		if l.cause == causeIdle {
			continue
		}
		c.bin.laneParts[l.m.view.part]++
		c.noteWhere(l.cause, l.m)
		c.noteNative(p.pid, l.t.tid)
		if p.stalled {
			c.bin.stalled[l.cause] += 1 / float64(busy)
		}
	}
	if p.stalled && n > 0 && busy == 0 {
		c.bin.stalled[causeHandoff]++
	}
	p.feeders = p.feeders || strong
	return n > 0
}

// asFeeder returns the view of a thread that makes batches, if its frames show no loader: its work is its own code.
func (v view) asFeeder() view {
	if !v.known {
		return v
	}
	if v.part == partStep || v.part == partUnknown {
		v.part = partFetch
	}
	if v.duty == dutyUnknown || v.duty == dutyTrainer {
		v.duty = dutyWorker
	}
	v.steps = false
	return v
}

// lookedIdle reports whether frames are those of an event loop without work.
func (c *collector) lookedIdle(v view) bool { return v.part == partRead && !v.user }
