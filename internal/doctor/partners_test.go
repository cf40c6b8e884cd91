package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
	"github.com/stokerdata/stoker/internal/proc"
)

// recorded is a machine whose processes are files.
type recorded struct {
	t   *testing.T
	dir string
}

func (m recorded) write(name, data string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// run records a process of one thread; call is its /proc/PID/syscall.
func (m recorded) run(pid, ppid int, cmd string, state byte, call string) {
	m.t.Helper()
	m.start(pid, ppid, pid, cmd, state, call, "0 0")
}

// fork records a process that runs its parent's program.
func (m recorded) fork(pid, ppid int, cmd string) {
	m.t.Helper()
	m.start(pid, ppid, ppid, cmd, 'S', "running", "0 0")
}

// start records a process whose program was started by another one (itself after an exec), with a real-time priority
// and a policy.
func (m recorded) start(pid, ppid, began int, cmd string, state byte, call, policy string) {
	m.t.Helper()
	words := strings.Fields(cmd)
	stat := fmt.Sprintf("%d (%s) %c %d 1 1 0 -1 4194304 10 0 1 0 10 5 0 0 20 0 1 0 %d 1000 100 1 1 1 %d 0 0 0 0 0 0 0 0 0 17 0 %s 0 0 0 0\n",
		pid, filepath.Base(words[0]), state, ppid, 5000+pid, 70000+began, policy)
	m.write(fmt.Sprintf("%d/stat", pid), stat)
	m.write(fmt.Sprintf("%d/cmdline", pid), strings.Join(words, "\x00")+"\x00")
	m.write(fmt.Sprintf("%d/task/%d/stat", pid, pid), stat)
	m.write(fmt.Sprintf("%d/task/%d/syscall", pid, pid), call+"\n")
	m.write(fmt.Sprintf("%d/task/%d/comm", pid, pid), filepath.Base(words[0])+"\n")
}

// children records the processes that another one has started.
func (m recorded) children(pid int, of ...int) {
	m.write(fmt.Sprintf("%d/task/%d/children", pid, pid), strings.Trim(fmt.Sprint(of), "[]")+"\n")
}

func (m recorded) link(pid, fd int, target string) {
	m.t.Helper()
	dir := filepath.Join(m.dir, fmt.Sprint(pid), "fd")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, fmt.Sprint(fd))); err != nil {
		m.t.Fatal(err)
	}
}

// point creates a link in the folder of a process, if it does not exist yet.
func (m recorded) point(pid int, name, target string) {
	m.t.Helper()
	if err := os.Symlink(target, filepath.Join(m.dir, fmt.Sprint(pid), name)); err != nil && !os.IsExist(err) {
		m.t.Fatal(err)
	}
}

func (m recorded) watch() *collector {
	m.t.Helper()
	w, err := newCollector(Options{PID: 100, FS: proc.FS{Proc: m.dir, Sys: m.dir}})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(w.close)
	return w
}

// A job: 100 is a launcher that started two ranks, 101 and 102; rank 101 started 103, and 104 is a sibling.
func job(t *testing.T) recorded {
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "bash run.sh", 'S', "61 0x0 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f")
	m.children(100, 101, 102, 104)
	m.run(101, 100, "python train.py", 'S', "running")
	m.children(101, 103)
	m.run(102, 100, "python train.py", 'S', "running")
	m.children(102)
	m.run(103, 101, "zcat data.gz", 'R', "running")
	m.children(103)
	m.run(104, 100, "python feed.py", 'R', "running")
	m.children(104)
	return m
}

