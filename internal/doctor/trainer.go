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

// trainerSample is a sample of the main thread of a process that may train.
type trainerSample struct {
	p   *process
	tid int
	moment
	file  string // that the thread waits for
	fed   bool   // the thread waits for what feeds it
	cause cause
}

// sampleTrainer determines the current work of the main thread of a process that may train, and whether it trains.
func (c *collector) sampleTrainer(p *process, now time.Time) {
	x := &trainerSample{p: p, tid: c.lead(p)}
	var ok bool
	if x.moment, x.file, ok = c.look(p, x.tid, nil); !ok {
		return
	}
	if x.tid != p.pid {
		x.view = x.view.asTrainer()
	}
	p.sampled, p.mayWait = true, ownKey{}
	if x.view.known && x.view.duty == dutyWorker && p.trainer == nil {
		// It was taken for a trainer because its command line is its own, as
		// with spawned workers.
		p.role = roleWorker
		return
	}
	c.countSeen(x)
	c.recogniseTrainer(x, now)
	c.findCause(x)
	if p.trainer == nil {
		p.guess[x.cause]++
		return
	}
	if !p.trainer.counts(x, now) {
		return
	}
	p.cause, p.stalled = x.cause, x.cause == causeWait
	if !x.view.known && p.python != nil && x.block == blockNone {
		// Its frames changed while they were read. Its CPU time shows exactly that it ran; the other samples must show
		// what it ran.
		return
	}
	c.countTrainer(x)
}

// countSeen counts what shows later whether the process trains: steps, waits, and its own work.
func (c *collector) countSeen(x *trainerSample) {
	p, v := x.p, x.view
	switch {
	case v.known && v.steps:
		p.stepsSeen++
	case v.known && v.part == partWait && v.collective == "":
		p.waitsSeen++
	}
	x.fed = c.fedBy(p, x.moment)
	if v.known && v.user && v.part == partStep {
		switch x.block {
		case blockNone:
			p.ranOwn++
		case blockSleep, blockDevice:
			p.sleptOwn++
		case blockLock:
			p.lockedOwn++
		}
	}
	switch {
	case x.fed:
		p.waitsSeen++
		p.fedLast = true
	case p.fedLast && v.part != partImport:
		p.fedLast = false
		p.turns++
	}
}

// recogniseTrainer makes a process a trainer if it trains, and finds its training loop.
func (c *collector) recogniseTrainer(x *trainerSample, now time.Time) {
	p, v := x.p, x.view
	if p.trainer == nil {
		sure := c.trains(p, v)
		if !sure && !c.worksAlone(p) {
			return
		}
		p.trainer = &trainerState{since: now, loaders: map[string]int{}, weak: !sure}
		c.trainers[key{p.pid, p.start}] = true
		c.tree.retire(p)
	}
	t := p.trainer
	if t.weak && c.trains(p, v) {
		if (v.loader != "" || p.workerSeen || p.pinSeen) && c.onlyWeak() {
			c.startOver(now)
		}
		t.weak = false
	}
	// The statement that requests the next batch also frees the previous one, which takes long for many small objects
	// and shows no function.
	if v.asks.line > 0 {
		t.loop = v.asks
	} else if v.part == partStep && x.block == blockNone && v.leaf.line > 0 && v.leaf == t.loop.place {
		x.view.part, x.view.duty = partRelease, dutyTrainer
	}
}

// worksAlone reports whether a process has done enough work of its own to be a trainer, also without a known loop.
func (c *collector) worksAlone(p *process) bool {
	return p.ranOwn >= ownLooks && p.sleptOwn >= ownLooks || p.ranOwn+p.lockedOwn >= ownLooks && p.ranOwn > 0 && c.hasFramework(p)
}

// findCause decides what the time of the sample is spent on.
func (c *collector) findCause(x *trainerSample) {
	p, v := x.p, x.view
	x.cause = trainerCause(x.moment, !v.known)
	if x.cause == causeStorage {
		c.noteFile(p.pid, x.file)
	}
	if x.block == blockFlock {
		c.noteLock(x.file)
	}
	if v.part == partImport {
		x.cause = causeOther
	}
	if x.cause == causeStep && p.feeders && x.block == blockLock && x.timed && v.known && v.collective == "" && p.atInterpreter(x.tid) {
		x.cause = causeWait // for the interpreter's lock, which the threads have that make its batches
	}
	if x.fed && x.cause == causeStep {
		x.cause = causeWait
	}
}

// counts reports whether samples of the trainer count. The first batch includes the time to start everything, so it is
// omitted, as in every measure of utilisation.
func (t *trainerState) counts(x *trainerSample, now time.Time) bool {
	if x.view.loader != "" {
		t.loaders[x.view.loader]++
	}
	if t.phase == 0 {
		first := x.cause == causeStep && x.view.part != partImport || now.Sub(t.since) > 5*time.Second
		if !first {
			return false
		}
		t.phase = 1
	}
	return true
}

// countTrainer counts a sample of a trainer, in total and for its rank.
func (c *collector) countTrainer(x *trainerSample) {
	p, v, t := x.p, x.view, x.p.trainer
	switch {
	case v.part == partManage:
		// Find the workers that it starts immediately.
		t.fresh, c.lost = true, true
	case x.cause == causeStep:
		t.fresh = false
	}
	c.noteTrainerNative(p, x.tid, x.cause, ownKey{loop: v.loop, body: v.body})
	if x.block == blockFault {
		c.noteFault(p)
	}
	b := &c.bin
	if t.asked = t.asked || x.cause != causeStep; !t.asked {
		b.opening++
	}
	together := x.cause == causeStep && v.collective != "" && (x.block == blockLock || x.block == blockNetwork || x.block == blockLocal || x.block == blockPipe)
	if together {
		c.collectives[v.collective]++
	}
	own := x.cause == causeStep && v.known && v.loop.fn != ""
	// The reason of this wait is decided once the purpose of the line is known.
	waits := own && !v.steps && !together && waitsForOthers(x.block)
	if waits {
		p.mayWait = x.at()
	}
	x.count(&b.trainerCounts, own, waits)
	c.ofRank(p.pid, func(r *rankCounts) {
		x.count(&r.trainerCounts, own, waits)
		if together {
			r.together++
		}
	})
	c.samples++
	if v.known && x.cause != causeStep && x.cause != causeWait {
		b.trainerParts[v.part]++
		c.noteWhere(x.cause, x.moment)
	}
}

// at returns the line of the training loop.
func (x *trainerSample) at() ownKey { return ownKey{x.view.loop, x.view.body, x.view.leaf} }

// count adds the sample to the counts of a span of time. With own, the thread is in a step of the training loop.
// With waits, it waits there for others.
func (x *trainerSample) count(t *trainerCounts, own, waits bool) {
	v := x.view
	t.trainer[x.cause]++
	if x.block == blockNone {
		t.trainerRan[x.cause]++
	}
	if x.p.trainer.fresh && (x.cause == causeWait || v.part == partManage) {
		t.restart++
	}
	if x.cause == causeHandoff && (v.part == partPrepare || v.part == partRelease) {
		t.ready++
	}
	if x.cause == causeStorage && v.known && v.loop.fn != "" && x.block == blockFault {
		t.own.put(x.at(), ownStat{faults: 1})
	}
	switch {
	case waits:
		t.own.put(x.at(), ownStat{all: 1, waited: 1})
	case own:
		t.own.note(x.at(), v.steps || x.block == blockDevice, x.block == blockSleep, x.block == blockNone)
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
