// Package bench measures a data path from a trainer's side: real batches from a real engine process, consumed by a
// simulated accelerator that takes t seconds for each. It repeats runs over numbers of cores, workers and cached
// shares, finds the knee, and predicts the speed on another machine. Package steptime watches training commands.
//
// The trainer is this process, in Go. So a benchmark needs no Python, costs the same everywhere, and measures the
// engine and the hand-off. The Python client adds about 5 us per batch to that (docs/reference/protocol.md).
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/stats"
	"github.com/stokerdata/stoker/internal/steptime"
	"github.com/stokerdata/stoker/internal/store/stores"
)

// Options are the settings of Run.
type Options struct {
	// Config is the pipeline; its Source is measured.
	Config pipeline.Config
	// Step is t, the accelerator's seconds for one mini-batch. With 0 batches are
	// taken as fast as they come.
	Step time.Duration
	// Spin burns a core during the step, as the launching thread of a framework
	// does; otherwise the trainer sleeps.
	Spin bool
	// Copy copies each batch into private memory, as a copy to a device from
	// memory that is not pinned begins.
	Copy bool
	// Accelerators is the number of trainers, each with its own part of the
	// data; 0 means 1.
	Accelerators int
	// Steps ends the run after this many steps, For after this time, or whichever comes first. Neither means 10
	// seconds. The first step is not counted.
	Steps int64
	For   time.Duration
	// OneEpoch ends the run with the epoch at the latest: data that was read once is in memory and would not be cold a
	// second time.
	OneEpoch bool
	// Cores confines engine and trainer to this many CPUs, 0 to all.
	Cores int
	// Cached is the share of the source's bytes to be in the page cache at the start, 0 to 1. A negative share leaves
	// the cache unchanged.
	Cached float64
	// Files are the files whose pages Cached concerns; see SourceFiles.
	Files []string
	// Engine is the command that runs the engine; empty means this program.
	Engine []string
	// Progress is called now and then with the share that is done.
	Progress func(share float64)

	cpus, all []int // in use, and those that could be
}

// Result is the result of Run. All fields but Open and FirstBatch exclude the first steps, in which each slot of the
// ring is used for the first time. With OneEpoch they exclude the first step alone. Times are in seconds.
type Result struct {
	Source       string  `json:"source"`
	Format       string  `json:"format"`
	Records      int64   `json:"records"`
	Batch        int     `json:"batch"`
	Step         float64 `json:"t"`
	Spin         bool    `json:"spin"`
	Accelerators int     `json:"accelerators"`
	Cores        int     `json:"cores"`
	Threads      int     `json:"threads"`
	Slots        int     `json:"slots"`
	SlotBytes    int64   `json:"slot_bytes"`

	// Steps of all accelerators together, and their examples.
	Steps    int64   `json:"steps"`
	Examples int64   `json:"examples"`
	Seconds  float64 `json:"seconds"`
	// PerSecond is the number of examples per second of all accelerators together, Epoch the time of an epoch at that
	// speed.
	PerSecond float64 `json:"examples_per_second"`
	Epoch     float64 `json:"epoch_seconds"`
	// AU is accelerator utilisation: compute time over total time. With several
	// it is their mean, and AUMin that of the worst. 0 without a step time.
	AU    float64 `json:"au"`
	AUMin float64 `json:"au_min"`
	// StepTime and Wait are distributions over single steps. Waited is the share of steps that waited longer than a
	// hundredth of t and 0.1 ms for their batch.
	StepTime stats.Distribution `json:"step_time"`
	Wait     stats.Distribution `json:"wait"`
	Waited   float64            `json:"waited"`
	// Open is the time the engine took to start and to open the source, FirstBatch the time until the first batch after
	// that.
	Open       float64 `json:"open_seconds"`
	FirstBatch float64 `json:"first_batch_seconds"`

	Stages []steptime.EngineStage `json:"stages"`
	// CPUEngine and CPUTrainer are CPU seconds, the latter without the spinning. CPUPerThousand is that of the engine
	// per 1,000 examples.
	CPUEngine  float64 `json:"cpu_engine"`
	CPUTrainer float64 `json:"cpu_trainer"`
	// CPUOthers are the CPU seconds of other programs on the same cores, CPUOthersAll on all cores that this process
	// may use.
	CPUOthers      float64 `json:"cpu_others"`
	CPUOthersAll   float64 `json:"cpu_others_all"`
	CPUPerThousand float64 `json:"cpu_per_thousand"`
	// LogicalBytes were read of the source, BlockBytes of them from storage.
	LogicalBytes int64 `json:"logical_bytes"`
	BlockBytes   int64 `json:"block_bytes"`
	// PSS is the largest memory of engine and trainer together; it includes the
	// ring and mapped pages of the source.
	PSS int64 `json:"pss"`
	// RingFull and RingEmpty are the shares of the time in which the trainer held
	// every batch there was room for, and at most the one that it worked on.
	RingFull  float64 `json:"ring_full"`
	RingEmpty float64 `json:"ring_empty"`
	// Skipped counts records that were replaced.
	Skipped int64 `json:"skipped"`
	// Limit is the resource that limits the speed, Why the reason in one line.
	Limit string `json:"limit"`
	Why   string `json:"why"`
	// Notes are the cautions that the reader must know to trust the figures.
	Notes []string `json:"notes,omitempty"`
}

