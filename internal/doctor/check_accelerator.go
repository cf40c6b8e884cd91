package doctor

import (
	"fmt"
	"math"
)

// acceleratorCheck detects a limit by the training step: the data path has reserves.
type acceleratorCheck struct{}

func (acceleratorCheck) about() about {
	return about{name: "accelerator", verdict: Accelerator, short: "accelerator-bound"}
}

func (acceleratorCheck) gain(f *findings) float64 { return 1 / f.s.timeWithout(Accelerator) }

func (acceleratorCheck) evidence(*findings) {}

func (acceleratorCheck) advise(f *findings) {
	r, s := f.r, f.s
	f.add(r.Gains[Accelerator], "make the step faster: that is all that helps now", stoker(append([]string{"profile", "--"}, f.command()...)...),
		"the trainer waits for data %.0f%% of its time; the loader has room for a step %s as fast; the profile has forward, backward and optimiser apart; "+
			"mixed precision, torch.compile and a larger batch are the usual steps", 100*r.Waiting, times(r.Gains[Accelerator]))
	if r.Loader.Workers > 2 && s.busy < 0.3 {
		n := max(1, int(math.Ceil(1.5*s.busy*s.lanes)))
		f.add(1, fmt.Sprintf("use fewer workers: %d will do", n), dataLoader(option("num_workers", n)),
			"%d workers are without work %.0f%% of the time; they cost memory", r.Loader.Workers, 100*(1-s.busy))
	}
}
