package doctor

import (
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/proc"
)

var update = flag.Bool("update", false, "write testdata/actions.txt anew")

const actionsFile = "testdata/actions.txt"

// situations are jobs that between them get every piece of advice.
func situations() []*findings {
	var out []*findings
	for _, v := range append(slices.Clone(Causes), Accelerator, Healthy, Unknown) {
		for _, kind := range []string{"torch", "stoker", "unknown", "tf.data"} {
			for _, workers := range []int{0, 1, 4} {
				for _, trainers := range []int{0, 1} {
					s := &shares{samples: 300, step: 0.2, cores: 8, tree: 2, lanes: float64(workers), busy: 0.2, outside: 3, lag: 0.3, limited: 0.5 * float64(workers&1)}
					s.serial[causeCPU] = 0.8
					if workers > 0 {
						s.serial[causeCPU], s.wait, s.busy = 0, 0.8, 1
						s.use[causeCPU] = 1
					}
					if v == Accelerator {
						s.busy = 0.1
					}
					c := &collector{}
					if workers != 1 {
						c.opt.Inspect = func(string) (Data, error) { return Data{Packable: true, Images: true}, nil }
						c.fs, c.found, c.dataLooked = proc.Live, Data{Path: "data/photos", Packable: true, Images: true}, true
					}
					c.line.known[gShm] = true
					c.files, c.fsTypes = map[string]int{"/data/a": 1}, map[string]int{"nfs4": 1}
					c.throttles = map[string]int{"heat": 3}
					switch workers {
					case 0: // its own threads take the cores from each other
						s.outside = 1
						p := &process{trainer: &trainerState{}, threads: map[int]*thread{}}
						for tid := range 12 {
							p.threads[tid] = &thread{share: 0.7}
						}
						c.tree = &tree{members: map[int]*process{1: p}}
					case 4:
						c.sys.limited, c.sys.cpu.Cores = "affinity", 16
					}
					if workers == 4 {
						c.sys.host.Accelerators = []string{"one"}
						if v == Handoff && trainers == 1 {
							s.serial[causeHandoff], c.copies = 0.3, 0.3
						}
						c.fsTypes = map[string]int{"ext4": 1}
					}
					c.sys.cores = 8
					c.workersEver = 8
					switch yes, no := true, false; {
					case trainers == 1:
					case workers == 0:
						c.notes.main = &loaderNote{Dataset: "ImageFolder", Engine: &yes}
					case workers == 4:
						c.notes.main = &loaderNote{Dataset: "Photos", Engine: &no, Why: "__main__.Photos is not known to the engine"}
					}
					sum := &bin{dt: 10}
					sum.laneParts[partDecode], sum.laneParts[partCollate] = 50, float64(20*(workers&1))
					sum.v[mDiskRead], sum.v[mDiskReads] = 1e6, 100
					s.restart = 0.2
					sum.v[gShm], sum.v[mThrottleGPU] = 9, 8
					r := &Report{Seconds: 20, Verdict: v, Gain: 2, Gains: map[Verdict]float64{v: 2}, Waiting: 0.8, Loader: Loader{Kind: kind, Workers: workers, Restarted: workers > 0, Trainers: trainers}}
					out = append(out, &findings{c: c, r: r, s: s, sum: sum})
				}
			}
		}
	}
	return out
}

var number = regexp.MustCompile(`(_\w+)=\d+`)

