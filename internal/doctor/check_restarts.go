package doctor

import "fmt"

// restartsCheck says so where workers are started anew every epoch.
type restartsCheck struct{ remedy }

func (restartsCheck) about() about { return about{name: "restarts"} }

func (restartsCheck) advise(f *findings) {
	if !f.r.Loader.Restarted || !f.starved() {
		return
	}
	f.add(0, "keep the workers alive between epochs", dataLoader(option("persistent_workers", true)),
		"workers were started again %s while watching; each start takes the time of an import", often(f.c.workersEver/max(1, f.r.Loader.Workers)-1))
}

// often says how many times something was done, at least once.
func often(n int) string {
	if n <= 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
