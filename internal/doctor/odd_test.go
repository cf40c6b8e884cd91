package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
)

// TestWhoIsAWorker recognises workers by the kernel's data and not by names.
func TestWhoIsAWorker(t *testing.T) {
	const server = "python -c from_multiprocessing.forkserver_import_main"
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python train.py", 'S', "running")
	m.children(100, 101, 103, 104, 105, 106)
	m.run(101, 100, server, 'S', "running")
	m.children(101, 102)
	m.fork(102, 101, server)
	m.children(102)
	m.run(103, 100, "python -c from_multiprocessing.resource_tracker_import_main", 'S', "running")
	m.fork(104, 100, "python train.py")
	m.fork(105, 100, "loader:7of9")                       // has given itself a name
	m.run(106, 100, "python evaluate.py", 'S', "running") // another program
	for pid := 103; pid <= 106; pid++ {
		m.children(pid)
	}
	m.point(105, "exe", "/usr/bin/python3.13")
	w := m.watch()
	for pid, want := range map[int]role{100: roleTrainer, 101: roleIgnored, 102: roleWorker, 103: roleIgnored, 104: roleWorker, 105: roleWorker, 106: roleTrainer} {
		if got := w.tree.members[pid].role; got != want {
			t.Errorf("process %d has role %d, want %d", pid, got, want)
		}
	}
	if s := w.tree.starter(w.tree.members[102]); s == nil || s.pid != 100 || !s.workerSeen {
		t.Errorf("the fork server's worker belongs to %+v", s)
	}
}

// TestRay checks the roles of the processes of a cluster.
func TestRay(t *testing.T) {
	const ray = "/venv/lib/python3.11/site-packages/ray"
	for _, c := range []struct {
		comm, line string
		want       role
	}{
		{"ray::MapBatches", "ray::MapBatches(featurise)", roleWorker},
		{"ray::IDLE", "ray::IDLE", roleWorker},
		{"ray::_StatsActo", "ray::_StatsActor", roleIgnored},
		{"ray::DashboardA", "ray::DashboardAgent", roleIgnored},
		{"ray::RayTrainWo", "ray::RayTrainWorker", roleTrainer},
		{"raylet", ray + "/core/src/ray/raylet/raylet --x", roleIgnored},
		{"python", "/venv/bin/python -u " + ray + "/_private/log_monitor.py", roleIgnored},
		{"python", "python /home/me/ray/train.py", roleTrainer},
	} {
		if got := rayRole(c.comm, c.line); got != c.want {
			t.Errorf("%s: role %d, want %d", c.line, got, c.want)
		}
	}
}

