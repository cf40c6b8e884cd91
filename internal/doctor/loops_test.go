package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
)

// written creates a source file and returns its name.
func written(t *testing.T, lines string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The function whose loop trains is found by its source, also if only the code that makes its batches was ever sampled.
func TestTrainsAt(t *testing.T) {
	const source = `class Photos:
    def __iter__(self):
        while True:
            yield self.crop()

    def crop(self):
        for row in rows:
            key, row = turn(key, row)

def main():
    for x in Photos():
        w, loss = update(w, x)
        if loss < 1:
            report(loss)

def epochs():
    for epoch in range(9):
        data = shuffled(epoch)
        state = learn(state, data)
        evaluate(state)

def learn(state, data):
    for x in data:
        x = scale(x)
        state, loss = update(state, x)
    return state

def evaluate(state):
    for x in held:
        total = add(total, state(x))

class Run:
    def fit(self):
        for x in self.data:
            self.state = self.update(self.state, x)

def plain():
    for x in data:
        step(x)
`
	file := written(t, source)
	at := func(fn string, line int) pystack.Frame {
		return pystack.Frame{File: file, Func: fn, Qual: fn, Line: line}
	}
	for _, c := range []struct {
		name   string
		frames []pystack.Frame
		want   string
	}{
		{"what makes its batches", []pystack.Frame{{File: site + "/numpy/core.py", Func: "mean", Line: 9}, at("crop", 8), at("__iter__", 4), at("main", 11)}, "main"},
		{"the step", []pystack.Frame{at("main", 12)}, "main"},
		{"after it", []pystack.Frame{at("report", 0), at("main", 14)}, "main"},
		{"a loop for each epoch", []pystack.Frame{at("learn", 24), at("epochs", 19)}, "learn"},
		{"beside that", []pystack.Frame{at("shuffled", 0), at("epochs", 18)}, "epochs"},
		{"another loop, beside the step", []pystack.Frame{at("evaluate", 30), at("epochs", 20)}, "epochs"},
		{"what a method keeps on its object", []pystack.Frame{at("update", 0), at("fit", 35)}, "fit"},
		{"nothing that is carried on", []pystack.Frame{at("step", 0), at("plain", 39)}, ""},
		{"outside of any loop", []pystack.Frame{at("learn", 26)}, ""},
		{"no frames", nil, ""},
	} {
		w := &collector{}
		for range 2 { // the second time from the cache
			if got := w.trainsAt(c.frames); got.fn != c.want || got.line != 0 {
				t.Errorf("%s: %q, line %d, want %q", c.name, got.fn, got.line, c.want)
			}
		}
	}
}

// A loop over a generator that takes nearly all of the time loads there from the first sample on.
func TestLoopOverASlowGenerator(t *testing.T) {
	file := written(t, "def photos():\n    while True:\n        yield crop()\n\ndef main():\n    for x in photos():\n        w, loss = update(w, x)\n")
	at := func(fn string, line int) pystack.Frame {
		return pystack.Frame{File: file, Func: fn, Qual: fn, Line: line}
	}
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python train.py", 'R', "running")
	m.children(100)
	m.write("100/maps", "1000-900000 r-xp 0 08:01 5 "+site+"/jaxlib/libjax_common.so\n")
	looks := 0
	r := watched(m, func(w *collector) {
		w.open = func(pid int) (stacks, error) {
			return scripted{pid, func() []pystack.Frame {
				if looks++; looks%40 == 0 {
					return []pystack.Frame{at("main", 7)}
				}
				return []pystack.Frame{at("photos", 3), at("main", 6)}
			}}, nil
		}
	})
	if r.Verdict != CPU || r.Waiting < 0.9 {
		t.Errorf("%s: %s, waits %.2f", r.Line, r.Verdict, r.Waiting)
	}
}

// locked are the frames of threads that wait for a lock, and whose that is.
type locked struct {
	threaded
	owns, known bool
}

func (l locked) Owns(uint64) (owns, known bool) { return l.owns, l.known }

// A wait with a time limit in a step, with threads that make batches, is not always for the interpreter's lock: JAX
// waits for its results in the same way.
func TestWhatAStepWaitsFor(t *testing.T) {
	timed := fmt.Sprintf("%d 0x5000 0x80 0x0 0x7ffd 0x0 0x0 0x7f 0x7f", unix.SYS_FUTEX)
	step := stack(site+"/jax/_src/array.py", "_value", "/home/u/train.py", "main", "/home/u/train.py", "<module>")
	feed := stack("/home/u/train.py", "draw", "/home/u/train.py", "feed", lib+"/threading.py", "run")
	for _, c := range []struct {
		name        string
		owns, known bool
		waits       bool
	}{
		{"results of the step", false, true, false},
		{"the interpreter's lock", true, true, true},
		{"nobody knows", false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := recorded{t, t.TempDir()}
			m.run(100, 1, "python train.py", 'S', timed)
			m.children(100)
			m.write("100/task/111/stat", "111 (python) R 1 1 1 0 -1 4194304 10 0 1 0 10 5 0 0 20 0 1 0 5111 1000 100 1 1 1 70100 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0\n")
			m.write("100/task/111/syscall", "running\n")
			m.write("100/task/111/comm", "python\n")
			r := watched(m, func(w *collector) {
				w.open = func(int) (stacks, error) {
					frames := func() map[int][]pystack.Frame { return map[int][]pystack.Frame{100: step, 111: feed} }
					return locked{frames, c.owns, c.known}, nil
				}
			})
			if waits := r.Waiting > 0.5; waits != c.waits {
				t.Errorf("%s: waits %.2f", r.Line, r.Waiting)
			}
		})
	}
}

// The result for a position stays the same, however many positions there are.
func TestManyPlacesSettle(t *testing.T) {
	file := written(t, "def main():\n    for x in photos():\n        w, loss = update(w, x)\n")
	at := loopAt{place{file, 0}, "main"}
	var l timeline
	want := 0.0
	for n := range 3 * maxOwn {
		var own ownCounts
		own.put(ownKey{at, 2, place{"numpy.py", n}}, ownStat{all: 4, ran: 4})
		own.put(ownKey{at, 3, place{file, 3}}, ownStat{all: 1, ran: 1})
		b := bin{dt: 1, training: 5, trainerCounts: trainerCounts{own: own}}
		b.trainer[causeStep], b.trainerRan[causeStep] = 5, 5
		l.bins = append(l.bins, b)
		want += 4
	}
	settled := (&collector{}).settle(l)
	sum := settled.sum(func(*bin) bool { return true })
	if got := sum.trainer[causeCPU]; got != want {
		t.Errorf("%v of %v samples load", got, want)
	}
}

func BenchmarkTrainsAt(b *testing.B) {
	lines := "def main():\n    for x in photos():\n" + strings.Repeat("        x = scale(x)\n", 50) + "        w, loss = update(w, x)\n"
	file := filepath.Join(b.TempDir(), "train.py")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		b.Fatal(err)
	}
	w := &collector{}
	for n := range b.N {
		w.trainsAt([]pystack.Frame{{File: file, Func: "main", Qual: fmt.Sprint("main", n%2), Line: 3 + n%40}})
	}
}
