package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"charm.land/bubbles/v2/progress"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/mattn/go-isatty"

	"github.com/stokerdata/stoker/internal/chart"
	"github.com/stokerdata/stoker/internal/doctor"
	"github.com/stokerdata/stoker/internal/doctor/report"
	"github.com/stokerdata/stoker/internal/units"
)

// A liveView shows the doctor's measurements while it watches. On a terminal, lines below the job's own output are
// redrawn. Otherwise it prints a line per second.
type liveView struct {
	w        io.Writer
	terminal *os.File // nil where w is not a terminal
	what     string   // "process 4711", "python train.py"

	mu      sync.Mutex
	program *tea.Program // while it draws
}

// newLiveView prepares the view on w. watch draws it.
func newLiveView(w io.Writer, what string) *liveView {
	return &liveView{w: w, terminal: terminalOf(w), what: clean(what)}
}

// watch is doctor.Watch together with the view. The key q ends the watching. The first Ctrl-C calls interrupt, if it is
// not nil.
func (v *liveView) watch(ctx context.Context, opt doctor.Options, interrupt func()) (*doctor.Report, error) {
	if v.terminal == nil {
		start := time.Now()
		opt.Live = func(r *doctor.Report) { fmt.Fprintln(v.w, liveLine(r, time.Since(start))) }
		return doctor.Watch(ctx, opt)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := []tea.ProgramOption{tea.WithOutput(v.terminal), tea.WithoutSignalHandler(), tea.WithFPS(10)}
	if isatty.IsTerminal(os.Stdin.Fd()) {
		options = append(options, tea.WithInput(os.Stdin))
	} else {
		options = append(options, tea.WithInput(nil))
	}
	model := newLiveModel(v.what, interrupt)
	model.fullScreen = interrupt == nil // nothing else prints
	program := tea.NewProgram(model, options...)
	opt.Live = func(r *doctor.Report) { program.Send(liveMsg{r}) }
	type result struct {
		report *doctor.Report
		err    error
	}
	done := make(chan result, 1)
	go func() {
		r, err := doctor.Watch(ctx, opt)
		done <- result{r, err}
		program.Send(watchedMsg{})
	}()
	v.use(program)
	_, err := program.Run()
	v.use(nil)
	cancel()
	watched := <-done
	if watched.err == nil && err != nil {
		return watched.report, &Error{Msg: "the terminal cannot be used", Err: err, Hint: "without --watch the report comes at the end"}
	}
	return watched.report, watched.err
}

func (v *liveView) use(p *tea.Program) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.program = p
}

// jobOutput returns the writer for a job's output: above the view if both use the terminal, else w.
func (v *liveView) jobOutput(w io.Writer) io.Writer {
	if v.terminal == nil || terminalOf(w) == nil {
		return w
	}
	return &lineWriter{view: v, w: w}
}

// lineWriter passes whole lines on.
type lineWriter struct {
	view *liveView
	w    io.Writer
	rest []byte
}

// maxOutputLine is the most of an unfinished line that is kept.
const maxOutputLine = 64 << 10

// Write never fails: a job must not end because its terminal is drawn on.
func (l *lineWriter) Write(b []byte) (int, error) {
	l.view.mu.Lock()
	program := l.view.program
	l.view.mu.Unlock()
	if program == nil { // no view: as it comes
		_, err := l.w.Write(append(l.rest, b...))
		l.rest = nil
		return len(b), err
	}
	l.rest = append(l.rest, b...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 {
			break
		}
		text := l.rest[:end]
		// A progress bar overwrites itself: only its last state counts.
		if at := bytes.LastIndexByte(bytes.TrimRight(text, "\r"), '\r'); at >= 0 {
			text = text[at+1:]
		}
		program.Println(strings.TrimRight(string(text), "\r"))
		l.rest = l.rest[end+1:]
	}
	if len(l.rest) > maxOutputLine {
		l.rest = append([]byte(nil), l.rest[len(l.rest)-maxOutputLine:]...)
	}
	return len(b), nil
}

