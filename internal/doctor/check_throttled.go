package doctor

// throttledCheck reports why an accelerator is slowed down.
type throttledCheck struct{ remedy }

func (throttledCheck) about() about { return about{name: "throttled"} }

func (throttledCheck) advise(f *findings) {
	if f.sum.dt <= 0 || f.sum.v[mThrottleGPU]/f.sum.dt <= 0.3 {
		return
	}
	reason := ""
	for _, name := range sortedKeys(f.c.throttles) {
		if reason == "" || f.c.throttles[name] > f.c.throttles[reason] {
			reason = name
		}
	}
	gain := 1.0
	if clock := f.per(gGPUClock); clock > 0 && clock < 1 {
		gain = 1 / (1 - f.s.step*(1-clock)) // the step at the highest clock
	}
	f.add(gain, "see why the accelerator is slowed down: "+reason, other("nvidia-smi -q -d PERFORMANCE"),
		"%.0f%% of the time its driver held the clock down", 100*f.sum.v[mThrottleGPU]/f.sum.dt)
}
