package steptime

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/stats"
)

// Profile is the division of a training loop's time. Its JSON is the same whether `stoker profile` or stoker.profile in
// Python has measured it, so both can be compared. Times are in seconds.
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
	Stages    []Stage            `json:"stages"`
	CPU       float64            `json:"cpu"`
	Notes     []string           `json:"notes"`
}

// Stage is a part of the work. Stages with Where "trainer" follow one another and add up to the step. The others happen
// inside the wait ("loading") or in parallel to the loop ("engine").
type Stage struct {
	Name  string `json:"name"`
	Where string `json:"where"`
	// Seconds are per step, summed over the workers of the stage.
	Seconds float64 `json:"seconds"`
	// Share is of the loop's time; for the engine, of the stage's workers' time.
	Share float64 `json:"share"`
}

// Part is a part of a step that the user has marked.
type Part struct {
	Name    string  `json:"name"`
	PerStep float64 `json:"seconds_per_step"`
	Count   int     `json:"count"`
}

const (
	profileFormat  = "stoker profile"
	profileVersion = 1
	maxStages      = 1000
)

// The order of the parts of a step, and of the stages of loading; others follow in the order of their names.
var (
	partOrder   = []string{"copy", "forward", "backward", "optimiser", "copy back"}
	insideOrder = []string{"getitem", "collate"}
)

// Summary is the input of a profile, from any observer.
type Summary struct {
	Loader    string
	Steps     int
	Examples  int64
	Seconds   float64
	PerSecond float64
	StepTime  stats.Distribution
	Wait      stats.Distribution
	// PerStep is the time of a step, and Waited the part that was waiting. WaitsSeen is false if waits are unknown.
	PerStep, Waited float64
	WaitsSeen       bool
	// Parts are the parts of the step, and Inside those of the wait.
	Parts, Inside []Part
	Engine        []Stage
	CPU           float64
	Notes         []string
}

// Profile combines the stages: the wait, the parts of the step and the rest of it. After them come the stages inside
// the wait and in parallel to the loop.
func (s *Summary) Profile() *Profile {
	p := &Profile{
		Format: profileFormat, Version: profileVersion, Loader: s.Loader, Steps: s.Steps, Examples: s.Examples,
		Seconds: s.Seconds, PerSecond: s.PerSecond, Step: s.StepTime, Wait: s.Wait, CPU: s.CPU, Notes: append([]string{}, s.Notes...),
	}
	step := max(s.PerStep, 1e-12)
	left := step
	add := func(name, where string, seconds float64) {
		p.Stages = append(p.Stages, Stage{name, where, seconds, seconds / step})
	}
	if s.WaitsSeen {
		wait := min(s.Waited, step)
		add("wait", "trainer", wait)
		left -= wait
		p.AU = 1 - wait/step
	} else {
		p.Notes = append(p.Notes, "waiting cannot be told from computing: loop over stoker.watch(loader), or load with stoker.Loader")
	}
	for _, part := range inOrder(s.Parts, partOrder) {
		add(part.Name, "trainer", part.PerStep)
		left -= part.PerStep
	}
	if left > 0.002*step {
		name := "compute"
		if len(s.Parts) > 0 {
			name = "other"
		}
		add(name, "trainer", left)
	}
	for _, part := range inOrder(s.Inside, insideOrder) {
		add(part.Name, "loading", part.PerStep)
	}
	p.Stages = append(p.Stages, s.Engine...)
	return p
}

// inOrder sorts parts: first the ones in order.
func inOrder(parts []Part, order []string) []Part {
	place := func(p Part) int {
		if i := slices.Index(order, p.Name); i >= 0 {
			return i
		}
		return len(order)
	}
	return slices.SortedFunc(slices.Values(parts), func(a, b Part) int {
		if d := place(a) - place(b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// ParseProfile reads a saved profile.
func ParseProfile(data []byte) (*Profile, error) {
	var p Profile
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, errors.New("this is not a profile that stoker has saved")
	}
	switch {
	case p.Format != profileFormat:
		return nil, errors.New("this is not a profile that stoker has saved")
	case p.Version != profileVersion:
		return nil, fmt.Errorf("this is a profile of version %d, this program reads version %d", p.Version, profileVersion)
	case len(p.Stages) > maxStages:
		return nil, fmt.Errorf("a profile of %d stages", len(p.Stages))
	}
	return &p, nil
}

// Change is one figure of two profiles.
type Change struct {
	Name          string
	Before, After float64
	// Unit is the unit of the values: a time in seconds, a number per second or a share.
	Unit Unit
}

// Unit is the unit of a Change.
type Unit int

// The units.
const (
	Time Unit = iota
	PerSecond
	Share
)

// Compare lists two profiles side by side: the step, its stages (first those of the later profile), and the speed.
func Compare(before, after *Profile) []Change {
	type key struct{ where, name string }
	var keys []key
	values := map[key]*Change{}
	for i, p := range []*Profile{after, before} {
		for _, s := range p.Stages {
			k := key{s.Where, s.Name}
			if values[k] == nil {
				keys = append(keys, k)
				values[k] = &Change{Name: k.where + ": " + k.name}
			}
			if i == 0 {
				values[k].After = s.Seconds
			} else {
				values[k].Before = s.Seconds
			}
		}
	}
	rows := []Change{{Name: "step", Before: before.Step.Mean, After: after.Step.Mean}}
	for _, k := range keys {
		rows = append(rows, *values[k])
	}
	return append(rows,
		Change{"examples/s", before.PerSecond, after.PerSecond, PerSecond},
		Change{"AU", before.AU, after.AU, Share})
}
