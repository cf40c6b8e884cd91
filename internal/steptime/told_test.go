package steptime

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
)

// A loop of four steps of 10 ms, half of it waiting, 3 ms of it forward.
const told = `{"loader": "Loader()", "waits": [5000000, 5000000, 5000000, 5000000], "steps": [10000000, 10000000, 10000000, 10000000],
	"seconds": 0.04, "computed": 0.02, "first_batch": 0.5, "examples": 32, "computes": true, "step": 0.005, "spin": false,
	"engine_before": [{"name": "fetch", "busy_ns": 1000000, "workers": 2}],
	"engine_after": [{"name": "fetch", "busy_ns": 5000000, "workers": 2}, {"name": "decode", "busy_ns": 8000000, "workers": 1}],
	"inside": {"collate": 0.004, "getitem": 0.012}, "notes": ["a note"],
	"log": {"names": {"1": "forward"}, "lost": false, "spans": [{"name": "getitem", "from": 1500, "to": 2000}, {"name": "getitem", "from": 10, "to": 20}],
	"records": [[1000,1,0],[2000,2,8],[2000,4,1],[3002000,5,1],[3003000,3,0],
		[4000000,4,1],[7000000,5,1],[7000001,4,1],[10000001,5,1],[10000002,4,1],[13000002,5,1],[13000002,4,99],[13000003,5,99]]}}`

