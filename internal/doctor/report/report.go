// Package report writes the findings of stoker doctor as one HTML page, and compares two of its reports.
//
// The page is self-contained: it includes style, plots (internal/chart), script and data. A content security policy
// forbids it to load anything or to run any other script. Everything from the watched job - command lines, paths,
// names of functions - reaches the page as text only.
package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/doctor"
	"github.com/stokerdata/stoker/internal/units"
)

var (
	//go:embed page.html.tmpl
	pageTemplate string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// policy allows the page to run its own script and nothing else, and to load nothing. The script has no data. The
// data is in a separate element, which is never run.
var policy = fmt.Sprintf("default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'", hashOf(pageScript))

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": units.Rough,
	"seconds": units.Seconds,
	"number":  three,
	"verdict": VerdictText,
	"bytes":   units.Bytes[int64],
	"times":   func(x float64) string { return Row{Ratio: x}.RatioText() },
	"width":   func(share float64) template.CSS { return template.CSS(fmt.Sprintf("width:%.3f%%", 100*clamp(share))) },
	"top":     func(at float64) template.CSS { return template.CSS(fmt.Sprintf("top:%.2f%%", at)) },
	"left":    func(at float64) template.CSS { return template.CSS(fmt.Sprintf("left:%.2f%%", at)) },
	"lane": func(start, end, all float64) template.CSS {
		if !(all > 0) {
			all = 1
		}
		from, to := clamp(start/all), clamp(end/all)
		return template.CSS(fmt.Sprintf("left:%.3f%%;width:%.3f%%", 100*from, 100*math.Max(to-from, 0.004)))
	},
}).Parse(pageTemplate))

// A view has the values that the template shows.
type view struct {
	*doctor.Report
	Policy   string
	Style    template.CSS
	Script   template.HTML
	Title    string
	Command  string
	Runs     []runView // one, or before and after
	Rows     []Row     // the comparison, if there is one
	Faster   float64   // after / before; 0 if unknown
	FasterBy string
	Data     data
}

// runView is a run's tables.
type runView struct {
	Name    string
	Report  *doctor.Report
	Groups  []stageGroup
	Lanes   []laneView
	Seconds float64
}

// stageGroup is a bar of stages: the trainer's, the workers'.
type stageGroup struct {
	Name   string
	Stages []stageView
}

type stageView struct {
	doctor.Stage
	Label string
	Color template.CSS
}

// laneView is all events of one name.
type laneView struct {
	Name, Label string
	Events      []laneEvent
}

type laneEvent struct {
	doctor.Event
	Text string
}

// data has the values that the script draws.
type data struct {
	Charts []chartView `json:"charts"`
}

// Limits of a page, for reports from other programs.
const (
	maxCommand = 400 // characters that are shown of a command line
	maxLanes   = 40
	maxEvents  = 2000
)

