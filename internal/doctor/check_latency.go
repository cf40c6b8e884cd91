package doctor

// latencyCheck detects late answers: sleeps, timers, locks, started commands. No resource is busy meanwhile, so more of
// them can run concurrently, unless a lock lets only one run at a time.
type latencyCheck struct{ resource }

func (latencyCheck) about() about {
	return about{
		name: "latency", verdict: Latency, cause: causeLatency, short: "latency-bound", removed: "waiting for late answers",
		doing: "asleep or locked",
	}
}

func (c latencyCheck) gain(f *findings) float64 { return c.gainOf(f, Latency) }

func (latencyCheck) evidence(f *findings) {
	if w := f.c.topSleep(); w != "" {
		f.say("%s", w)
	}
	if lock, n := f.c.locked(); n > 0.5 {
		f.say("only one at a time gets through: %s is held by another worker", lock)
	}
}

func (latencyCheck) advise(f *findings) {
	where := f.c.topSleep()
	if where != "" {
		where = "; " + where
	}
	if lock, n := f.c.locked(); n > 0.5 {
		f.add(f.r.Gains[Latency], "do without the lock, or hold it for less: "+lock, other("h5py.File(path, \"r\", locking=False)   # or a handle of its own for each worker"),
			"%.0f%% of what making a batch takes is waiting for it, and more workers would wait too%s", 100*f.s.cost(causeLatency), where)
		return
	}
	f.add(f.r.Gains[Latency], "ask for many examples in one request, or cache the answers", other("list(ThreadPoolExecutor(16).map(fetch, keys))   # 16 requests at a time"),
		"%.0f%% of what making a batch takes is waiting for something that answers late%s", 100*f.s.cost(causeLatency), where)
}