func tell(t *testing.T, change string, to string) *Told {
	t.Helper()
	if change != "" && !strings.Contains(told, change) {
		t.Fatalf("%s is not told", change)
	}
	p, err := ParseTold([]byte(strings.Replace(told, change, to, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestToldBench(t *testing.T) {
	used := proc.Usage{CPU: 10 * time.Millisecond, ReadBytes: 7, PSS: 9, Processes: 3}
	b := tell(t, "", "").Bench(used, 2)
	if b.Steps != 4 || b.PerSecond != 800 || b.StepRate != 100 || b.AU != 0.5 || b.Waited != 1 || b.Step.P50 != 0.01 || b.Wait.Max != 0.005 ||
		b.CPU != 0.01 || b.ReadBytes != 7 || b.PSS != 9 || b.Processes != 3 || b.Cores != 2 || b.Limit != "" || b.T != 0.005 {
		t.Errorf("%+v", b)
	}
	if want := []Stage{{"read", "engine", 0.001, 0.05}, {"decode", "engine", 0.002, 0.2}}; !slices.Equal(b.Stages, want) {
		t.Errorf("%+v", b.Stages)
	}
	for _, c := range []struct {
		change, to string
		cpu        time.Duration
		want       string
	}{
		{`"computed": 0.02`, `"computed": 0.0399`, 0, "accelerator"},
		{"", "", 75 * time.Millisecond, "cpu"},
		{`"spin": false`, `"spin": true`, 75 * time.Millisecond, "cpu"},
		// 30 of the 45 ms were spun, and leave 50 ms of 80 for the rest.
		{`"step": 0.005, "spin": false`, `"step": 0.0075, "spin": true`, 70 * time.Millisecond, ""},
		// Without a step there is nothing to keep up with.
		{`"computed": 0.02, "first_batch": 0.5, "examples": 32, "computes": true`, `"computed": 0.04, "first_batch": 0.5, "examples": 32, "computes": false`, 0, ""},
	} {
		if b := tell(t, c.change, c.to).Bench(proc.Usage{CPU: c.cpu}, 2); b.Limit != c.want {
			t.Errorf("%s, %v: limit %q, want %q", c.to, c.cpu, b.Limit, c.want)
		}
	}
}

// stagesOf writes stages as text.
func stagesOf(p *Profile) string {
	var out []string
	for _, s := range p.Stages {
		out = append(out, s.Where+" "+s.Name+" "+time.Duration(math.Round(s.Seconds*1e6)*1e3).String())
	}
	return strings.Join(out, ", ")
}

func TestToldProfile(t *testing.T) {
	p := tell(t, "", "").Profile(proc.Usage{CPU: time.Second})
	if got, want := stagesOf(p), "trainer wait 5ms, trainer forward 3ms, trainer other 0s, trainer other 2ms, loading getitem 3ms, loading collate 1ms, engine read 1ms, engine decode 2ms"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if p.Steps != 4 || p.Examples != 32 || p.AU != 0.5 || p.CPU != 1 || !slices.Equal(p.Notes, []string{"a note"}) {
		t.Errorf("%+v", p)
	}
	// A log that has lost its beginning counts the steps that it has.
	p = tell(t, `"lost": false`, `"lost": true`).Profile(proc.Usage{})
	if got := stagesOf(p); !strings.Contains(got, "trainer forward 12ms") {
		t.Errorf("%s", got)
	}
	// Torch's events are shown separately, and the rest is forward.
	p = tell(t, `"names": {"1": "forward"}`, `"names": {"1": "mine"}`).Profile(proc.Usage{})
	if got := stagesOf(p); !strings.Contains(got, "trainer wait 5ms, trainer mine 3ms") {
		t.Errorf("%s", got)
	}
	x := tell(t, "", "")
	x.Log, x.Parts = Log{}, map[string]float64{"backward": 0.001, "copy": 0.0005}
	p = x.Profile(proc.Usage{})
	if got := stagesOf(p); !strings.HasPrefix(got, "trainer wait 5ms, trainer copy 500µs, trainer forward 3.5ms, trainer backward 1ms, loading") {
		t.Errorf("%s", got)
	}
	if len(p.Notes) != 2 || !slices.Equal(x.Notes, []string{"a note"}) {
		t.Errorf("%v, %v", p.Notes, x.Notes)
	}
}

func TestToldTrace(t *testing.T) {
	count := map[string]int{}
	x := tell(t, "", "")
	for _, e := range x.Log.Trace("Loader()", 7).TraceEvents {
		count[e.Ph+" "+e.Name]++
		if e.PID != 7 || e.Dur < 0 {
			t.Errorf("%+v", e)
		}
	}
	// One span was before the first record.
	for name, want := range map[string]int{"M process_name": 1, "M thread_name": 2, "X wait": 1, "X step": 1, "X forward": 4, "X other": 1, "X getitem": 1} {
		if count[name] != want {
			t.Errorf("%d of %s, want %d", count[name], name, want)
		}
	}
}

func TestParseToldRefuses(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{`[]`, "cannot unmarshal"},
		{`{"colour": 1}`, "unknown field"},
		{`{"steps": []}`, "0 steps"},
		{`{"steps": [1], "waits": [1, 2]}`, "1 steps and 2 waits"},
		{`{"steps": [1], "seconds": 0}`, "without time"},
		{`{"steps": [1], "seconds": -1}`, "a time of -1"},
		{`{"steps": [1], "seconds": 1, "parts": {"forward": 1e300}}`, "a time of 1e+300"},
	} {
		if _, err := ParseTold([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.text, err, c.says)
		}
	}
}

func TestCompare(t *testing.T) {
	before := &Profile{PerSecond: 100, AU: 0.5, Stages: []Stage{{"wait", "trainer", 2, 0}, {"forward", "trainer", 1, 0}}}
	after := &Profile{PerSecond: 200, AU: 0.9, Stages: []Stage{{"wait", "trainer", 1, 0}, {"copy", "trainer", 3, 0}}}
	got := Compare(before, after)
	want := []Change{{Name: "step"}, {"trainer: wait", 2, 1, Time}, {"trainer: copy", 0, 3, Time}, {"trainer: forward", 1, 0, Time}, {"examples/s", 100, 200, PerSecond}, {"AU", 0.5, 0.9, Share}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// FuzzTold: for any input, there is a report or an error.
func FuzzTold(f *testing.F) {
	f.Add([]byte(told))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := ParseTold(data)
		if err != nil {
			return
		}
		for _, report := range []any{x.Bench(proc.Usage{}, 1), x.Profile(proc.Usage{}), x.Log.Trace("", 1)} {
			if _, err := json.Marshal(report); err != nil {
				t.Fatal(err)
			}
		}
	})
}
