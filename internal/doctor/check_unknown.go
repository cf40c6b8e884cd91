package doctor

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/units"
)

// unknownCheck applies to a trainer that waits for an unknown resource.
type unknownCheck struct{}

func (unknownCheck) about() about {
	return about{name: "unknown", verdict: Unknown, short: "unknown"}
}

func (unknownCheck) gain(*findings) float64 { return 1 }

func (unknownCheck) evidence(f *findings) {
	if !tooShort(f.r, f.s) {
		f.say("none of what was seen at work explains the waiting")
	}
}

// unseen returns the reason why there is no verdict.
func (f *findings) unseen() string {
	c, r := f.c, f.r
	switch {
	case c.denied:
		return fmt.Sprintf("process %d belongs to another user or protects itself, so that neither what it waits for nor its frames can be read; run doctor as its user or as root", c.opt.PID)
	case c.otherPython != "" && c.framesOK == 0:
		return c.otherPython + "; what is the step and what is loading cannot be told" + c.busiest()
	case r.Loader.Trainers == 0 && !c.sawPython:
		return "no Python runs in this job, and only of Python it can be told what is the step and what is loading" + c.busiest()
	case r.Loader.Trainers == 0:
		return "no training loop or data loader was seen at work in this process or its children" + c.busiest()
	case c.framesOK == 0 && r.Waiting <= mostWaiting:
		return "the trainer runs or sleeps, and without its Python frames the step looks like loading"
	}
	return fmt.Sprintf("the trainer waits for data %s of the time, and what for could not be seen", units.Whole(r.Waiting+f.s.other))
}

// busiest returns the main consumer of CPU time in a job without training.
func (c *collector) busiest() string {
	var best *process
	for _, p := range c.tree.members {
		if best == nil || p.guessCPU > best.guessCPU || p.guessCPU == best.guessCPU && p.pid < best.pid {
			best = p
		}
	}
	passed := c.lastSlow.Sub(c.start).Seconds()
	if best == nil || passed < 1 || best.guessCPU < 0.01*passed {
		return ""
	}
	return fmt.Sprintf("; its busiest process is %s (%d), with %.2f cores", printable(best.comm), best.pid, best.guessCPU/passed)
}

func (unknownCheck) advise(f *findings) {
	f.add(0, "watch longer, from the job's own user, with its Python frames readable",
		stoker("doctor", "--seconds", "60", "--", "python", "train.py"),
		"the trainer waits %.0f%% of its time for threads or programs that could not be seen at work", 100*f.r.Waiting)
}
