package doctor

import "strconv"

// interpreterCheck reports threads of the trainer that compete for the interpreter's lock.
type interpreterCheck struct{ remedy }

func (interpreterCheck) about() about { return about{name: "interpreter"} }

// holdsBack reports whether the lock delays the threads.
func (interpreterCheck) holdsBack(f *findings) bool {
	return f.s.threads && f.r.Verdict == CPU && f.s.locked > 0.15
}

func (c interpreterCheck) evidence(f *findings) {
	if c.holdsBack(f) {
		f.say("batches are made by threads of the trainer, which wait %.0f%% of that time for the interpreter's lock (GIL)", 100*f.s.locked)
	}
}

func (c interpreterCheck) advise(f *findings) {
	if !c.holdsBack(f) {
		return
	}
	s := f.s
	work := s.lanes * s.use[causeCPU] * (1 - s.locked) // cores that the threads have together
	n := max(1, int(s.cores))
	gain := 1 / min(1, max(s.step+s.other, work/max(1, s.cores-s.outside), minTime))
	// If other programs use the cores, the gain is small now.
	f.add(max(1, gain), "make the batches in "+processes(n)+" instead of threads", other("ProcessPoolExecutor(max_workers="+strconv.Itoa(n)+")   # or the workers of a DataLoader"),
		"only one thread at a time runs Python code (GIL); they have %.2f of %.3g cores together", min(work, s.tree), s.cores)
}