// TestActions has a list of every command and option that advice prints. Other tests pass it to the real command tree
// (internal/cli) and to the real signatures (python/tests/test_doctor.py).
func TestActions(t *testing.T) {
	all := map[string]bool{}
	for _, f := range situations() {
		if f.r.Loader.Trainers == 0 {
			f.advise()
		}
		for _, c := range checks { // all of them: advise returns only three
			n := len(f.advice)
			c.advise(f)
			if v := c.about().verdict; v != "" && v != f.r.Verdict || v == Unknown {
				continue // of another verdict, or of none
			}
			for _, a := range f.advice[n:] {
				if a.Gain <= 0 {
					t.Errorf("%s: no gain: %+v", f.r.Verdict, a)
				}
			}
		}
		for _, a := range f.advice {
			if a.Title == "" || a.Why == "" || a.Command == "" || strings.Contains(a.Why, "%!") {
				t.Errorf("%+v", a)
			}
			all[number.ReplaceAllString(a.Command, "${1}=1")] = true
		}
	}
	delete(all, "")
	got := strings.Join(slices.Sorted(maps.Keys(all)), "\n") + "\n"
	if *update {
		if err := os.WriteFile(actionsFile, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(actionsFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("what advice prints has changed; go test ./internal/doctor -run TestActions -update, and look at the difference:\n%s", got)
	}
}

// TestEngineIsAsked checks that doctor recommends stoker run if and only if the recogniser accepts the loader.
func TestEngineIsAsked(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		note *loaderNote
		want string // the beginning of the command; "" if none is about the engine
		says string
	}{
		{&loaderNote{Engine: &yes}, "stoker run -- python train.py", "decode and transform in Stoker's engine"},
		{&loaderNote{Engine: &yes, Rest: []string{"transform"}}, "stoker run -- python train.py", "decode in Stoker's engine"},
		{&loaderNote{Engine: &yes, Later: "from the next epoch on"}, "stoker run -- python train.py", "from the second epoch on"},
		{&loaderNote{Engine: &no, Why: "__main__.Photos is not known to the engine"}, "stoker.pack(dataset", "pack the dataset"},
		{&loaderNote{Why: "ImportError: no module"}, "stoker run --explain -- python train.py", "ask whether"},
		{nil, "stoker run --explain -- python train.py", "ask whether"},
		{&loaderNote{Taken: true}, "", ""},
	} {
		s := &shares{samples: 300, step: 0.2, wait: 0.8, cores: 8, tree: 2, lanes: 2, busy: 1}
		s.use[causeCPU] = 1
		sum := &bin{dt: 10}
		sum.laneParts[partDecode], sum.laneParts[partTransform] = 30, 30
		f := &findings{c: &collector{}, s: s, sum: sum, r: &Report{
			Seconds: 20, Verdict: CPU, Gains: map[Verdict]float64{CPU: 4}, Waiting: 0.8, Loader: Loader{Kind: "torch", Workers: 2, Trainers: 1},
		}}
		f.c.notes.main = c.note
		found := Advice{}
		for _, a := range f.advise() {
			if strings.Contains(a.Command, "stoker") {
				found = a
			}
		}
		if !strings.HasPrefix(found.Command, c.want) || (found.Command == "") != (c.want == "") || !strings.Contains(found.Title, c.says) {
			t.Errorf("%+v: %+v", c.note, found)
		}
		if c.note != nil && !strings.Contains(found.Why, c.note.Why) && c.note.Engine != nil {
			t.Errorf("%q is not told: %q", c.note.Why, found.Why)
		}
	}
}

func TestActionText(t *testing.T) {
	for _, c := range []struct {
		do   Action
		want string
	}{
		{stoker("pack", "my data/a'b", "out/"), `stoker pack 'my data/a'\''b' out/`},
		{dataLoader(option("num_workers", 3), option("persistent_workers", true)), `DataLoader(..., num_workers=3, persistent_workers=True)`},
		{stokerLoader("a\"b\x1b", option("output", "torch"), option("limits", code(`stoker.Limits("1GB")`))),
			`stoker.Loader("a\"b?", output="torch", limits=stoker.Limits("1GB"))`},
		{Action{}, ""},
	} {
		if got := c.do.String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if got := dataLoader(option("num_workers", 3)).options(); got["num_workers"] != 3 {
		t.Errorf("options %v", got)
	}
}

// TestChecks checks the promises of the table.
func TestChecks(t *testing.T) {
	names, verdicts := map[string]bool{}, map[Verdict]bool{}
	for _, c := range checks {
		a := c.about()
		if a.name == "" || names[a.name] {
			t.Errorf("two checks, or none, are called %q", a.name)
		}
		names[a.name] = true
		if a.verdict == "" {
			continue
		}
		if verdicts[a.verdict] || a.short == "" {
			t.Errorf("%s: verdict %q twice, or without words", a.name, a.verdict)
		}
		verdicts[a.verdict] = true
		if a.cause != causeIdle && (a.removed == "" || a.doing == "") {
			t.Errorf("%s has no words", a.name)
		}
	}
}