func TestPartners(t *testing.T) {
	m := job(t)
	m.link(101, 5, "pipe:[900]")
	m.link(103, 1, "pipe:[900]")
	m.link(101, 6, "socket:[901]")
	m.link(104, 6, "socket:[902]")
	m.link(101, 7, "pipe:[903]") // another rank has the other side
	m.link(102, 7, "pipe:[903]")
	m.link(101, 8, "pipe:[904]") // the launcher
	m.link(100, 8, "pipe:[904]")
	m.link(101, 9, "socket:[907]") // a program that is not in the job
	m.link(101, 10, "socket:[906]")
	m.link(101, 11, "/data/x")
	m.link(101, 12, "anon_inode:[eventpoll]")
	m.write("101/fdinfo/12", "pos: 0\ntfd:        5 events: 1\ntfd:        6 events: 1\n")
	m.write("100/net/tcp", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+
		"   0: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000  1000        0 902 1\n"+
		"   1: 0100007F:C000 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 901 1\n"+
		"   2: 0100007F:C001 08080808:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 906 1\n"+
		"   3: 0100007F:C002 0100007F:18EB 01 00000000:00000000 00:00000000 00000000  1000        0 907 1\n"+
		"   4: 0100007F:18EB 0100007F:C002 01 00000000:00000000 00:00000000 00000000  1000        0 905 1\n")
	for pid, share := range map[int]string{101: "-s", 104: "-s", 102: "-p", 103: "-s"} {
		inode := 77
		if pid == 103 {
			inode = 78 // another file
		}
		m.write(fmt.Sprintf("%d/maps", pid), fmt.Sprintf("1000-2000 r-xp 0 08:01 5 /usr/bin/python3\n5000-6000 rw%s 0 00:05 %d /dev/shm/sem\n", share, inode))
	}
	w := m.watch()
	w.tree.members[102].stepsSeen = 5
	wait := func(nr int, args ...uint64) *thread {
		th := &thread{call: proc.Syscall{NR: nr}}
		copy(th.call.Args[:], args)
		return th
	}
	for _, c := range []struct {
		name string
		t    *thread
		want []int
	}{
		{"a command that writes into a pipe", wait(unix.SYS_READ, 5), []int{103}},
		{"a process that is connected", wait(unix.SYS_RECVFROM, 6), []int{104}},
		{"both, through epoll", wait(unix.SYS_EPOLL_WAIT, 12), []int{103, 104}},
		{"another rank", wait(unix.SYS_READ, 7), nil},
		{"who started it", wait(unix.SYS_READ, 8), nil},
		{"a program outside of the job", wait(unix.SYS_READ, 9), nil},
		{"another machine", wait(unix.SYS_READ, 10), nil},
		{"a file", wait(unix.SYS_READ, 11), nil},
		{"a semaphore in shared memory", wait(unix.SYS_FUTEX, 0x5010, 0x189&^futexPrivate), []int{104}},
		{"a lock of its own threads", wait(unix.SYS_FUTEX, 0x5010, 0x189), nil},
		{"a lock outside of any file", wait(unix.SYS_FUTEX, 0x9000, 0x109), nil},
		{"the end of a child", wait(unix.SYS_WAIT4, 103), []int{103}},
		{"a timer", wait(unix.SYS_NANOSLEEP), nil},
		{"nothing: it runs", &thread{call: proc.Syscall{Running: true}}, nil},
		{"nothing is known", nil, nil},
	} {
		var got []int
		for _, q := range w.partners(w.tree.members[101], c.t) {
			got = append(got, q.pid)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	// A process that starts later is also found.
	m.run(105, 101, "python late.py", 'R', "running")
	m.children(105)
	m.children(101, 103, 105)
	m.write("105/maps", "5000-6000 rw-s 0 00:05 77 /dev/shm/sem\n")
	w.updateTree(w.start.Add(time.Second))
	w.sharedAt = w.sharedAt.Add(-2 * holdersAge)
	if got := w.partners(w.tree.members[101], wait(unix.SYS_FUTEX, 0x5010, 0x189&^futexPrivate)); len(got) != 2 {
		t.Errorf("%d partners with one that came later", len(got))
	}
	if len(w.outside) != 1 || w.outside[905] == 0 {
		t.Errorf("outside of the job: %v", w.outside)
	}
	m.run(55, 1, "redis-server", 'S', "running")
	m.write("55/comm", "redis-server\n")
	m.link(55, 3, "socket:[905]")
	w.outside[905] = 10
	w.findOutsider()
	if w.outsider != "redis-server (process 55)" {
		t.Errorf("outside of the job: %q", w.outsider)
	}
}

// scripted returns a process's frames according to its state.
type scripted struct {
	pid    int
	frames func() []pystack.Frame
}

func (s scripted) Sample() ([]pystack.Thread, error) {
	return []pystack.Thread{{TID: s.pid, Frames: s.frames()}}, nil
}

func (scripted) Owns(uint64) (owns, known bool) { return false, false }

func (scripted) Close() error { return nil }

// TestFedByAnUnknownProcess observes a loop that reads from a pipe into which a program of the user writes. No name
// indicates that it loads data.
func TestFedByAnUnknownProcess(t *testing.T) {
	for _, c := range []struct {
		name, feeder string
		state        byte
		call         string
		want         Verdict
	}{
		{"a command that computes", "transcode data", 'R', "running", CPU},
		{"a Python program that computes", "python source.py", 'R', "running", CPU},
		{"a command that waits for a disk", "transcode data", 'D', "-1 0x7f 0x7f", Storage},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := recorded{t, t.TempDir()}
			m.children(100, 103)
			m.children(103)
			m.run(103, 100, c.feeder, c.state, c.call)
			m.run(100, 1, "python train.py", 'R', "running")
			m.link(100, 5, "pipe:[900]")
			m.link(103, 1, "pipe:[900]")
			w := m.watch()
			waiting := false
			w.open = func(pid int) (stacks, error) {
				return scripted{pid, func() []pystack.Frame {
					switch {
					case pid != 100:
						return stack("/home/u/source.py", "main")
					case waiting:
						return stack("/home/u/train.py", "main")
					}
					return stack("/home/u/train.py", "train_step", "/home/u/train.py", "main")
				}}, nil
			}
			now := w.start
			w.lastSlow = now
			for n := range 100 {
				now = now.Add(50 * time.Millisecond)
				if waiting = n%4 != 0; waiting {
					m.run(100, 1, "python train.py", 'S', "0 0x5 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f")
				} else {
					m.run(100, 1, "python train.py", 'R', "running")
				}
				if n%20 == 19 {
					w.updateTree(now)
					w.flush(now)
				}
				w.tick(now)
			}
			r := w.report(w.line)
			if r.Verdict != c.want || r.Waiting < 0.6 || r.Loader.Workers != 1 || r.Gain < 3 {
				t.Errorf("%s; %s %.2f, waits %.2f, %+v", r.Line, r.Verdict, r.Gain, r.Waiting, r.Loader)
			}
		})
	}
}

