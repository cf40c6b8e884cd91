package doctor

import (
	"maps"
	"slices"
)

// settle gives a timeline in which what makes batches ready counts as hand-off.
func (c *collector) settle(l timeline) timeline {
	all := ownCounts{}
	for i := range l.bins {
		for k, x := range l.bins[i].own { // each of them, so that what is found of a place is found again
			all[k] = all[k].plus(x)
		}
	}
	for k, x := range all {
		if c.inFramework(ownKey{loop: k.loop, body: k.body}) {
			x.step = x.all // whatever calls it
			all[k] = x
		}
	}
	copies := slices.ContainsFunc(l.bins, func(b bin) bool { return len(b.gpus) > 0 })
	made := all.making(c.sourceLine)
	found := all.preparing(c.sourceLine, copies)
	c.shown = all.shown(c.sourceLine)
	c.made = map[ownKey]bool{}
	for k := range made {
		c.made[ownKey{loop: k.loop, body: k.body}] = true
	}
	if len(found) == 0 && len(made) == 0 {
		return l
	}
	work := l.sum(func(b *bin) bool { return b.training > 0 }) // without what its imports compute
	kernel := min(1, work.v[mKernel]/max(work.v[mRun], 1e-9))
	brings := all.mapping()
	l.bins = slices.Clone(l.bins)
	for i := range l.bins {
		b := &l.bins[i]
		b.ranks = maps.Clone(b.ranks)
		for k, x := range b.own {
			to := settlement(k, x, made, found, brings, kernel)
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
				r.move(settlement(k, x, made, found, brings, kernel))
			}
			b.ranks[pid] = r
		}
	}
	return l
}

// fewFaults is how often a line must have been seen to wait for a page. The share of that in
// its time says little: most of it is the kernel's work for them, and waiting for a core.
const fewFaults = 3

// mapping are the lines, whatever they call, that wait for pages of a mapped file.
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

// moved is how many samples of the step are something else: making a batch, waiting
// for that, making it ready.
type moved struct{ made, read, late, ready, waited float64 }

// What runs in the kernel where pages of a mapped file are waited for as well
// brings those pages: kernel is the share of the job's CPU time that it has.
func settlement(k ownKey, x ownStat, made, found, mapping map[ownKey]bool, kernel float64) moved {
	m := moved{}
	brings := mapping[ownKey{loop: k.loop, body: k.body}]
	switch {
	case made[k]:
		m = moved{made: x.ran, late: x.slept, waited: x.waited}
	case found[k] && brings:
		// Whatever it uses of what came before, an index or a batch of them: the bytes of
		// the batch come from a file here, so that this is where it is made.
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

// move counts samples as what they are.
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
