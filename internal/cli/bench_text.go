package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/stats"
)

// benchReport is what `stoker bench SOURCE` prints.
type benchReport struct {
	*bench.Result
	Transforms string           `json:"transforms"`
	Target     float64          `json:"au_target"`
	WhatIf     []bench.Scenario `json:"what_if,omitempty"`
}

func (app *App) printJSON(v any) error {
	e := json.NewEncoder(app.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (app *App) print(text string) error {
	_, err := lipgloss.Fprint(app.Stdout, text)
	return err
}

// seconds is a time for people: 87.2 ms, 1.24 s, 41 us.
func seconds(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1e-6:
		return fmt.Sprintf("%.0f ns", s*1e9)
	case s < 0.0995e-3:
		return fmt.Sprintf("%.2g us", s*1e6)
	case s < 0.0995:
		return fmt.Sprintf("%.3g ms", s*1e3)
	case s < 0.9995:
		return fmt.Sprintf("%.0f ms", s*1e3)
	case s < 99.5:
		return fmt.Sprintf("%.3g s", s)
	case s < 5400:
		return fmt.Sprintf("%.0f s", s)
	}
	return fmt.Sprintf("%.1f h", s/3600)
}

// rate is a number per second: with a decimal where there are few.
func rate(v float64) string {
	if v < 9.95 {
		return fmt.Sprintf("%.2g", v)
	}
	return FormatCount(int64(v + 0.5))
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

func (r *benchReport) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s records (%s); %s; batches of %s\n", clean(r.Source), FormatCount(r.Records), r.Format, r.Transforms, FormatCount(int64(r.Batch)))
	fmt.Fprintf(&out, "%s, %s, %s of %s; %s\n\n", plural(r.Cores, "core"), plural(r.Threads, "decode worker"), plural(r.Slots, "slot"),
		FormatBytes(r.SlotBytes), r.accelerator())
	if r.Step > 0 {
		verdict := "reached"
		if r.AU < r.Target {
			verdict = "missed"
		}
		fmt.Fprintf(&out, "  AU %s: the accelerator computes that share of the time (target %s %s)\n", bold(percent(r.AU)), percent(r.Target), verdict)
		if r.Accelerators > 1 {
			fmt.Fprintf(&out, "  the worst of the %d accelerators: %s\n", r.Accelerators, percent(r.AUMin))
		}
	}
	fmt.Fprintf(&out, "  %s examples/s, an epoch in %s\n", bold(rate(r.PerSecond)), seconds(r.Epoch))
	if r.Step == 0 {
		t := float64(r.Batch) / max(r.PerSecond, 1e-9)
		fmt.Fprintf(&out, "  enough for steps of %s and longer\n", seconds(t))
	}
	fmt.Fprintf(&out, "  limit: %s: %s\n\n", bold(r.Limit), r.Why)

	t := newTable("", "mean", "p50", "p95", "p99", "max")
	for _, row := range []struct {
		name string
		d    stats.Distribution
	}{{"step", r.StepTime}, {"wait for the batch", r.Wait}} {
		t.Row(row.name, seconds(row.d.Mean), seconds(row.d.P50), seconds(row.d.P95), seconds(row.d.P99), seconds(row.d.Max))
	}
	fmt.Fprintf(&out, "%s\n\n", t)
	fmt.Fprintf(&out, "  %s of the steps waited; first batch after %s (opening took %s)\n\n", percent(r.Waited), seconds(r.FirstBatch), seconds(r.Open))

	t = newTable("stage", "per record", "workers", "busy")
	for _, s := range r.Stages {
		t.Row(s.Name, seconds(s.PerRecord/1e9), fmt.Sprint(s.Workers), percent(s.Busy))
	}
	fmt.Fprintf(&out, "%s\n\n", t)
	fmt.Fprintf(&out, "  CPU: engine %.2f s, trainer %.2f s, other programs %.2f s in %s; %.3f CPU seconds per 1,000 examples\n", r.CPUEngine, r.CPUTrainer, r.CPUOthers,
		FormatDuration(time.Duration(r.Seconds*float64(time.Second))), r.CPUPerThousand)
	fmt.Fprintf(&out, "  read: %s, of that %s from storage; memory: %s (PSS)\n", FormatBytes(r.LogicalBytes), FormatBytes(min(r.BlockBytes, max(r.LogicalBytes, r.BlockBytes))), FormatBytes(r.PSS))
	if r.Step > 0 {
		fmt.Fprintf(&out, "  ring: full %s of the time (the accelerator is the slower side), empty %s (the data path is)\n", percent(r.RingFull), percent(r.RingEmpty))
	}
	if r.Skipped > 0 {
		fmt.Fprintf(&out, "  %s replaced, because they could not be used\n", plural(int(r.Skipped), "record"))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&out, "  %s\n", note)
	}
	if len(r.WhatIf) > 0 {
		out.WriteString("\n" + whatIfText(r.Result, r.WhatIf))
	}
	return out.String()
}

