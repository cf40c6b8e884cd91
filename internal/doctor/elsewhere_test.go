package doctor

import (
	"testing"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
)

// threaded are the frames of several threads of a process.
type threaded func() map[int][]pystack.Frame

func (f threaded) Sample() ([]pystack.Thread, error) {
	var out []pystack.Thread
	for tid, frames := range f() {
		out = append(out, pystack.Thread{TID: tid, Frames: frames})
	}
	return out, nil
}

func (threaded) Owns(uint64) (owns, known bool) { return false, false }

func (threaded) Close() error { return nil }

// If the main thread waits in an event loop or for a thread, other threads train.
func TestStepsInAnotherThread(t *testing.T) {
	const (
		futex = "202 0x5000 0x189 0x0 0x0 0x0 0xffffffff 0x7f 0x7f"
		sleep = "230 0x1 0x0 0x7f 0x0 0x0 0x0 0x7f 0x7f"
	)
	events := stack(lib+"/selectors.py", "select", lib+"/asyncio/base_events.py", "_run_once", lib+"/asyncio/runners.py", "run", "/home/u/train.py", "<module>")
	joins := stack(lib+"/threading.py", "join", "/home/u/train.py", "<module>")
	takes := stack(lib+"/threading.py", "wait", lib+"/queue.py", "get", "/home/u/train.py", "<module>")
	computes := stack("/home/u/train.py", "optimise", "/home/u/train.py", "<module>")
	pool := func(names ...string) []pystack.Frame {
		var pairs []string
		for _, n := range names {
			pairs = append(pairs, "/home/u/train.py", n)
		}
		return stack(append(pairs, lib+"/concurrent/futures/thread.py", "run", lib+"/concurrent/futures/thread.py", "_worker", lib+"/threading.py", "run")...)
	}
	idle := stack(lib+"/concurrent/futures/thread.py", "_worker", lib+"/threading.py", "run")
	own := stack("/home/u/train.py", "train_step", "/home/u/train.py", "train", lib+"/threading.py", "run")
	for _, c := range []struct {
		name        string
		main, waits []pystack.Frame // of the main thread: mostly, and in each fourth sample
		other, rest []pystack.Frame // of the other one
		trains      bool            // there
		share       float64         // of the time, at most, in which it waits
	}{
		{"an event loop and an executor", events, events, pool("train_step"), pool("train_step"), true, 0.05},
		{"what the step waits for is seen", events, events, pool("train_step"), idle, true, 0.35},
		{"a thread that trains", joins, joins, own, own, true, 0.05},
		{"an event loop and a thread that trains", events, computes, own, own, true, 0.05},
		{"a thread that makes batches in steps", events, events, pool("decode_step"), pool("decode_step"), false, 1},
		{"a thread that makes batches with a model, and a trainer that computes", events, computes, pool("forward"), pool("forward"), false, 1},
		{"a trainer that takes batches", takes, takes, own, own, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := recorded{t, t.TempDir()}
			m.run(100, 1, "python train.py", 'S', futex)
			m.children(100)
			m.write("100/task/111/stat", "111 (python) S 1 1 1 0 -1 4194304 10 0 1 0 10 5 0 0 20 0 1 0 5111 1000 100 1 1 1 70100 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0\n")
			m.write("100/task/111/syscall", sleep+"\n")
			m.write("100/task/111/comm", "python\n")
			var p *process
			r := watched(m, func(w *collector) {
				p = w.tree.members[100]
				looks := 0
				w.open = func(int) (stacks, error) {
					return threaded(func() map[int][]pystack.Frame {
						if looks++; looks%4 == 0 {
							return map[int][]pystack.Frame{100: c.waits, 111: c.rest}
						}
						return map[int][]pystack.Frame{100: c.main, 111: c.other}
					}), nil
				}
			})
			if p.threads[111] == nil || p.trainsIn(p.threads[111]) != c.trains {
				t.Errorf("it trains there: %v; %+v", !c.trains, p.elsewhere)
			}
			if c.trains && (r.Loader.Trainers != 1 || r.Waiting > c.share) {
				t.Errorf("%s: waits %.2f, %d trainers", r.Line, r.Waiting, r.Loader.Trainers)
			}
			if !c.trains && (r.Verdict == Accelerator || r.Verdict == Healthy) {
				t.Errorf("%s", r.Line)
			}
		})
	}
}
