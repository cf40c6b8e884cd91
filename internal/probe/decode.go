package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/bench/decodebench"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/stats"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

const (
	// decodeBatch is a common batch size for training. It is smaller if memory is short.
	decodeBatch, smallBatch = 128, 32
	leastFree               = 4 << 30
	// windows is the number of measurements of each rate. The median counts.
	windows = 3
	// leastRun is the shortest time that a rate is taken over: in less, batches
	// that were ready before would count.
	leastRun = 200 * time.Millisecond
)

// decode measures the engine's cost of an image in each codec, with one decode worker and with one per core, on packs
// of the sample in memory.
func (p *probe) decode(ctx context.Context, d time.Duration) {
	started := time.Now()
	// Like in the engine.
	before := runtime.GOMAXPROCS(0)
	pipeline.SpareProcs()
	defer runtime.GOMAXPROCS(before)
	s, err := p.takeSample(ctx, d/4)
	if err != nil {
		p.note("decoding: not measured: %v", err) // unseen when the user has ended it
		return
	}
	limit := int64(footprint)
	if p.m.MemoryFree > 0 {
		limit = min(limit, p.m.MemoryFree/footprintShare)
	}
	// Images, one codec at a time and its copies.
	work, remove, err := leftover.MkdirTemp(roomFor(8*s.bytes+2*limit), "stoker-probe-*")
	if err != nil {
		p.note("decoding: not measured: cannot write a temporary folder: %v", store.Cause(err))
		return
	}
	defer func() { _ = remove() }()
	images := filepath.Join(work, "images")
	if err := s.write(images); err != nil {
		p.note("decoding: not measured: %v", err)
		return
	}
	codecs := []string{plan.CodecKeep, plan.CodecDCT, plan.CodecRaw}
	if p.opt.codecs != nil {
		codecs = p.opt.codecs
	} else if s.raw {
		codecs = codecs[2:]
		p.note("decoding: the pack holds pixels, so that keep and dct were not measured")
	}
	left := max(d-time.Since(started), d/2)
	for i, codec := range codecs {
		// The time for packing the sample also counts.
		share := left / time.Duration(len(codecs)-i)
		begun := time.Now()
		rate, err := p.codec(ctx, s, images, filepath.Join(work, codec), codec, limit, share)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.note("decoding of %s: not measured, the time was up; give it more with --seconds", codec)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.note("decoding of %s: %v", codec, err)
		} else {
			p.m.Codecs = append(p.m.Codecs, rate)
		}
		left = max(left-time.Since(begun), 0)
	}
	if len(p.m.Codecs) > 0 && p.m.Cores > 0 {
		r := p.m.Codecs[0]
		p.m.Scaling = r.AllCores / (r.PerCore * p.m.Cores)
	}
}

// roomFor returns a folder in memory with n free bytes, or "" for the usual one.
func roomFor(n int64) string {
	const shm = "/dev/shm"
	if freeSpace(shm) < n {
		return ""
	}
	if f, err := scratch(shm, 0); err == nil {
		f.Close()
		return shm
	}
	return ""
}

func (p *probe) codec(ctx context.Context, s *sample, images, folder, codec string, limit int64, d time.Duration) (plan.CodecRate, error) {
	started := time.Now()
	if err := os.Mkdir(folder, 0o700); err != nil {
		return plan.CodecRate{}, store.Cause(err)
	}
	defer os.RemoveAll(folder)
	dir := filepath.Join(folder, "pack")
	opt := pack.Options{Images: codec}
	transformed := p.opt.Transform
	if codec == plan.CodecRaw && !s.raw {
		// As raw images are stored for training: somewhat larger than the crop.
		opt.Resize = pack.Resize{Short: max(p.opt.Size*8/7, 1)}
	}
	sum, err := pack.Write(ctx, images, dir, &opt)
	if err != nil {
		return plan.CodecRate{}, fmt.Errorf("packing a sample: %w", err)
	}
	if transformed == None && codec != plan.CodecRaw {
		transformed = Whole // a batch needs one size
	}
	ops, what, err := operations(transformed, p.opt.Size)
	if p.opt.operations != nil {
		ops, what, err = p.opt.operations, "as asked for", nil
	}
	if err != nil {
		return plan.CodecRate{}, err
	}
	m := sum.Manifest
	if m.Records == 0 {
		return plan.CodecRate{}, errors.New("no image of the sample could be packed")
	}
	r := plan.CodecRate{
		Codec: codec, Transform: what, RecordBytes: float64(m.FieldOf(driver.KindImage).Stats.Bytes) / float64(m.Records),
		Width: s.width, Height: s.height, Origin: s.origin,
	}
	if codec == plan.CodecRaw && !s.raw {
		pixels := r.RecordBytes / 3
		short := float64(opt.Resize.Short)
		r.Width, r.Height = max(pixels/short, 1), short
		if s.height > s.width {
			r.Width, r.Height = r.Height, r.Width
		}
	}
	src, err := openCopies(ctx, dir, limit)
	if err != nil {
		return plan.CodecRate{}, err
	}
	defer src.Close()
	batch := decodeBatch
	if p.m.MemoryFree < leastFree {
		batch = smallBatch
	}
	left := max(d-time.Since(started), d/2)
	runs := time.Duration(3)
	if p.opt.operations != nil {
		runs = 2
	}
	one, err := run(ctx, src, ops, batch, 1, left/runs, nothing)
	if err != nil {
		return plan.CodecRate{}, err
	}
	r.PerCore, r.CPUSeconds = 1/one.cpu, one.cpu
	r.ReadSeconds, r.DecodeSeconds, r.TransformSeconds = one.stage("fetch"), one.stage("decode"), one.stage("transform")
	r.OutputBytes, r.Images = one.rowBytes, one.images
	r.AllCores = r.PerCore
	all, err := run(ctx, src, ops, batch, cores(), left/runs, sleeper)
	if err != nil {
		return plan.CodecRate{}, err
	}
	r.AllCores, r.Scaling = all.perSecond, min(one.cpu/all.cpu, 1)
	// The largest of the codecs: a trainer of any may be woken so late.
	p.m.WakeLatency = max(p.m.WakeLatency, all.late)
	if p.opt.operations != nil {
		r.Images += all.images
		return r, nil
	}
	busy, err := run(ctx, src, ops, batch, cores(), left/runs, spinner)
	if err != nil {
		return plan.CodecRate{}, err
	}
	r.BesideBusy = busy.perSecond
	r.Images += all.images + busy.images
	return r, nil
}

