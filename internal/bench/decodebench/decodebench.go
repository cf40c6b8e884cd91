// Package decodebench is `stoker bench decode`: it runs the engine without a trainer and reports the cost of reading,
// decoding and transforming, stage by stage.
package decodebench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/transform"
)

// The transforms that Run knows.
const (
	// Crop is RandomResizedCrop and RandomHorizontalFlip, as training uses them.
	Crop = "crop"
	// Whole is the whole image, resized.
	Whole = "whole"
	// None leaves raw images unmodified.
	None = "none"
)

// Options are the settings of Run.
type Options struct {
	Source    string
	Transform string
	// Size is the width and height of the output, in pixels.
	Size, Batch, Threads int
	Memory               int64
	// For is the duration of the measurement, after Warmup.
	Warmup, For time.Duration
}

// Report is the result of Run. All counts are of the window only.
type Report struct {
	Source    string  `json:"source"`
	Records   int64   `json:"records"`
	Kernels   string  `json:"kernels"`
	Transform string  `json:"transform"`
	Size      int     `json:"size"`
	Batch     int     `json:"batch"`
	Threads   int     `json:"threads"`
	Images    int64   `json:"images"`
	Seconds   float64 `json:"seconds"`
	// PerSecond is by the clock, PerCPUSecond by the CPU time of the whole process.
	PerSecond    float64 `json:"images_per_second"`
	PerCPUSecond float64 `json:"images_per_cpu_second"`
	CPUSeconds   float64 `json:"cpu_seconds"`
	// BytesPerSecond is the size of the batches made.
	BytesPerSecond float64 `json:"bytes_per_second"`
	Stages         []Stage `json:"stages"`
	// Overhead is CPU time that no stage accounts for, as a share of all of it:
	// the runtime, scheduling, and handing batches over. It is meaningful on a
	// quiet machine only, since stages are measured by the clock.
	Overhead float64 `json:"overhead"`
	// Collections are garbage collections in the window.
	Collections int64 `json:"garbage_collections"`
	MemoryPeak  int64 `json:"memory_peak"`
}

// Stage is one stage of the pipeline.
type Stage struct {
	Name string `json:"name"`
	// PerRecord is the time that the stage's goroutines worked on one record.
	PerRecord float64 `json:"ns_per_record"`
	// Share is of the stages' time together.
	Share   float64 `json:"share"`
	Workers int     `json:"workers"`
}

// Run runs the engine without a trainer: it takes batches and releases their slots immediately.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	ops, err := o.operations()
	if err != nil {
		return nil, err
	}
	pipeline.SpareProcs()
	p, err := pipeline.Open(ctx, pipeline.Config{
		Source: o.Source, BatchSize: o.Batch, Shuffle: true, Threads: o.Threads, Memory: o.Memory,
		Fields: []string{"image"}, Outputs: []transform.Output{{Name: "image", Field: "image", Ops: ops}},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	info := p.Info()

	p.Start(item.Position{})
	if _, err := Take(ctx, p, o.Warmup, 2*info.Slots); err != nil {
		return nil, err
	}
	before, cpu, start := p.Stats(), proc.OwnCPU(), time.Now()
	images, err := Take(ctx, p, o.For, 1)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	cpu = proc.OwnCPU() - cpu
	after := p.Stats()

	r = &Report{
		Source: stores.Public(o.Source), Records: info.Len, Kernels: cdec.Kernels(), Transform: o.Transform, Size: o.Size,
		Batch: info.BatchSize, Threads: info.Threads, Images: images, Seconds: elapsed.Seconds(), CPUSeconds: cpu.Seconds(),
		PerSecond: float64(images) / elapsed.Seconds(), PerCPUSecond: float64(images) / cpu.Seconds(),
		BytesPerSecond: float64(images) * float64(info.SlotBytes) / float64(info.BatchSize) / elapsed.Seconds(),
		Collections:    after.NumGC - before.NumGC, MemoryPeak: after.MemoryPeak,
	}
	var busy time.Duration
	for i, s := range after.Stages {
		busy += s.Busy - before.Stages[i].Busy
	}
	for i, s := range after.Stages {
		spent := s.Busy - before.Stages[i].Busy
		r.Stages = append(r.Stages, Stage{
			Name: s.Name, Workers: s.Workers,
			PerRecord: float64(spent) / float64(max(1, s.Records-before.Stages[i].Records)),
			Share:     float64(spent) / float64(max(1, busy)),
		})
	}
	r.Overhead = 1 - busy.Seconds()/cpu.Seconds()
	return r, nil
}

// Take consumes batches for at least d and at least n of them, and returns the
// number of their records.
func Take(ctx context.Context, p *pipeline.Pipeline, d time.Duration, n int) (int64, error) {
	var rows int64
	for start := time.Now(); n > 0 || time.Since(start) < d; {
		ev, err := p.Next(ctx)
		if err != nil {
			return 0, err
		}
		if ev.Kind == pipeline.EventBatch {
			p.Release(ev.Slot)
			rows += int64(ev.Rows)
			n--
		}
	}
	return rows, nil
}

func (o *Options) operations() ([]json.RawMessage, error) {
	switch o.Transform {
	case Crop:
		return []json.RawMessage{
			json.RawMessage(fmt.Sprintf(`{"op":"RandomResizedCrop","size":[%d,%d]}`, o.Size, o.Size)),
			json.RawMessage(`{"op":"RandomHorizontalFlip"}`),
		}, nil
	case Whole:
		return []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"op":"Resize","size":[%d,%d]}`, o.Size, o.Size))}, nil
	case None:
		return nil, nil
	}
	return nil, fmt.Errorf("transform %q is not known; there are %s, %s and %s", o.Transform, Crop, Whole, None)
}
