package cli

import (
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/doctor"
)

// TestTrial takes the first advice that can be tried from outside.
func TestTrial(t *testing.T) {
	workers := doctor.Advice{Title: "workers", Command: "DataLoader(..., num_workers=4)", Options: map[string]any{"num_workers": 4}, Gain: 2}
	other := doctor.Advice{Title: "disk", Command: "stoker pack a b", Gain: 3}
	collate := doctor.Advice{Title: "collate", Options: map[string]any{"collate_fn": "f"}, Gain: 2}
	engine := doctor.Advice{Title: "engine", Command: "stoker run -- python train.py", Gain: 2}
	little := workers
	little.Gain = 1.01
	cores := doctor.Advice{Title: "cores", Command: "env OMP_NUM_THREADS=1 python train.py", Prefix: []string{"env", "OMP_NUM_THREADS=1"}, Gain: 2}
	for _, c := range []struct {
		name   string
		advice []doctor.Advice
		steps  int
		want   string // how what is set begins; "" for nothing
	}{
		{"the first that can", []doctor.Advice{other, collate, workers, engine}, 9, tryVariable + `={"num_workers":4}`},
		{"the engine", []doctor.Advice{engine, workers}, 9, runVariable + "="},
		{"what stands before the command", []doctor.Advice{other, cores, workers}, 9, "env"},
		{"nothing can", []doctor.Advice{other, collate}, 9, ""},
		{"hardly worth it", []doctor.Advice{little}, 9, ""},
		{"no DataLoader", []doctor.Advice{workers}, 0, ""},
	} {
		r := &doctor.Report{Advice: c.advice, Loader: doctor.Loader{Kind: "torch"}, Steps: doctor.Steps{Count: c.steps}}
		a, prefix, env := trial(r)
		if set := append(prefix, env...); (a == nil) != (c.want == "") || a != nil && !strings.HasPrefix(set[0], c.want) {
			t.Errorf("%s: %v %v", c.name, a, set)
		}
	}
}
