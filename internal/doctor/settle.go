package doctor

import (
	"maps"
	"slices"
)

// settle returns a timeline in which preparing batches counts as hand-off.
func (c *collector) settle(l timeline) timeline {
	all := ownCounts{}
	for i := range l.bins {
		for k, x := range l.bins[i].own { // each of them, so that results for a position are reused
			all[k] = all[k].plus(x)
		}
	}
	for k, x := range all {
		if c.inFramework(ownKey{loop: k.loop, body: k.body}) {
			x.step = x.all // whatever calls it
			all[k] = x
		}
	}
	idle, copies := l.deviceIdle()
	made := all.making(c.sourceLine)
	found := all.preparing(c.sourceLine, copies)
	c.shown = all.shown(c.sourceLine)
	c.made = map[ownKey]bool{}
	for k := range made {
		c.made[ownKey{loop: k.loop, body: k.body}] = true
	}
	work := l.sum(func(b *bin) bool { return b.training > 0 }) // without the computation of its imports
	// While the accelerator computes it would be waited for without copies to it as well.
	var copying map[ownKey]bool
	var share float64
	if c.copies = 0; idle > 0 {
		var ran float64
		if copying, ran = all.copying(c.sourceLine); ran > 0 {
			share = min(1, idle*work.trainer.total()/ran)
			c.copies = share * ran / work.trainer.total()
		}
	}
	if len(found) == 0 && len(made) == 0 && share == 0 {
		return l
	}
	kernel := min(1, work.v[mKernel]/max(work.v[mRun], 1e-9))
	brings := all.mapping()
	settle := func(k ownKey, x ownStat) moved {
		m := settlement(k, x, made, found, brings, kernel)
		if m == (moved{}) && copying[k] {
			m.ready = share * x.ran
		}
		return m
	}
	l.bins = slices.Clone(l.bins)
	for i := range l.bins {
		b := &l.bins[i]
		b.ranks = maps.Clone(b.ranks)
		for k, x := range b.own {
			to := settle(k, x)
			b.move(to)
			b.trainerParts[partPrepare] += to.ready
			b.trainerParts[partFetch] += to.made + to.read + to.late
			if made[k] {
				b.lanes.add(x.side)
				b.stalled.add(x.side)
			}
		}
		for pid, r := range b.ranks {
			for k, x := range r.own {
				r.move(settle(k, x))
			}
			b.ranks[pid] = r
		}
	}
	return l
}

// deviceIdle returns the share of the training in which the accelerators that the job uses were idle. It returns false
// without accelerators.
func (l *timeline) deviceIdle() (share float64, ok bool) {
	var busy []float64
	passed := 0.0
	for i := range l.bins {
		b := &l.bins[i]
		ok = ok || len(b.gpus) > 0
		if b.training == 0 {
			continue
		}
		passed += b.dt
		for g, x := range b.gpus {
			if g >= len(busy) {
				busy = append(busy, 0)
			}
			busy[g] += x
		}
	}
	used, sum := 0.0, 0.0
	for _, x := range busy {
		if x >= leastUse*passed {
			used++
			sum += x / passed
		}
	}
	if used == 0 {
		return 0, ok
	}
	return max(0, 1-sum/used), ok
}

// leastUse is the minimum utilization of an accelerator that a job uses.
const leastUse = 0.05

// copying returns the positions in which a batch is copied to an accelerator, and the number of samples there.
func (o ownCounts) copying(text func(place) string) (map[ownKey]bool, float64) {
	out, ran := map[ownKey]bool{}, 0.0
	for k, x := range o {
		if x.ran > x.step && containsAny(text(k.leaf), toDeviceTexts) {
			out[k] = true
			ran += x.ran
		}
	}
	return out, ran
}

// fewFaults is the number of samples in which a line must have waited for a page. The share of its time would say
// little: most of that time is kernel work for those pages, and waiting for a core.
const fewFaults = 3

// mapping returns the lines that wait for pages of a mapped file, in any function that they call.
func (o ownCounts) mapping() map[ownKey]bool {
	lines := map[ownKey]ownStat{}
	for k, x := range o {
		at := ownKey{loop: k.loop, body: k.body}
		lines[at] = lines[at].plus(x)
	}
	out := map[ownKey]bool{}
	for at, x := range lines {
		out[at] = x.faults >= fewFaults && x.faults >= 0.05*x.ran
	}
	return out
}

// moved counts the samples of the step that belong to something else: making a batch, waiting for that, preparing it.
type moved struct{ made, read, late, ready, waited float64 }

// settlement returns the samples of a position that do not belong to the step. If it also waits for pages of a mapped
// file, its kernel time reads those pages: kernel is the share of kernel time in the job's CPU time.
func settlement(k ownKey, x ownStat, made, found, mapping map[ownKey]bool, kernel float64) moved {
	m := moved{}
	brings := mapping[ownKey{loop: k.loop, body: k.body}]
	switch {
	case made[k]:
		m = moved{made: x.ran, late: x.slept, waited: x.waited}
	case found[k] && brings:
		// It may use earlier results such as an index. But the bytes of the batch come from a file here, so this line
		// makes the batch.
		m = moved{made: x.ran}
	case found[k]:
		m = moved{ready: x.ran}
	}
	if brings {
		m.read = kernel * m.made
		m.made -= m.read
	}
	return m
}

// move moves samples to their real cause.
func (t *trainerCounts) move(m moved) {
	t.trainer[causeStep] -= m.made + m.read + m.late + m.ready + m.waited
	t.trainer[causeWait] += m.waited
	t.trainerRan[causeStep] -= m.made + m.read + m.ready
	t.trainer[causeStorage] += m.read
	t.trainerRan[causeStorage] += m.read
	t.trainer[causeCPU] += m.made
	t.trainerRan[causeCPU] += m.made
	t.trainer[causeLatency] += m.late
	t.trainer[causeHandoff] += m.ready
	t.trainerRan[causeHandoff] += m.ready
	t.ready += m.ready
}
