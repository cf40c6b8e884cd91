package doctor

import "time"

// trainingState is the state of the trainers.
type trainingState struct {
	training  time.Time // first sample that counted; zero before
	warming   float64   // seconds since then that an accelerator's first step takes
	trainers  map[key]bool
	votes     map[string]int // samples of trainers by kind of loader, those that ended too
	lastGuess counts
	samples   int // of trainers and lanes that count
	log       stepTotals
	// collectives counts samples of trainers that waited for other ranks, by function.
	collectives map[string]int
	rankNames   map[int]string
}

// sampleTrainer determines the current work of the main thread of a process that may train, and whether it trains.
func (c *collector) sampleTrainer(p *process, now time.Time) {
	tid := c.lead(p)
	m, file, ok := c.look(p, tid, nil)
	if !ok {
		return
	}
	if tid != p.pid {
		m.view = m.view.asTrainer()
	}
	p.sampled, p.mayWait = true, ownKey{}
	v := m.view
	if v.known && v.duty == dutyWorker && p.trainer == nil {
		// It was taken for a trainer because its command line is its own, as
		// with spawned workers.
		p.role = roleWorker
		return
	}
	switch {
	case v.known && v.steps:
		p.stepsSeen++
	case v.known && v.part == partWait && v.collective == "":
		p.waitsSeen++
	}
	fed := c.fedBy(p, m)
	if v.known && v.user && v.part == partStep {
		switch m.block {
		case blockNone:
			p.ranOwn++
		case blockSleep, blockDevice:
			p.sleptOwn++
		case blockLock:
			p.lockedOwn++
		}
	}
	switch {
	case fed:
		p.waitsSeen++
		p.fedLast = true
	case p.fedLast && v.part != partImport:
		p.fedLast = false
		p.turns++
	}
	sure := p.trainer != nil || c.trains(p, v)
	if p.trainer == nil && (sure || p.ranOwn >= ownLooks && p.sleptOwn >= ownLooks || p.ranOwn+p.lockedOwn >= ownLooks && p.ranOwn > 0 && c.hasFramework(p)) {
		p.trainer = &trainerState{since: now, loaders: map[string]int{}, weak: !sure}
		c.trainers[key{p.pid, p.start}] = true
		c.tree.retire(p)
	}
	if t := p.trainer; t != nil {
		if t.weak && c.trains(p, v) {
			if (v.loader != "" || p.workerSeen || p.pinSeen) && c.onlyWeak() {
				c.startOver(now)
			}
			t.weak = false
		}
		// The statement that requests the next batch also frees the previous one, which takes long for many small
		// objects and shows no function.
		if v.asks.line > 0 {
			t.loop = v.asks
		} else if v.part == partStep && m.block == blockNone && v.leaf.line > 0 && v.leaf == t.loop.place {
			v.part, v.duty = partRelease, dutyTrainer
			m.view = v
		}
	}
	cause := trainerCause(m, !v.known)
	if cause == causeStorage {
		c.noteFile(p.pid, file)
	}
	if m.block == blockFlock {
		c.noteLock(file)
	}
	if v.part == partImport {
		cause = causeOther
	}
	if cause == causeStep && p.feeders && m.block == blockLock && m.timed && v.known && v.collective == "" && p.atInterpreter(tid) {
		cause = causeWait // for the interpreter's lock, which the threads have that make its batches
	}
	if fed && cause == causeStep {
		cause = causeWait
	}
	if p.trainer == nil {
		p.guess[cause]++
		return
	}
	s := p.trainer
	if v.loader != "" {
		s.loaders[v.loader]++
	}
	if s.phase == 0 {
		// The first batch includes the time to start everything, so it is omitted, as in every measure of utilisation.
		first := cause == causeStep && v.part != partImport || now.Sub(s.since) > 5*time.Second
		if !first {
			return
		}
		s.phase = 1
	}
	p.cause, p.stalled = cause, cause == causeWait
	if !v.known && p.python != nil && m.block == blockNone {
		// Its frames changed while they were read. Its CPU time shows exactly that it ran; the other samples must show
		// what it ran.
		return
	}
	switch {
	case v.part == partManage:
		// Find the workers that it starts immediately.
		s.fresh, c.lost = true, true
	case cause == causeStep:
		s.fresh = false
	}
	c.noteTrainerNative(p, tid, cause, ownKey{loop: v.loop, body: v.body})
	if m.block == blockFault {
		c.noteFault(p)
	}
	b := &c.bin
	if s.asked = s.asked || cause != causeStep; !s.asked {
		b.opening++
	}
	together := cause == causeStep && v.collective != "" && (m.block == blockLock || m.block == blockNetwork || m.block == blockLocal || m.block == blockPipe)
	if together {
		c.collectives[v.collective]++
	}
	at := ownKey{v.loop, v.body, v.leaf}
	own := cause == causeStep && v.known && v.loop.fn != ""
	// The reason of this wait is decided once the purpose of the line is known.
	waits := own && !v.steps && !together && waitsForOthers(m.block)
	if waits {
		p.mayWait = at
	}
	count := func(t *trainerCounts) {
		t.trainer[cause]++
		if m.block == blockNone {
			t.trainerRan[cause]++
		}
		if s.fresh && (cause == causeWait || v.part == partManage) {
			t.restart++
		}
		if cause == causeHandoff && (v.part == partPrepare || v.part == partRelease) {
			t.ready++
		}
		if cause == causeStorage && v.known && v.loop.fn != "" && m.block == blockFault {
			t.own.put(at, ownStat{faults: 1})
		}
		switch {
		case waits:
			t.own.put(at, ownStat{all: 1, waited: 1})
		case own:
			t.own.note(at, v.steps || m.block == blockDevice, m.block == blockSleep, m.block == blockNone)
		}
	}
	count(&b.trainerCounts)
	c.ofRank(p.pid, func(r *rankCounts) {
		count(&r.trainerCounts)
		if together {
			r.together++
		}
	})
	c.samples++
	if v.known && cause != causeStep && cause != causeWait {
		b.trainerParts[v.part]++
		c.noteWhere(cause, m)
	}
}