const (
	defaultFor  = 10 * time.Second
	stepTimeout = 5 * time.Minute
	// maxKept bounds the number of step times kept for percentiles. A longer run keeps every second, third, ... one.
	maxKept = 1 << 20
)

// Run measures.
func Run(ctx context.Context, o Options) (*Result, error) {
	o.Accelerators = max(o.Accelerators, 1)
	if o.Steps == 0 && o.For == 0 {
		o.For = defaultFor
	}
	if len(o.Engine) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		o.Engine = []string{self}
	}
	var cpus []int
	usable := proc.AllowedCPUs()
	if o.Cores > 0 {
		if o.Cores > len(usable) {
			return nil, fmt.Errorf("%d cores are wanted, this process may use %d", o.Cores, len(usable))
		}
		cpus = usable[:o.Cores]
	} else {
		o.Cores = len(usable)
	}
	o.cpus, o.all = usable[:o.Cores], usable
	if o.Cached >= 0 && len(o.Files) > 0 {
		if err := setCached(ctx, o.Files, o.Cached); err != nil {
			return nil, err
		}
	}
	defer proc.Confine(cpus)()
	began := time.Now()
	e, clients, err := startEngine(ctx, o.Engine, cpus, o.Accelerators)
	if err != nil {
		return nil, err
	}
	defer e.stop()
	defer closeAll(clients)
	// All waiting code waits for a connection.
	stop := context.AfterFunc(ctx, func() {
		for _, c := range clients {
			c.Interrupt()
		}
	})
	defer stop()
	r, err := drive(ctx, &o, e, clients, began)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, e.explain(err)
	}
	return r, nil
}

// loader is the source of a trainer's batches: a handoff.Client.
type loader interface {
	Start(epoch, row int64) error
	Next(timeout time.Duration) (handoff.Message, error)
	Data(b handoff.Batch) []byte
	Release(b handoff.Batch) error
	Stats() (pipeline.Stats, error)
}

// trainer is one simulated accelerator.
type trainer struct {
	o      *Options
	c      loader
	clock  *stopClock
	steps  []time.Duration
	waits  []time.Duration
	every  int64 // of the steps, one is kept
	n      int64
	rows   int64
	total  time.Duration
	wait   time.Duration
	waited int64
	first  time.Duration
	spun   time.Duration
	copyTo []byte
	err    error
}

// stopClock tells all trainers when the time is over.
type stopClock struct {
	until time.Time
}

