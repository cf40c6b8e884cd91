package doctor

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/chart"
	"github.com/stokerdata/stoker/internal/units"
)

// textWidth is the width of the text report.
const textWidth = 80

// Text writes the report for a terminal of 80 columns: the verdict, the division of the time, events, and advice.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	t := &textWriter{b: &b}
	t.para("", verdictPrefix(r)+r.Line)
	about := fmt.Sprintf("%.0f s watched", r.Seconds)
	if r.Confidence > 0 {
		about = fmt.Sprintf("confidence %.0f%%, ", 100*r.Confidence) + about
	}
	if r.Loader.Kind != "unknown" {
		about += ", " + loaderText(r.Loader)
	}
	if r.Steps.PerSecond > 0 {
		about += fmt.Sprintf(", %.3g steps/s", r.Steps.PerSecond)
	}
	t.para("  ", about)
	if len(r.Stages) > 0 {
		t.line("")
		t.line("Where the time goes")
		t.stages(r.Stages)
	}
	if len(r.Evidence) > 0 {
		t.line("")
		t.line("Evidence")
		for _, e := range r.Evidence {
			t.item("  - ", e)
		}
	}
	t.events(r)
	if len(r.Advice) > 0 {
		t.line("")
		t.line("What to do")
		for i, a := range r.Advice {
			title := a.Title
			if a.Gain >= 1.05 {
				title += fmt.Sprintf("  (%s as fast)", times(a.Gain))
			}
			t.item(fmt.Sprintf("  %d. ", i+1), title)
			if a.Why != "" {
				t.item("     ", a.Why)
			}
			if a.Command != "" {
				t.line("       " + a.Command)
			}
		}
	}
	if len(r.Skipped) > 0 {
		t.line("")
		for _, s := range r.Skipped {
			t.item("  not seen: ", s)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func verdictPrefix(r *Report) string { return "stoker doctor: " }

func loaderText(l Loader) string {
	names := map[string]string{
		"torch": "PyTorch DataLoader", "stoker": "Stoker", "webdataset": "WebDataset", "grain": "Grain", "tf.data": "tf.data", "dali": "DALI",
		"ffcv": "FFCV", "mosaic": "MosaicML streaming", "litdata": "LitData", "spdl": "SPDL", "datasets": "Hugging Face datasets",
		"ray": "Ray Data",
	}
	s := names[l.Kind]
	if s == "" {
		s = l.Kind
	}
	switch {
	case l.Kind == "stoker":
	case l.Workers > 0:
		s += " with " + units.Plural(l.Workers, "worker")
	case l.Kind == "torch":
		s += " without workers"
	}
	if l.Trainers > 1 {
		s += fmt.Sprintf(", %d ranks", l.Trainers)
	}
	return s
}

type textWriter struct{ b *strings.Builder }

func (t *textWriter) line(s string) { t.b.WriteString(s + "\n") }

// para wraps text at the width, each line after indent.
func (t *textWriter) para(indent, text string) { t.wrap(indent, indent, text) }

// item wraps text after a mark, with the later lines under the first.
func (t *textWriter) item(mark, text string) {
	t.wrap(mark, strings.Repeat(" ", utf8.RuneCountInString(mark)), text)
}

func (t *textWriter) wrap(first, rest, text string) {
	line, n := first, utf8.RuneCountInString(first)
	empty := true
	for _, word := range strings.Fields(text) {
		w := utf8.RuneCountInString(word)
		if !empty && n+1+w > textWidth {
			t.line(line)
			line, n, empty = rest, utf8.RuneCountInString(rest), true
		}
		if !empty {
			line += " "
			n++
		}
		line += word
		n += w
		empty = false
	}
	t.line(line)
}

// barWidth is the length of a bar for all of the time.
const barWidth = 40

func (t *textWriter) stages(stages []Stage) {
	heading := ""
	for _, s := range stages {
		group, name := "  trainer", s.Name
		if rest, ok := strings.CutPrefix(s.Name, "worker "); ok {
			group, name = "  workers", rest
		}
		if group != heading {
			heading = group
		} else {
			group = ""
		}
		t.line(fmt.Sprintf("%-10s %-16s %5.1f%%  %s", group, name, 100*s.Share, chart.ShareBar(s.Share, barWidth)))
	}
}

// maxTextEvents is the number of events in the text; the JSON has all.
const maxTextEvents = 6

func (t *textWriter) events(r *Report) {
	shown, hidden := 0, 0
	for _, level := range []Level{Critical, Warning} {
		for _, e := range r.Events {
			if e.Level != level {
				continue
			}
			if shown == maxTextEvents {
				hidden++
				continue
			}
			if shown == 0 {
				t.line("")
				t.line("Events")
			}
			shown++
			until := fmt.Sprintf("%.0f to %.0f s", e.Start, e.End)
			if e.End >= r.Seconds-0.5 {
				until = fmt.Sprintf("from %.0f s on", e.Start)
			}
			unit := e.Unit
			if unit != "%" && unit != "" {
				unit = " " + unit
			}
			t.line(fmt.Sprintf("  %-8s  %-14s %-14s up to %.4g%s", e.Level, e.Name, until, e.Value, unit))
		}
	}
	if hidden > 0 {
		t.line(fmt.Sprintf("  and %d more (--json lists all)", hidden))
	}
}
