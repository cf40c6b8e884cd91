package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/probe"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/plan"
)

// Scenario is the predicted speed on another machine or with the data stored in another way.
type Scenario struct {
	// Name describes the change.
	Name string `json:"name"`
	// PerSecond, AU and Limit are predicted, Gain is against the run.
	PerSecond float64 `json:"examples_per_second"`
	AU        float64 `json:"au"`
	Gain      float64 `json:"gain"`
	// Capacity is the speed of the data path alone, without waiting for the accelerator, in examples per second.
	Capacity float64 `json:"capacity"`
	Limit    string  `json:"limit"`
	// Measured is the speed of a run of the scenario in examples per second, 0 if it was not tried.
	Measured float64 `json:"measured,omitempty"`
	// Note is the assumption of the prediction, or the reason why the scenario was not tried.
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

// The effect of the dct codec on JPEGs if no sample of the data could be measured: CPU time and bytes per image. They
// were measured on 10,000 photographs with RandomResizedCrop (docs/internals/benchmarks.md).
const (
	dctWork  = 0.21 // 1.09 and 0.23 CPU seconds per 1,000 images
	dctBytes = 1.1
)

// FastDisk is the default speed of the disk of the fourth scenario, in bytes per second.
const FastDisk = 2e9

// sampleFor is the time for which the costs of a sample are measured.
const sampleFor = 6 * time.Second

// Costs measures the cost of a sample of images in memory, with the operations of cfg, on one core and with all cores
// busy. It measures dct and raw subjects in their codec, and all other subjects in keep and dct. It keeps the other
// results of `stoker probe` for the machine, and returns those alone if there are no images.
func Costs(ctx context.Context, s *Subject, cfg pipeline.Config) (*plan.Machine, error) {
	m := &plan.Machine{}
	if s.Path != "" {
		if probed, _, err := probe.Load(s.Path); err == nil && probed != nil {
			*m = *probed
		}
	}
	m.Store = nil // the run itself says what the storage gives
	if m.Cores <= 0 {
		m.Cores = float64(len(proc.AllowedCPUs()))
	}
	if s.Image == "" || s.Path == "" || len(cfg.Outputs) != 1 {
		return m, nil
	}
	codecs := []string{plan.CodecKeep, plan.CodecDCT}
	if s.Codec == plan.CodecDCT || s.Codec == plan.CodecRaw {
		codecs = []string{s.Codec}
	}
	got, err := probe.Codecs(ctx, s.Path, codecs, cfg.Outputs[0].Ops, sampleFor)
	if err != nil {
		return m, err
	}
	m.Codecs, m.WakeLatency, m.Cores = got.Codecs, got.WakeLatency, got.Cores
	// The slowdown of busy cores comes from CPU time: by the clock, a window of a second depends more on when its
	// batches ended.
	m.Scaling = got.Codecs[0].Scaling
	return m, nil
}

// costOf returns the measured costs of a codec on this data.
func costOf(m *plan.Machine, codec string) *plan.CodecRate {
	for i := range m.Codecs {
		if c := &m.Codecs[i]; c.Codec == codec && c.Origin == "measured" && c.CPUSeconds > 0 {
			return c
		}
	}
	return nil
}

// WhatIf predicts the speed with twice the cores, with the data in memory, with dct, and with a disk of disk bytes per
// second. The costs are the run's own and, if m has them, those of a sample (Costs). plan.Predict combines them.
func WhatIf(s *Subject, r *Result, m *plan.Machine, disk float64) []Scenario {
	if r.Examples == 0 || r.Seconds <= 0 {
		return nil
	}
	base := pipelineOf(s, r, m)
	now := plan.Predict(base, *m)
	if now.Throughput <= 0 {
		return nil
	}
	codec := s.Codec
	if codec == "mixed" {
		codec = plan.CodecKeep
	}
	own := costOf(m, codec)
	var out []Scenario
	add := func(name string, kind scenarioKind, note string, change func(p *plan.Pipeline, m *plan.Machine)) {
		p, m := base, *m
		change(&p, &m)
		x := plan.Predict(p, m)
		sc := Scenario{Name: name, kind: kind, Gain: x.Throughput / now.Throughput, Limit: x.Limit, Note: note}
		// Effects that the model omits for the run it also omits for the scenario.
		sc.PerSecond = r.PerSecond * sc.Gain
		if r.Step > 0 {
			most := float64(r.Batch*r.Accelerators) / r.Step
			sc.PerSecond = min(sc.PerSecond, most)
			sc.Gain = sc.PerSecond / r.PerSecond
			sc.AU = sc.PerSecond / most
		}
		p.Step, p.Spin = 0, false
		sc.Capacity = plan.Predict(p, m).Throughput
		out = append(out, sc)
	}
	add(fmt.Sprintf("twice the cores (%d)", 2*r.Cores), moreCores, "", func(p *plan.Pipeline, _ *plan.Machine) {
		// Other programs will use as many cores in the scenario as now.
		p.Cores = max(2*float64(r.Cores)-r.CPUOthersAll/r.Seconds, base.Cores)
		p.Threads *= 2
	})
	note := ""
	if base.CachedShare >= 0.98 {
		note = "it is already"
	}
	add("all data in memory", inMemory, note, func(p *plan.Pipeline, _ *plan.Machine) {
		p.CPUSeconds = warmCPU(p, own)
		p.CachedShare = 1
	})
	if s.Image != "" && (s.Codec == plan.CodecKeep || s.Codec == "mixed") {
		note := "by the ratio measured on photographs (docs/internals/benchmarks.md)"
		dct := costOf(m, plan.CodecDCT)
		if own != nil && dct != nil {
			note = ""
		}
		add("a dct pack", asDCT, note, func(p *plan.Pipeline, m *plan.Machine) {
			work, bytes := dctWork, dctBytes
			if note == "" {
				// The ratio is used because the run may have been slower than the sample as a whole.
				work = dct.CPUSeconds / own.CPUSeconds
				if own.RecordBytes > 0 && dct.RecordBytes > 0 {
					bytes = dct.RecordBytes / own.RecordBytes
				}
				if dct.Scaling > 0 {
					m.Scaling = dct.Scaling
				}
			}
			warm := warmCPU(p, own)
			p.CPUSeconds += warm*work - warm // what coming from storage costs stays
			p.Codec, p.Layout = plan.CodecDCT, plan.LayoutPack
			p.RecordBytes *= bytes
			p.DiskIOPS /= bytes
		})
	}
	add(fmt.Sprintf("nothing in memory, a disk of %s", units.Bandwidth(disk)), fastDisk, "", func(p *plan.Pipeline, _ *plan.Machine) {
		p.CachedShare, p.DiskBandwidth, p.DiskIOPS = 0, disk, 0
	})
	return out
}

// warmCPU is the CPU time of an example that does not come from storage. It is that of a sample in memory, if one was
// measured and is less than the run's.
func warmCPU(p *plan.Pipeline, own *plan.CodecRate) float64 {
	if own == nil || p.CachedShare >= 0.98 {
		return p.CPUSeconds
	}
	return min(own.CPUSeconds, p.CPUSeconds)
}

// pipelineOf is the run in the terms of the planner.
func pipelineOf(s *Subject, r *Result, m *plan.Machine) plan.Pipeline {
	p := plan.Pipeline{
		Batch: int64(r.Batch), Step: r.Step, Accelerators: r.Accelerators, Threads: r.Threads,
		Cores: max(float64(r.Cores)-r.CPUOthers/r.Seconds, 0.25*float64(r.Cores)),
		Codec: s.Codec, Layout: plan.LayoutPack, RecordBytes: float64(r.LogicalBytes) / float64(r.Examples),
		OutputBytes: float64(r.SlotBytes) / float64(max(r.Batch, 1)),
		CPUSeconds:  r.CPUEngine / float64(r.Examples), CachedShare: 1, Prefetch: r.Slots,
		Spin: r.Spin, StepCPU: r.CPUTrainer / float64(max(r.Steps, 1)),
	}
	if r.Format == "folder" {
		p.Layout = plan.LayoutFiles
	}
	// The CPU time per example was measured with all of the run's cores busy, if they were the limit. Predict needs
	// that of one core alone.
	if r.Limit == LimitCPU && m.Scaling > 0 && m.Scaling < 1 && m.Cores > 1 {
		share := min((float64(r.Cores)-1)/(m.Cores-1), 1)
		p.CPUSeconds *= 1 - (1-m.Scaling)*share
	}
	if r.LogicalBytes > 0 && r.BlockBytes > 0 {
		p.CachedShare = max(1-float64(r.BlockBytes)/float64(r.LogicalBytes), 0)
	}
	if r.Limit == LimitStorage {
		// The rate is in records of any size, so that the base equals the measured speed.
		p.DiskIOPS = r.PerSecond * max(1-p.CachedShare, 0.01)
		// Whole pages are read, and ahead: the storage gives more bytes than are used.
		// Predict adds a page to each record.
		if perMiss := float64(r.BlockBytes) / (float64(r.Examples) * max(1-p.CachedShare, 0.01)); perMiss > p.RecordBytes {
			p.RecordBytes = max(perMiss-4096, p.RecordBytes)
		}
	}
	return p
}

// CheckWhatIf measures the scenarios that this machine can try: more cores if available, memory, and a dct copy of the
// data, which it makes and removes.
func CheckWhatIf(ctx context.Context, s *Subject, o Options, scenarios []Scenario, note func(format string, args ...any)) error {
	for i := range scenarios {
		sc := &scenarios[i]
		p, undo := o, func() {}
		p.Progress = nil
		switch sc.kind {
		case moreCores:
			if o.Cores == 0 || 2*o.Cores > len(proc.AllowedCPUs()) {
				sc.Note = fmt.Sprintf("not tried: this machine has %d cores", len(proc.AllowedCPUs()))
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
