package bench

import (
	"math"
	"testing"

	"github.com/stokerdata/stoker/plan"
)

// scenarioOf finds a prediction by its kind.
func scenarioOf(t *testing.T, all []Scenario, kind scenarioKind) Scenario {
	t.Helper()
	for _, sc := range all {
		if sc.kind == kind {
			return sc
		}
	}
	t.Fatalf("no scenario %d in %+v", kind, all)
	return Scenario{}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got/want-1) > 0.02 {
		t.Errorf("%s: %.5g, want %.5g", what, got, want)
	}
}

// sampled is a machine of two hardware threads of one core on which an image
// costs 1 ms, in dct a quarter.
func sampled() *plan.Machine {
	return &plan.Machine{Cores: 2, Scaling: 0.6, Codecs: []plan.CodecRate{
		{Codec: plan.CodecKeep, CPUSeconds: 0.001, PerCore: 1000, AllCores: 1200, RecordBytes: 100e3, Scaling: 0.6, Origin: "measured"},
		{Codec: plan.CodecDCT, CPUSeconds: 0.00025, PerCore: 4000, AllCores: 4800, RecordBytes: 120e3, Scaling: 0.6, Origin: "measured"},
	}}
}

var jpegs = &Subject{Source: "x", Image: "image", Codec: plan.CodecKeep, Len: 1000}

func TestWhatIfOfTheCores(t *testing.T) {
	r := &Result{Format: "pack", Batch: 64, Accelerators: 1, Cores: 1, Threads: 1, Slots: 6, SlotBytes: 64 * 150528,
		Steps: 150, Examples: 9600, Seconds: 10, PerSecond: 960, CPUEngine: 9.7, CPUTrainer: 0.01, LogicalBytes: 9600 * 100e3, Limit: LimitCPU}
	all := WhatIf(jpegs, r, sampled(), FastDisk)
	near(t, "twice the cores", scenarioOf(t, all, moreCores).PerSecond, 960*1.2)
	near(t, "dct", scenarioOf(t, all, asDCT).PerSecond, 960*4)
	near(t, "in memory", scenarioOf(t, all, inMemory).PerSecond, 960)
	// Another program has one of the two cores all the time: it will keep it.
	r.CPUOthersAll = 10
	near(t, "twice the cores, one of them busy", scenarioOf(t, WhatIf(jpegs, r, sampled(), FastDisk), moreCores).PerSecond, 960)
	// Nothing measured: one core more counts as one.
	r.CPUOthersAll = 0
	near(t, "twice the cores, no sample", scenarioOf(t, WhatIf(jpegs, r, &plan.Machine{Cores: 2}, FastDisk), moreCores).PerSecond, 1920)
}

func TestWhatIfOfTheStorage(t *testing.T) {
	// 20 MB/s of storage, everything cold; a cold image costs 1.4 ms of CPU time.
	r := &Result{Format: "pack", Batch: 64, Accelerators: 1, Cores: 2, Threads: 2, Slots: 6, SlotBytes: 64 * 150528,
		Steps: 30, Examples: 1920, Seconds: 10, PerSecond: 192, CPUEngine: 1920 * 0.0014, CPUTrainer: 0.01,
		LogicalBytes: 1920 * 100e3, BlockBytes: 200e6, Limit: LimitStorage}
	all := WhatIf(jpegs, r, sampled(), 60e6)
	near(t, "in memory", scenarioOf(t, all, inMemory).PerSecond, 1200)
	near(t, "a disk of 60 MB/s", scenarioOf(t, all, fastDisk).PerSecond, 60e6/(200e6/1920))
	near(t, "dct, as cold", scenarioOf(t, all, asDCT).PerSecond, 192/1.2)
	// With an accelerator, no scenario is faster than its step.
	r.Step, r.PerSecond, r.AU = 0.25, 192, 192*0.25/64
	near(t, "in memory, with a step", scenarioOf(t, WhatIf(jpegs, r, sampled(), 60e6), inMemory).PerSecond, 256)
}
