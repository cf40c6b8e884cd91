package cli

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/stokerdata/stoker/internal/doctor"
	"github.com/stokerdata/stoker/internal/store/localstore"
)

func watchedReport(waiting float64) *doctor.Report {
	return &doctor.Report{
		Version: doctor.ReportVersion, Seconds: 12, Verdict: doctor.CPU, Confidence: 0.8, Waiting: waiting, Gain: 2.5,
		Line:    "CPU-bound: the trainer waits for data 62% of the time\x1b[31m",
		Loader:  doctor.Loader{Kind: "torch", Workers: 2},
		Series:  doctor.Series{"t": {0, 1}, "wait": {0.2, waiting}, "cpu": {0.9, math.NaN()}, "read_MBps": {1, 120}},
		Steps:   doctor.Steps{PerSecond: 4 / waiting, Count: 100, Mean: waiting / 4},
		Events:  []doctor.Event{{Start: 3, End: 12, Level: doctor.Critical, Name: "TRAINER_WAIT", Value: 62, Threshold: 50, Unit: "%"}},
		Advice:  []doctor.Advice{{Title: "use 8 workers instead of 2"}},
		Skipped: []string{},
	}
}

func TestLiveView(t *testing.T) {
	interrupted := 0
	m := newLiveModel("python train.py", func() { interrupted++ })
	if text := m.text(); !strings.Contains(text, "waiting for the first second") {
		t.Errorf("before the first report: %q", text)
	}
	for i := range 300 {
		m.Update(liveMsg{watchedReport(float64(i%100) / 100)})
	}
	m.Update(liveMsg{watchedReport(0.62)})
	if len(m.waits) > liveHistory {
		t.Errorf("%d seconds are remembered", len(m.waits))
	}
	for _, width := range []int{20, 60, 80, 200} {
		m.Update(tea.WindowSizeMsg{Width: width, Height: 24})
		text := m.text()
		for _, want := range []string{"CPU-bound", "trainer waits", "62%", "TRAINER_WAIT"} {
			if !strings.Contains(text, want) {
				t.Errorf("width %d: no %q in\n%s", width, want, text)
			}
		}
		if strings.Contains(text, "time\x1b[31m") {
			t.Error("a control character of a name got through")
		}
	}
	// The first Ctrl-C goes to the job, the second ends the view.
	ctrlC := tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
	if _, cmd := m.Update(ctrlC); cmd != nil || interrupted != 1 || m.over {
		t.Errorf("first Ctrl-C: interrupted %d, over %v", interrupted, m.over)
	}
	if _, cmd := m.Update(ctrlC); cmd == nil || interrupted != 1 || !m.over {
		t.Errorf("second Ctrl-C: interrupted %d, over %v", interrupted, m.over)
	}
	// Below a job's output the view does not become lower.
	high := strings.Count(m.View().Content, "\n")
	m.report.Events = nil
	if now := strings.Count(m.View().Content, "\n"); now != high {
		t.Errorf("%d lines after %d", now, high)
	}
	q := newLiveModel("", nil)
	q.report = watchedReport(0.5)
	if _, cmd := q.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil || !q.over || strings.Contains(q.View().Content, "q ends the watching") {
		t.Error("q does not end the view")
	}
}

func TestLiveLine(t *testing.T) {
	want := "  12 s, CPU-bound (80%), trainer waits 62%, CPU, this job 90%, 120 MB/s from disk, 2 workers"
	if got := liveLine(watchedReport(0.62), 12*time.Second); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Without a view the job's output goes through as it comes.
func TestJobOutputWithoutTerminal(t *testing.T) {
	var out bytes.Buffer
	v := newLiveView(&out, "x")
	if w := v.jobOutput(&out); w != &out {
		t.Error("output that is no terminal is not passed on as it is")
	}
	l := &lineWriter{view: v, w: &out}
	if _, err := l.Write([]byte("half a li")); err != nil || out.String() != "half a li" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

// Saved reports are shown, compared and written as a page.
func TestDoctorLoad(t *testing.T) {
	dir := t.TempDir()
	save := func(name string, r *doctor.Report) string {
		path := filepath.Join(dir, name)
		if err := localstore.WriteFile(path, r.Write); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before, after := save("before.json", watchedReport(0.8)), save("after.json", watchedReport(0.2))
	html := filepath.Join(dir, "out.html")
	var stdout, stderr bytes.Buffer
	app := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Context: context.Background()}
	if err := app.run([]string{"doctor", "--load", after, "--compare", before, "--report", html}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Before and after", "steps per second", "4.00x", "it predicted 2.50x"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
	page, err := os.ReadFile(html)
	if err != nil || !bytes.Contains(page, []byte("Before and after")) {
		t.Errorf("the page: %d bytes, %v", len(page), err)
	}
	if _, err := os.Stat(html + ".part"); err == nil {
		t.Error("a partial page was left behind")
	}

	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--load", filepath.Join(dir, "missing.json")}, {"--load", bad}, {"--load", after, "--compare", bad},
		{"--load", after, "--report", filepath.Join(dir, "no", "such", "place.html")}, {"--load", after, "--pid", "1"}, {"--watch", "--json", "--pid", "1"},
	} {
		err := app.run(append([]string{"doctor"}, args...))
		if exitCode(err) != ExitUsage || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v (exit code %d)", args, err, exitCode(err))
		}
	}
}
