package doctor

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// The path of loader is like PyTorch's, so that its frames are recognised.
const loaderSource = `
import time, socket, threading

class Iter:
    def __init__(self, kind):
        self.kind = kind
        if kind == "network":
            server = socket.create_server(("127.0.0.1", 0))
            self.ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
            def answer():
                while theirs.recv(1):
                    time.sleep(0.08)
                    theirs.sendall(b"x")
            threading.Thread(target=answer, daemon=True).start()
    def __next__(self):
        if self.kind == "cpu":
            end = time.thread_time() + 0.08
            while time.thread_time() < end:
                pass
        elif self.kind == "network":
            self.ours.sendall(b"x")
            self.ours.recv(1)
`

const trainSource = `
import sys, time
sys.path.insert(0, sys.argv[1])
from utils.data.dataloader import Iter
it = Iter(sys.argv[2])
while True:
    it.__next__()
    time.sleep(0.02)
`

// TestLive observes small Python loops. The result does not depend on the load of the machine: a slow machine slows
// down the loading, not the sleeping step.
func TestLive(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, fstest.MapFS{
		"utils/data/dataloader.py": {Data: []byte(loaderSource)}, "train.py": {Data: []byte(trainSource)},
		"utils/__init__.py": {}, "utils/data/__init__.py": {},
	}); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]Verdict{"cpu": CPU, "network": Network} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			job, err := Start([]string{python, filepath.Join(dir, "train.py"), dir, kind}, nil, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = job.cmd.Process.Kill()
				if code := job.Wait(); code != 128+9 {
					t.Errorf("exit code %d", code)
				}
			}()
			r, err := Watch(context.Background(), Options{PID: job.PID(), Seconds: 3, Patience: 30})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(strings.Join(r.Skipped, "\n"), "Python frames") {
				t.Skipf("frames cannot be read here: %q", r.Skipped)
			}
			if r.Verdict != want || r.Waiting < 0.3 || r.Gain < actGain || r.Loader.Kind != "torch" || r.Loader.Workers != 0 {
				t.Errorf("%s: %+v", r.Line, r)
			}
			var text bytes.Buffer
			if err := r.Text(&text); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(text.String()) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > textWidth && !strings.HasPrefix(line, "       ") {
					t.Errorf("%d columns: %q", n, line)
				}
			}
			if len(r.Series["t"]) == 0 || len(r.Series["cpu"]) != len(r.Series["t"]) {
				t.Errorf("series %v", r.Series)
			}
		})
	}
}

func TestWatchNobody(t *testing.T) {
	if _, err := Watch(context.Background(), Options{PID: 1 << 30}); err == nil || !strings.Contains(err.Error(), "no process") {
		t.Errorf("%v", err)
	}
}

func TestJobThatEndsWhileWatched(t *testing.T) {
	job, err := Start([]string{"sh", "-c", "sleep 0.3; exit 3"}, nil, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := job.Context(context.Background())
	defer cancel()
	r, err := Watch(ctx, Options{PID: job.PID()})
	if err != nil {
		t.Fatal(err)
	}
	if r.Confidence > 0.5 {
		t.Errorf("too sure: %+v", r)
	}
	if code := job.Wait(); code != 3 {
		t.Errorf("exit code %d", code)
	}
}

// TestSignals passes a signal on.
func TestSignals(t *testing.T) {
	said, says := io.Pipe()
	job, err := Start([]string{"sh", "-c", "trap 'exit 9' USR1; echo; while :; do sleep 0.05; done"}, nil, says, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 1)); err != nil { // the trap is set
		t.Fatal(err)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan int, 1)
	go func() { done <- job.Wait() }()
	if err := self.Signal(forwarded[2]); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != 9 {
		t.Errorf("exit code %d", code)
	}
}
