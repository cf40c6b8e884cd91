package doctor

// forksCheck reports jobs that start processes all the time.
type forksCheck struct{ remedy }

func (forksCheck) about() about { return about{name: "forks"} }

// manyForks is the number of new processes per second that is reported.
const manyForks = 5

func (forksCheck) evidence(f *findings) {
	if f.c.tree == nil || f.r.Seconds < 2 {
		return
	}
	if rate := float64(f.c.tree.started) / f.r.Seconds; rate >= manyForks {
		f.say("the job starts %.0f processes a second, not counting those that end within one; each costs milliseconds of the kernel's time", rate)
	}
}

func (forksCheck) advise(*findings) {}
