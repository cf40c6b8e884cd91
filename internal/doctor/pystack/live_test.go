package pystack

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/proc"
)

// interpreters are the commands that run a CPython on this machine:
// STOKER_TEST_PYTHONS names more of them, separated by ";" ("chroot /srv/sid python3.14").
func interpreters(t testing.TB) []string {
	t.Helper()
	var commands []string
	for _, c := range strings.Split(os.Getenv("STOKER_TEST_PYTHONS"), ";") {
		if c = strings.TrimSpace(c); c != "" {
			commands = append(commands, c)
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, pattern := range []string{filepath.Join(home, ".pyenv/versions/3.*/bin/python3"), "../../.venv/bin/python"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	for _, name := range []string{"python3", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14", "/usr/bin/python3"} {
		if path, err := exec.LookPath(name); err == nil {
			paths = append(paths, path)
		}
	}
	seen := map[string]bool{}
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || seen[real] || strings.Contains(path, "/shims/") {
			continue
		}
		seen[real] = true
		commands = append(commands, path)
	}
	return commands
}

var (
	findOnce    sync.Once
	foundPython map[string][]string
)

// known are the interpreters whose frames can be read, by "3.11.7 path".
func known(t testing.TB) map[string][]string {
	t.Helper()
	findOnce.Do(func() { foundPython = findKnown(t) })
	if len(foundPython) == 0 {
		t.Skip("no CPython 3.10 to 3.14 on this machine")
	}
	return foundPython
}

func findKnown(t testing.TB) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, command := range interpreters(t) {
		args := strings.Fields(command)
		version, err := exec.Command(args[0], append(args[1:], "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])")...).Output()
		if err != nil {
			continue
		}
		var v Version
		if _, err := fmt.Sscanf(string(version), "%d.%d.%d", &v.Major, &v.Minor, &v.Micro); err != nil || v.Minor < oldestMinor || v.Minor > newestMinor {
			continue
		}
		out[strings.TrimSpace(string(version))+" "+strings.ReplaceAll(command, "/", "_")] = args
	}
	return out
}

// each runs a test with every interpreter.
func each(t *testing.T, f func(t *testing.T, python []string)) {
	for name, python := range known(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, python)
		})
	}
}

// child is a Python program that runs until the test is over.
type child struct {
	*exec.Cmd
	out *bufio.Reader
}

// start runs a script and returns after its first line, which is parsed into v.
func start(t testing.TB, python []string, script string, v any) *child {
	t.Helper()
	cmd := exec.Command(python[0], append(slices.Clone(python[1:]), "-c", script)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children end with it
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: cmd, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	line, err := c.out.ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v: %v\n%s", python, err, stderr.String())
	}
	if v != nil {
		if err := json.Unmarshal([]byte(line), v); err != nil {
			t.Fatalf("%v: %v in %q", python, err, line)
		}
	}
	return c
}