// TestManyWorkers checks that only some of the workers are sampled at a time, and represent all.
func TestManyWorkers(t *testing.T) {
	const n = 200
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python train.py", 'S', "running")
	var pids []int
	for pid := 101; pid <= 100+n; pid++ {
		m.fork(pid, 100, "python train.py")
		m.children(pid)
		pids = append(pids, pid)
	}
	m.children(100, pids...)
	w := m.watch()
	seen := map[int]bool{}
	for range (n + maxWorkers - 1) / maxWorkers {
		some := w.someWorkers()
		if len(some) != maxWorkers {
			t.Fatalf("%d workers in a tick", len(some))
		}
		before := w.bin.lanes.total()
		for _, p := range some {
			seen[p.pid] = true
			w.countLane(causeCPU)
		}
		if got := w.bin.lanes.total() - before; got != n {
			t.Errorf("a tick counts %v lanes", got)
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d workers had their turn", len(seen), n)
	}
}

// TestForksWithoutEnd checks that the number of followed processes is limited and that the limit is reported.
func TestForksWithoutEnd(t *testing.T) {
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python train.py", 'S', "running")
	m.children(100)
	w := m.watch()
	w.tree.most = 20
	var pids []int
	for pid := 101; pid <= 160; pid++ {
		m.run(pid, 100, "date", 'R', "running")
		m.children(pid)
		pids = append(pids, pid)
	}
	m.children(100, pids...)
	now := w.start.Add(2 * time.Second)
	w.updateTree(now)
	w.flush(now)
	w.updateTree(now.Add(time.Second))
	if n := len(w.tree.members); n != 20 {
		t.Errorf("%d members", n)
	}
	r := w.report(w.line)
	if text := strings.Join(r.Skipped, "\n"); !strings.Contains(text, "more than 20 processes") {
		t.Errorf("skipped %q", text)
	}
	f := &findings{c: w, r: &Report{Seconds: 3}}
	if (forksCheck{}).evidence(f); len(f.said) != 1 || !strings.Contains(f.said[0], "6 processes a second") {
		t.Errorf("says %q", f.said)
	}
}

// TestLinesOfOddJobs checks that the first line is informative for any job.
func TestLinesOfOddJobs(t *testing.T) {
	for _, c := range []struct {
		name  string
		watch func(t *testing.T) *Report
		line  string // must be in it
		not   string // must not
	}{
		{"no Python at all", func(t *testing.T) *Report {
			m := recorded{t, t.TempDir()}
			m.run(100, 1, "trainer --fast", 'R', "running")
			m.children(100)
			return watched(m, nil)
		}, "no Python runs in this job", "healthy"},
		{"its frames cannot be read", func(t *testing.T) *Report {
			m := recorded{t, t.TempDir()}
			m.run(100, 1, "python train.py", 'S', "35 0x0 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f") // sleeps
			m.children(100)
			return watched(m, func(w *collector) {
				w.trainers[key{100, 5100}] = true
				w.tree.members[100].trainer = &trainerState{loaders: map[string]int{}, phase: 1}
			})
		}, "without its Python frames the step looks like loading", "accelerator"},
		{"another user's", func(t *testing.T) *Report {
			m := recorded{t, t.TempDir()}
			m.run(100, 1, "python train.py", 'S', "running")
			m.children(100)
			return watched(m, func(w *collector) { w.denied = true })
		}, "belongs to another user", "healthy"},
		{"it has not begun to train", func(t *testing.T) *Report {
			m := recorded{t, t.TempDir()}
			m.run(100, 1, "python train.py", 'S', "running")
			m.children(100)
			return watched(m, func(w *collector) {
				w.open = func(pid int) (stacks, error) {
					return scripted{pid, func() []pystack.Frame { return stack("/home/u/make.py", "main") }}, nil
				}
			})
		}, "no training loop or data loader was seen", "healthy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.watch(t)
			if !strings.Contains(r.Line, c.line) || strings.Contains(r.Line, c.not) || r.Verdict != Unknown || r.Gain != 1 || r.Confidence > 0.3 {
				t.Errorf("%s (%s, gain %.2f, confidence %.2f)", r.Line, r.Verdict, r.Gain, r.Confidence)
			}
			if !strings.Contains(r.Line, "sure)") {
				t.Errorf("low confidence does not show in %q", r.Line)
			}
		})
	}
	t.Run("a shell that starts programs without end", func(t *testing.T) {
		m := recorded{t, t.TempDir()}
		m.run(100, 1, "bash loop.sh", 'S', "running")
		m.children(100)
		if r := watched(m, nil); r.Verdict != Unknown || !strings.Contains(r.Line, "no Python runs in this job") || len(r.Evidence) == 0 {
			t.Errorf("%s: %s %q", r.Line, r.Verdict, r.Evidence)
		}
	})
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python train.py", 'S', "running")
	m.children(100)
	w := m.watch()
	if r := w.report(w.line); r.Line != "no verdict: the job did not run long enough to be looked at" || r.Verdict != Unknown || r.Confidence > 0 {
		t.Errorf("a job that ended immediately: %s", r.Line)
	}
}

// watched is the report of some seconds of a recorded machine.
func watched(m recorded, prepare func(*collector)) *Report {
	w := m.watch()
	if prepare != nil {
		prepare(w)
	}
	now := w.start
	w.lastSlow = now
	for n := range 80 {
		now = now.Add(50 * time.Millisecond)
		if n%20 == 19 {
			w.updateTree(now)
			w.flush(now)
		}
		w.tick(now)
	}
	return w.report(w.line)
}

