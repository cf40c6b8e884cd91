package doctor

import (
	"math"
)

// loader determines the loader of the job.
func (c *collector) loader(s *shares) Loader {
	votes := map[string]int{}
	out := Loader{Kind: "unknown", Recognised: "none"}
	for _, p := range c.tree.members {
		if p.trainer == nil {
			continue
		}
		out.Trainers++
		for kind, n := range p.trainer.loaders {
			votes[kind] += n
		}
		if p.pinSeen {
			out.PinMemory = true
		}
		if p.workerSeen && c.torchWorkers(p) && votes["torch"] == 0 {
			votes["torch"]++
			out.Recognised = "threads"
		}
	}
	for kind, n := range c.votes {
		if votes[kind] == 0 {
			votes[kind] = n
		}
	}
	// A library that runs in torch's workers.
	lanes := 0
	for _, n := range c.laneLoaders {
		lanes += n
	}
	for kind, n := range c.laneLoaders {
		if kind != "torch" && n*20 > lanes {
			votes[kind] += 1000 + n
		}
	}
	// The recogniser starts an engine for a moment, in a job that has none.
	if (c.engine.socketsLooked || len(c.engines) > 0) && (c.notes.main == nil || c.notes.main.Engine == nil || s.engine != nil) {
		votes["stoker"] += 10
	}
	most := 0
	for _, kind := range sortedKeys(votes) {
		if votes[kind] > most {
			out.Kind, most = kind, votes[kind]
		}
	}
	out.Trainers = max(out.Trainers, len(c.trainers))
	out.PinMemory = out.PinMemory || c.pinned
	out.Workers = c.workers(s, &out)
	if s.threads {
		out.Recognised = "threads"
	}
	all := max(1, out.Workers)
	if s.slow != nil {
		all *= out.Trainers // the figures are those of one rank
	}
	out.Restarted = c.workersEver > all*3/2 && out.Workers > 0
	if most > 0 && out.Recognised == "none" {
		out.Recognised = "frames"
		if c.framesOK == 0 {
			out.Recognised = "processes"
		}
	}
	if out.Kind == "unknown" && s.exact {
		out.Recognised = "step log"
	}
	return out
}

// workers returns the number of workers that make batches: that of the loader's note, otherwise the most frequent
// number of live workers. A mean would include the time between epochs without workers.
func (c *collector) workers(s *shares, l *Loader) int {
	note := c.notes.main
	switch {
	case s.threads:
		return int(math.Round(s.lanes))
	case c.workersEver == 0:
		return 0
	case note != nil && note.Workers > 0 && torchBased(l.Kind) && s.slow == nil:
		return note.Workers * max(1, l.Trainers)
	case note != nil && note.Workers > 0 && torchBased(l.Kind):
		return note.Workers
	case s.slow != nil:
		return max(1, int(math.Round(s.lanes)))
	}
	n, looks := 0, 0
	for _, k := range sortedKeys(c.atOnce) {
		if c.atOnce[k] >= looks {
			n, looks = k, c.atOnce[k]
		}
	}
	return n
}

func (c *collector) torchWorkers(p *process) bool {
	for _, q := range c.tree.members {
		if q.comm == "pt_data_worker" && c.tree.starter(q) == p {
			return true
		}
	}
	return false
}