func open(t testing.TB, pid int) *Process {
	t.Helper()
	p, err := Open(pid)
	var e *Error
	if errors.As(err, &e) && e.Kind == Permission {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func sample(t testing.TB, p *Process) []Thread {
	t.Helper()
	threads, err := p.Sample()
	if err != nil {
		t.Fatal(err)
	}
	return threads
}

// whole samples a blocked program, and again if the sampler itself was delayed for so long that it gave up.
func whole(t testing.TB, p *Process) []Thread {
	t.Helper()
	for {
		threads := sample(t, p)
		if !slices.ContainsFunc(threads, func(th Thread) bool { return th.Torn }) {
			return threads
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// The frames, names and lines equal those that the interpreter reports.
const waiting = `
import json, os, sys, threading, time
def numbers(n):
    for i in range(n):
        yield (
            i,
            sys.stdin.readline())
class Trainer:
    def größe_日本(self, depth):
        if depth:
            return self.größe_日本(depth - 1)
        for x in numbers(3):
            pass
    def deep(self, depth, *a):
        return self.deep(depth - 1, *a) if depth else self.stop()
    def stop(self):
        class Inner:
            def wait(self):
                threading.Event().wait()
        Inner().wait()
def report():
    time.sleep(0.3)
    me = threading.get_ident()
    tids = {t.ident: t.native_id for t in threading.enumerate()}
    out = []
    for ident, f in sys._current_frames().items():
        if ident == me: continue
        frames = []
        while f:
            c = f.f_code
            frames.append({"File": c.co_filename, "Func": c.co_name, "Qual": getattr(c, "co_qualname", c.co_name), "Line": f.f_lineno})
            f = f.f_back
        out.append({"TID": tids[ident], "Frames": frames})
    print(json.dumps(out), flush=True)
    threading.Event().wait()
code = compile('def named(f):\n\n    return f(11)', 'dir \U0001f600/ſchritt é\u20ac.py', 'exec')
space = {}
exec(code, space)
threading.Thread(target=report, daemon=True).start()
threading.Thread(target=Trainer().deep, args=(150, *range(50)), daemon=True).start()
threading.Thread(target=lambda: space['named'](lambda n: threading.Event().wait()), daemon=True).start()
Trainer().größe_日本(5)
`

func TestFramesAreThoseOfTheInterpreter(t *testing.T) {
	each(t, func(t *testing.T, python []string) {
		var want []Thread
		c := start(t, python, waiting, &want)
		p := open(t, c.Process.Pid)
		for range 3 { // fresh, and with cached data
			got := whole(t, p)
			if len(got) != len(want)+1 {
				t.Fatalf("%d threads, want %d", len(got), len(want)+1)
			}
			for _, w := range want {
				i := slices.IndexFunc(got, func(g Thread) bool { return g.TID == w.TID })
				if i < 0 {
					t.Fatalf("no thread %d in %+v", w.TID, got)
				}
				if g := got[i]; g.Torn || g.GIL || !slices.Equal(g.Frames, w.Frames) {
					t.Errorf("thread %d, torn %v, GIL %v:\n got %+v\nwant %+v", w.TID, g.Torn, g.GIL, g.Frames, w.Frames)
				}
			}
		}
		t.Logf("CPython %s: %+v", p.Version(), p.Stats())
	})
}

// A forked worker has its parent's layout, but its own thread.
func TestForkedWorker(t *testing.T) {
	each(t, func(t *testing.T, python []string) {
		var child int
		c := start(t, python, `
import os, sys, threading
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    def _worker_loop():
        os.read(r, 1)
    os.write(1, b"%d\n" % os.getpid())
    _worker_loop()
    os._exit(0)
sys.stdin.readline()
`, &child)
		p := open(t, child)
		var got []Thread
		defer func() {
			// The same through its parent, whose addresses are known.
			parent := open(t, c.Process.Pid)
			sample(t, parent)
			q, err := parent.Fork(child)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			again, err := q.Sample()
			if err != nil || len(again) != 1 || again[0].TID != child || !slices.Equal(again[0].Frames, got[0].Frames) {
				t.Errorf("as a fork: %+v, %v; want %+v", again, err, got)
			}
			if _, err := parent.Fork(os.Getpid()); err == nil {
				t.Error("this program, which is no fork of it, was taken for one")
			}
		}()
		for len(got) != 1 || len(got[0].Frames) == 0 || got[0].Frames[0].Func != "_worker_loop" { // it is on its way there
			got = sample(t, p)
			time.Sleep(10 * time.Millisecond)
		}
		if len(got) != 1 || got[0].TID != child || len(got[0].Frames) != 2 || got[0].Frames[0].Func != "_worker_loop" {
			t.Errorf("got %+v, want _worker_loop in thread %d", got, child)
		}
	})
}

// A thread that computes in Python holds the lock; threads that wait do not.
func TestLock(t *testing.T) {
	each(t, func(t *testing.T, python []string) {
		var tids struct{ Busy, Idle int }
		c := start(t, python, `
import json, sys, threading
idle = threading.Thread(target=threading.Event().wait, daemon=True)
idle.start()
def spin():
    while True: pass
busy = threading.Thread(target=spin, daemon=True)
busy.start()
print(json.dumps({"Busy": busy.native_id, "Idle": idle.native_id}), flush=True)
sys.stdin.readline()
`, &tids)
		p := open(t, c.Process.Pid)
		if p.Version().FreeThreaded {
			t.Skip("a free-threaded build has no lock")
		}
		held := 0
		for held <= 20 {
			for _, th := range sample(t, p) {
				switch {
				case th.GIL && th.TID == tids.Idle:
					t.Fatal("a thread that waits holds the lock")
				case th.GIL && th.TID == tids.Busy:
					held++
					if !th.Torn && (len(th.Frames) == 0 || th.Frames[0].Func != "spin") {
						t.Fatalf("frames of the busy thread: %+v", th)
					}
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// Threads that compute in Python wait for each other within the interpreter's own state. Threads that wait for an event
// wait elsewhere.
func TestOwns(t *testing.T) {
	each(t, func(t *testing.T, python []string) {
		var tids struct{ A, B, Idle int }
		c := start(t, python, `
import json, sys, threading
idle = threading.Thread(target=threading.Event().wait, args=(1000,), daemon=True)
def spin():
    while True: pass
a, b = (threading.Thread(target=spin, daemon=True) for _ in range(2))
for t in (idle, a, b): t.start()
print(json.dumps({"A": a.native_id, "B": b.native_id, "Idle": idle.native_id}), flush=True)
sys.stdin.readline()
`, &tids)
		p := open(t, c.Process.Pid)
		if p.Version().FreeThreaded {
			t.Skip("a free-threaded build has no lock")
		}
		sample(t, p)
		if _, known := p.Owns(0); !known {
			t.Fatal("the extent of the interpreter's state is not known")
		}
		// waits is the address of the lock that a thread waits for with a limit.
		waits := func(tid int) (uint64, bool) {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", c.Process.Pid, tid))
			if err != nil {
				t.Skip(err)
			}
			call, err := proc.ParseSyscall(data)
			return call.Args[0], err == nil && !call.Running && call.NR == unix.SYS_FUTEX && call.Args[3] != 0
		}
		for seen := 0; seen < 20; time.Sleep(time.Millisecond) {
			for _, tid := range []int{tids.A, tids.B} {
				if address, ok := waits(tid); ok {
					if owns, _ := p.Owns(address); !owns {
						t.Fatalf("%#x is not taken for the interpreter's", address)
					}
					seen++
				}
			}
			if address, ok := waits(tids.Idle); ok {
				if owns, _ := p.Owns(address); owns {
					t.Fatalf("%#x of an event is taken for the interpreter's", address)
				}
			}
		}
	})
}

// While functions call each other very fast, each sample must be a possible chain of calls of the program.
func TestFastCallsGiveNoFalseChains(t *testing.T) {
	calls := map[string][]string{
		"a": {"main"}, "b": {"a"}, "c": {"a", "b"}, "d": {"b", "c", "d"}, "e": {"c"}, "g": {"e", "d"}, "main": {"<module>"}, "<genexpr>": {"g"},
	}
	each(t, func(t *testing.T, python []string) {
		c := start(t, python, `
def d(n, x=1, y=2): return d(n - 1) if n else g(0)
def g(n): return sum(i for i in (1, 2, 3))
def e(p): q = p + 1; return g(q)
def c(u, v, w): return e(u) + d(3)
def b(x): return c(x, x, x) + d(2)
def a(x): return b(x) + c(1, 2, 3)
def main():
    print(1, flush=True)
    while True:
        a(1); a(2)
main()
`, nil)
		p := open(t, c.Process.Pid)
		const n = 1000
		seen, wrong := map[string]int{}, 0
		for range n {
			// Without a pause, consecutive samples would all see the same moment if the program has lost its core.
			time.Sleep(200 * time.Microsecond)
			for _, th := range sample(t, p) {
				for i, f := range th.Frames {
					seen[f.Func]++
					if i == 0 {
						continue
					}
					if callee := th.Frames[i-1].Func; !slices.Contains(calls[callee], f.Func) {
						wrong++
						if wrong < 4 {
							t.Logf("%s called by %s", callee, f.Func)
						}
					}
				}
			}
		}
		s := p.Stats()
		t.Logf("%d samples: %d wrong calls, torn %d, retried %d, calls %d, %v", n, wrong, s.Torn, s.Retried, s.Calls, seen)
		// Measured: at most 0.7% wrong and 2 to 15% dropped, more on a busy machine. These limits only detect a broken
		// reader.
		if wrong > n/20 {
			t.Errorf("%d of %d samples show a call that cannot be", wrong, n)
		}
		if s.Torn > n/2 {
			t.Errorf("%d of %d samples were dropped", s.Torn, n)
		}
	})
}

// New functions at the addresses of old ones are not taken for them.
func TestReusedAddresses(t *testing.T) {
	each(t, func(t *testing.T, python []string) {
		c := start(t, python, `
import time
print(1, flush=True)
n = 0
while True:
    n = n % 4000 + 1
    space = {"sleep": time.sleep}
    exec(compile("\n" * n + "def f_%d():\n sleep(0.0002)" % n, "<made %d>" % n, "exec"), space)
    space["f_%d" % n]()
`, nil)
		p := open(t, c.Process.Pid)
		names := map[string]bool{}
		for ; len(names) < 50; time.Sleep(50 * time.Microsecond) {
			for _, th := range sample(t, p) {
				for _, f := range th.Frames {
					var a, b int
					if !strings.HasPrefix(f.Func, "f_") {
						continue
					}
					names[f.Func] = true
					if _, err := fmt.Sscanf(f.Func+" "+f.File, "f_%d <made %d>", &a, &b); err != nil || a != b || f.Line != a+2 && f.Line != a+1 {
						t.Fatalf("%+v", f)
					}
				}
			}
		}
	})
}

// Threads that start and exit do not end the sampling.
func TestThreadsComeAndGo(t *testing.T) {
	each(t, func(t *testing.T, python []string) {
		c := start(t, python, `
import threading, time
print(1, flush=True)
def visit(): time.sleep(0.001)
while True:
    ts = [threading.Thread(target=visit) for _ in range(8)]
    for x in ts: x.start()
    for x in ts: x.join()
`, nil)
		p := open(t, c.Process.Pid)
		most, withID := 0, 0
		for ; most < 4 || withID < 200; time.Sleep(100 * time.Microsecond) {
			threads := sample(t, p)
			most = max(most, len(threads))
			for _, th := range threads {
				if th.TID != 0 {
					withID++
				}
			}
		}
	})
}

func TestErrors(t *testing.T) {
	kind := func(pid int) Kind {
		t.Helper()
		p, err := Open(pid)
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("process %d: %v, %v", pid, p, err)
		}
		if strings.Contains(e.Error(), "\n") || e.Msg == "" {
			t.Errorf("not one line: %q", e.Error())
		}
		t.Logf("%v / %s", e, e.Hint)
		return e.Kind
	}
	if k := kind(os.Getpid()); k != NotPython {
		t.Errorf("this test: kind %d", k)
	}
	for _, pid := range []int{0, -1, 1 << 30} {
		if k := kind(pid); k != Gone {
			t.Errorf("process %d: kind %d", pid, k)
		}
	}
	if os.Geteuid() == 0 {
		if k := kind(2); k != NotPython && k != Gone { // kthreadd, or no process in a PID namespace
			t.Errorf("kernel thread: kind %d", k)
		}
	}
}

func TestEndOfTheProcess(t *testing.T) {
	each(t, func(t *testing.T, python []string) {
		c := start(t, python, "import sys; print(1, flush=True); sys.stdin.readline()", nil)
		p := open(t, c.Process.Pid)
		sample(t, p)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c.out)
		_ = c.Wait()
		_, err := p.Sample()
		var e *Error
		if !errors.As(err, &e) || e.Kind != Gone {
			t.Errorf("got %v", err)
		}
	})
}

// Versions that are too old are reported as such.
func TestOldVersions(t *testing.T) {
	tested := 0
	for _, command := range interpreters(t) {
		args := strings.Fields(command)
		version, err := exec.Command(args[0], append(args[1:], "-c", "import sys; print(sys.version_info[1])")...).Output()
		minor := strings.TrimSpace(string(version))
		if err != nil || len(minor) != 1 {
			continue
		}
		tested++
		c := start(t, args, "import sys; print(1); sys.stdout.flush(); sys.stdin.readline()", nil)
		_, err = Open(c.Process.Pid)
		var e *Error
		if !errors.As(err, &e) || e.Kind != Unknown || !strings.Contains(e.Msg, "3."+minor) {
			t.Errorf("3.%s: %v", minor, err)
		}
	}
	if tested == 0 {
		t.Skip("no Python older than 3.10")
	}
}

// The tables of lines are read as the interpreter reads them, for all functions
// of some large modules.
func TestLineTables(t *testing.T) {
	each(t, func(t *testing.T, python []string) {
		var codes []struct {
			Table []byte
			First int
			Lines [][3]int // start, end, line
		}
		start(t, python, `
import base64, json, sys, argparse, inspect, typing, ast, tokenize, dataclasses, asyncio.base_events
out = []
def collect(c):
    out.append({"Table": base64.b64encode(c.co_linetable).decode(), "First": c.co_firstlineno,
                "Lines": [[a, b, -1 if l is None else l] for a, b, l in c.co_lines()]})
    for k in c.co_consts:
        if hasattr(k, "co_code"): collect(k)
for m in (argparse, inspect, typing, ast, tokenize, dataclasses, asyncio.base_events):
    with open(m.__file__, encoding="utf8") as f: collect(compile(f.read(), m.__file__, "exec"))
print(json.dumps(out))
sys.stdin.readline()
`, &codes)
		var version string
		if out, err := exec.Command(python[0], append(slices.Clone(python[1:]), "-V")...).Output(); err == nil {
			version = string(out)
		}
		checked := 0
		for _, c := range codes {
			got := code{first: c.First, lines: lines311(c.Table, c.First)}
			if strings.Contains(version, " 3.10.") {
				got.lines = lines310(c.Table, c.First)
			}
			for _, l := range c.Lines {
				for off := l[0]; off < l[1]; off += 2 {
					if l[2] > 0 {
						checked++
						if line := got.line(int64(off)); line != l[2] {
							t.Fatalf("offset %d is in line %d, want %d (first %d)", off, line, l[2], c.First)
						}
					}
				}
			}
		}
		if checked < 10000 {
			t.Errorf("only %d instructions", checked)
		}
	})
}

// BenchmarkSample reads a process like a PyTorch trainer: two threads, 25 frames.
func BenchmarkSample(b *testing.B) {
	for name, python := range known(b) {
		b.Run(name, func(b *testing.B) {
			c := start(b, python, `
import sys, threading, queue
def pin():
    def loop(q): q.get()
    loop(queue.Queue())
threading.Thread(target=pin, daemon=True).start()
def step(n):
    if n: return step(n - 1)
    print(1, flush=True)
    x = 0
    while True:
        x = sum(range(1000))
step(18)
`, nil)
			p := open(b, c.Process.Pid)
			sample(b, p)
			b.ReportAllocs()
			for b.Loop() {
				sample(b, p)
			}
			s := p.Stats()
			b.ReportMetric(float64(s.Calls)/float64(s.Samples), "calls/op")
		})
	}
}
