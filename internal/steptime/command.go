package steptime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/counters"
	"github.com/stokerdata/stoker/internal/doctor/steplog"
	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/stats"
	"github.com/stokerdata/stoker/plan"
)

// CommandOptions configure RunCommand.
type CommandOptions struct {
	Args []string
	// Env is added to the environment.
	Env []string
	// Cores limits the command to that many CPUs, 0 for all.
	Cores int
	// Steps ends the command after that many steps, For after that time. With 0 the command runs to its end.
	Steps int
	For   time.Duration
	// Output receives the output of the command.
	Output io.Writer
	// Keep stores the records of the step log, for a trace.
	Keep bool
}

// CommandResult is the observation of a command from outside. Times are in seconds.
type CommandResult struct {
	Command  []string `json:"command"`
	Seconds  float64  `json:"seconds"`
	ExitCode int      `json:"exit_code"`
	// Ended reports that the command was ended after Steps or For, as requested.
	Ended bool `json:"ended"`
	Cores int  `json:"cores"`
	// Steps summarizes the step logs; nil if no process has one.
	Steps *CommandSteps `json:"steps,omitempty"`
	// Engine has the stages of the command's Stoker engines.
	Engine []EngineStage `json:"engine,omitempty"`
	// CPU, BlockBytes, ReadBytes and Processes are of the whole process tree: CPU
	// seconds, bytes from storage, bytes by read(); PSS is its largest memory.
	CPU        float64 `json:"cpu_seconds"`
	BlockBytes int64   `json:"block_bytes"`
	ReadBytes  int64   `json:"read_bytes"`
	PSS        int64   `json:"pss"`
	Processes  int     `json:"processes"`
	// WatchingCPU is the cost of watching in CPU seconds.
	WatchingCPU float64 `json:"watching_cpu_seconds"`
	Limit       string  `json:"limit,omitempty"`
	Why         string  `json:"why,omitempty"`

	Records []steplog.Record  `json:"-"`
	Names   map[uint32]string `json:"-"`
}

// CommandSteps summarizes the step logs of a command's training loops. The first step is omitted.
type CommandSteps struct {
	// Loops is the number of processes with a log. Marked reports that they mark their steps with stoker.step().
	// Otherwise a step is from one batch to the next.
	Loops  int  `json:"loops"`
	Marked bool `json:"marked"`
	Count  int  `json:"count"`
	// Rows is the number of examples, PerSecond how many per second.
	Rows      int64   `json:"examples"`
	PerSecond float64 `json:"examples_per_second"`
	// AU is the share of the time in which the loop did not wait for data. If steps wait for the accelerator, it is the
	// accelerator's utilisation. WaitsSeen is false if the loop only marks steps, so that waits are unknown.
	AU        float64            `json:"au"`
	WaitsSeen bool               `json:"waits_seen"`
	StepTime  stats.Distribution `json:"step_time"`
	Wait      stats.Distribution `json:"wait"`
	Waited    float64            `json:"waited"`
	// Parts are the stages that the loop marks, in seconds per step.
	Parts []Part `json:"parts,omitempty"`
}

const (
	// pollEvery is the interval between reads of the logs, which hold 16,384 records.
	pollEvery = 100 * time.Millisecond
	// treeEvery is the interval between scans of the process tree once a step log was found. Before that, each poll
	// scans the tree, so that short programs are not missed. Reading the memory of a process takes the kernel a
	// millisecond and is done less often.
	treeEvery   = time.Second
	memoryEvery = 4 * time.Second
	// keptRecords limits the number of records for a trace.
	keptRecords = 1 << 20
	// patience is the time that a command has to exit after a request, before a stronger signal is sent.
	patience = 5 * time.Second
	// impatience is the same after this program was asked to exit.
	impatience = 400 * time.Millisecond
)

// watched is a command under way.
type watched struct {
	o       *CommandOptions
	pid     int
	res     *CommandResult
	loops   map[int]*logged
	engines map[int]map[int64]engineSeen
	usage   proc.Usage
	pss     int64
	most    int
	// memoryAt is when the memory of the tree was read last.
	memoryAt time.Time
}

// logged is a process with a step log.
type logged struct {
	log  *steplog.Log
	sum  steplog.Summary
	lost uint64
}

// engineSeen is the first and the last that was seen of a pipeline.
type engineSeen struct{ first, last counters.Snapshot }