func drive(ctx context.Context, o *Options, e *engine, clients []*handoff.Client, began time.Time) (*Result, error) {
	trainers := make([]*trainer, len(clients))
	// The rings of several engines take most of the free memory, but not the part for data that is to stay in memory.
	share := int64(0)
	if free, err := proc.Live.FreeMemory(); err == nil {
		share = max(free-o.residentBytes(), free/4) * 3 / 4 / int64(len(clients))
	}
	for i, c := range clients {
		cfg := o.Config
		if len(clients) > 1 {
			cfg.Rank, cfg.WorldSize, cfg.LocalWorldSize = i, len(clients), len(clients)
			if cfg.Memory == 0 {
				cfg.Memory = share
			}
		}
		config, err := json.Marshal(cfg)
		if err != nil {
			return nil, err
		}
		if err := c.Open(config, openTimeout); err != nil {
			return nil, err
		}
		trainers[i] = &trainer{o: o, c: c, every: 1}
	}
	opened := time.Since(began)
	in := clients[0].Description
	r := &Result{
		Source: stores.Public(o.Config.Source), Format: in.Format, Records: in.Len, Batch: in.BatchSize, Step: o.Step.Seconds(), Spin: o.Spin,
		Accelerators: o.Accelerators, Cores: o.Cores, Threads: in.Threads, Slots: in.Slots, SlotBytes: in.SlotBytes,
		Open: opened.Seconds(),
	}
	// The first steps of all, then the counters, then the rest.
	clock := &stopClock{}
	if err := together(trainers, func(t *trainer) error { return t.firstSteps(o.warmUp(in.Slots)) }); err != nil {
		return nil, err
	}
	before, err := countersOf(trainers)
	if err != nil {
		return nil, err
	}
	idleBefore, _ := proc.Live.IdleTime(o.cpus)
	idleAllBefore, _ := proc.Live.IdleTime(o.all)
	usageBefore, ownBefore, start := proc.Live.UsageOf([]int{e.cmd.Process.Pid}, false), proc.OwnCPU(), time.Now()
	if o.For > 0 {
		clock.until = start.Add(o.For)
	}
	memory := watchMemory([]int{e.cmd.Process.Pid, os.Getpid()})
	progress := o.reportProgress(start)
	err = together(trainers, func(t *trainer) error {
		t.clock = clock
		return t.run()
	})
	elapsed := time.Since(start)
	progress()
	r.PSS = memory()
	if err != nil {
		return nil, err
	}
	idle, idleKnown := proc.Live.IdleTime(o.cpus)
	idleAll, _ := proc.Live.IdleTime(o.all)
	used := proc.Live.UsageOf([]int{e.cmd.Process.Pid}, false).Sub(usageBefore)
	own := proc.OwnCPU() - ownBefore
	if busy := float64(len(o.cpus))*elapsed.Seconds() - (idle - idleBefore).Seconds(); idleKnown {
		ours := used.CPU.Seconds() + own.Seconds()
		r.CPUOthers = max(busy-ours, 0)
		r.CPUOthersAll = max(float64(len(o.all))*elapsed.Seconds()-(idleAll-idleAllBefore).Seconds()-ours, r.CPUOthers)
	}
	after, err := countersOf(trainers)
	if err != nil {
		return nil, err
	}
	r.fill(o, trainers, before, after, elapsed)
	r.CPUEngine, r.BlockBytes = used.CPU.Seconds(), used.BlockBytes
	for _, t := range trainers {
		own -= t.spun
		r.FirstBatch = max(r.FirstBatch, t.first.Seconds())
	}
	r.CPUTrainer = max(own, 0).Seconds()
	if r.Examples > 0 {
		r.CPUPerThousand = 1000 * r.CPUEngine / float64(r.Examples)
	}
	r.judge()
	return r, ctx.Err()
}

// residentBytes is the number of bytes of the source to stay in the page cache.
func (o *Options) residentBytes() int64 {
	if o.Cached <= 0 {
		return 0
	}
	var total int64
	for _, name := range o.Files {
		if st, err := os.Stat(name); err == nil {
			total += st.Size()
		}
	}
	return int64(o.Cached * float64(total))
}

