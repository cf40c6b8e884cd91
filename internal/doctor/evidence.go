package doctor

import (
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
)

// evidence returns the figures that support the verdict, the most telling first.
func (f *findings) evidence() []string {
	c, s := f.c, f.s
	if tooShort(f.r, s) {
		return nil
	}
	how := "samples"
	if s.exact {
		how = "step log"
	}
	serial := s.loading() - s.wait
	switch {
	case s.samples == 0:
		f.say("no process of the job may train: there are shells, launchers or programs that they start")
	case len(c.trainers) == 0:
		f.say("no data loader was seen at work: the verdict rests on what the busiest process did")
	case s.lanes == 0 && s.engine == nil && serial > s.wait:
		f.say("the trainer loads its data itself, between the steps, for %.0f%% of its time (%.0f samples)", 100*serial, s.samples)
	case serial > 0.02:
		f.say("the trainer waits %.0f%% of its time and is busy with the hand-off %.0f%% (%s)", 100*s.wait, 100*serial, how)
	default:
		f.say("the trainer waits for data %.0f%% of its time (%s)", 100*s.wait, how)
	}
	if e := s.engine; e != nil {
		f.say("the engine reads %.0f%%, decodes and transforms %.0f%%, collates %.0f%% of what its threads could", 100*e.read, 100*e.decode, 100*e.collate)
	} else if s.lanes >= 0.5 {
		f.say("%s: %s", units.Plural(max(1, f.r.Loader.Workers), s.laneName()), s.useText())
	}
	for _, x := range checks {
		if v := x.about().verdict; v == "" || v == f.r.Verdict {
			x.evidence(f)
		}
	}
	if c.line.known[gGPU] {
		f.say("accelerators are busy %.0f%% of the time", 100*f.per(gGPU))
	}
	return f.said
}

// laneName returns the word for the processes or threads that make batches.
func (s *shares) laneName() string {
	if s.threads {
		return "thread"
	}
	return "worker"
}

// useText returns the division of the workers' time.
func (s *shares) useText() string {
	var parts []string
	say := func(name string, share float64) {
		if share >= 0.02 {
			parts = append(parts, fmt.Sprintf("%s %.0f%%", name, 100*share))
		}
	}
	for _, c := range checks {
		if a := c.about(); a.cause != causeIdle {
			say(a.doing, s.use[a.cause])
		}
	}
	say("asleep or locked", s.use[causeOther])
	say("without work", s.use[causeIdle])
	return strings.Join(parts, ", ")
}