// RunCommand runs a training command and watches it from outside.
func RunCommand(ctx context.Context, o CommandOptions) (*CommandResult, error) {
	var cpus []int
	usable := proc.AllowedCPUs()
	cores := len(usable)
	if o.Cores > 0 {
		if o.Cores > cores {
			return nil, fmt.Errorf("%d cores are wanted, this process may use %d", o.Cores, cores)
		}
		cpus, cores = usable[:o.Cores], o.Cores
	}
	cmd := exec.Command(o.Args[0], o.Args[1:]...)
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Stdout, cmd.Stderr = o.Output, o.Output
	cmd.SysProcAttr = proc.OwnGroup()
	start, own := time.Now(), proc.OwnCPU()
	if err := proc.OnCPUs(cpus, cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", o.Args[0], cause(err))
	}
	defer leftover.Group(cmd.Process.Pid)()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	w := &watched{memoryAt: start.Add(time.Second - memoryEvery), o: &o, pid: cmd.Process.Pid, res: &CommandResult{Command: o.Args, Cores: cores}, loops: map[int]*logged{}, engines: map[int]map[int64]engineSeen{}}
	defer w.close()
	err := w.watch(ctx, done, start)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	w.res.Seconds = time.Since(start).Seconds()
	w.res.WatchingCPU = (proc.OwnCPU() - own).Seconds()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		w.res.ExitCode = exit.ExitCode()
	case err != nil:
		return nil, err
	}
	if s := cmd.ProcessState; s != nil { // the last values from /proc may be half a second old
		if cpu := s.UserTime() + s.SystemTime(); cpu > w.usage.CPU {
			w.usage.CPU = cpu
		}
	}
	w.finish()
	return w.res, nil
}

// cause removes the name of the program from the beginning of an error.
func cause(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// watch observes the command until it has ended.
func (w *watched) watch(ctx context.Context, done <-chan error, start time.Time) error {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	var asked, lastTree time.Time
	signals := []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGKILL}
	for {
		select {
		case err := <-done:
			if !asked.IsZero() {
				_ = unix.Kill(-w.pid, unix.SIGKILL) // remaining processes of its group
			}
			return err
		case <-poll.C:
		case <-ctx.Done():
			// It is asked to end like one that has run long enough.
		}
		if now := time.Now(); len(w.loops) == 0 && now.Sub(start) < 10*time.Second || now.Sub(lastTree) >= treeEvery {
			lastTree = now
			w.look(now)
		}
		w.read()
		over := ctx.Err() != nil || w.o.For > 0 && time.Since(start) >= w.o.For || w.o.Steps > 0 && w.steps() >= w.o.Steps
		wait := patience
		if ctx.Err() != nil {
			wait = impatience
		}
		if over && len(signals) > 0 && (asked.IsZero() || time.Since(asked) >= wait) {
			if w.res.Ended = true; asked.IsZero() {
				w.look(time.Now()) // while the engine is still there
			}
			asked = time.Now()
			_ = unix.Kill(-w.pid, signals[0])
			signals = signals[1:]
		}
		if ctx.Err() != nil {
			time.Sleep(pollEvery)
		}
	}
}

// look finds new processes and sums the resource use of the tree.
func (w *watched) look(now time.Time) {
	tree := proc.Live.Tree(w.pid)
	memory := now.Sub(w.memoryAt) >= memoryEvery
	if memory {
		w.memoryAt = now
	}
	u := proc.Live.UsageOf(tree, memory)
	w.usage.CPU = max(w.usage.CPU, u.CPU)
	w.usage.BlockBytes = max(w.usage.BlockBytes, u.BlockBytes)
	w.usage.ReadBytes = max(w.usage.ReadBytes, u.ReadBytes)
	w.pss, w.most = max(w.pss, u.PSS), max(w.most, u.Processes)
	for _, pid := range tree {
		if w.loops[pid] == nil {
			if log, err := steplog.Open(pid); err == nil {
				w.loops[pid] = &logged{log: log}
				w.res.Names = log.Stages()
			}
		}
		w.lookAtEngine(pid)
	}
}

func (w *watched) lookAtEngine(pid int) {
	s, err := counters.OpenStages(pid)
	if err != nil {
		return
	}
	all, err := s.Read()
	if err != nil {
		return
	}
	for _, snapshot := range all {
		if w.engines[pid] == nil {
			w.engines[pid] = map[int64]engineSeen{}
		}
		seen, ok := w.engines[pid][snapshot.Opened]
		if !ok {
			seen.first = counters.Snapshot{Opened: snapshot.Opened, At: snapshot.Opened}
		}
		seen.last = snapshot
		w.engines[pid][snapshot.Opened] = seen
	}
}

// read takes the new records of the logs.
func (w *watched) read() {
	for _, l := range w.loops {
		records, lost, err := l.log.Next()
		if err != nil {
			continue
		}
		l.lost += lost
		l.sum.Add(records)
		if w.o.Keep && len(w.res.Records)+len(records) <= keptRecords {
			w.res.Records = append(w.res.Records, records...)
		}
	}
}

// steps returns the number of steps of the slowest loop.
func (w *watched) steps() int {
	n := -1
	for _, l := range w.loops {
		if n < 0 || len(l.sum.Steps) < n {
			n = len(l.sum.Steps)
		}
	}
	return n
}

func (w *watched) close() {
	for _, l := range w.loops {
		l.log.Close()
	}
}