// Messages to the model.
type (
	liveMsg    struct{ report *doctor.Report }
	watchedMsg struct{}
)

// liveModel is the state of the view.
type liveModel struct {
	what      string
	interrupt func()
	asked     bool // Ctrl-C was pressed
	start     time.Time
	// fullScreen lets the view use the whole terminal. Otherwise it stays below the job's output and keeps its height,
	// so that the lines above stay in place.
	fullScreen bool
	height     int
	width      int
	report     *doctor.Report
	waits      []float64 // share of waiting, one per second
	bar        progress.Model
	over       bool
}

const (
	liveBar     = 24
	liveHistory = 240 // seconds of waiting that are remembered
	liveEvents  = 3
	liveLeast   = 0.3 // confidence below which there is no verdict yet
	liveLabel   = 20
)

func newLiveModel(what string, interrupt func()) *liveModel {
	return &liveModel{
		what: what, interrupt: interrupt, width: 80, start: time.Now(),
		bar: progress.New(progress.WithColors(lipgloss.Color("#FBBF24"), lipgloss.Color("#C2410C")), progress.WithoutPercentage(), progress.WithWidth(liveBar)),
	}
}

// Init has nothing to do: reports come by themselves.
func (m *liveModel) Init() tea.Cmd { return nil }

// Update takes a report, a key, or a new size of the terminal.
func (m *liveModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width = msg.Width
	case liveMsg:
		m.report = msg.report
		if x := latest(m.report, "wait"); !math.IsNaN(x) {
			m.waits = append(m.waits, x)
			if len(m.waits) > liveHistory {
				m.waits = append([]float64(nil), m.waits[len(m.waits)-liveHistory:]...)
			}
		}
	case watchedMsg:
		m.over = true
		return m, tea.Quit
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "Q", "esc":
			m.over = true
			return m, tea.Quit
		case "ctrl+c":
			if m.interrupt != nil && !m.asked {
				m.asked = true
				m.interrupt()
				return m, nil
			}
			m.over = true
			return m, tea.Quit
		}
	}
	return m, nil
}

// View draws the state. Below a job's output the last one stays.
func (m *liveModel) View() tea.View {
	text := m.text()
	if m.fullScreen {
		v := tea.NewView(text)
		v.AltScreen = true
		return v
	}
	lines := strings.Count(text, "\n")
	m.height = max(m.height, lines)
	return tea.NewView(text + strings.Repeat("\n", m.height-lines))
}

func (m *liveModel) text() string {
	var out strings.Builder
	width := max(min(m.width, 120), 40)
	put := func(line string) {
		out.WriteString(lipgloss.NewStyle().MaxWidth(width).Render(line) + "\n")
	}
	r := m.report
	if r == nil {
		put(headStyle.Render("stoker doctor") + "  " + m.what)
		put(dimStyle.Render("waiting for the first second ... q ends"))
		return out.String()
	}
	put(headStyle.Render("stoker doctor") + fmt.Sprintf("  %.0f s  %s", time.Since(m.start).Seconds(), dimStyle.Render(m.what)))
	if r.Confidence < liveLeast {
		put("no verdict yet")
	} else {
		for line := range strings.Lines(lipgloss.NewStyle().Width(width).Render(clean(r.Line))) {
			put(strings.TrimRight(line, "\n"))
		}
		put(dimStyle.Render(fmt.Sprintf("confidence %.0f%%, by the last %.0f s", 100*r.Confidence, r.Seconds)))
	}
	put("")
	for _, b := range liveBars {
		x := latest(r, b.key)
		if math.IsNaN(x) && !b.always {
			continue
		}
		line := fmt.Sprintf("%-*s %s %s", liveLabel, b.label, m.bar.ViewAs(clampShare(x)), shareText(x))
		if b.key == "wait" {
			if room := width - lipgloss.Width(line) - 2; room >= 8 {
				line += "  " + barStyle.Render(chart.Sparkline(m.waits, min(room, 60)))
			}
		}
		put(line)
	}
	put(dimStyle.Render(liveRates(r)))
	for i, e := range lastEvents(r) {
		if i == 0 {
			put("")
		}
		style := dimStyle
		if e.Level == doctor.Critical {
			style = badStyle
		}
		put(fmt.Sprintf("%s %-15s %s", style.Render(fmt.Sprintf("%-9s", clean(string(e.Level)))), clean(e.Name), dimStyle.Render(eventSpan(e))))
	}
	if len(r.Advice) > 0 && r.Confidence >= liveLeast {
		put("")
		put("-> " + clean(r.Advice[0].Title))
	}
	hint := "q ends the watching"
	if m.over {
		hint = ""
	}
	put(dimStyle.Render(hint))
	return out.String()
}

