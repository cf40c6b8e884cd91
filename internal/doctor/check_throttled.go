package doctor

// throttledCheck says why an accelerator is slowed down.
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
	f.add(0, "see why the accelerator is slowed down: "+reason, other("nvidia-smi -q -d PERFORMANCE"),
		"%.0f%% of the time its driver held the clock down", 100*f.sum.v[mThrottleGPU]/f.sum.dt)
}