// A launcher that forwards the output of a job also waits for it, but does not use the data.
func TestLauncherThatReadsItsJob(t *testing.T) {
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python launch.py", 'S', "0 0x5 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f")
	m.children(100, 103)
	m.run(103, 100, "python train.py", 'R', "running")
	m.children(103)
	m.link(100, 5, "pipe:[900]")
	m.link(103, 1, "pipe:[900]")
	r := watched(m, func(w *collector) {
		w.open = func(pid int) (stacks, error) {
			return scripted{pid, func() []pystack.Frame {
				if pid == 100 {
					return stack("/home/u/launch.py", "main")
				}
				return stack("/home/u/train.py", "train_step", "/home/u/train.py", "main")
			}}, nil
		}
		t.Cleanup(func() {
			if p := w.tree.members[103]; p.role != roleTrainer || p.trainer == nil {
				t.Errorf("the job has role %d", p.role)
			}
			if w.tree.members[100].trainer != nil {
				t.Error("the launcher trains")
			}
		})
	})
	if r.Loader.Trainers != 1 || r.Waiting > 0.05 {
		t.Errorf("%s: waits %.2f, %+v", r.Line, r.Waiting, r.Loader)
	}
}

// A wait in the loop's own line is decided by that line: it is the loader's if the line makes the input of the step.
func TestWaitsInALineThatMakesTheBatch(t *testing.T) {
	source := map[int]string{1: "def main():", 2: "    while True:", 3: "        x = source.take()", 4: "        report(stats)", 5: "        loss = train_step(x)"}
	at := loopAt{place{"train.py", 0}, "main"}
	key := func(line int) ownKey { return ownKey{at, line, place{"train.py", line}} }
	var own ownCounts
	own.put(key(3), ownStat{all: 60, waited: 60})
	own.put(key(4), ownStat{all: 20, waited: 20}) // a lock of its logger
	own.put(key(5), ownStat{all: 20, step: 20})
	var side ownStat
	side.side[causeCPU] = 50
	own.put(key(3), side)
	c := &collector{}
	c.sources = map[string][]string{}
	for line := 1; line <= 5; line++ {
		c.sources["train.py"] = append(c.sources["train.py"], source[line])
	}
	b := bin{dt: 10, training: 50, trainerCounts: trainerCounts{own: own}}
	b.trainer[causeStep] = 100
	got := c.settle(timeline{bins: []bin{b}}).bins[0]
	if got.trainer[causeWait] != 60 || got.trainer[causeStep] != 40 || got.lanes[causeCPU] != 50 || got.stalled[causeCPU] != 50 {
		t.Errorf("%+v", got.trainerCounts)
	}
	if !c.made[ownKey{loop: at, body: 3}] || c.made[ownKey{loop: at, body: 4}] {
		t.Errorf("made %v", c.made)
	}
}