func (r *benchReport) accelerator() string {
	if r.Step == 0 {
		return "no accelerator: batches are taken as fast as they come"
	}
	how := "sleeping"
	if r.Spin {
		how = "burning a core"
	}
	n := "a simulated accelerator"
	if r.Accelerators > 1 {
		n = fmt.Sprintf("%d simulated accelerators", r.Accelerators)
	}
	return fmt.Sprintf("%s, %s per step (%s)", n, seconds(r.Step), how)
}

func bold(s string) string { return lipgloss.NewStyle().Bold(true).Render(s) }

// whatIfText shows what other machines would give.
func whatIfText(r *bench.Result, scenarios []bench.Scenario) string {
	var out strings.Builder
	headers := []string{"what if", "examples/s", "", "limit"}
	measured := false
	for _, s := range scenarios {
		measured = measured || s.Measured > 0
	}
	if r.Step > 0 {
		headers = append(headers, "AU", "data path alone")
	}
	if measured {
		headers = append(headers, "measured", "error")
	}
	t := newTable(headers...)
	for _, s := range scenarios {
		row := []string{s.Name, rate(s.PerSecond), fmt.Sprintf("%.2fx", s.Gain), s.Limit}
		if r.Step > 0 {
			row = append(row, percent(s.AU), rate(s.Capacity))
		}
		if measured {
			m, e := "", ""
			if s.Measured > 0 {
				m, e = rate(s.Measured), fmt.Sprintf("%+.0f%%", 100*(s.PerSecond/s.Measured-1))
			}
			row = append(row, m, e)
		}
		t.Row(row...)
	}
	fmt.Fprintf(&out, "%s\n", t)
	for _, s := range scenarios {
		if s.Note != "" {
			fmt.Fprintf(&out, "  %s: %s\n", s.Name, s.Note)
		}
	}
	return out.String()
}

// feedText shows how many accelerators can be fed.
func feedText(f *bench.Fed, what string, target float64) string {
	var out strings.Builder
	if len(f.Runs) == 0 {
		return ""
	}
	r := f.Runs[0]
	fmt.Fprintf(&out, "%s: %s records (%s); %s; batches of %s, %s per step; %s\n\n", clean(r.Source), FormatCount(r.Records), r.Format, what,
		FormatCount(int64(r.Batch)), seconds(r.Step), plural(r.Cores, "core"))
	t := newTable("accelerators", "AU", "worst", "examples/s", "MB/s", "CPU", "from storage", "limit")
	for _, r := range f.Runs {
		t.Row(fmt.Sprint(r.Accelerators), percent(r.AU), percent(r.AUMin), rate(r.PerSecond), FormatCount(int64(float64(r.LogicalBytes)/r.Seconds/1e6)),
			percent((r.CPUEngine+r.CPUTrainer)/(r.Seconds*float64(r.Cores))), FormatBytes(r.BlockBytes), r.Limit)
	}
	fmt.Fprintf(&out, "%s\n\n", t)
	fmt.Fprintf(&out, "  This machine feeds %s at AU >= %s.\n", bold(plural(f.Accelerators, "accelerator")), percent(target))
	if f.Note != "" {
		fmt.Fprintf(&out, "  %s\n", f.Note)
	}
	return out.String()
}
