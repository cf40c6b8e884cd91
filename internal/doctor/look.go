package doctor

import (
	"math"
	"slices"
	"time"
)

// tick samples the threads that matter, once.
func (c *collector) tick(now time.Time) {
	c.hot = 0
	for _, p := range c.tree.members {
		p.sampled, p.cause, p.stalled, p.mayWait = false, causeIdle, false, ownKey{}
		clear(p.frames)
		if p.role == roleTrainer {
			c.sampleFrames(p, now)
		}
	}
	looked := c.someWorkers()
	for _, p := range looked {
		c.sampleFrames(p, now)
	}
	trainers, workers := c.sampleMembers(looked)
	counting, waits := false, false
	for _, p := range trainers {
		c.sampleTrainer(p, now)
		if p.counts() {
			counting = true
			waits = waits || p.stalled
		}
	}
	if !counting {
		return
	}
	if c.training.IsZero() {
		c.training = now
	}
	c.bin.training++
	c.countAtOnce(len(workers))
	if waits {
		countStall(&c.bin.stalled, workers)
	}
	// A trainer that was found later may have made the others start over.
	trainers = slices.DeleteFunc(trainers, func(p *process) bool { return !p.counts() })
	c.countRanks(trainers, workers)
	c.countLanes(workers)
	if len(workers) == 0 {
		c.countThreads(trainers)
	}
}

// counts reports whether samples of a trainer count.
func (p *process) counts() bool { return p.trainer != nil && p.trainer.phase > 0 }

// sampleMembers samples helpers and workers, and returns the trainers and the workers. Leaves of the tree come first,
// because the work of a helper explains the wait of its parent.
func (c *collector) sampleMembers(looked []*process) (trainers, workers []*process) {
	order := make([]*process, 0, len(c.tree.members))
	for _, p := range c.tree.members {
		order = append(order, p)
	}
	depth := func(p *process) int {
		d := 0
		for q := c.tree.members[p.ppid]; q != nil && d < 64; q = c.tree.members[q.ppid] {
			d++
		}
		return d
	}
	slices.SortFunc(order, func(a, b *process) int {
		if d := depth(b) - depth(a); d != 0 {
			return d
		}
		return a.pid - b.pid
	})
	for _, p := range order {
		switch p.role {
		case roleHelper:
			p.cause = c.sideCause(p, 0)
		case roleWorker:
			if slices.Contains(looked, p) {
				c.sampleWorker(p)
			}
			workers = append(workers, p)
		case roleTrainer:
			trainers = append(trainers, p)
		}
	}
	return trainers, workers
}

// countAtOnce counts how many workers there are at a time.
func (c *collector) countAtOnce(workers int) {
	n := int(math.Round(c.weight * float64(workers)))
	if n <= 0 {
		return
	}
	if c.atOnce == nil {
		c.atOnce = map[int]int{}
	}
	c.atOnce[n]++
}

// countRanks counts the sample for the rank of each trainer.
func (c *collector) countRanks(trainers, workers []*process) {
	for _, p := range trainers {
		c.ofRank(p.pid, func(r *rankCounts) {
			r.training++
			own := c.tree.workersOf(p.pid, workers)
			if p.stalled {
				countStall(&r.stalled, own)
			}
			for _, w := range own {
				if w.sampled {
					r.lanes[w.cause] += max(1, c.weight)
				}
			}
		})
	}
}

// countLanes counts what the workers do.
func (c *collector) countLanes(workers []*process) {
	for _, p := range workers {
		if !p.sampled {
			continue
		}
		c.countLane(p.cause)
		if v := p.frames[p.pid]; v.known && p.cause != causeIdle {
			c.bin.laneParts[v.part]++
			c.noteWhere(p.cause, moment{view: v, block: p.block})
		}
	}
}

// countThreads counts the work of loaders with threads. Python threads are judged by their frames, others by their
// activity while the trainer waits for them.
func (c *collector) countThreads(trainers []*process) {
	for _, p := range trainers {
		if c.sampleThreads(p) {
			continue
		}
		switch cause := causeIdle; {
		case p.stalled:
			if cause = c.sideCause(p, p.pid); cause != causeIdle {
				c.countLane(cause)
				c.bin.stalled[cause]++
			}
		case p.mayWait.loop.fn != "":
			if cause = c.sideCause(p, p.pid); cause != causeIdle {
				var x ownStat
				x.side[cause] = 1
				c.bin.own.put(p.mayWait, x)
			}
		}
	}
}

// maxWorkers limits the number of workers that are sampled in a tick. With more workers, they take turns and each
// represents several.
const maxWorkers = 32

// someWorkers returns the workers that are sampled in this tick.
func (c *collector) someWorkers() []*process {
	var all []*process
	for _, p := range c.tree.members {
		if p.role == roleWorker {
			all = append(all, p)
		}
	}
	c.weight = 1
	if len(all) <= maxWorkers {
		return all
	}
	slices.SortFunc(all, func(a, b *process) int { return a.pid - b.pid })
	c.weight = float64(len(all)) / maxWorkers
	out := make([]*process, 0, maxWorkers)
	for i := range maxWorkers {
		out = append(out, all[(c.turn+i)%len(all)])
	}
	c.turn = (c.turn + maxWorkers) % len(all)
	return out
}

// tickTrainers samples only the main threads of the trainers.
func (c *collector) tickTrainers(now time.Time) {
	for _, p := range c.tree.members {
		if p.role == roleTrainer && p.trainer != nil && p.trainer.phase > 0 {
			clear(p.frames)
			c.sampleFrames(p, now)
			c.sampleTrainer(p, now)
		}
	}
}