// TestFilesAreMadeFirst: a script that makes its files before it trains looks like a loop that computes. Once it uses a
// loader, those samples are discarded.
func TestFilesAreMadeFirst(t *testing.T) {
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python train.py", 'R', "running")
	m.children(100)
	r := watched(m, func(w *collector) {
		p := w.tree.members[100]
		p.framework, p.frameworkAsked = true, true
		looks := 0
		w.open = func(pid int) (stacks, error) {
			return scripted{pid, func() []pystack.Frame {
				switch looks++; {
				case looks < 40:
					return stack("/home/u/train.py", "<module>")
				case looks%10 == 0:
					return stack("/home/u/train.py", "train_step", "/home/u/train.py", "main")
				}
				return stack(torchData+"/_utils/fetch.py", "fetch", torchData+"/dataloader.py", "_next_data", torchData+"/dataloader.py", "__next__", "/home/u/train.py", "main")
			}}, nil
		}
	})
	if r.Verdict != CPU || r.Waiting < 0.8 {
		t.Errorf("%s: %s, waits %.2f", r.Line, r.Verdict, r.Waiting)
	}
}

func TestRealTimeTrainer(t *testing.T) {
	m := recorded{t, t.TempDir()}
	m.start(100, 1, 100, "python train.py", 'R', "running", "50 1")
	m.children(100)
	w := m.watch()
	w.tree.members[100].trainer = &trainerState{loaders: map[string]int{}}
	s := &shares{step: 0.2, wait: 0.8, lanes: 1, busy: 1, cores: 1, lag: 0.5}
	s.use[causeCPU] = 1
	f := &findings{c: w, r: &Report{Verdict: CPU}, s: s, sum: &bin{}}
	(realtimeCheck{}).evidence(f)
	(realtimeCheck{}).advise(f)
	if len(f.said) != 1 || !strings.Contains(f.said[0], "SCHED_FIFO 50") || len(f.advice) != 1 || f.advice[0].Gain < 1.5 {
		t.Errorf("says %q, advises %+v", f.said, f.advice)
	}
	w.tree.members[100].stat.Policy = 0
	f.said, f.advice = nil, nil
	(realtimeCheck{}).evidence(f)
	(realtimeCheck{}).advise(f)
	if len(f.said)+len(f.advice) != 0 {
		t.Errorf("of an ordinary one: %q %+v", f.said, f.advice)
	}
	// Nothing to advise is an empty list, also in JSON.
	if advice := (&findings{c: w, r: &Report{Seconds: 60, Verdict: CPU, Loader: Loader{Trainers: 1}}, s: &shares{}, sum: &bin{}}).advise(); advice == nil {
		t.Error("no advice is null in JSON")
	}
}

// TestRenames: a job that renames itself all the time keeps its role.
func TestRenames(t *testing.T) {
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python train.py", 'S', "running")
	m.children(100, 101)
	m.fork(101, 100, "python train.py")
	m.children(101)
	w := m.watch()
	now := w.start
	for n := range 10 {
		now = now.Add(time.Second)
		m.fork(101, 100, fmt.Sprintf("example:%d", n))
		m.point(101, "exe", "/usr/bin/python3.11")
		w.updateTree(now)
		if got := w.tree.members[101].role; got != roleWorker {
			t.Fatalf("second %d: role %d", n, got)
		}
	}
	if w.workersEver != 1 {
		t.Errorf("%d workers", w.workersEver)
	}
}

// During an exec a process has no command line: it is read again later.
func TestCommandLineComesLater(t *testing.T) {
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python train.py s3://bucket/train", 'S', "running")
	m.point(100, "exe", "/usr/bin/python3.11")
	m.write("100/cmdline", "")
	w := m.watch()
	now := w.start.Add(time.Second)
	w.updateTree(now)
	if got := w.judge(timeline{}).r.Command; len(got) != 0 {
		t.Fatalf("%q", got)
	}
	m.write("100/cmdline", "python\x00train.py\x00s3://bucket/train\x00")
	w.updateTree(now.Add(time.Second))
	if got := w.judge(timeline{}).r.Command; len(got) != 3 {
		t.Errorf("%q", got)
	}
	if got := w.remoteData(); got != "s3://bucket/train" {
		t.Errorf("%q", got)
	}
}
