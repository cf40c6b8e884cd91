package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/plan"
	"github.com/stokerdata/stoker/internal/probe"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/units"
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

// What the dct codec does to JPEGs, where a sample of the data could not be
// measured: CPU time and bytes per image, as measured on 10,000 photographs with
// RandomResizedCrop (docs/internals/benchmarks.md).
const (
	dctWork  = 0.21 // 1.09 and 0.23 CPU seconds per 1,000 images
	dctBytes = 1.1
)

// FastDisk is the disk of the fourth scenario when nobody asks for another, in
// bytes per second.
const FastDisk = 2e9

// sampleFor is how long the costs of a sample are measured.
const sampleFor = 6 * time.Second

// Costs measures, on a sample of the subject in memory, what its images cost in
// the codec that they have and in dct, alone on a core and with all cores busy,
// with the operations of cfg. What `stoker probe` has said of the machine beside
// that is kept. Without images to be had it gives that alone.
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
	// What the cores do to each other, by CPU time: a window of a second by the
	// clock has more to do with when its batches ended.
	m.Scaling = got.Codecs[0].Scaling
	return m, nil
}

// costOf finds what was measured of a codec on this data.
func costOf(m *plan.Machine, codec string) *plan.CodecRate {
	for i := range m.Codecs {
		if c := &m.Codecs[i]; c.Codec == codec && c.Origin == "measured" && c.CPUSeconds > 0 {
			return c
		}
	}
	return nil
}

// WhatIf predicts what would change with twice the cores, with the data in
// memory, with dct, and with a disk of disk bytes per second. The costs are the
// run's own and, where m has them, those of a sample (Costs); plan.Predict puts
// them together.
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
		// What the model leaves out of the run it leaves out of the scenario too.
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
		// What other programs take of the machine they will take of it then, too.
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
				// In proportion: the run may have been slower than the sample as a whole.
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

// warmCPU is the CPU time of an example when none has to come from storage: that
// of a sample in memory, where one was measured and is less than the run's.
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
	// The CPU time per example was measured with all of the run's cores busy, when
	// they were what limited it; Predict wants that of one core alone.
	if r.Limit == LimitCPU && m.Scaling > 0 && m.Scaling < 1 && m.Cores > 1 {
		share := min((float64(r.Cores)-1)/(m.Cores-1), 1)
		p.CPUSeconds *= 1 - (1-m.Scaling)*share
	}
	if r.LogicalBytes > 0 && r.BlockBytes > 0 {
		p.CachedShare = max(1-float64(r.BlockBytes)/float64(r.LogicalBytes), 0)
	}
	if r.Limit == LimitStorage {
		// In records, whatever their size, so that the base is what was measured.
		p.DiskIOPS = r.PerSecond * max(1-p.CachedShare, 0.01)
		// Whole pages are read, and ahead: the storage gives more bytes than are used.
		// Predict adds a page to each record.
		if perMiss := float64(r.BlockBytes) / (float64(r.Examples) * max(1-p.CachedShare, 0.01)); perMiss > p.RecordBytes {
			p.RecordBytes = max(perMiss-4096, p.RecordBytes)
		}
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
