package report

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/doctor"
)

// example returns a report with everything in it, waiting for the given share.
func example(waiting, stepsPerSecond float64) *doctor.Report {
	const n = 60
	s := doctor.Series{}
	add := func(name string, f func(t float64) float64) {
		v := make(doctor.Values, n)
		for i := range v {
			v[i] = f(float64(i))
		}
		s[name] = v
	}
	wave := func(mean, swing float64) func(float64) float64 {
		return func(t float64) float64 { return max(0, mean+swing*math.Sin(t/4)+swing/3*math.Sin(t*1.7)) }
	}
	add("t", func(t float64) float64 { return t })
	add("wait", wave(waiting, 0.06))
	add("cpu", wave(0.9-waiting/4, 0.05))
	add("cpu_machine", wave(0.93-waiting/4, 0.04))
	add("worker_cpu", wave(0.7, 0.1))
	add("worker_storage", wave(0.2, 0.1))
	add("worker_handoff", wave(0.05, 0.02))
	add("gpu0", func(t float64) float64 {
		if int(t)%9 < 3 && waiting > 0.3 {
			return 0
		}
		return 1 - waiting
	})
	add("read_MBps", wave(120, 40))
	add("disk_busy", wave(0.4, 0.2))
	add("memory", wave(0.55, 0.01))
	add("steps_per_s", wave(stepsPerSecond, stepsPerSecond/20))
	s["read_MBps"][7] = math.NaN()
	return &doctor.Report{
		Version: 1, Start: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC), Seconds: n, PID: 4711, Command: []string{"python", "train.py", "--data", "/data/my photos"},
		Host:    doctor.Host{Cores: 8, Memory: 64e9, CPU: "Some Processor", Accelerators: []string{"NVIDIA H200"}},
		Verdict: doctor.CPU, Confidence: 0.92, Waiting: waiting, Gain: 1 / (1 - waiting),
		Line:     "CPU-bound: the trainer waits for data 62% of the time; without computing examples it would run 2.6x as fast",
		Evidence: []string{"2 workers at 98% CPU each", "the trainer waits in DataLoader.__next__ (train.py:41)"},
		Advice: []doctor.Advice{{Title: "use 8 workers instead of 2", Why: "6 of 8 cores are idle", Command: "DataLoader(dataset, num_workers=8)", Gain: 2.6},
			{Title: "pack the images", Why: "decoding takes 70% of the workers' time", Command: "stoker pack /data/my\\ photos train/"}},
		Loader: doctor.Loader{Kind: "torch", Workers: 2, Trainers: 1},
		Events: []doctor.Event{{Start: 3, End: 40, Level: doctor.Critical, Name: "TRAINER_WAIT", Value: 62, Threshold: 50, Unit: "%"},
			{Start: 10, End: 14, Level: doctor.Warning, Name: "GPU0_IDLE", Value: 4, Threshold: 2, Unit: "s"}, {Start: 30, End: 60, Level: doctor.Careful, Name: "MEM", Value: 55, Threshold: 50, Unit: "%"}},
		Stages: []doctor.Stage{{Name: "wait", Share: waiting, Seconds: 60 * waiting}, {Name: "step", Share: 1 - waiting, Seconds: 60 * (1 - waiting), Exact: true},
			{Name: "worker decode", Share: 0.7, Seconds: 84}, {Name: "worker read", Share: 0.2, Seconds: 24}, {Name: "worker collate", Share: 0.1, Seconds: 12}},
		Series: s, Steps: doctor.Steps{Source: "step log", Count: 600, PerSecond: stepsPerSecond, Mean: 1 / stepsPerSecond, P50: 0.09, P99: 0.3, WaitMean: waiting / stepsPerSecond, WaitP99: 0.2},
		Overhead: 0.004, Skipped: []string{"AMD accelerators: no driver"},
	}
}