// together runs f for all trainers concurrently and joins their errors.
func together(trainers []*trainer, f func(*trainer) error) error {
	var wg sync.WaitGroup
	for _, t := range trainers {
		wg.Go(func() { t.err = f(t) })
	}
	wg.Wait()
	for _, t := range trainers {
		if t.err != nil {
			return t.err
		}
	}
	return nil
}

func countersOf(trainers []*trainer) ([]pipeline.Stats, error) {
	var all []pipeline.Stats
	for _, t := range trainers {
		s, err := t.c.Stats()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// warmUp is the number of first steps that do not count: one, for which the engine has nothing ready, or as many as
// there are slots. The memory of a slot is allocated on first use. For batches of a gigabyte that takes longer than
// everything else, and a training run does it once. If every byte is to be read once, only the first step is skipped.
func (o *Options) warmUp(slots int) int {
	if o.OneEpoch {
		return 1
	}
	return max(slots, 1)
}

// firstSteps takes the first n batches; only the last of them is computed on.
func (t *trainer) firstSteps(n int) error {
	start := time.Now()
	if err := t.c.Start(0, 0); err != nil {
		return err
	}
	ends := 0
	for n > 0 {
		m, err := t.c.Next(stepTimeout)
		if err != nil {
			return err
		}
		b, ok := m.(handoff.Batch)
		if !ok { // the end of an epoch
			if ends++; ends > 2 && t.first == 0 {
				return errEmpty
			}
			continue
		}
		if t.first == 0 {
			t.first = time.Since(start)
		}
		if n--; n == 0 {
			t.compute(b, 0)
			t.spun = 0
		}
		if err := t.c.Release(b); err != nil {
			return err
		}
	}
	return nil
}

var errEmpty = errors.New("the source has no full batch for each accelerator; lower --batch or --accelerators")

// run is the training loop.
func (t *trainer) run() error {
	if t.o.Spin {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	began := time.Now()
	var late time.Duration
	ends := 0
	threshold := max(t.o.Step/100, 100*time.Microsecond)
	for t.o.Steps == 0 || t.n < t.o.Steps-1 {
		from := time.Now()
		m, err := t.c.Next(stepTimeout)
		if err != nil {
			return err
		}
		b, ok := m.(handoff.Batch)
		if !ok { // the end of an epoch
			if ends++; ends > 2 && t.n == 0 {
				return errEmpty
			}
			if t.o.OneEpoch {
				break
			}
			continue
		}
		ready := time.Now()
		late = t.compute(b, late)
		if err := t.c.Release(b); err != nil {
			return err
		}
		end := time.Now()
		wait := ready.Sub(from)
		t.n++
		t.rows += int64(b.Rows)
		t.wait += wait
		if wait > threshold {
			t.waited++
		}
		t.keep(end.Sub(from), wait)
		if !t.clock.until.IsZero() && !end.Before(t.clock.until) {
			break
		}
	}
	// The accelerator did not compute during the time by which the last sleep was too long.
	t.total = time.Since(began) - late
	return nil
}

// keep notes the times of a step, of a very long run only some.
func (t *trainer) keep(step, wait time.Duration) {
	if t.n%t.every != 0 {
		return
	}
	if len(t.steps) == maxKept {
		for i := range maxKept / 2 {
			t.steps[i], t.waits[i] = t.steps[2*i], t.waits[2*i]
		}
		t.steps, t.waits = t.steps[:maxKept/2], t.waits[:maxKept/2]
		t.every *= 2
	}
	t.steps, t.waits = append(t.steps, step), append(t.waits, wait)
}

// compute is the accelerator: it takes Step. A sleep that was too long, because the system's timers are not exact,
// shortens the next one. compute returns the time that could not be made up for.
func (t *trainer) compute(b handoff.Batch, late time.Duration) time.Duration {
	start := time.Now()
	if t.o.Copy {
		t.copyTo = append(t.copyTo[:0], t.c.Data(b)...)
	}
	if t.o.Step == 0 {
		return 0
	}
	until := start.Add(t.o.Step - late)
	if t.o.Spin {
		before := proc.ThreadCPU()
		for time.Now().Before(until) {
		}
		t.spun += proc.ThreadCPU() - before
	} else {
		time.Sleep(time.Until(until))
	}
	return min(max(time.Since(until), 0), t.o.Step)
}

func (r *Result) fill(o *Options, trainers []*trainer, before, after []pipeline.Stats, elapsed time.Duration) {
	var steps, waits []time.Duration
	var au, waited float64
	r.Seconds, r.AUMin = elapsed.Seconds(), 1
	for _, t := range trainers {
		steps, waits = append(steps, t.steps...), append(waits, t.waits...)
		r.Steps += t.n
		r.Examples += t.rows
		waited += float64(t.waited)
		if t.total > 0 {
			r.PerSecond += float64(t.rows) / t.total.Seconds()
			a := min(float64(t.n)*o.Step.Seconds()/t.total.Seconds(), 1)
			au += a
			r.AUMin = min(r.AUMin, a)
		}
	}
	r.AU = au / float64(len(trainers))
	if o.Step == 0 {
		r.AU, r.AUMin = 0, 0
	}
	if r.Steps > 0 {
		r.Waited = waited / float64(r.Steps)
	}
	if r.PerSecond > 0 {
		r.Epoch = float64(r.Records) / r.PerSecond
	}
	r.StepTime, r.Wait = stats.DistributionOf(stats.Seconds(steps)), stats.DistributionOf(stats.Seconds(waits))
	defer func() { r.RingFull, r.RingEmpty = min(r.RingFull, 1), min(r.RingEmpty, 1) }()
	type sum struct {
		busy    time.Duration
		records int64
		workers int
	}
	sums := map[string]sum{}
	var names []string
	for i, s := range after {
		r.LogicalBytes += s.Bytes - before[i].Bytes
		r.Skipped += s.Skipped
		r.RingFull += (s.RingFull - before[i].RingFull).Seconds() / r.Seconds / float64(len(after))
		r.RingEmpty += (s.RingEmpty - before[i].RingEmpty).Seconds() / r.Seconds / float64(len(after))
		for j, st := range s.Stages {
			if _, ok := sums[st.Name]; !ok {
				names = append(names, st.Name)
			}
			x := sums[st.Name]
			x.busy += st.Busy
			x.records += st.Records
			x.workers += st.Workers
			if j < len(before[i].Stages) {
				x.busy -= before[i].Stages[j].Busy
				x.records -= before[i].Stages[j].Records
			}
			sums[st.Name] = x
		}
	}
	for _, name := range names {
		x := sums[name]
		st := steptime.EngineStage{Name: stageName(name), Seconds: x.busy.Seconds(), Workers: x.workers}
		if x.records > 0 {
			st.PerRecord = float64(x.busy) / float64(x.records)
		}
		if x.workers > 0 && r.Seconds > 0 {
			// A read that began before the window counts when it ends.
			st.Busy = min(x.busy.Seconds()/r.Seconds/float64(x.workers), 1)
		}
		r.Stages = append(r.Stages, st)
	}
}

// stageName is the word that reports use for an engine's stage.
func stageName(name string) string {
	if name == "fetch" {
		return "read"
	}
	return name
}

// watchMemory samples the memory of processes regularly. The function that it returns stops that and returns the
// largest sum seen.
func watchMemory(pids []int) func() int64 {
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				done <- max(most, proc.Live.UsageOf(pids, true).PSS)
				return
			case <-tick.C:
				most = max(most, proc.Live.UsageOf(pids, true).PSS)
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-done
	}
}

// reportProgress calls Progress until the function that it returns is called.
func (o *Options) reportProgress(start time.Time) func() {
	if o.Progress == nil || o.For == 0 {
		return func() {}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				o.Progress(min(time.Since(start).Seconds()/o.For.Seconds(), 1))
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}
