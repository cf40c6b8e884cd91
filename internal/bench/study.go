package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/stats"
)

// The axes of a study.
const (
	AxisWorkers = "workers"
	AxisCores   = "cores"
	AxisCache   = "cache"
	AxisDecode  = "decode"
)

// Axis is one thing that a study varies.
type Axis struct {
	Name   string
	Values []string
}

// Cell is one combination of values, and the results of its runs.
type Cell struct {
	// Values are by axis.
	Values map[string]string `json:"values"`
	// PerSecond, Epoch (seconds per epoch, or per step of a command) and AU are
	// medians; Low and High are the extremes of Epoch over the repeats.
	PerSecond float64 `json:"examples_per_second,omitempty"`
	Epoch     float64 `json:"seconds"`
	AU        float64 `json:"au,omitempty"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
	// Limit is the limit of most runs, Why the line of one of them.
	Limit string `json:"limit,omitempty"`
	Why   string `json:"why,omitempty"`
	// CPU is the engine's CPU seconds per 1,000 examples, PSS the memory.
	CPU     float64 `json:"cpu_per_thousand,omitempty"`
	PSS     int64   `json:"pss,omitempty"`
	Repeats int     `json:"repeats"`
}

// Series is a line of the curve: all axes but X are fixed.
type Series struct {
	Name string `json:"name"`
	// X are the values of the axis as numbers, Cells the places in Study.Cells.
	X     []float64 `json:"x"`
	Cells []int     `json:"cells"`
	// Knee is the place in Cells of the last point that adds speed: see KneeOf.
	Knee int `json:"knee"`
	// Verdict names the knee and the limit beyond it.
	Verdict string `json:"verdict"`
}

// Study is a set of runs over one or more axes.
type Study struct {
	Subject string `json:"subject"`
	// X is the axis of the curve, Unit the unit that Epoch counts.
	X      string   `json:"x"`
	Unit   string   `json:"unit"`
	Cells  []Cell   `json:"cells"`
	Series []Series `json:"series"`
	Notes  []string `json:"notes,omitempty"`
}

// Outcome is one run of a cell.
type Outcome struct {
	PerSecond, Seconds, AU float64
	Limit, Why             string
	CPU                    float64
	PSS                    int64
}

// KneeGain is the factor by which a point must exceed the last point that counted, to count itself: a tenth more.
const KneeGain = 1.10

// KneeOf returns the index of the knee: the last point whose speed is at least KneeGain times that of the last point
// before it that counted. It needs no model of the curve, so that three points are enough and a dip does no harm.
// Speeds are in the order of the axis.
func KneeOf(speeds []float64) int {
	knee := 0
	for i, s := range speeds {
		if s >= KneeGain*speeds[knee] {
			knee = i
		}
	}
	return knee
}

// maxCells bounds a study.
const maxCells = 256

// cellsOf makes all combinations.
func cellsOf(axes []Axis) ([]Cell, error) {
	cells := []Cell{{Values: map[string]string{}}}
	for _, a := range axes {
		var next []Cell
		for _, c := range cells {
			for _, v := range a.Values {
				values := map[string]string{a.Name: v}
				for k, old := range c.Values {
					values[k] = old
				}
				next = append(next, Cell{Values: values})
			}
		}
		if cells = next; len(cells) > maxCells {
			return nil, fmt.Errorf("more than %d combinations", maxCells)
		}
	}
	return cells, nil
}

// RunStudy runs every combination of the axes repeats times, by calling run. Each turn has a new order, so that changes
// on the machine affect all combinations alike.
func RunStudy(ctx context.Context, subject, unit string, axes []Axis, repeats int, run func(values map[string]string) (Outcome, error), note func(format string, args ...any)) (*Study, error) {
	cells, err := cellsOf(axes)
	if err != nil {
		return nil, err
	}
	outcomes := make([][]Outcome, len(cells))
	rnd := rand.New(rand.NewPCG(3, 5))
	for round := range repeats {
		for _, i := range rnd.Perm(len(cells)) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			out, err := run(cells[i].Values)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", nameOf(axes, cells[i].Values, ""), err)
			}
			outcomes[i] = append(outcomes[i], out)
			note("round %d of %d: %s: %s", round+1, repeats, nameOf(axes, cells[i].Values, ""), out.short(unit))
		}
	}
	for i := range cells {
		cells[i].sum(outcomes[i])
	}
	s := &Study{Subject: subject, Unit: unit, Cells: cells, X: axisOfCurve(axes)}
	s.draw(axes)
	return s, nil
}

func (o *Outcome) short(unit string) string {
	if o.PerSecond > 0 {
		return fmt.Sprintf("%.0f examples/s", o.PerSecond)
	}
	return fmt.Sprintf("%.3g %s", o.Seconds, unit)
}

func (c *Cell) sum(runs []Outcome) {
	pick := func(f func(Outcome) float64) []float64 {
		var out []float64
		for _, r := range runs {
			out = append(out, f(r))
		}
		return out
	}
	seconds := pick(func(o Outcome) float64 { return o.Seconds })
	c.Epoch, c.Low, c.High = stats.Median(seconds), slices.Min(seconds), slices.Max(seconds)
	c.PerSecond = stats.Median(pick(func(o Outcome) float64 { return o.PerSecond }))
	c.AU = stats.Median(pick(func(o Outcome) float64 { return o.AU }))
	c.CPU = stats.Median(pick(func(o Outcome) float64 { return o.CPU }))
	c.PSS = int64(stats.Median(pick(func(o Outcome) float64 { return float64(o.PSS) })))
	c.Repeats = len(runs)
	count := map[string]int{}
	for _, r := range runs {
		if count[r.Limit]++; count[r.Limit] > count[c.Limit] || c.Limit == "" {
			c.Limit, c.Why = r.Limit, r.Why
		}
	}
}

// axisOfCurve picks the axis that the curve goes along: the first of these with
// more than one value.
func axisOfCurve(axes []Axis) string {
	for _, name := range []string{AxisWorkers, AxisCores, AxisCache, AxisDecode} {
		for _, a := range axes {
			if a.Name == name && len(a.Values) > 1 {
				return name
			}
		}
	}
	return ""
}

// nameOf says a combination in words, without one of its axes.
func nameOf(axes []Axis, values map[string]string, without string) string {
	var parts []string
	for _, a := range axes {
		if a.Name == without {
			continue
		}
		v := values[a.Name]
		switch a.Name {
		case AxisWorkers, AxisCores:
			unit := a.Name
			if v == "1" {
				unit = strings.TrimSuffix(unit, "s")
			}
			parts = append(parts, v+" "+unit)
		case AxisCache:
			parts = append(parts, v+"% cached")
		case AxisDecode:
			parts = append(parts, a.Name+" "+v)
		default: // what a program in Python varies
			parts = append(parts, v+" "+a.Name)
		}
	}
	return strings.Join(parts, ", ")
}

// draw makes the series and finds their knees.
func (s *Study) draw(axes []Axis) {
	byName := map[string]int{}
	for i, c := range s.Cells {
		name := nameOf(axes, c.Values, s.X)
		k, ok := byName[name]
		if !ok {
			k = len(s.Series)
			byName[name] = k
			s.Series = append(s.Series, Series{Name: name})
		}
		s.Series[k].Cells = append(s.Series[k].Cells, i)
	}
	for k := range s.Series {
		line := &s.Series[k]
		slices.SortStableFunc(line.Cells, func(a, b int) int { return cmp.Compare(s.xOf(a), s.xOf(b)) })
		var speeds []float64
		for _, i := range line.Cells {
			line.X = append(line.X, s.xOf(i))
			speeds = append(speeds, 1/max(s.Cells[i].Epoch, 1e-12))
		}
		line.Knee = KneeOf(speeds)
		line.Verdict = s.verdict(line, speeds)
	}
}

// xOf is the place of a cell on the axis.
func (s *Study) xOf(cell int) float64 {
	v := s.Cells[cell].Values[s.X]
	switch v {
	case "on":
		return 0
	case "off":
		return 1
	}
	x, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return 0
	}
	return x
}

// verdict describes the knee and the limit beyond it in a sentence.
func (s *Study) verdict(line *Series, speeds []float64) string {
	name := ""
	if line.Name != "" {
		name = line.Name + ": "
	}
	if s.X == AxisDecode {
		return fmt.Sprintf("%s%.2f times as fast without decoding", name, speeds[len(speeds)-1]/speeds[0])
	}
	at := s.Cells[line.Cells[line.Knee]]
	what := nameOf([]Axis{{Name: s.X}}, at.Values, "")
	limit := ""
	if at.Limit != "" {
		limit = "; the limit there is " + at.Limit
		if at.Why != "" {
			limit += ": " + at.Why
		}
	}
	if line.Knee == len(speeds)-1 && len(speeds) > 1 {
		before := s.Cells[line.Cells[line.Knee-1]].Values[s.X]
		if s.X == AxisCache {
			before += "%"
		}
		return fmt.Sprintf("%sstill %.2f times faster at %s than at %s: the knee lies beyond%s",
			name, speeds[line.Knee]/speeds[line.Knee-1], what, before, limit)
	}
	best := slices.Max(speeds[line.Knee:])
	return fmt.Sprintf("%sknee at %s: more adds %.0f%% at most%s", name, what, 100*max(best/speeds[line.Knee]-1, 0), limit)
}

// Restore makes the series of a study whose cells were read from JSON. It refuses cells that cannot be drawn.
func (s *Study) Restore() error {
	if len(s.Cells) == 0 || len(s.Cells) > maxCells || s.X == "" {
		return fmt.Errorf("%d cells over the axis %q", len(s.Cells), s.X)
	}
	names := map[string]bool{}
	for i, c := range s.Cells {
		if x := s.xOf(i); !(x >= 0 && x <= 1e6) {
			return fmt.Errorf("%s is %q", s.X, c.Values[s.X])
		}
		for _, v := range []float64{c.Epoch, c.Low, c.High} {
			if !(v >= 0 && v < 1e12) {
				return fmt.Errorf("a time of %v seconds", v)
			}
		}
		if _, ok := c.Values[s.X]; !ok {
			return fmt.Errorf("a cell without a value for %s", s.X)
		}
		for name := range c.Values {
			names[name] = true
		}
	}
	var axes []Axis
	for name := range names {
		axes = append(axes, Axis{Name: name})
	}
	slices.SortFunc(axes, func(a, b Axis) int { return strings.Compare(a.Name, b.Name) })
	s.Series = nil
	s.draw(axes)
	return nil
}
