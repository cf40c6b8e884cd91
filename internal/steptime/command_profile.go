package steptime

import "strings"

// Profile returns the division of the time of the command's steps; nil if no steps were seen.
func (r *CommandResult) Profile() *Profile {
	s := r.Steps
	if s == nil || s.Count == 0 {
		return nil
	}
	sum := Summary{
		Loader: strings.Join(r.Command, " "), Steps: s.Count, Examples: s.Rows, Seconds: s.StepTime.Mean * float64(s.Count), PerSecond: s.PerSecond,
		StepTime: s.StepTime, Wait: s.Wait, PerStep: s.StepTime.Mean, Waited: (1 - s.AU) * s.StepTime.Mean, WaitsSeen: s.WaitsSeen, CPU: r.CPU,
	}
	for _, part := range s.Parts {
		// Those of the hook that watches PyTorch's DataLoader.
		if part.Name == "getitem" || part.Name == "collate" {
			sum.Inside = append(sum.Inside, part)
		} else {
			sum.Parts = append(sum.Parts, part)
		}
	}
	for _, e := range r.Engine {
		sum.Engine = append(sum.Engine, Stage{Name: e.Name, Where: "engine", Seconds: e.Seconds / float64(s.Count+s.Loops), Share: e.Busy})
	}
	return sum.Profile()
}

// Trace returns a Chrome trace of a command whose records were stored.
func (r *CommandResult) Trace() *TraceFile {
	t := Tracing{Title: strings.Join(r.Command, " "), PID: 1, Records: r.Records, Names: r.Names, Marked: r.Steps != nil && r.Steps.Marked}
	return t.Trace()
}