func (w *watched) finish() {
	w.read()
	r := w.res
	r.CPU, r.BlockBytes, r.ReadBytes = w.usage.CPU.Seconds(), w.usage.BlockBytes, w.usage.ReadBytes
	r.PSS, r.Processes = w.pss, w.most
	r.Steps = w.summary()
	r.Engine = w.engineStages()
	r.judge()
}

// summary joins the logs of all loops.
func (w *watched) summary() *CommandSteps {
	s := &CommandSteps{}
	var steps, waits []time.Duration
	var total, waited time.Duration
	parts := map[string]*Part{}
	for _, l := range w.loops {
		if len(l.sum.Steps) == 0 {
			continue
		}
		s.Loops++
		s.Marked = s.Marked || l.sum.Marked
		steps = append(steps, l.sum.Steps...)
		// The first wait is of the first step, and the last one may have found no
		// further batch.
		if ws := l.sum.Waits; len(ws) > 1 {
			waits = append(waits, ws[1:]...)
		}
		s.Rows += l.sum.Rows
		for _, d := range l.sum.Steps {
			total += d
		}
		for number, t := range l.sum.Stages {
			name := w.res.Names[number]
			if name == "" {
				name = "other"
			}
			if parts[name] == nil {
				parts[name] = &Part{Name: name}
			}
			parts[name].PerStep += t.Time.Seconds()
			parts[name].Count += t.Count
		}
	}
	if s.Loops == 0 {
		return nil
	}
	s.Count = len(steps)
	for _, d := range waits {
		waited += d
	}
	s.WaitsSeen = len(waits) > 0
	if s.WaitsSeen {
		s.AU = 1 - min(waited.Seconds()/max(total.Seconds(), 1e-9), 1)
		s.Waited = Waited(stats.Seconds(waits), total.Seconds()/float64(max(len(steps), 1)))
	}
	if total > 0 && s.Count > 0 {
		// The rows came in one step more than there are step times.
		s.PerSecond = float64(s.Rows) * float64(s.Count) / float64(s.Count+s.Loops) / total.Seconds() * float64(s.Loops)
	}
	for _, p := range parts {
		p.PerStep /= float64(max(s.Count+s.Loops, 1))
		s.Parts = append(s.Parts, *p)
	}
	slices.SortFunc(s.Parts, func(a, b Part) int { return strings.Compare(a.Name, b.Name) })
	s.StepTime, s.Wait = stats.DistributionOf(stats.Seconds(steps)), stats.DistributionOf(stats.Seconds(waits))
	return s
}

// engineStages adds the pipelines of all engines up.
func (w *watched) engineStages() []EngineStage {
	var c counters.Counters
	var seconds float64
	for _, pipelines := range w.engines {
		for _, seen := range pipelines {
			d := seen.last.Sub(seen.first)
			c.Records += d.Records
			c.Decoded += d.Decoded
			c.Sample += d.Sample
			c.Read += d.Read
			c.Decode += d.Decode
			c.Transform += d.Transform
			c.Collate += d.Collate
			c.DecodeWorkers += d.DecodeWorkers
			c.ReadWorkers += d.ReadWorkers
			seconds = max(seconds, float64(seen.last.At-seen.first.At)/1e9)
		}
	}
	if c.Records == 0 || seconds == 0 {
		return nil
	}
	var out []EngineStage
	for _, s := range []struct {
		name    string
		ns      uint64
		workers uint64
	}{{"sample", c.Sample, 1}, {"read", c.Read, c.ReadWorkers}, {"decode", c.Decode, c.DecodeWorkers}, {"transform", c.Transform, c.DecodeWorkers}, {"collate", c.Collate, c.DecodeWorkers}} {
		out = append(out, EngineStage{
			Name: s.name, Seconds: float64(s.ns) / 1e9, PerRecord: float64(s.ns) / float64(max(c.Decoded, c.Records)),
			Workers: int(s.workers), Busy: float64(s.ns) / 1e9 / seconds / float64(max(s.workers, 1)),
		})
	}
	return out
}

// judge sets the conclusions that are possible from outside; `stoker doctor` finds more.
func (r *CommandResult) judge() {
	used := r.CPU / max(r.Seconds*float64(r.Cores), 1e-9)
	seen := r.Steps != nil && r.Steps.WaitsSeen
	au := 0.0
	if seen {
		au = r.Steps.AU
	}
	switch r.Limit = Limit(au, seen, used); {
	case r.Limit == plan.LimitAccelerator:
		r.Why = fmt.Sprintf("the loop waits for data %.1f%% of its time only", 100*(1-au))
	case r.Limit == plan.LimitCPU:
		r.Why = fmt.Sprintf("the processes use %.0f%% of %d cores", 100*used, r.Cores)
	case seen:
		r.Why = fmt.Sprintf("the loop waits for data %.1f%% of its time, and the processes use %.0f%% of %d cores: stoker doctor says what for", 100*(1-au), 100*used, r.Cores)
	}
}
