package doctor

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/units"
)

// workersCheck recommends another number of workers if that helps.
type workersCheck struct{ remedy }

func (workersCheck) about() about { return about{name: "workers"} }

func (workersCheck) advise(f *findings) {
	r, s := f.r, f.s
	waits := r.Verdict == Storage || r.Verdict == Network || r.Verdict == Latency
	if !(r.Verdict == CPU || waits || r.Verdict == Handoff && r.Loader.Workers == 0) || !torchBased(r.Loader.Kind) {
		return
	}
	if _, locks := f.c.locked(); r.Verdict == Latency && locks > 0.5 {
		return // they would wait for the same lock
	}
	trainers := max(1, r.Loader.Trainers)
	if s.slow != nil {
		trainers = 1 // its workers are those of one rank
	}
	if s.threads && !waits {
		return // they share the interpreter, or the cores
	}
	// Waiting workers need no core of their own; computing ones do.
	most := math.Max(1, math.Floor(f.c.sys.cores))
	if waits {
		most = max(4*most, 16)
	}
	now := r.Loader.Workers
	best, time := now, s.timeWithWorkers(float64(max(1, now)))
	if now == 0 {
		time = 1
	}
	present := time
	for n := now + 1; n <= int(most); n++ {
		// One more worker must have a benefit.
		if t := s.timeWithWorkers(float64(n)); t < time*0.97 {
			best, time = n, t
		}
	}
	gain := present / time
	if best == now || gain < 1.05 {
		return
	}
	per := max(1, best/trainers)
	if s.threads {
		f.add(gain, fmt.Sprintf("use %d threads instead of %d", per, now), other(fmt.Sprintf("ThreadPoolExecutor(max_workers=%d)", per)),
			"%s wait for answers %.0f%% of the time, trainer waits %.0f%%", units.Plural(now, "thread"), 100*s.busy, 100*r.Waiting)
		return
	}
	if r.Loader.Kind == "unknown" && now > 0 {
		f.add(gain, fmt.Sprintf("make the batches in %s instead of %d", processes(per), max(1, now/trainers)), other(fmt.Sprintf("ProcessPoolExecutor(max_workers=%d)", per)),
			"%s at work %.0f%% of the time each, trainer waits %.0f%%; the machine has %.3g cores, %.2f in use",
			units.Plural(now, "process"), 100*s.busy, 100*r.Waiting, s.cores, min(s.cores, s.tree+s.outside))
		return
	}
	do := dataLoader(option("num_workers", per), option("persistent_workers", true), option("prefetch_factor", 4))
	if now == 0 && r.Loader.Kind == "unknown" {
		do = other(fmt.Sprintf("ProcessPoolExecutor(max_workers=%d)   # or the workers of a DataLoader", per))
	}
	if now == 0 {
		f.add(gain, fmt.Sprintf("load in %s during the step", processes(per)), do,
			"the trainer loads its data itself for %.0f%% of its time, with no step meanwhile", 100*r.Waiting)
		return
	}
	f.add(gain, fmt.Sprintf("use %d workers instead of %d", per, max(1, now/trainers)), do,
		"%s at work %.0f%% of the time each, trainer waits %.0f%%; the machine has %.3g cores, %.2f in use",
		units.Plural(now, "worker"), 100*s.busy, 100*r.Waiting, s.cores, min(s.cores, s.tree+s.outside))
}

// torchBased reports whether a loader of a kind runs in torch's workers.
func torchBased(kind string) bool {
	switch kind {
	case "torch", "unknown", "webdataset", "mosaic", "litdata", "datasets":
		return true
	}
	return false
}

func processes(n int) string {
	if n == 1 {
		return "1 worker process"
	}
	return fmt.Sprintf("%d worker processes", n)
}
