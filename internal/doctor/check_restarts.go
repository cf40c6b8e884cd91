package doctor

import "fmt"

// restartsCheck reports workers that are restarted every epoch.
type restartsCheck struct{}

func (restartsCheck) about() about { return about{name: "restarts"} }

// gain returns the gain if no batch waited for starting workers.
func (restartsCheck) gain(f *findings) float64 { return 1 / (1 - f.s.restart) }

func (c restartsCheck) evidence(f *findings) {
	if f.r.Loader.Restarted && f.s.restart > 0.02 {
		f.say("workers are started again for each epoch: %.0f%% of the trainer's time goes on waiting for the first batch of new ones", 100*f.s.restart)
	}
}

func (c restartsCheck) advise(f *findings) {
	if !f.r.Loader.Restarted || f.s.restart < 0.02 {
		return
	}
	f.add(c.gain(f), "keep the workers alive between epochs", dataLoader(option("persistent_workers", true)),
		"workers were started again %s while watching; the trainer waits %.0f%% of its time for new ones",
		often(f.c.workersEver/max(1, f.r.Loader.Workers)-1), 100*f.s.restart)
}

// often returns the number of repetitions as text, at least once.
func often(n int) string {
	if n <= 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
