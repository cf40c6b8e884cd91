package steptime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/doctor/steplog"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/stats"
)

// Told has a program's own timing of its loop, without the first step. Its JSON is written by
// python/src/stoker/_tell.py.
type Told struct {
	Loader string `json:"loader"`
	// Waits and Steps are in nanoseconds: the wait of each step for its batch, and the duration of the step including
	// the wait.
	Waits []int64 `json:"waits"`
	Steps []int64 `json:"steps"`
	// Seconds is the total time, and Computed the part that was spent on computing. FirstBatch is the time until the
	// first batch came.
	Seconds    float64 `json:"seconds"`
	Computed   float64 `json:"computed"`
	FirstBatch float64 `json:"first_batch"`
	Examples   int64   `json:"examples"`
	// Computes reports that the loop does something with its batches. Step is the time of a simulated accelerator in
	// seconds. Spin reports that it occupies a core.
	Computes bool    `json:"computes"`
	Step     float64 `json:"step"`
	Spin     bool    `json:"spin"`
	// Before and After are the engine's counters, if the loader has an engine.
	Before []StageCounter `json:"engine_before"`
	After  []StageCounter `json:"engine_after"`
	// Inside has the seconds of each stage inside the wait, by its name. Parts has the seconds per step of the parts of
	// a step that were measured other than by marks.
	Inside map[string]float64 `json:"inside"`
	Parts  map[string]float64 `json:"parts"`
	Log    Log                `json:"log"`
	Notes  []string           `json:"notes"`
}

// StageCounter is a counter of a stage from the engine's Stats.
type StageCounter struct {
	Name    string `json:"name"`
	BusyNS  int64  `json:"busy_ns"`
	Workers int    `json:"workers"`
}

// Log is a part of a step log with additional time spans.
type Log struct {
	// Records are nanoseconds, kind and argument. Lost reports that earlier records are missing.
	Records [][3]int64        `json:"records"`
	Lost    bool              `json:"lost"`
	Names   map[uint32]string `json:"names"`
	Spans   []Span            `json:"spans"`
}

