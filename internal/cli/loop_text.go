package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/stats"
	"github.com/stokerdata/stoker/internal/steptime"
	"github.com/stokerdata/stoker/internal/units"
)

// maxResult bounds the results that are shown.
const maxResult = 16 << 20

// newLoopText writes a result of the Python client as people read it, so that
// tables, sizes and times look alike wherever they are shown.
func newLoopText(app *App) *cobra.Command {
	texts := map[string]func([]byte) (string, error){
		"bench":    textOf(loopBenchText),
		"study":    textOf(loopStudyText),
		"headroom": textOf(headroomText),
		"profile": func(data []byte) (string, error) {
			p, err := steptime.ParseProfile(data)
			if err != nil {
				return "", err
			}
			return profileText(p, fmt.Sprintf("CPU %.2f s, with all child processes", p.CPU)), nil
		},
	}
	return &cobra.Command{
		Use:   "text bench|study|headroom|profile < RESULT.json",
		Short: "Write a result as text",
		Args:  exactArgs("bench, study, headroom or profile"),
		RunE: func(_ *cobra.Command, args []string) error {
			text := texts[args[0]]
			if text == nil {
				return usageError("stoker loop text bench|study|headroom|profile", "%q is not a result that can be written", args[0])
			}
			data, err := app.readStdin(maxResult, "the result")
			if err != nil {
				return err
			}
			out, err := text(data)
			if err != nil {
				return &Error{Msg: "standard input holds no such result", Err: err}
			}
			return app.print(out)
		},
	}
}

// textOf reads a result and has it written.
func textOf[R any](write func(*R) string) func([]byte) (string, error) {
	return func(data []byte) (string, error) {
		var r R
		if err := json.Unmarshal(data, &r); err != nil {
			return "", err
		}
		return write(&r), nil
	}
}

func loopBenchText(b *steptime.Bench) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s in %s, the first one left out\n\n", clean(b.Loader), units.Plural(b.Steps, "step"), units.Seconds(b.Seconds))
	if b.T > 0 || b.AU > 0 {
		fmt.Fprintf(&out, "  AU %s: the share of the time in which the accelerator computes\n", units.Tenths(b.AU))
	}
	speed := ""
	if b.Examples > 0 {
		speed = units.Count(b.PerSecond) + " examples/s, "
	}
	fmt.Fprintf(&out, "  %s%.3g steps/s; %s of the steps waited\n", speed, b.StepRate, units.Tenths(b.Waited))
	if b.Limit != "" {
		fmt.Fprintf(&out, "  limit: %s\n", clean(b.Limit))
	}
	t := newTable("", "mean", "p50", "p95", "p99", "max")
	for _, row := range []struct {
		name string
		d    stats.Distribution
	}{{"step", b.Step}, {"wait for the batch", b.Wait}} {
		t.Row(row.name, units.Seconds(row.d.Mean), units.Seconds(row.d.P50), units.Seconds(row.d.P95), units.Seconds(row.d.P99), units.Seconds(row.d.Max))
	}
	fmt.Fprintf(&out, "\n%s\n\n", t)
	if len(b.Stages) > 0 {
		t := newTable("engine stage", "per step", "busy")
		for _, s := range b.Stages {
			t.Row(clean(s.Name), units.Seconds(s.Seconds), units.Tenths(s.Share))
		}
		fmt.Fprintf(&out, "%s\n\n", t)
	}
	fmt.Fprintf(&out, "  CPU %.2f s (%.0f%% of %s) in %s\n", b.CPU, 100*b.CPU/max(b.Seconds*float64(b.Cores), 1e-9),
		units.Plural(b.Cores, "core"), units.Plural(b.Processes, "process"))
	fmt.Fprintf(&out, "  read %s, %s of it from storage; memory %s (PSS); first batch after %s\n",
		units.Bytes(b.ReadBytes), units.Bytes(b.BlockBytes), units.Bytes(b.PSS), units.Seconds(b.FirstBatch))
	return out.String()
}

// pythonStudy is stoker.StudyResult.
type pythonStudy struct {
	bench.ToldCurve
	Axis string `json:"axis"`
	Unit string `json:"unit"`
}

func loopStudyText(s *pythonStudy) string {
	t := newTable(clean(s.Axis), clean(s.Unit), "spread", "examples/s", "AU", "limit")
	for i, c := range s.Cells {
		mark := ""
		if c.X == s.Knee && i < len(s.Cells)-1 {
			mark = "  <- knee"
		}
		t.Row(fmt.Sprint(c.X), fmt.Sprintf("%.3g", c.Seconds), fmt.Sprintf("%.3g to %.3g", c.Low, c.High), units.Count(c.PerSecond), units.Tenths(c.AU), clean(c.Limit)+mark)
	}
	return fmt.Sprintf("%s\n\n  %s\n", t, clean(s.Verdict))
}

// pythonHeadroom is stoker.HeadroomResult.
type pythonHeadroom struct {
	Loader           string  `json:"loader"`
	Steps            float64 `json:"steps_per_second"`
	Examples         float64 `json:"examples_per_second"`
	ReplayedSteps    float64 `json:"replayed_steps_per_second"`
	ReplayedExamples float64 `json:"replayed_examples_per_second"`
	Headroom         float64 `json:"headroom"`
	Batches          int     `json:"batches"`
}

// keepsUp is the headroom up to which a gain cannot be told from noise.
const keepsUp = 1.03

func headroomText(h *pythonHeadroom) string {
	says := fmt.Sprintf("faster loading can make training up to %.2f times as fast", h.Headroom)
	if h.Headroom < keepsUp {
		says = "the loader keeps up: faster loading would gain nothing"
	}
	return fmt.Sprintf("%s\n  with the loader:  %.3g steps/s, %s examples/s\n  batches replayed: %.3g steps/s, %s examples/s (%s)\n  %s\n",
		clean(h.Loader), h.Steps, units.Count(h.Examples), h.ReplayedSteps, units.Count(h.ReplayedExamples), units.Plural(h.Batches, "batch"), says)
}