// operations returns the transform, and its name.
func operations(name string, size int) ([]json.RawMessage, string, error) {
	switch name {
	case Crop:
		return []json.RawMessage{
			fmt.Appendf(nil, `{"op":"RandomResizedCrop","size":[%d,%d]}`, size, size),
			json.RawMessage(`{"op":"RandomHorizontalFlip"}`),
		}, fmt.Sprintf("RandomResizedCrop(%d), flip", size), nil
	case Whole:
		return []json.RawMessage{fmt.Appendf(nil, `{"op":"Resize","size":[%d,%d]}`, size, size)}, fmt.Sprintf("Resize(%d)", size), nil
	case None:
		return nil, "none", nil
	}
	return nil, "", fmt.Errorf("transform %q is not known; there are %s, %s and %s", name, Crop, Whole, None)
}

// keepOpen is a source that several pipelines use one after another.
type keepOpen struct{ *copies }

func (keepOpen) Close() error { return nil }

// rates are the results of run.
type rates struct {
	cpu       float64 // seconds of CPU time per image
	perSecond float64 // images by the clock
	stages    map[string]float64
	rowBytes  int64
	images    int64
	late      float64 // seconds by which the companion was woken late
}

// A companion is a thread that runs at the same time as the engine, like a trainer. It exits when stop is set and
// returns its result.
type companion func(stop *atomic.Bool) float64

// nothing is the companion for measuring the engine alone.
func nothing(*atomic.Bool) float64 { return 0 }

// spinner computes all the time.
func spinner(stop *atomic.Bool) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for !stop.Load() {
	}
	return 0
}

// sleeper sleeps like a trainer that waits for its accelerator, and returns the mean delay of its wake-ups.
func sleeper(stop *atomic.Bool) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const nap = 5 * time.Millisecond
	var late time.Duration
	n := 0
	for !stop.Load() {
		start := time.Now()
		ts := unix.NsecToTimespec(int64(nap))
		if unix.Nanosleep(&ts, nil) != nil {
			continue // a signal of the runtime
		}
		late += time.Since(start) - nap
		n++
	}
	return late.Seconds() / float64(max(n, 1))
}

func (r *rates) stage(name string) float64 { return r.stages[name] }

// run takes batches of src for d and releases them immediately.
func run(ctx context.Context, src *copies, ops []json.RawMessage, batch, threads int, d time.Duration, beside companion) (r rates, err error) {
	d = max(d, leastRun)
	pipe, err := pipeline.Open(ctx, pipeline.Config{Cache: pipeline.CacheOff,
		Source: "a sample", BatchSize: batch, Shuffle: true, Threads: threads,
		Fields: []string{"image"}, Outputs: []transform.Output{{Name: "image", Field: "image", Ops: ops}},
		OpenSource: func(context.Context, string) (driver.Source, error) { return keepOpen{src}, nil },
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, pipe.Close()) }()
	r.rowBytes = pipe.Info().SlotBytes / int64(pipe.Info().BatchSize)
	pipe.Start(item.Position{})
	if _, err := decodebench.Take(ctx, pipe, d/8, pipe.Info().Slots); err != nil {
		return r, err
	}
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + 1) // one for the companion
	defer runtime.GOMAXPROCS(procs)
	var stop atomic.Bool
	said := make(chan float64, 1)
	go func() { said <- beside(&stop) }()
	defer func() {
		stop.Store(true)
		r.late = <-said
	}()
	before := pipe.Stats()
	var cpus, clocks []float64
	for range windows {
		cpu, start := proc.OwnCPU(), time.Now()
		n, err := decodebench.Take(ctx, pipe, d*7/8/windows, 1)
		if err != nil {
			return r, err
		}
		cpus = append(cpus, (proc.OwnCPU()-cpu).Seconds()/float64(n))
		clocks = append(clocks, float64(n)/time.Since(start).Seconds())
		r.images += n
	}
	r.cpu, r.perSecond, r.stages = stats.Median(cpus), stats.Median(clocks), map[string]float64{}
	after := pipe.Stats()
	for i, st := range after.Stages {
		if n := st.Records - before.Stages[i].Records; n > 0 {
			r.stages[st.Name] = (st.Busy - before.Stages[i].Busy).Seconds() / float64(n)
		}
	}
	return r, nil
}