// startOver discards what was seen of training so far. The computation looked like a training loop without a known
// loader, for example a script that first makes its files. Now a loop with a loader has begun.
func (c *collector) startOver(now time.Time) {
	c.training = time.Time{}
	c.samples = 0
	for _, b := range append(c.line.pointers(), &c.bin) {
		*b = bin{t: b.t, dt: b.dt, v: b.v, gpus: b.gpus}
	}
	for _, p := range c.tree.members {
		if p.trainer != nil {
			*p.trainer = trainerState{since: now, loaders: map[string]int{}, weak: p.trainer.weak}
		}
	}
	clear(c.wheres)
	clear(c.spent)
	clear(c.spentAt)
	clear(c.faults)
	clear(c.files)
	clear(c.fsTypes)
	clear(c.locks)
}

// atInterpreter reports whether the lock that a thread waits for may be the interpreter's, which is in the
// interpreter's own state. The locks of libraries are elsewhere, for example those with which JAX waits for the results
// of a step.
func (p *process) atInterpreter(tid int) bool {
	t := p.threads[tid]
	if p.python == nil || t == nil {
		return true
	}
	owns, known := p.python.Owns(t.call.Args[0])
	return owns || !known
}

// waitsForOthers reports whether another thread or process ends a block.
func waitsForOthers(b blocker) bool {
	return b == blockLock || b == blockPipe || b == blockLocal || b == blockChild
}

// fedBy reports whether a trainer waits for other processes of the job, which produce data for it. It must wait outside
// a training step, for something whose other side they hold.
func (c *collector) fedBy(p *process, m moment) bool {
	v := m.view
	if v.known && (v.steps || v.collective != "" || v.part == partImport || v.part == partManage) {
		return false
	}
	switch {
	case waitsForOthers(m.block):
		return c.meet(p)
	case m.block == blockNetwork:
		c.partners(p, p.threads[p.loopThread()]) // only to find them
	}
	return false
}

// trains reports whether there is evidence that a process trains: it is in a loader, has workers, or has a step log.
func (c *collector) trains(p *process, v view) bool {
	if v.known && v.duty == dutyTrainer && v.loader != "" {
		return true
	}
	if p.workerSeen || p.pinSeen {
		return true
	}
	// A model or an optimizer was sampled repeatedly, or sometimes while it also waits for a queue that others fill. Or
	// it alternates between waiting for another process and its own work.
	return p.turns >= fewTurns || p.stepsSeen >= 3 || p.stepsSeen > 0 && p.waitsSeen >= 2 || c.log.has(p.pid)
}

// ownLooks is a number of samples after which a process may be a trainer. If it has loaded a framework, it must have
// computed that often in the user's own code, or waited there for work given to the framework's threads. Otherwise it
// must have computed that often and as often have waited there for a device or a timer.
const ownLooks = 8

// fewTurns is the number of times that a process must have continued after waiting for another one, to count as working
// on its data. A process that only forwards the output of another program is hardly ever sampled like that.
const fewTurns = 5

// ofRank changes the counts of one of several trainers.
func (c *collector) ofRank(pid int, change func(*rankCounts)) {
	if len(c.trainers) < 2 {
		return
	}
	if c.bin.ranks == nil {
		c.bin.ranks = map[int]rankCounts{}
	}
	r := c.bin.ranks[pid]
	change(&r)
	c.bin.ranks[pid] = r
}

// countStall counts the work of the workers while a trainer waits for them. If all of them are idle, the batch is on
// its way.
func countStall(stalled *counts, workers []*process) {
	busy, idle := 0, 0
	for _, p := range workers {
		switch {
		case !p.sampled:
		case p.cause != causeIdle:
			busy++
		case p.frames[p.pid].part == partWait:
			idle++
		}
	}
	for _, p := range workers {
		if p.sampled && p.cause != causeIdle {
			stalled[p.cause] += 1 / float64(busy)
		}
	}
	if busy == 0 && idle > 0 {
		stalled[causeHandoff]++
	}
}

func (c *collector) countLane(cause cause) {
	c.bin.lanes[cause] += max(1, c.weight)
	c.samples++
}
