package bench

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Told is the runs that a program has made along one axis and tells of:
// stoker.study in Python.
type Told struct {
	Axis string    `json:"axis"`
	Unit string    `json:"unit"`
	Runs []ToldRun `json:"runs"`
}

// ToldRun is one of them. CPU is in seconds per step.
type ToldRun struct {
	X         int64   `json:"x"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"examples_per_second"`
	AU        float64 `json:"au"`
	CPU       float64 `json:"cpu"`
	PSS       int64   `json:"pss"`
	Limit     string  `json:"limit"`
}

// ToldCurve is the answer to a program: the points in order, and the knee.
type ToldCurve struct {
	Cells   []ToldCell `json:"cells"`
	Knee    int64      `json:"knee"`
	Verdict string     `json:"verdict"`
}

// ToldCell is one point: medians, and the extremes of its seconds.
type ToldCell struct {
	ToldRun
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// maxToldRuns bounds the number of runs that are read.
const maxToldRuns = 100 * maxCells

// ParseTold reads the report of a program.
func ParseTold(data []byte) (*Told, error) {
	t := &Told{}
	if err := json.Unmarshal(data, t); err != nil {
		return nil, err
	}
	if len(t.Runs) == 0 || len(t.Runs) > maxToldRuns || t.Axis == "" {
		return nil, fmt.Errorf("%d runs over the axis %q", len(t.Runs), t.Axis)
	}
	for _, r := range t.Runs {
		if r.X < 0 || r.X > 1e6 || !(r.Seconds >= 0 && r.Seconds < 1e12) {
			return nil, fmt.Errorf("a run of %d %s and %v seconds", r.X, t.Axis, r.Seconds)
		}
	}
	return t, nil
}

// Curve sums the runs of each point up and finds the knee.
func (t *Told) Curve() (*ToldCurve, error) {
	var xs []int64
	outcomes := map[int64][]Outcome{}
	for _, r := range t.Runs {
		if outcomes[r.X] == nil {
			xs = append(xs, r.X)
		}
		outcomes[r.X] = append(outcomes[r.X], Outcome{PerSecond: r.PerSecond, Seconds: r.Seconds, AU: r.AU, Limit: r.Limit, CPU: r.CPU, PSS: r.PSS})
	}
	if len(xs) > maxCells {
		return nil, fmt.Errorf("more than %d points", maxCells)
	}
	slices.Sort(xs)
	s := &Study{X: t.Axis, Unit: t.Unit}
	for _, x := range xs {
		c := Cell{Values: map[string]string{t.Axis: strconv.FormatInt(x, 10)}}
		c.sum(outcomes[x])
		s.Cells = append(s.Cells, c)
	}
	s.draw([]Axis{{Name: t.Axis}})
	line := s.Series[0]
	out := &ToldCurve{Knee: xs[line.Knee], Verdict: line.Verdict}
	for i, c := range s.Cells {
		out.Cells = append(out.Cells, ToldCell{ToldRun{xs[i], c.Epoch, c.PerSecond, c.AU, c.CPU, c.PSS, c.Limit}, c.Low, c.High})
	}
	return out, nil
}
