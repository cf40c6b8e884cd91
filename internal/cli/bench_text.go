package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/stats"
	"github.com/stokerdata/stoker/internal/units"
)

// benchReport is the output of `stoker bench SOURCE`.
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
	_, err := lipgloss.Fprint(app.Stdout, fit(text))
	return err
}

// fit breaks lines that are longer than a page at words. The lines of tables keep their
// columns and lose only the spaces at their ends.
func fit(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		body, newline := strings.CutSuffix(line, "\n")
		body = strings.TrimRight(body, " ")
		if rule := []rune(body); len(rule) > pageWidth && strings.Trim(body, "─") == "" {
			body = string(rule[:pageWidth])
		}
		if lipgloss.Width(body) > pageWidth && !strings.Contains(strings.TrimLeft(body, " "), "  ") {
			indent := body[:len(body)-len(strings.TrimLeft(body, " "))]
			body = indent + strings.Join(wrap(body, pageWidth-len(indent)-2), "\n"+indent+"  ")
		}
		out.WriteString(body)
		if newline {
			out.WriteString("\n")
		}
	}
	return out.String()
}

func (r *benchReport) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s (%s); %s; batches of %s\n", clean(r.Source), units.Records(r.Records), r.Format, r.Transforms, units.Int(int64(r.Batch)))
	fmt.Fprintf(&out, "%s, %s, %s of %s; %s\n\n", units.Plural(r.Cores, "core"), units.Plural(r.Threads, "decode worker"), units.Plural(r.Slots, "slot"),
		units.Bytes(r.SlotBytes), r.accelerator())
	if r.Step > 0 {
		verdict := "reached"
		if r.AU < r.Target {
			verdict = "missed"
		}
		fmt.Fprintf(&out, "  AU %s: the accelerator computes that share of the time (target %s %s)\n", bold(units.Tenths(r.AU)), units.Tenths(r.Target), verdict)
		if r.Accelerators > 1 {
			fmt.Fprintf(&out, "  the worst of the %d accelerators: %s\n", r.Accelerators, units.Tenths(r.AUMin))
		}
	}
	fmt.Fprintf(&out, "  %s examples/s, an epoch in %s\n", bold(units.Count(r.PerSecond)), units.Seconds(r.Epoch))
	if r.Step == 0 {
		t := float64(r.Batch) / max(r.PerSecond, 1e-9)
		fmt.Fprintf(&out, "  enough for steps of %s and longer\n", units.Seconds(t))
	}
	fmt.Fprintf(&out, "  limit: %s: %s\n\n", bold(r.Limit), r.Why)

	t := newTable("", "mean", "p50", "p95", "p99", "max")
	for _, row := range []struct {
		name string
		d    stats.Distribution
	}{{"step", r.StepTime}, {"wait for the batch", r.Wait}} {
		t.Row(row.name, units.Seconds(row.d.Mean), units.Seconds(row.d.P50), units.Seconds(row.d.P95), units.Seconds(row.d.P99), units.Seconds(row.d.Max))
	}
	fmt.Fprintf(&out, "%s\n\n", t)
	fmt.Fprintf(&out, "  %s of the steps waited; first batch after %s (opening took %s)\n\n", units.Tenths(r.Waited), units.Seconds(r.FirstBatch), units.Seconds(r.Open))

	t = newTable("stage", "per record", "workers", "busy")
	for _, s := range r.Stages {
		t.Row(s.Name, units.Seconds(s.PerRecord/1e9), fmt.Sprint(s.Workers), units.Tenths(s.Busy))
	}
	fmt.Fprintf(&out, "%s\n\n", t)
	fmt.Fprintf(&out, "  CPU: engine %.2f s, trainer %.2f s, other programs %.2f s in %s; %.3f CPU seconds per 1,000 examples\n", r.CPUEngine, r.CPUTrainer, r.CPUOthers,
		units.Elapsed(time.Duration(r.Seconds*float64(time.Second))), r.CPUPerThousand)
	fmt.Fprintf(&out, "  read: %s, of that %s from storage; memory: %s (PSS)\n", units.Bytes(r.LogicalBytes), units.Bytes(min(r.BlockBytes, max(r.LogicalBytes, r.BlockBytes))), units.Bytes(r.PSS))
	if r.Step > 0 {
		fmt.Fprintf(&out, "  ring: full %s of the time (the accelerator is the slower side), empty %s (the data path is)\n", units.Tenths(r.RingFull), units.Tenths(r.RingEmpty))
	}
	if r.Skipped > 0 {
		fmt.Fprintf(&out, "  %s replaced, because they could not be used\n", units.Plural(int(r.Skipped), "record"))
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
	return fmt.Sprintf("%s, %s per step (%s)", n, units.Seconds(r.Step), how)
}

func bold(s string) string { return lipgloss.NewStyle().Bold(true).Render(s) }

// whatIfText shows the predicted speed on other machines.
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
		row := []string{s.Name, units.Count(s.PerSecond), fmt.Sprintf("%.2fx", s.Gain), s.Limit}
		if r.Step > 0 {
			row = append(row, units.Tenths(s.AU), units.Count(s.Capacity))
		}
		if measured {
			m, e := "", ""
			if s.Measured > 0 {
				m, e = units.Count(s.Measured), fmt.Sprintf("%+.0f%%", 100*(s.PerSecond/s.Measured-1))
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

// feedText shows the number of accelerators that can be fed.
func feedText(f *bench.Fed, what string, target float64) string {
	var out strings.Builder
	if len(f.Runs) == 0 {
		return ""
	}
	r := f.Runs[0]
	fmt.Fprintf(&out, "%s: %s (%s); %s; batches of %s, %s per step; %s\n\n", clean(r.Source), units.Records(r.Records), r.Format, what,
		units.Int(int64(r.Batch)), units.Seconds(r.Step), units.Plural(r.Cores, "core"))
	t := newTable("accelerators", "AU", "worst", "examples/s", "MB/s", "CPU", "from storage", "limit")
	for _, r := range f.Runs {
		t.Row(fmt.Sprint(r.Accelerators), units.Tenths(r.AU), units.Tenths(r.AUMin), units.Count(r.PerSecond), units.Int(int64(float64(r.LogicalBytes)/r.Seconds/1e6)),
			units.Tenths((r.CPUEngine+r.CPUTrainer)/(r.Seconds*float64(r.Cores))), units.Bytes(r.BlockBytes), r.Limit)
	}
	fmt.Fprintf(&out, "%s\n\n", t)
	fmt.Fprintf(&out, "  This machine feeds %s at AU >= %s.\n", bold(units.Plural(f.Accelerators, "accelerator")), units.Tenths(target))
	if f.Note != "" {
		fmt.Fprintf(&out, "  %s\n", f.Note)
	}
	return out.String()
}