func TestNativeText(t *testing.T) {
	loop := ownKey{loop: testLoop, body: 11}
	for _, c := range []struct {
		name string
		c    collector
		want string
	}{
		{"gzip inside HDF5", collector{nativeState: nativeState{spent: map[string]int{"libz": 70, "libhdf5": 10, "Python": 16, "libc": 4}}},
			"libz 70% (gzip inside HDF5), Python 16%, libhdf5 10% (HDF5)"},
		{"JPEG", collector{nativeState: nativeState{spent: map[string]int{"libjpeg": 90, "PIL": 10}}}, "libjpeg 90% (decoding JPEG), PIL 10%"},
		{"Python alone says nothing new", collector{nativeState: nativeState{spent: map[string]int{"Python": 96, "libc": 4}}}, ""},
		{"few samples", collector{nativeState: nativeState{spent: map[string]int{"libjpeg": fewSamples - 1}}}, ""},
		{"a line that makes batches counts, others do not", collector{nativeState: nativeState{
			spentAt: map[ownKey]map[string]int{loop: {"libsqlite3": 40}, {loop: testLoop, body: 12}: {"libtorch_cpu": 900}},
			made:    map[ownKey]bool{loop: true},
		}}, "libsqlite3 100% (SQLite)"},
	} {
		if got := c.c.nativeText(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	c := collector{nativeState: nativeState{faults: map[string]int{"lmdb": 8, "libc": 2}}}
	if got := c.faultText(); got != "lmdb (LMDB)" {
		t.Errorf("faults in %q", got)
	}
}

// Workers that wait for pages of a mapped file spend their time in the kernel bringing
// them.
func TestFaultsOfWorkers(t *testing.T) {
	c := &collector{}
	b := bin{dt: 10, training: 100, laneFaults: 60}
	b.trainer[causeStep], b.trainer[causeWait] = 20, 80
	b.lanes[causeStorage], b.lanes[causeCPU] = 60, 140
	b.stalled[causeCPU] = 50
	b.v[mRun], b.v[mKernel] = 10, 5
	s, _ := c.measure(&timeline{bins: []bin{b}})
	if s.use[causeStorage] != 0.65 || s.use[causeCPU] != 0.35 || s.stalled[causeStorage] != 0.5 {
		t.Errorf("storage %.2f, CPU %.2f, stalled for storage %.2f", s.use[causeStorage], s.use[causeCPU], s.stalled[causeStorage])
	}
}

func TestLargestMapped(t *testing.T) {
	m := recorded{t, t.TempDir()}
	m.run(100, 1, "python train.py", 'S', "running")
	m.write("100/maps", "1000-900000 r-xp 0 08:01 5 /usr/bin/python3\n"+
		"1000000-9000000 r--p 0 08:01 6 /venv/lib/python3.11/site-packages/big.bin\n"+
		"10000000-20000000 r--s 0 08:01 7 /data/my rows.mdb\n"+
		"30000000-90000000 rw-s 0 00:05 8 /dev/shm/torch_1\n")
	w := m.watch()
	if got := w.largestMapped(100); got != "/data/my rows.mdb" {
		t.Errorf("%q", got)
	}
	if got := w.largestMapped(101); got != "" {
		t.Errorf("of nobody: %q", got)
	}
}
