package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/stats"
	"github.com/stokerdata/stoker/internal/steplog"
)

// Profile says where the time of a training loop goes. Its JSON is that of
// stoker.profile in Python, so that either can be compared with the other. Times
// are in seconds.
type Profile struct {
	Format    string             `json:"format"`
	Version   int                `json:"version"`
	Loader    string             `json:"loader"`
	Steps     int                `json:"steps"`
	Examples  int64              `json:"examples"`
	Seconds   float64            `json:"seconds"`
	PerSecond float64            `json:"examples_per_second"`
	AU        float64            `json:"au"`
	Step      stats.Distribution `json:"step"`
	Wait      stats.Distribution `json:"wait"`
	Stages    []ProfileStage     `json:"stages"`
	CPU       float64            `json:"cpu"`
	Notes     []string           `json:"notes"`
}

// ProfileStage is a part of the work. Those whose Where is "trainer" follow one
// another and add up to the step; the others happen inside the wait ("loading")
// or beside the loop ("engine").
type ProfileStage struct {
	Name  string `json:"name"`
	Where string `json:"where"`
	// Seconds are per step, summed over the workers of the stage.
	Seconds float64 `json:"seconds"`
	// Share is of the loop's time; for the engine, of the stage's workers' time.
	Share float64 `json:"share"`
}

const (
	profileFormat  = "stoker profile"
	profileVersion = 1
	maxStages      = 1000
)

// partOrder is the order in which the parts of a step are listed.
var partOrder = []string{"copy", "forward", "backward", "optimiser", "copy back"}

// NewProfile makes the profile of a command; nil when its steps were not seen.
func NewProfile(r *CommandResult) *Profile {
	s := r.Steps
	if s == nil || s.Count == 0 {
		return nil
	}
	total := s.StepTime.Mean * float64(s.Count)
	p := &Profile{
		Format: profileFormat, Version: profileVersion, Loader: strings.Join(r.Command, " "), Steps: s.Count, Examples: s.Rows,
		Seconds: total, PerSecond: s.PerSecond, AU: s.AU, Step: s.StepTime, Wait: s.Wait, CPU: r.CPU, Notes: []string{},
	}
	step := max(s.StepTime.Mean, 1e-12)
	left := step
	add := func(name, where string, seconds float64) {
		p.Stages = append(p.Stages, ProfileStage{name, where, seconds, seconds / step})
	}
	if s.WaitsSeen {
		wait := min((1-s.AU)*step, step)
		add("wait", "trainer", wait)
		left -= wait
	} else {
		p.Notes = append(p.Notes, "waiting cannot be told from computing: loop over stoker.watch(loader), or load with stoker.Loader")
	}
	place := func(name string) int {
		if i := slices.Index(partOrder, name); i >= 0 {
			return i
		}
		return len(partOrder)
	}
	parts := slices.Clone(s.Parts)
	slices.SortStableFunc(parts, func(a, b Part) int { return place(a.Name) - place(b.Name) })
	inside := []Part{}
	for _, part := range parts {
		if part.Name == "getitem" || part.Name == "collate" {
			inside = append(inside, part)
			continue
		}
		add(part.Name, "trainer", part.PerStep)
		left -= part.PerStep
	}
	if left > 0.002*step {
		name := "compute"
		if len(parts) > len(inside) {
			name = "other"
		}
		add(name, "trainer", left)
	}
	for _, part := range inside {
		add(part.Name, "loading", part.PerStep)
	}
	for _, e := range r.Engine {
		p.Stages = append(p.Stages, ProfileStage{e.Name, "engine", e.Seconds / float64(s.Count+s.Loops), e.Busy})
	}
	return p
}

// ParseProfile reads what was saved.
func ParseProfile(data []byte) (*Profile, error) {
	var p Profile
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, errors.New("this is no profile that stoker has saved")
	}
	switch {
	case p.Format != profileFormat:
		return nil, errors.New("this is no profile that stoker has saved")
	case p.Version != profileVersion:
		return nil, fmt.Errorf("this is a profile of version %d, this program reads version %d", p.Version, profileVersion)
	case len(p.Stages) > maxStages:
		return nil, fmt.Errorf("a profile of %d stages", len(p.Stages))
	}
	return &p, nil
}

// TraceEvent is an event of the Chrome trace event format: a complete event (X),
// with its start and length in microseconds, or metadata (M).
type TraceEvent struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	TS   float64        `json:"ts"`
	Dur  float64        `json:"dur,omitempty"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

// TraceFile is a Chrome trace.
type TraceFile struct {
	TraceEvents     []TraceEvent `json:"traceEvents"`
	DisplayTimeUnit string       `json:"displayTimeUnit"`
}

// Trace makes a Chrome trace of a command whose records were kept.
func Trace(r *CommandResult) *TraceFile {
	t := &TraceFile{DisplayTimeUnit: "ms", TraceEvents: []TraceEvent{
		{Name: "process_name", Ph: "M", PID: 1, Args: map[string]any{"name": strings.Join(r.Command, " ")}},
		{Name: "thread_name", Ph: "M", PID: 1, TID: 1, Args: map[string]any{"name": "training loop"}},
	}}
	event := func(name, cat string, from, to int64) {
		t.TraceEvents = append(t.TraceEvents, TraceEvent{Name: name, Cat: cat, Ph: "X", TS: float64(from) / 1e3, Dur: float64(to-from) / 1e3, PID: 1, TID: 1})
	}
	var wait, computing int64
	open := map[uint32]int64{}
	for _, x := range r.Records {
		switch x.Kind {
		case steplog.WaitBegin:
			wait = x.NS
			if computing != 0 && !r.marked() {
				event("step", "step", computing, x.NS)
				computing = 0
			}
		case steplog.WaitEnd:
			if wait != 0 {
				event("wait", "wait", wait, x.NS)
			}
			computing = x.NS
		case steplog.Step:
			if computing != 0 {
				event("step", "step", computing, x.NS)
				computing = 0
			}
		case steplog.StageBegin:
			open[x.Arg] = x.NS
		case steplog.StageEnd:
			if from, ok := open[x.Arg]; ok {
				delete(open, x.Arg)
				name := r.Names[x.Arg]
				if name == "" {
					name = "other"
				}
				event(name, "stage", from, x.NS)
			}
		}
	}
	return t
}

func (r *CommandResult) marked() bool { return r.Steps != nil && r.Steps.Marked }
