package doctor

import "time"

// trainingState is what the trainers do.
type trainingState struct {
	training  time.Time // first sample that counted; zero before
	trainers  map[key]bool
	votes     map[string]int // samples of trainers by kind of loader, those that ended too
	lastGuess counts
	samples   int // of trainers and lanes that count
	log       stepTotals
}

// sampleTrainer says what the main thread of a process that may train is at, and
// whether it trains.
func (c *collector) sampleTrainer(p *process, now time.Time) {
	m, file, ok := c.look(p, p.pid, nil)
	if !ok {
		return
	}
	p.sampled = true
	v := m.view
	if v.known && v.duty == dutyWorker && p.trainer == nil {
		// It was taken for a trainer because its command line is its own, as
		// with spawned workers.
		p.role = roleWorker
		return
	}
	if p.trainer == nil && c.trains(p, v) {
		p.trainer = &trainerState{since: now, loaders: map[string]int{}}
		c.trainers[key{p.pid, p.start}] = true
		c.tree.retire(p)
	}
	if t := p.trainer; t != nil {
		// The statement that asks for the next batch also frees the one before,
		// which takes long for many small objects; no function tells of it.
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
	if p.trainer == nil {
		p.guess[cause]++
		return
	}
	s := p.trainer
	if v.loader != "" {
		s.loaders[v.loader]++
	}
	if s.phase == 0 {
		// The first batch takes as long as it takes to start everything: it is
		// left out, as in every measure of utilisation.
		first := cause == causeStep && v.part != partImport || now.Sub(s.since) > 5*time.Second
		if !first {
			return
		}
		s.phase = 1
	}
	p.cause, p.stalled = cause, cause == causeWait
	if !v.known && p.python != nil && m.block == blockNone {
		// Its frames changed while they were read. That it ran is known exactly from
		// its CPU time; what it ran, the other samples have to tell.
		return
	}
	b := &c.bin
	b.trainer[cause]++
	c.samples++
	if m.block == blockNone {
		b.trainerRan[cause]++
	}
	if cause == causeHandoff && (v.part == partPrepare || v.part == partRelease) {
		b.ready++
	}
	if cause == causeStep && v.known && v.loop.fn != "" {
		b.own.note(ownKey{v.loop, v.body, v.leaf}, v.steps || m.block == blockSleep || m.block == blockDevice, m.block == blockNone)
	}
	if v.known && cause != causeStep && cause != causeWait {
		b.trainerParts[v.part]++
		c.noteWhere(cause, m)
	}
}

// trains reports whether a process shows that it trains: it is in a loader, has
// workers, or keeps a step log.
func (c *collector) trains(p *process, v view) bool {
	if v.known && v.duty == dutyTrainer && v.loader != "" {
		return true
	}
	if p.workerSeen || p.pinSeen {
		return true
	}
	return c.log.has(p.pid)
}

// countStall notes what workers are at while a trainer waits for them. Where each
// of them has nothing to do, the batch is on its way.
func (c *collector) countStall(workers []*process) {
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
			c.bin.stalled[p.cause] += 1 / float64(busy)
		}
	}
	if busy == 0 && idle > 0 {
		c.bin.stalled[causeHandoff]++
	}
}

func (c *collector) countLane(cause cause) {
	c.bin.lanes[cause]++
	c.samples++
}
