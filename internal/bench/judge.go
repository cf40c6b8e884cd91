package bench

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/steptime"
	"github.com/stokerdata/stoker/plan"
)

// The possible limits of a run.
const (
	LimitAccelerator = plan.LimitAccelerator
	LimitCPU         = plan.LimitCPU
	LimitStorage     = plan.LimitStorage
	LimitHandoff     = plan.LimitHandoff
)

// busyReaders is the share of the readers' time spent reading from which the storage counts as their limit, if they
// read from storage at all.
const busyReaders = 0.5

// judge sets the limit of the run.
func (r *Result) judge() {
	if r.Seconds <= 0 || r.Steps == 0 {
		return
	}
	available := float64(r.Cores) * r.Seconds
	spun := 0.0
	if r.Spin {
		spun = float64(r.Steps) * r.Step
	}
	used := (r.CPUEngine + r.CPUTrainer) / max(available-spun, 0.1*available)
	others := r.CPUOthers / available
	if others >= 0.05 {
		r.Notes = append(r.Notes, fmt.Sprintf("other programs used %.0f%% of these cores meanwhile: the figures, and predictions from them, are of a busy machine", 100*others))
	}
	var readers float64
	for _, s := range r.Stages {
		if s.Name == "read" {
			readers = s.Busy
		}
	}
	fromDisk := 0.0
	if r.LogicalBytes > 0 {
		fromDisk = float64(r.BlockBytes) / float64(r.LogicalBytes)
	}
	switch r.Limit = steptime.Limit(r.AU, r.Step > 0, used); {
	case r.Limit == LimitAccelerator:
		r.Why = fmt.Sprintf("the accelerator computes %.1f%% of the time: the data path keeps up", 100*r.AU)
	case r.Limit == LimitCPU:
		r.Why = fmt.Sprintf("%.0f%% of the CPU time that the data path may use is used", 100*min(used, 1))
	case others >= 0.05 && used+others >= steptime.BusyCPU:
		r.Limit = LimitCPU
		r.Why = fmt.Sprintf("no CPU time is left: the data path uses %.0f%% of it and other programs %.0f%%", 100*used, 100*others)
	case fromDisk >= 0.05 && readers >= busyReaders:
		r.Limit = LimitStorage
		r.Why = fmt.Sprintf("readers wait for storage %.0f%% of their time; %.0f%% of the bytes come from it, at %.0f MB/s",
			100*min(readers, 1), 100*min(fromDisk, 1), float64(r.BlockBytes)/r.Seconds/1e6)
	case r.Threads < r.Cores && r.stageBusy("decode", "transform", "collate") >= steptime.BusyCPU:
		r.Limit = LimitCPU
		r.Why = fmt.Sprintf("the %d decode workers are busy all the time and the machine has %d cores: more workers would help", r.Threads, r.Cores)
	default:
		r.Limit = LimitHandoff
		r.Why = fmt.Sprintf("neither cores (%.0f%% used) nor storage (readers busy %.0f%%) are at their limit: the way from batch to batch is", 100*min(used, 1), 100*min(readers, 1))
	}
}

// stageBusy adds up the busy shares of stages that share their workers.
func (r *Result) stageBusy(names ...string) float64 {
	sum := 0.0
	for _, s := range r.Stages {
		for _, name := range names {
			if s.Name == name {
				sum += s.Busy
			}
		}
	}
	return sum
}
