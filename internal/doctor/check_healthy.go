package doctor

// healthyCheck applies if no limit is worth removing.
type healthyCheck struct{}

func (healthyCheck) about() about {
	return about{name: "healthy", verdict: Healthy, short: "healthy"}
}

func (healthyCheck) gain(*findings) float64 { return 1 }

func (healthyCheck) evidence(*findings) {}

func (healthyCheck) advise(f *findings) {
	f.add(1, "change nothing: the loader keeps up", stoker(append([]string{"doctor", "--save", "healthy.json", "--"}, f.command()...)...),
		"keep this report to compare with when something gets slow")
}
