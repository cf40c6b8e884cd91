// Package steptime describes the performance of a training loop: its speed, its waits for batches, what limited it, the
// parts of a step, and a trace of the steps. Its input comes from a program that is watched from outside (`stoker bench
// -- COMMAND`, `stoker profile -- COMMAND`). Or it comes from a program that has timed its own loop (stoker.bench and
// stoker.profile in Python).
package steptime

import "github.com/stokerdata/stoker/plan"

// Thresholds of Limit. They describe the limit of a run, not the capacity of a machine. The rules of `stoker doctor`
// were tested on injected bottlenecks.
const (
	// FedAU is the share of time spent on computing from which the data path keeps up.
	FedAU = 0.97
	// BusyCPU: with this share of the usable CPU time used, more cores would help.
	BusyCPU = 0.85
)

// Limit returns what limited a loop. The parameter au is the fraction of time in which the loop did not wait, and known
// is false if it cannot be measured. The parameter used is the used fraction of the CPU time. The result is empty if
// the limit is unclear.
func Limit(au float64, known bool, used float64) string {
	switch {
	case known && au >= FedAU:
		return plan.LimitAccelerator
	case used >= BusyCPU:
		return plan.LimitCPU
	}
	return ""
}

// Waited is the share of the steps that waited for their batch, longer than a
// hundredth of a step and 0.1 ms. Times are in seconds, step is the mean.
func Waited(waits []float64, step float64) float64 {
	if len(waits) == 0 {
		return 0
	}
	n := 0
	for _, w := range waits {
		if w > max(step/100, 100e-6) {
			n++
		}
	}
	return float64(n) / float64(len(waits))
}

// EngineStage is one stage of the engine.
type EngineStage struct {
	Name string `json:"name"`
	// PerRecord is the nanoseconds that the stage's workers spent on a record,
	// by the clock, Seconds their sum.
	PerRecord float64 `json:"ns_per_record"`
	Seconds   float64 `json:"seconds"`
	// Busy is the share of its workers' time in which they worked.
	Busy    float64 `json:"busy"`
	Workers int     `json:"workers"`
}
