package doctor

import "fmt"

// realtimeCheck reports trainers that run with a real-time priority.
type realtimeCheck struct{ remedy }

func (realtimeCheck) about() about { return about{name: "realtime"} }

// trainer is one that does, and how.
func (realtimeCheck) trainer(f *findings) (pid int, how string) {
	if f.c.tree == nil {
		return 0, ""
	}
	for _, p := range f.c.tree.members {
		if name := p.stat.Policy.RealTime(); name != "" && p.trainer != nil && (pid == 0 || p.pid < pid) {
			pid, how = p.pid, fmt.Sprintf("%s %d", name, p.stat.Rank)
		}
	}
	return pid, how
}

func (c realtimeCheck) evidence(f *findings) {
	if pid, how := c.trainer(f); pid != 0 {
		f.say("the trainer (process %d) runs as %s: whatever else needs its core waits, its workers and this program too", pid, how)
	}
}

func (c realtimeCheck) advise(f *findings) {
	pid, how := c.trainer(f)
	if pid == 0 {
		return
	}
	gain := 1.0
	if f.r.Verdict == CPU {
		gain = f.s.gainOfCores()
	}
	f.add(gain, "give the trainer an ordinary priority", other(fmt.Sprintf("chrt --other --pid 0 %d", pid)),
		"%s lets it run before the workers that it waits for, which wait for a core %.0f%% of the time that they could run", how, 100*f.s.lag)
}