func pageOf(t *testing.T, after, before *doctor.Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, after, before); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The page's data in the form for the script.
func dataOf(t *testing.T, page string) data {
	t.Helper()
	_, rest, ok := strings.Cut(page, `id="data">`)
	text, _, ok2 := strings.Cut(rest, "</script>")
	if !ok || !ok2 {
		t.Fatal("no data in the page")
	}
	var d data
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPage(t *testing.T) {
	page := pageOf(t, example(0.62, 4), nil)
	for _, want := range []string{"CPU-bound", "without computing examples it would run 2.6x as fast", "python train.py --data &#39;/data/my photos&#39;",
		"use 8 workers instead of 2", "DataLoader(dataset, num_workers=8)", "trainer waits", "accelerator 0 idle: warning, 10 to 14 s", "AMD accelerators: no driver", "decode <b>70%</b>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	d := dataOf(t, page)
	var titles []string
	for _, c := range d.Charts {
		titles = append(titles, c.Title)
		for _, p := range c.Panels {
			for _, l := range p.Lines {
				if len(l.Values) != len(p.T) {
					t.Errorf("%s, %s: %d values at %d times", c.Title, l.Label, len(l.Values), len(p.T))
				}
			}
		}
	}
	if got := strings.Join(titles, ", "); got != "Waiting and CPU, What the loader does, Accelerators, Steps, Reading, Disk, Memory" {
		t.Errorf("charts: %s", got)
	}
}

// Nothing is loaded, and only our own script may run.
func TestPageStandsAlone(t *testing.T) {
	page := pageOf(t, example(0.62, 4), example(0.1, 9))
	withoutScript := strings.Replace(page, pageScript, "", 1)
	if len(withoutScript) == len(page) {
		t.Fatal("the script is not in the page as it was hashed")
	}
	if m := regexp.MustCompile(`(?i)(src|href)\s*=|@import|url\(|https?:`).FindString(withoutScript); m != "" {
		t.Errorf("the page refers to something else: %q", m)
	}
	if !strings.Contains(page, "script-src &#39;sha256-") || !strings.Contains(page, "default-src &#39;none&#39;") {
		t.Error("the page has no policy")
	}
	for _, forbidden := range []string{"innerHTML", "fetch(", "XMLHttpRequest", "eval(", "document.write", "import("} {
		if strings.Contains(pageScript, forbidden) {
			t.Errorf("the script uses %s", forbidden)
		}
	}
}

// Names come from outside; none of them becomes markup or script.
func TestHostileNames(t *testing.T) {
	attacks := []string{
		`<script>alert(1)</script>`, `</script><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
		`<!--<script>`, `]]>`, `javascript:alert(1)`, "\u2028alert(1)", `{{.Policy}}`, `</style><script>alert(1)</script>`, `</title><b>`, "a\x00b\x1b[31m",
	}
	for _, attack := range attacks {
		r := example(0.5, 3)
		r.Command = []string{attack, "-c", attack}
		r.Line, r.Stoker = attack, attack
		r.Verdict = doctor.Verdict(attack)
		r.Evidence, r.Skipped = []string{attack}, []string{attack}
		r.Advice = []doctor.Advice{{Title: attack, Why: attack, Command: attack}}
		r.Loader.Kind = attack
		r.Host.CPU, r.Host.Accelerators = attack, []string{attack}
		r.Steps.Source = attack
		r.Stages = []doctor.Stage{{Name: attack, Share: 0.5}, {Name: "worker " + attack, Share: 1}}
		r.Events = []doctor.Event{{Start: 0, End: 5, Level: doctor.Level(attack), Name: attack, Unit: attack}, {Start: 0, End: 5, Level: doctor.Level(attack), Name: "GPU" + attack + "_IDLE"}}
		r.Series[attack] = r.Series["wait"]
		page := pageOf(t, r, r)
		rest := strings.Replace(strings.Replace(page, pageScript, "", 1), `<script type="application/json" id="data">`, "", 1)
		if n := strings.Count(strings.ToLower(rest), "<script"); n != 1 {
			t.Errorf("%q: %d scripts in the page, want its own only", attack, n)
		}
		if n := strings.Count(strings.ToLower(rest), "</script"); n != 2 {
			t.Errorf("%q: %d ends of scripts, want 2", attack, n)
		}
		if strings.Contains(rest, "<img") || regexp.MustCompile(`<[^>]*\son[a-z]+\s*=`).MatchString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(rest, `""`)) {
			t.Errorf("%q became markup", attack)
		}
		if strings.Count(rest, "</style>") != 1 || strings.Count(rest, "</title>") != 1 {
			t.Errorf("%q ends an element", attack)
		}
		dataOf(t, page) // unchanged
	}
}

// Reports that other programs wrote, or that are nearly empty, also give a page.
func TestOddReports(t *testing.T) {
	nan := math.NaN()
	for name, r := range map[string]*doctor.Report{
		"empty":         {Version: 1},
		"short series":  {Version: 1, Series: doctor.Series{"t": {0, 1, 2}, "cpu": {0.5}, "wait": {nan, nan, nan}}},
		"times go back": {Version: 1, Series: doctor.Series{"t": {2, 1, 0}, "wait": {0, 0, 0}}},
		"one point":     {Version: 1, Series: doctor.Series{"t": {0}, "wait": {0.5}}},
		"huge":          {Version: 1, Waiting: 1e300, Gain: math.Inf(1), Seconds: nan, Events: []doctor.Event{{Start: nan, End: math.Inf(1), Name: "MEM", Level: "critical"}}, Stages: []doctor.Stage{{Name: "x", Share: 1e9}}},
	} {
		t.Run(name, func(t *testing.T) {
			dataOf(t, pageOf(t, r, r))
		})
	}
}

func TestCompare(t *testing.T) {
	before, after := example(0.62, 4), example(0.05, 10)
	after.Verdict = doctor.Healthy
	rows := map[string]Row{}
	for _, r := range Compare(before, after) {
		rows[r.Name] = r
	}
	for _, want := range []Row{
		{Name: "verdict", Before: "CPU-bound", After: "healthy"},
		{Name: "steps per second", Before: "4", After: "10.0", Ratio: 2.5, Better: 1},
		{Name: "trainer waits for data", Before: "62%", After: "5.0%", Ratio: 0.05 / 0.62, Better: 1},
		{Name: "step, mean", Before: "250 ms", After: "100 ms", Ratio: 0.4, Better: 1},
	} {
		got := rows[want.Name]
		if math.Abs(got.Ratio-want.Ratio) > 1e-9 || got.Before != want.Before || got.After != want.After || got.Better != want.Better {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if f, by := Speedup(before, after); f != 2.5 || by != "steps per second" {
		t.Errorf("%v by %s", f, by)
	}
	if _, ok := rows["from the network"]; ok {
		t.Error("a figure that neither run has is shown")
	}
	if got := (Row{Ratio: 123.4}).RatioText() + (Row{Ratio: 12.34}).RatioText() + (Row{Ratio: 1.234}).RatioText() + (Row{}).RatioText(); got != "123x12.3x1.23x" {
		t.Errorf("ratios %s", got)
	}
}

// FuzzPage tests reports in the form of files.
func FuzzPage(f *testing.F) {
	var seed bytes.Buffer
	if err := example(0.5, 4).Write(&seed); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Add([]byte(`{"version":1,"series":{"t":[0,1],"wait":[null,1e308]},"line":"</script>"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := doctor.ReadReport(bytes.NewReader(b))
		if err != nil {
			return
		}
		page := pageOf(t, r, nil)
		if rest := strings.Replace(page, pageScript, "", 1); strings.Count(strings.ToLower(rest), "<script") != 2 {
			t.Fatalf("a script got into the page")
		}
		dataOf(t, page)
	})
}

// TestEveryComparisonHasASpeed checks that a comparison of two runs has a row for the speed, also if the steps were
// not counted.
func TestEveryComparisonHasASpeed(t *testing.T) {
	loader := doctor.Loader{Kind: "grain", Trainers: 1}
	counted := func(perSecond, waiting float64) *doctor.Report {
		return &doctor.Report{Waiting: waiting, Loader: loader, Steps: doctor.Steps{PerSecond: perSecond}}
	}
	for _, c := range []struct {
		before, after *doctor.Report
		row           string
		ratio         float64
	}{
		{counted(2, 0.8), counted(6, 0.4), "steps per second", 3},
		{counted(0, 0.8), counted(0, 0.4), "share in steps (speed, for equal steps)", 3},
	} {
		found := 0.0
		for _, row := range Compare(c.before, c.after) {
			if row.Name == c.row {
				found = row.Ratio
			}
		}
		if found < c.ratio*0.999 || found > c.ratio*1.001 {
			t.Errorf("%s: %v, want %v", c.row, found, c.ratio)
		}
	}
}