// liveBars are the shares that are drawn.
var liveBars = []struct {
	key, label string
	always     bool
}{
	{"wait", "trainer waits", true},
	{"cpu", "CPU, this job", true},
	{"cpu_machine", "CPU, whole machine", false},
	{"disk_busy", "disk busy", false},
	{"memory", "memory", false},
	{"gpu0", "accelerator 0", false},
	{"gpu1", "accelerator 1", false},
	{"gpu2", "accelerator 2", false},
	{"gpu3", "accelerator 3", false},
}

// liveRates is the line below the bars.
func liveRates(r *doctor.Report) string {
	var parts []string
	for _, x := range []struct{ key, text string }{
		{"steps_per_s", "%.3g steps/s"}, {"rows_per_s", "%.3g rows/s"}, {"read_MBps", "%.3g MB/s from disk"}, {"net_MBps", "%.3g MB/s from the network"},
	} {
		if v := latest(r, x.key); v > 0.05 {
			parts = append(parts, fmt.Sprintf(x.text, v))
		}
	}
	if r.Loader.Workers > 0 {
		parts = append(parts, units.Plural(float64(r.Loader.Workers), "worker"))
	}
	return strings.Join(parts, "   ")
}

// liveLine is the state in one line, for a log.
func liveLine(r *doctor.Report, watched time.Duration) string {
	verdict := "no verdict yet"
	if r.Confidence >= liveLeast {
		verdict = fmt.Sprintf("%s (%.0f%%)", report.VerdictText(r.Verdict), 100*r.Confidence)
	}
	parts := []string{fmt.Sprintf("%4.0f s", watched.Seconds()), verdict}
	for _, b := range liveBars {
		if x := latest(r, b.key); !math.IsNaN(x) {
			parts = append(parts, b.label+" "+strings.TrimSpace(shareText(x)))
		}
	}
	if rates := liveRates(r); rates != "" {
		parts = append(parts, strings.ReplaceAll(rates, "   ", ", "))
	}
	return strings.Join(parts, ", ")
}

// latest is the last known value of a series, of its last three seconds.
func latest(r *doctor.Report, key string) float64 {
	v := r.Series[key]
	for i := len(v) - 1; i >= max(0, len(v)-3); i-- {
		if !math.IsNaN(v[i]) {
			return v[i]
		}
	}
	return math.NaN()
}

func clampShare(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, 1)
}

func shareText(x float64) string {
	if math.IsNaN(x) {
		return "   -"
	}
	return fmt.Sprintf("%4s", units.Whole(x))
}

// lastEvents are the newest events that are more than "careful", newest first.
func lastEvents(r *doctor.Report) []doctor.Event {
	var out []doctor.Event
	for i := len(r.Events) - 1; i >= 0 && len(out) < liveEvents; i-- {
		if r.Events[i].Level != doctor.Careful {
			out = append(out, r.Events[i])
		}
	}
	return out
}

func eventSpan(e doctor.Event) string {
	unit := e.Unit
	if unit != "%" && unit != "" {
		unit = " " + unit
	}
	return fmt.Sprintf("for %.0f s, up to %.3g%s", e.End-e.Start, e.Value, unit)
}
