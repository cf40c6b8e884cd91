package doctor

import (
	"maps"
	"slices"
)

// settle gives a timeline in which what makes batches ready counts as hand-off.
func (c *collector) settle(l timeline) timeline {
	var all ownCounts
	for i := range l.bins {
		all.add(l.bins[i].own)
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
	c.made = map[ownKey]bool{}
	for k := range made {
		c.made[ownKey{loop: k.loop, body: k.body}] = true
	}
	if len(found) == 0 && len(made) == 0 {
		return l
	}
	kernel, run := 0.0, 0.0
	for i := range l.bins {
		kernel += l.bins[i].v[mKernel]
		run += l.bins[i].v[mRun]
	}
	kernel = min(1, kernel/max(run, 1e-9))
	l.bins = slices.Clone(l.bins)
	for i := range l.bins {
		b := &l.bins[i]
		b.ranks = maps.Clone(b.ranks)
		for k, x := range b.own {
			to := settlement(k, x, made, found, kernel)
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
				r.move(settlement(k, x, made, found, kernel))
			}
			b.ranks[pid] = r
		}
	}
	return l
}

// moved is how many samples of the step are something else: making a batch, waiting
// for that, making it ready.
type moved struct{ made, read, late, ready, waited float64 }

// What runs in the kernel where pages of a mapped file are waited for as well
// brings those pages: kernel is the share of the job's CPU time that it has.
func settlement(k ownKey, x ownStat, made, found map[ownKey]bool, kernel float64) moved {
	switch {
	case made[k]:
		m := moved{made: x.ran, late: x.slept, waited: x.waited}
		if x.faults >= 0.2*x.ran {
			m.read = kernel * m.made
			m.made -= m.read
		}
		return m
	case found[k]:
		return moved{ready: x.ran}
	}
	return moved{}
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