// Span is an event inside a wait, in nanoseconds on the clock of the records.
type Span struct {
	Name string `json:"name"`
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// ParseTold reads a program's timing.
func ParseTold(data []byte) (*Told, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	t := &Told{}
	if err := d.Decode(t); err != nil {
		return nil, err
	}
	if len(t.Steps) == 0 || len(t.Waits) > len(t.Steps) {
		return nil, fmt.Errorf("%d steps and %d waits", len(t.Steps), len(t.Waits))
	}
	times := []float64{t.Seconds, t.Computed, t.FirstBatch, t.Step}
	times = slices.AppendSeq(slices.AppendSeq(times, maps.Values(t.Inside)), maps.Values(t.Parts))
	for _, v := range times {
		if !(v >= 0 && v < 1e9) {
			return nil, fmt.Errorf("a time of %v seconds", v)
		}
	}
	if t.Seconds < 1e-9 || t.Examples < 0 {
		return nil, errors.New("a run without time")
	}
	return t, nil
}

// Bench is the report of stoker.bench in Python, field by field. Times are in
// seconds.
type Bench struct {
	Loader     string             `json:"loader"`
	T          float64            `json:"t"`
	Steps      int                `json:"steps"`
	Examples   int64              `json:"examples"`
	Seconds    float64            `json:"seconds"`
	PerSecond  float64            `json:"examples_per_second"`
	StepRate   float64            `json:"steps_per_second"`
	AU         float64            `json:"au"`
	Step       stats.Distribution `json:"step"`
	Wait       stats.Distribution `json:"wait"`
	Waited     float64            `json:"waited"`
	FirstBatch float64            `json:"first_batch"`
	CPU        float64            `json:"cpu"`
	BlockBytes int64              `json:"block_bytes"`
	ReadBytes  int64              `json:"read_bytes"`
	PSS        int64              `json:"pss"`
	Processes  int                `json:"processes"`
	Cores      int                `json:"cores"`
	Limit      string             `json:"limit"`
	Stages     []Stage            `json:"stages"`
}

// Bench returns the speed of the loop and what limited it. u is the CPU use of the program's processes on that many
// cores.
func (t *Told) Bench(u proc.Usage, cores int) *Bench {
	steps, waits := seconds(t.Steps), seconds(t.Waits)
	b := &Bench{
		Loader: t.Loader, T: t.Step, Steps: len(steps), Examples: t.Examples, Seconds: t.Seconds,
		PerSecond: float64(t.Examples) / t.Seconds, StepRate: float64(len(steps)) / t.Seconds,
		Step: stats.DistributionOf(steps), Wait: stats.DistributionOf(waits), FirstBatch: t.FirstBatch,
		CPU: u.CPU.Seconds(), BlockBytes: u.BlockBytes, ReadBytes: u.ReadBytes, PSS: u.PSS, Processes: u.Processes, Cores: cores,
		Stages: t.engine(),
	}
	b.Waited = Waited(waits, b.Step.Mean)
	if t.Computes {
		b.AU = min(t.Computed/t.Seconds, 1)
	}
	spun := 0.0
	if t.Spin {
		spun = t.Step * float64(len(steps))
	}
	b.Limit = Limit(b.AU, t.Computes, (b.CPU-spun)/max(t.Seconds*float64(cores)-spun, 1e-9))
	return b
}

// Profile returns the division of a step's time.
func (t *Told) Profile(u proc.Usage) *Profile {
	n := float64(len(t.Steps))
	steps, waits := seconds(t.Steps), seconds(t.Waits)
	s := Summary{
		Loader: t.Loader, Steps: len(steps), Examples: t.Examples, Seconds: t.Seconds, PerSecond: float64(t.Examples) / t.Seconds,
		StepTime: stats.DistributionOf(steps), Wait: stats.DistributionOf(waits), PerStep: t.Seconds / n, WaitsSeen: true,
		Engine: t.engine(), CPU: u.CPU.Seconds(), Notes: t.Notes,
	}
	for _, w := range waits {
		s.Waited += w / n
	}
	parts := t.Log.stages(len(steps))
	for name, v := range t.Parts {
		if _, marked := parts[name]; !marked {
			parts[name] = v
		}
	}
	if _, marked := parts["forward"]; len(t.Parts) > 0 && !marked {
		rest := s.PerStep - min(s.Waited, s.PerStep)
		for _, v := range parts {
			rest -= v
		}
		parts["forward"] = max(rest, 0)
	}
	if len(t.Parts) > 0 {
		s.Notes = append(slices.Clip(s.Notes), "forward is the rest of the step, without what torch's events name")
	}
	for name, v := range parts {
		s.Parts = append(s.Parts, Part{Name: name, PerStep: v})
	}
	for name, v := range t.Inside {
		s.Inside = append(s.Inside, Part{Name: name, PerStep: v / n})
	}
	return s.Profile()
}

// engine returns the time per step in each stage of the engine.
func (t *Told) engine() []Stage {
	old := map[string]int64{}
	for _, s := range t.Before {
		old[s.Name] = s.BusyNS
	}
	stages := []Stage{}
	for _, s := range t.After {
		busy := float64(s.BusyNS-old[s.Name]) / 1e9
		name := s.Name
		if name == "fetch" {
			name = "read"
		}
		stages = append(stages, Stage{name, "engine", busy / float64(len(t.Steps)), busy / max(t.Seconds*float64(s.Workers), 1e-9)})
	}
	return stages
}

// records returns the log's records in the form of the step log reader.
func (l *Log) records() []steplog.Record {
	out := make([]steplog.Record, 0, len(l.Records))
	for _, r := range l.Records {
		if r[0] > 0 && r[1] > 0 && r[1] < math.MaxUint32 && r[2] >= 0 && r[2] <= math.MaxUint32 {
			out = append(out, steplog.Record{NS: r[0], Kind: steplog.Kind(r[1]), Arg: uint32(r[2])})
		}
	}
	return out
}

// stages are the seconds per step of the marked parts.
func (l *Log) stages(steps int) map[string]float64 {
	records := l.records()
	sum := steplog.Summarise(records)
	if l.Lost { // the log has only the last records
		steps = 0
		for _, r := range records {
			if r.Kind == steplog.Step {
				steps++
			}
		}
	}
	parts := map[string]float64{}
	for number, s := range sum.Stages {
		parts[stageName(l.Names, number)] += s.Time.Seconds() / float64(max(steps, 1))
	}
	return parts
}

func stageName(names map[uint32]string, number uint32) string {
	if name := names[number]; name != "" {
		return name
	}
	return "other"
}

func seconds(ns []int64) []float64 {
	out := make([]float64, len(ns))
	for i, v := range ns {
		out[i] = float64(v) / 1e9
	}
	return out
}
