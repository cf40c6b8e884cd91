package doctor

// unknownCheck is for a trainer that waits for something that was not seen.
type unknownCheck struct{}

func (unknownCheck) about() about {
	return about{name: "unknown", verdict: Unknown, short: "unknown"}
}

func (unknownCheck) gain(*findings) float64 { return 1 }

func (unknownCheck) evidence(f *findings) {
	f.say("none of what was seen at work explains the waiting")
}

func (unknownCheck) advise(f *findings) {
	f.add(0, "watch longer, from the job's own user, with its Python frames readable",
		stoker("doctor", "--seconds", "60", "--", "python", "train.py"),
		"the trainer waits %.0f%% of its time for threads or programs that could not be seen at work", 100*f.r.Waiting)
}
