package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/doctor"
	"github.com/stokerdata/stoker/internal/units"
)

// Row is one figure of two runs.
type Row struct {
	Name          string
	Before, After string // with units; "-" if unknown
	// Ratio is after / before; 0 if it is meaningless.
	Ratio float64
	// Better is 1 for an improvement, -1 for a regression, and 0 if the change is neutral or small (less than 3%).
	Better int
}

// RatioText returns the ratio as text: "2.4x", "0.31x", "" for none.
func (r Row) RatioText() string {
	switch {
	case r.Ratio == 0 || math.IsInf(r.Ratio, 0) || math.IsNaN(r.Ratio):
		return ""
	case r.Ratio >= 99.5:
		return fmt.Sprintf("%.0fx", r.Ratio)
	case r.Ratio >= 9.95:
		return fmt.Sprintf("%.1fx", r.Ratio)
	}
	return fmt.Sprintf("%.2fx", r.Ratio)
}

// figure describes how one number is read from a report and formatted.
type figure struct {
	name   string
	value  func(*doctor.Report) float64 // NaN: not known
	format func(float64) string
	// good is 1 if more is better, -1 if less is better, 0 if neither.
	good int
}

var figures = []figure{
	{"steps per second", func(r *doctor.Report) float64 { return positive(r.Steps.PerSecond) }, three, 1},
	{"rows per second", func(r *doctor.Report) float64 { return positive(r.Steps.Rows) }, three, 1},
	// A loop with uncounted steps spends its time in steps or waiting. The ratio is therefore that of the speed.
	{"share in steps (speed, for equal steps)", func(r *doctor.Report) float64 {
		return known(1-r.Waiting, r.Steps.PerSecond == 0 && r.Loader.Trainers > 0)
	}, units.Rough, 1},
	{"trainer waits for data", func(r *doctor.Report) float64 { return r.Waiting }, units.Rough, -1},
	{"step, mean", func(r *doctor.Report) float64 { return positive(r.Steps.Mean) }, units.Seconds, -1},
	{"step, 99th percentile", func(r *doctor.Report) float64 { return positive(r.Steps.P99) }, units.Seconds, -1},
	{"wait per step, mean", func(r *doctor.Report) float64 { return known(r.Steps.WaitMean, r.Steps.Count > 0) }, units.Seconds, -1},
	{"wait per step, 99th percentile", func(r *doctor.Report) float64 { return known(r.Steps.WaitP99, r.Steps.Count > 0) }, units.Seconds, -1},
	{"still to gain", func(r *doctor.Report) float64 { return positive(r.Gain) }, func(x float64) string { return fmt.Sprintf("%.2fx", x) }, 0},
	{"accelerator busy", mean("gpu0"), units.Rough, 1},
	{"CPU of the job", mean("cpu"), units.Rough, 0},
	{"CPU of the machine", mean("cpu_machine"), units.Rough, 0},
	{"read from disk", mean("read_MBps"), megabytes, 0},
	{"disk busy", mean("disk_busy"), units.Rough, 0},
	{"from the network", mean("net_MBps"), megabytes, 0},
	{"memory", mean("memory"), units.Rough, 0},
	{"workers", func(r *doctor.Report) float64 { return known(float64(r.Loader.Workers), r.Loader.Kind != "") }, func(x float64) string { return fmt.Sprintf("%.0f", x) }, 0},
}

// Compare compares two runs. Figures that are in neither are left out.
func Compare(before, after *doctor.Report) []Row {
	rows := []Row{{Name: "verdict", Before: VerdictText(before.Verdict), After: VerdictText(after.Verdict)}}
	for _, f := range figures {
		b, a := f.value(before), f.value(after)
		if math.IsNaN(b) && math.IsNaN(a) || b == 0 && a == 0 {
			continue
		}
		row := Row{Name: f.name, Before: text(b, f.format), After: text(a, f.format)}
		if b > 0 && a >= 0 && !math.IsInf(b, 0) && !math.IsInf(a, 0) {
			row.Ratio = a / b
			// A change that the text does not show is noise.
			if change := row.Ratio - 1; math.Abs(change) >= 0.03 && row.Before != row.After {
				row.Better = f.good
				if change < 0 {
					row.Better = -f.good
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// Speedup returns how many times faster the second run is, by the best figure that both have, and the name of that
// figure. It is 0 without such a figure.
func Speedup(before, after *doctor.Report) (factor float64, by string) {
	switch {
	case before.Steps.PerSecond > 0 && after.Steps.PerSecond > 0:
		return after.Steps.PerSecond / before.Steps.PerSecond, "steps per second"
	case before.Steps.Rows > 0 && after.Steps.Rows > 0:
		return after.Steps.Rows / before.Steps.Rows, "rows per second"
	}
	return 0, ""
}

// VerdictText returns a verdict in words.
func VerdictText(v doctor.Verdict) string { return v.Words() }

func text(x float64, format func(float64) string) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "-"
	}
	return format(x)
}

func known(x float64, is bool) float64 {
	if !is {
		return math.NaN()
	}
	return x
}

func positive(x float64) float64 { return known(x, x > 0) }

// mean returns the mean of a series while the job trained, if known. The start of the job does not show its speed.
func mean(key string) func(*doctor.Report) float64 {
	return func(r *doctor.Report) float64 {
		v, training := r.Series[key], r.Series["wait"]
		sum, n := 0.0, 0
		for i, x := range v {
			if len(training) == len(v) && math.IsNaN(training[i]) {
				continue
			}
			if !math.IsNaN(x) && !math.IsInf(x, 0) {
				sum, n = sum+x, n+1
			}
		}
		if n == 0 {
			return math.NaN()
		}
		return sum / float64(n)
	}
}

// megabytes formats the values of series in MB per second.
func megabytes(x float64) string { return units.Bandwidth(1e6 * x) }

// three formats a number with three digits, a small one without trailing zeros.
func three(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0:
		return "-" + three(-x)
	case x < 0.0005:
		return fmt.Sprintf("%.1e", x)
	}
	text := units.Digits(x)
	if x < 9.995 {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}