// Write writes the page for a report. before is an earlier report that it is
// compared with, or nil.
func Write(w io.Writer, after, before *doctor.Report) error {
	v := view{
		Report: after, Policy: policy,
		Style:   template.CSS(pageStyle),
		Script:  template.HTML("<script>" + pageScript + "</script>"),
		Title:   "Stoker doctor: " + VerdictText(after.Verdict),
		Command: commandText(after.Command),
	}
	runs := []run{{report: after}}
	if before != nil {
		runs = []run{{"before", before}, {"after", after}}
		v.Rows = Compare(before, after)
		v.Faster, v.FasterBy = Speedup(before, after)
	}
	for _, r := range runs {
		v.Runs = append(v.Runs, runView{Name: r.name, Report: r.report, Groups: stageGroups(r.report.Stages), Lanes: lanes(r.report), Seconds: r.report.Seconds})
	}
	v.Data = data{Charts: charts(runs)}
	if _, err := json.Marshal(v.Data); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	var out bytes.Buffer
	if err := page.Execute(&out, v); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// stageColors name CSS variables, by the kind of a stage.
var stageColors = []struct{ words, color string }{
	{"wait queue", "wait"},
	{"read open storage", "disk"},
	{"network", "net"},
	{"decode transform dataset compute cpu", "cpu"},
	{"collate pickle put pin hand unpickle copy", "handoff"},
	{"memory", "mem"},
	{"step forward backward optimiser optimizer train", "gpu"},
	{"idle full ready", "idle"},
}

func stageColor(name string) template.CSS {
	name = strings.ToLower(name)
	for _, c := range stageColors {
		for word := range strings.FieldsSeq(c.words) {
			if strings.Contains(name, word) {
				return template.CSS("background:var(--" + c.color + ")")
			}
		}
	}
	return "background:var(--machine)"
}

func stageGroups(stages []doctor.Stage) []stageGroup {
	var out []stageGroup
	for _, s := range stages {
		group, label := "trainer", s.Name
		if rest, ok := strings.CutPrefix(s.Name, "worker "); ok {
			group, label = "workers", rest
		}
		if len(out) == 0 || out[len(out)-1].Name != group {
			out = append(out, stageGroup{Name: group})
		}
		g := &out[len(out)-1]
		g.Stages = append(g.Stages, stageView{Stage: s, Label: label, Color: stageColor(label)})
	}
	return out
}

// eventWords has a description for each event name.
var eventWords = map[string]string{
	"CPU_USER": "CPU, user", "CPU_SYSTEM": "CPU, system", "CPU_IOWAIT": "CPU waits for I/O", "CPU_STEAL": "CPU taken by the host",
	"CPU_QUOTA": "stopped by CPU quota", "CPU_PRESSURE": "tasks wait for CPU", "IO_PRESSURE": "tasks wait for I/O", "MEM_PRESSURE": "tasks wait for memory",
	"LOAD": "load", "MEM": "memory", "SWAP": "swap", "DISK_BUSY": "disk busy", "DISK_READ_TIME": "slow reads", "MAJOR_FAULTS": "page faults from disk",
	"SHM": "/dev/shm", "TRAINER_WAIT": "trainer waits", "GPU_SLOWED": "accelerator slowed down",
}

func eventLabel(name string) string {
	if s := eventWords[name]; s != "" {
		return s
	}
	if number, ok := strings.CutSuffix(name, "_IDLE"); ok && strings.HasPrefix(number, "GPU") {
		return "accelerator " + strings.TrimPrefix(number, "GPU") + " idle"
	}
	return name
}

func lanes(r *doctor.Report) []laneView {
	var out []laneView
	for _, e := range r.Events[:min(len(r.Events), maxEvents)] {
		i := slices.IndexFunc(out, func(l laneView) bool { return l.Name == e.Name })
		if i < 0 {
			if len(out) == maxLanes {
				continue
			}
			i = len(out)
			out = append(out, laneView{Name: e.Name, Label: eventLabel(e.Name)})
		}
		out[i].Events = append(out[i].Events, laneEvent{Event: e, Text: eventText(e)})
	}
	return out
}

// eventText describes an event in full.
func eventText(e doctor.Event) string {
	unit := e.Unit
	if unit != "" && unit != "%" {
		unit = " " + unit
	}
	return fmt.Sprintf("%s: %s, %.0f to %.0f s, up to %s%s (threshold %s%s)",
		eventLabel(e.Name), e.Level, e.Start, e.End, three(e.Value), unit, three(e.Threshold), unit)
}

// commandText returns a command line in shell syntax, shortened.
func commandText(args []string) string {
	var words []string
	for _, a := range args {
		if a == "" || strings.ContainsFunc(a, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./=:,+@%", r)
		}) {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	s := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.Join(words, " "))
	if utf8.RuneCountInString(s) > maxCommand {
		s = string([]rune(s)[:maxCommand]) + "..."
	}
	return s
}

func clamp(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return math.Min(x, 1)
}
