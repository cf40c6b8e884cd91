package doctor

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
)

// Ranks that train together run at the pace of the slowest. The slowest rank's limit is the job's limit. The others
// wait for it in a collective, which looks like a step.

// collectiveOf returns the function in which a rank exchanges data with others.
func collectiveOf(frames []pystack.Frame) string {
	for i := range frames {
		f := &frames[i]
		switch {
		case strings.Contains(f.File, "/torch/distributed/") && !strings.HasPrefix(f.Func, "_") && f.Func != "wrapper":
			return f.Func
		case strings.HasSuffix(f.File, "/torch/autograd/graph.py"), strings.HasSuffix(f.File, "/torch/autograd/__init__.py"):
			return "backward"
		case strings.Contains(f.File, "/horovod/"), strings.Contains(f.File, "/mpi4py/"):
			return f.Func
		}
	}
	return ""
}

// slowRank is the rank that the others wait for.
type slowRank struct {
	pid     int
	others  float64 // share of their time in which the others wait for it
	loading float64 // share of its time that it loads or waits for data
}

const (
	// slowerBy is the minimum difference in time lost on data between the slow rank and the others.
	slowerBy = 0.1
	// rankSamples is the minimum number of samples of each rank.
	rankSamples = 30
)

// slowest returns the rank that the others wait for; nil if no rank stands out.
func (b *bin) slowest() *slowRank {
	var slow slowRank
	sum, n := 0.0, 0.0
	loads := map[int]float64{}
	for pid, r := range b.ranks {
		total := r.trainer.total()
		if total == 0 {
			continue // it has not begun
		}
		if total < rankSamples {
			return nil
		}
		loads[pid] = 1 - (r.trainer[causeStep]+r.trainer[causeOther]+r.trainer[causeIdle])/total
		if slow.pid == 0 || loads[pid] > slow.loading || loads[pid] == slow.loading && pid < slow.pid {
			slow.pid, slow.loading = pid, loads[pid]
		}
	}
	if len(loads) < 2 {
		return nil
	}
	for pid, load := range loads {
		if pid != slow.pid {
			sum += load
			r := b.ranks[pid]
			slow.others += r.together / r.trainer.total()
			n++
		}
	}
	slow.others /= n
	if slow.loading-sum/n < slowerBy || slow.others < slowerBy/2 {
		return nil
	}
	return &slow
}

// ranksCheck reports the slow rank and where the others wait for it.
type ranksCheck struct{ remedy }

func (ranksCheck) about() about { return about{name: "ranks"} }

func (ranksCheck) evidence(f *findings) {
	slow := f.s.slow
	if slow == nil {
		return
	}
	f.say("%s is the slow one: it loses %.0f%% of its time on data; the others wait for it%s %.0f%% of theirs",
		f.c.rankName(slow.pid), 100*slow.loading, f.c.inCollective(), 100*slow.others)
}

func (ranksCheck) advise(*findings) {}

// inCollective returns the functions in which ranks wait for each other.
func (c *collector) inCollective() string {
	names := sortedKeys(c.collectives)
	if len(names) == 0 {
		return ""
	}
	best := slices.MaxFunc(names, func(a, b string) int { return c.collectives[a] - c.collectives[b] })
	return " in " + best
}

// rankName returns the name of a rank, with the number from its launcher.
func (c *collector) rankName(pid int) string {
	if name, ok := c.rankNames[pid]; ok {
		return name
	}
	name := fmt.Sprintf("process %d", pid)
	if env, err := c.fs.Process(nil, pid, "environ"); err == nil {
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if rank, ok := bytes.CutPrefix(v, []byte("RANK=")); ok {
				if n, err := strconv.Atoi(string(rank)); err == nil {
					name = fmt.Sprintf("rank %d (process %d)", n, pid)
				}
			}
		}
	}
	if c.rankNames == nil {
		c.rankNames = map[int]string{}
	}
	c.rankNames[pid] = name
	return name
}
