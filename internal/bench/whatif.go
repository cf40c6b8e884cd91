package bench

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/plan"
	"github.com/stokerdata/stoker/internal/probe"
)

// Scenario is what another machine or another way to store the data would give.
type Scenario struct {
	// Name says what is changed.
	Name string `json:"name"`
	// PerSecond, AU and Limit are predicted, Gain is against the run.
	PerSecond float64 `json:"examples_per_second"`
	AU        float64 `json:"au"`
	Gain      float64 `json:"gain"`
	// Capacity is what the data path alone would deliver, without waiting for
	// the accelerator, in examples per second.
	Capacity float64 `json:"capacity"`
	Limit    string  `json:"limit"`
	// Measured is what a run of the scenario gave in examples per second, 0 when
	// it was not tried.
	Measured float64 `json:"measured,omitempty"`
	// Note says what the prediction assumes or why it was not tried.
	Note string `json:"note,omitempty"`

	kind scenarioKind
}

type scenarioKind int

const (
	moreCores scenarioKind = iota
	inMemory
	asDCT
	fastDisk
)

// What the dct codec does to JPEGs, where `stoker probe` has not measured this
// data: CPU time and bytes per image, as measured on 10,000 photographs with
// RandomResizedCrop (docs/benchmarks.md).
const (
	dctWork  = 0.233 // 2,093 to 8,981 images per second
	dctBytes = 1.18
)

// fastDiskBandwidth is the disk of the fourth scenario, in bytes per second.
const fastDiskBandwidth = 2e9

// WhatIf predicts what would change with twice the cores, with the data in
// memory, with dct, and with a disk of 2 GB/s. The costs of the stages are the
// run's own; plan.Predict puts them together.
func WhatIf(s *Subject, r *Result) []Scenario {
	if r.Examples == 0 || r.Seconds <= 0 {
		return nil
	}
	m := machineOf(s, r)
	base := pipelineOf(s, r, m)
	now := plan.Predict(base, *m)
	if now.Throughput <= 0 {
		return nil
	}
	var out []Scenario
	add := func(name string, kind scenarioKind, note string, change func(p *plan.Pipeline)) {
		p := base
		change(&p)
		x := plan.Predict(p, *m)
		sc := Scenario{Name: name, kind: kind, Gain: x.Throughput / now.Throughput, Limit: x.Limit, Note: note}
		// What the model leaves out of the run it leaves out of the scenario too.
		sc.PerSecond = r.PerSecond * sc.Gain
		if r.Step > 0 {
			most := float64(r.Batch*r.Accelerators) / r.Step
			sc.PerSecond = min(sc.PerSecond, most)
			sc.Gain = sc.PerSecond / r.PerSecond
			sc.AU = sc.PerSecond / most
		}
		p.Step, p.Spin = 0, false
		sc.Capacity = plan.Predict(p, *m).Throughput
		out = append(out, sc)
	}
	add(fmt.Sprintf("twice the cores (%d)", 2*r.Cores), moreCores, "", func(p *plan.Pipeline) {
		p.Cores *= 2
		p.Threads *= 2
	})
	note := ""
	if base.CachedShare >= 0.98 {
		note = "it is already"
	}
	add("all data in memory", inMemory, note, func(p *plan.Pipeline) { p.CachedShare = 1 })
	if s.Image != "" && (s.Codec == plan.CodecKeep || s.Codec == "mixed") {
		work, bytes := dctWork, dctBytes
		note := "by the ratio measured on photographs (docs/benchmarks.md); stoker probe measures yours"
		if w, b, ok := measuredDCT(m); ok {
			work, bytes, note = w, b, ""
		}
		add("a dct pack", asDCT, note, func(p *plan.Pipeline) {
			p.Codec, p.Layout = plan.CodecDCT, plan.LayoutPack
			p.CPUSeconds *= work
			p.RecordBytes *= bytes
		})
	}
	add("nothing in memory, a disk of 2 GB/s", fastDisk, "", func(p *plan.Pipeline) {
		p.CachedShare, p.DiskBandwidth, p.DiskIOPS = 0, fastDiskBandwidth, 0
	})
	return out
}

