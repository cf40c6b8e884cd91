package doctor

// An accelerator's first step is unlike all others. Kernels are compiled and tuned, libraries are loaded and memory is
// allocated, for seconds without computation. Counting them as steps would hide the waits of later steps.

const (
	// idleDevice is the highest utilization of an accelerator during that time. busyDevice is the lowest that must be
	// reached in some later second.
	idleDevice, busyDevice = 0.15, 0.3
	// deviceMemory is the share of an accelerator's memory that a job has taken at least when
	// it computes there.
	deviceMemory = 0.002
	// mostWarmUp is for how many seconds more a job is watched for that.
	mostWarmUp = 30
	// fewLeft is the minimum number of remaining seconds without the first step.
	fewLeft = 2
)

// device returns the utilization of the busiest accelerator, 0..1.
func (b *bin) device() float64 {
	most := 0.0
	for _, x := range b.gpus {
		most = max(most, x)
	}
	return most / max(b.dt, 1e-9)
}

// warmUp returns the seconds of the first step in a timeline. They begin with the first one that counts and last while
// a trainer is in its step and no accelerator is busy.
func (l *timeline) warmUp() (from, to int) {
	for from < len(l.bins) && l.bins[from].training == 0 {
		from++
	}
	for to = from; to < len(l.bins); to++ {
		b := &l.bins[to]
		if len(b.gpus) == 0 || b.device() >= idleDevice || b.trainer[causeStep] < 0.5*b.trainer.total() || b.training == 0 {
			// The first step may end within this second.
			if to > from && b.opening > 0 && b.opening < b.trainer.total() {
				to++
			}
			break
		}
	}
	return from, to
}

// warmed returns a timeline in which the first step does not count, if it was one: the accelerator has computed after
// it.
func (l timeline) warmed() timeline {
	from, to := l.warmUp()
	busy, left := false, 0.0
	for i := to; i < len(l.bins); i++ {
		busy = busy || l.bins[i].device() >= busyDevice
		left += l.bins[i].dt
	}
	if from == to || !busy || left < fewLeft {
		return l
	}
	bins := append([]bin(nil), l.bins...)
	for i := from; i < to; i++ {
		b := &bins[i]
		*b = bin{t: b.t, dt: b.dt, v: b.v, gpus: b.gpus}
	}
	l.bins = bins
	return l
}

// warming returns how many seconds a first step has taken so far, for a job that has allocated memory on an
// accelerator.
func (l *timeline) warming() float64 {
	from, to := l.warmUp()
	taken := func(b *bin) float64 { return b.v[gGPUMemory] / max(b.dt, 1e-9) }
	if from == to || taken(&l.bins[to-1]) < taken(&l.bins[0])+deviceMemory {
		return 0
	}
	seconds := 0.0
	for i := from; i < to; i++ {
		seconds += l.bins[i].dt
	}
	return min(seconds, mostWarmUp)
}
