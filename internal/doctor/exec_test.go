package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
	"github.com/stokerdata/stoker/internal/proc"
)

// loading is a process whose main thread is in PyTorch's loader.
type loading struct{ pid int }

func (l loading) Sample() ([]pystack.Thread, error) {
	return []pystack.Thread{{TID: l.pid, Frames: []pystack.Frame{
		{File: "/lib/torch/utils/data/dataloader.py", Func: "__next__", Qual: "_BaseDataLoaderIter.__next__", Line: 701},
		{File: "/home/me/train.py", Func: "<module>", Qual: "<module>", Line: 5},
	}}}, nil
}

func (loading) Owns(uint64) (owns, known bool) { return false, false }

func (loading) Close() error { return nil }

// program lets process 100 of a machine in dir run another program.
func program(t *testing.T, dir, comm, cmd string, stack int) {
	t.Helper()
	stat := fmt.Sprintf("100 (%s) S 1 1 1 0 -1 4194304 10 0 1 0 10 5 0 0 20 0 1 0 5000 1000 100 1 1 1 %d 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n", comm, stack)
	for name, data := range map[string]string{"100/stat": stat, "100/task/100/stat": stat, "100/task/100/children": "", "100/cmdline": cmd} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProgramThatBecomesPython observes jobs that start as another program, for longer than an unchanged program is
// tried.
func TestProgramThatBecomesPython(t *testing.T) {
	other := &pystack.Error{PID: 100, Kind: pystack.NotPython, Msg: "it is not a Python process (bash)"}
	starting := &pystack.Error{PID: 100, Kind: pystack.Starting, Msg: "its interpreter has not started yet"}
	unmapped := &pystack.Error{PID: 100, Kind: pystack.NoSymbols, Msg: "python3 has no symbols"}
	for _, c := range []struct {
		name   string
		comm   string // of the first program
		stack  int
		before error
		after  error // of the second program, for a while
		tries  int   // of the first program
		known  string
	}{
		{"launcher", "pyenv", 7, other, nil, maxTries, ""},
		{"launcher of another user", "pyenv", 0, other, nil, maxTries, ""},
		{"script of the same name", "python3", 7, other, nil, maxTries, "Python frames of process 100: it is not a Python process (bash)"},
		{"library not mapped yet", "bash", 7, other, unmapped, 0, ""},
		{"slow start", "bash", 7, other, starting, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			program(t, dir, c.comm, "/bin/bash\x00train.sh\x00", c.stack)
			w, err := newCollector(Options{PID: 100, FS: proc.FS{Proc: dir, Sys: dir}})
			if err != nil {
				t.Fatal(err)
			}
			defer w.close()
			answer, tries := c.before, 0
			w.open = func(pid int) (stacks, error) {
				tries++
				if answer != nil {
					return nil, answer
				}
				return loading{pid}, nil
			}
			now := w.start
			watch := func(seconds int) {
				for range seconds {
					now = now.Add(time.Second)
					w.updateTree(now)
					w.tick(now)
				}
			}
			watch(60)
			if tries != c.tries {
				t.Errorf("the first program was tried %d times, not %d", tries, c.tries)
			}
			if c.known != "" && !slices.Contains(w.skips(), c.known) {
				t.Errorf("skipped %q", w.skips())
			}
			program(t, dir, "python3", "/usr/bin/python3\x00train.py\x00", c.stack*2)
			if answer = c.after; c.after != nil {
				watch(3)
				if errors.Is(c.after, starting) {
					watch(60)
				}
				answer = nil
			}
			watch(4)
			r := w.report(w.line)
			if r.Loader.Kind != "torch" || r.Loader.Recognised != "frames" || r.Command[1] != "train.py" {
				t.Errorf("loader %+v of %q", r.Loader, r.Command)
			}
			for _, line := range r.Skipped {
				if strings.HasPrefix(line, "Python") {
					t.Errorf("skipped %q", line)
				}
			}
		})
	}
}

// TestFramesThatCannotBeRead checks that unreadable frames are reported, also for a job that has ended.
func TestFramesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, "python3", "python3\x00train.py\x00", 7)
	w, err := newCollector(Options{PID: 100, FS: proc.FS{Proc: dir, Sys: dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	tries := 0
	w.open = func(int) (stacks, error) {
		tries++
		return nil, &pystack.Error{Kind: pystack.Permission, Msg: "the kernel does not allow it", Hint: "be root"}
	}
	for i := range 5 {
		w.tick(w.start.Add(time.Duration(i) * time.Second))
	}
	if tries != 1 {
		t.Errorf("%d tries", tries)
	}
	if err := os.RemoveAll(filepath.Join(dir, "100")); err != nil {
		t.Fatal(err)
	}
	if w.updateTree(w.start) {
		t.Error("still there")
	}
	if want := "Python frames: the kernel does not allow it (be root)"; !slices.Contains(w.skips(), want) {
		t.Errorf("skipped %q", w.skips())
	}
}