// machineOf is this machine as far as `stoker probe` has measured it. What the
// run itself says of the storage goes before.
func machineOf(s *Subject, r *Result) *plan.Machine {
	m := &plan.Machine{}
	if s.Path != "" {
		if probed, _, err := probe.Load(s.Path); err == nil && probed != nil {
			*m = *probed
		}
	}
	m.Store = nil
	if m.Cores <= 0 {
		m.Cores = float64(len(UsableCPUs()))
	}
	return m
}

// measuredDCT is what dct does on this data, by the machine's own measurements.
func measuredDCT(m *plan.Machine) (work, bytes float64, ok bool) {
	var keep, dct *plan.CodecRate
	for i := range m.Codecs {
		if c := &m.Codecs[i]; c.Origin == "measured" {
			switch c.Codec {
			case plan.CodecKeep:
				keep = c
			case plan.CodecDCT:
				dct = c
			}
		}
	}
	if keep == nil || dct == nil || keep.CPUSeconds <= 0 || dct.CPUSeconds <= 0 {
		return 0, 0, false
	}
	bytes = dctBytes
	if keep.RecordBytes > 0 && dct.RecordBytes > 0 {
		bytes = dct.RecordBytes / keep.RecordBytes
	}
	return dct.CPUSeconds / keep.CPUSeconds, bytes, true
}

// pipelineOf is the run in the terms of the planner.
func pipelineOf(s *Subject, r *Result, m *plan.Machine) plan.Pipeline {
	p := plan.Pipeline{
		Batch: int64(r.Batch), Step: r.Step, Accelerators: r.Accelerators, Cores: float64(r.Cores), Threads: r.Threads,
		Codec: s.Codec, Layout: plan.LayoutPack, RecordBytes: float64(r.LogicalBytes) / float64(r.Examples),
		OutputBytes: float64(r.SlotBytes) / float64(max(r.Batch, 1)),
		CPUSeconds:  r.CPUEngine / float64(r.Examples), CachedShare: 1, Prefetch: r.Slots,
		Spin: r.Spin, StepCPU: r.CPUTrainer / float64(max(r.Steps, 1)),
	}
	if r.Format == "folder" {
		p.Layout = plan.LayoutFiles
	}
	// The CPU time per example was measured with all of the run's cores busy;
	// Predict wants that of one core alone.
	if m.Scaling > 0 && m.Scaling < 1 && m.Cores > 1 {
		share := min((float64(r.Cores)-1)/(m.Cores-1), 1)
		p.CPUSeconds *= 1 - (1-m.Scaling)*share
	}
	if r.LogicalBytes > 0 && r.BlockBytes > 0 {
		p.CachedShare = max(1-float64(r.BlockBytes)/float64(r.LogicalBytes), 0)
	}
	if r.Limit == LimitStorage {
		p.DiskBandwidth = float64(r.BlockBytes) / r.Seconds
	}
	return p
}

// CheckWhatIf measures the scenarios that this machine can try: more cores where
// there are some, memory, and a dct copy of the data, which it makes and removes.
func CheckWhatIf(ctx context.Context, s *Subject, o Options, scenarios []Scenario, note func(format string, args ...any)) error {
	for i := range scenarios {
		sc := &scenarios[i]
		p, undo := o, func() {}
		p.Progress = nil
		switch sc.kind {
		case moreCores:
			if o.Cores == 0 || 2*o.Cores > len(UsableCPUs()) {
				sc.Note = fmt.Sprintf("not tried: this machine has %d cores", len(UsableCPUs()))
				continue
			}
			p.Cores *= 2
			p.Config.Threads *= 2
		case inMemory:
			if len(p.Files) == 0 {
				files, err := SourceFiles(s.Source)
				if err != nil {
					sc.Note = "not tried: " + err.Error()
					continue
				}
				p.Files = files
			}
			p.Cached = 1
		case asDCT:
			note("making a dct copy of %s", s.Source)
			copied, remove, err := s.Copy(ctx, plan.CodecDCT, "")
			if err != nil {
				sc.Note = "not tried: " + err.Error()
				continue
			}
			undo = remove
			p.Config.Source, p.Files, p.Cached = copied.Source, nil, -1
		default:
			sc.Note = "not tried: it needs such a disk"
			continue
		}
		note("measuring: %s", sc.Name)
		r, err := Run(ctx, p)
		undo()
		if err != nil {
			return fmt.Errorf("%s: %w", sc.Name, err)
		}
		sc.Measured = r.PerSecond
	}
	return nil
}
