package doctor

import (
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
)

// TestWhere checks that the user's own function is named, and not its callers or callees.
func TestWhere(t *testing.T) {
	worker := []string{torchData + "/_utils/fetch.py", "fetch", torchData + "/_utils/worker.py", "_worker_loop", lib + "/multiprocessing/process.py", "_bootstrap", "/home/u/train.py", "main"}
	for _, c := range []struct {
		name   string
		frames []pystack.Frame
		want   string
	}{
		{"the user's function", stack(append([]string{"/home/u/data.py", "pad_batch"}, worker...)...), "pad_batch (data.py)"},
		{"what it calls is named too", stack(append([]string{lib + "/gzip.py", "read", "/home/u/data.py", "load"}, worker...)...), "load (data.py) through gzip"},
		{"a package that it calls", stack(append([]string{site + "/h5py/_hl/dataset.py", "__getitem__", "/home/u/data.py", "__getitem__"}, worker...)...), "__getitem__ (data.py) through h5py"},
		{"not who started the worker", stack(append([]string{site + "/torchvision/datasets/folder.py", "pil_loader"}, worker...)...), "pil_loader (folder.py)"},
		{"not the plumbing", stack(append([]string{lib + "/selectors.py", "select", lib + "/multiprocessing/connection.py", "_recv", site + "/webdataset/gopen.py", "read"}, worker...)...), "read (gopen.py)"},
	} {
		if got := newViewer().look(c.frames).where; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestThreadsThatFeed checks that threads count only if the trainer does not load its data itself.
func TestThreadsThatFeed(t *testing.T) {
	c := &collector{}
	c.sys.cores = 4
	make := func(wait, serial float64) (shares, bin) {
		b := bin{dt: 10, training: 100, threadLanes: 400, interpreter: 200}
		b.trainer[causeStep], b.trainer[causeWait], b.trainer[causeCPU] = 100-wait-serial, wait, serial
		b.trainerRan[causeCPU] = serial
		b.lanes[causeCPU] = 400
		l := timeline{bins: []bin{b}}
		return c.measure(&l)
	}
	if s, _ := make(70, 0); s.lanes != 4 || !s.threads || s.locked < 0.45 || s.timeWithout(CPU) > 0.35 {
		t.Errorf("threads are not its loader: %+v", s)
	}
	if s, _ := make(10, 70); s.lanes != 0 {
		t.Errorf("threads of a trainer that loads itself are its loader: %+v", s)
	}
}

// TestThreadsAtTheInterpretersLock: if threads of Python code fill a queue, the interpreter's lock is named as the
// cause, with advice. Threads that compute without the lock do not get that advice.
func TestThreadsAtTheInterpretersLock(t *testing.T) {
	for _, c := range []struct {
		waits   float64 // samples of threads that wait for the lock, of 400
		outside float64 // cores that other programs use
		named   bool
	}{{300, 0, true}, {300, 3.5, true}, {20, 0, false}} {
		collector := &collector{}
		collector.sys.cores = 4
		b := bin{dt: 10, training: 100, threadLanes: 400, interpreter: c.waits}
		b.trainer[causeStep], b.trainer[causeWait] = 30, 70
		b.lanes[causeCPU], b.stalled[causeCPU] = 400, 70
		b.v[mBusy] = 10 * c.outside
		s, sum := collector.measure(&timeline{bins: []bin{b}})
		r := &Report{Seconds: 10, Verdict: CPU, Gain: 3, Confidence: 0.9, Gains: map[Verdict]float64{CPU: 3}, Waiting: 0.7}
		r.Loader = Loader{Kind: "unknown", Workers: 4, Trainers: 1}
		f := &findings{c: collector, r: r, s: &s, sum: &sum}
		evidence, line, advised := strings.Join(f.evidence(), "\n"), f.line(), false
		for _, a := range f.advise() {
			advised = advised || strings.Contains(a.Command, "ProcessPoolExecutor(")
		}
		for what, found := range map[string]bool{
			"evidence": strings.Contains(evidence, "(GIL)"), "line": strings.Contains(line, "(GIL)"), "advice": advised,
		} {
			if found != c.named {
				t.Errorf("%+v: %s: %v, want %v\n%s\n%s", c, what, found, c.named, line, evidence)
			}
		}
		if !strings.Contains(evidence, "4 threads: ") {
			t.Errorf("%+v: %s", c, evidence)
		}
	}
}

// TestTimeOfChildren counts processes that start and exit between two samples.
func TestTimeOfChildren(t *testing.T) {
	p := &process{pid: 1}
	c := &collector{}
	c.tree = &tree{members: map[int]*process{1: p}}
	got := 0.0
	put := func(_ metric, x float64) { got += x; c.bin.v[mRun] += x }
	look := func(own, children uint64, seen float64) {
		c.bin.v[mRun] = seen
		p.stat.UTime, p.stat.CUTime = own, children
		c.childrenTime(put)
	}
	look(100, 0, 0)
	look(150, 0, 0.5) // already counted by the threads' samples
	if got != 0 {
		t.Errorf("%.2f s twice", got)
	}
	look(200, 300, 0.5) // three seconds of children that were never sampled
	if got < 2.9 || got > 3.1 {
		t.Errorf("%.2f s of children, want 3", got)
	}
	look(150, 300, 0) // less than before: not yet waited for
	look(200, 300, 0.1)
	if got > 3.2 {
		t.Errorf("%.2f s", got)
	}
}
