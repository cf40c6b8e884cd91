package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

// ownLoop makes its batches itself, and forkLoop uses processes that it forks.
const (
	ownLoop = `
import time
while True:
    end = time.time() + 0.06
    while time.time() < end:
        pass
    time.sleep(0.02)
`
	forkLoop = `
import multiprocessing, time

def feed(out):
    while True:
        end = time.time() + 0.06
        while time.time() < end:
            pass
        out.send(b"x" * 100)

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.Process(target=feed, args=(theirs,), daemon=True).start()
    while True:
        ours.recv()
        time.sleep(0.02)
`
)

// watchLive observes a command for a few seconds and ends it. On a busy machine only few samples are possible in that
// time. If the verdict is not the expected one, it observes longer.
func watchLive(t *testing.T, want Verdict, args ...string) *Report {
	t.Helper()
	job, err := StartWith(args, JobOptions{Stdout: io.Discard, Stderr: io.Discard, Group: true})
	if err != nil {
		t.Fatal(err)
	}
	defer job.End(0)
	var r *Report
	for _, seconds := range []float64{3, 10, 30} {
		if r, err = Watch(context.Background(), Options{PID: job.PID(), Seconds: seconds, Patience: 4}); err != nil {
			t.Fatal(err)
		}
		if r.Verdict == want {
			break
		}
	}
	return r
}

func script(t *testing.T, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPyPy: the frames of PyPy cannot be read, which is reported. The kernel shows which process waits for which.
func TestPyPy(t *testing.T) {
	pypy, err := exec.LookPath("pypy3")
	if err != nil {
		t.Skip("no pypy3 on this machine")
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		r := watchLive(t, Unknown, pypy, script(t, ownLoop))
		if r.Verdict != Unknown || r.Gain != 1 || !strings.Contains(r.Line, "it runs PyPy") || !strings.Contains(strings.Join(r.Skipped, "\n"), "PyPy") {
			t.Errorf("%s\nnot seen: %q", r.Line, r.Skipped)
		}
	})
	t.Run("with workers", func(t *testing.T) {
		t.Parallel()
		r := watchLive(t, CPU, pypy, script(t, forkLoop))
		if r.Verdict != CPU || r.Loader.Workers != 1 || r.Waiting < 0.3 {
			t.Errorf("%s\n%+v\nnot seen: %q", r.Line, r.Loader, r.Skipped)
		}
	})
}

// TestForkServer: workers of a fork server, Python's default from 3.14 on, are children of the server and belong to the
// process that requested them.
func TestForkServer(t *testing.T) {
	for _, name := range []string{"python3", "python3.14"} {
		python, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := watchLive(t, CPU, python, script(t, strings.Replace(forkLoop, `"fork"`, `"forkserver"`, 1)))
			if strings.Contains(strings.Join(r.Skipped, "\n"), "Python frames") {
				t.Skipf("frames cannot be read here: %q", r.Skipped)
			}
			if r.Verdict != CPU || r.Loader.Workers != 1 || r.Waiting < 0.3 {
				t.Errorf("%s\n%+v", r.Line, r.Loader)
			}
		})
	}
}

// TestJobInAContainer: a job with its own process numbers, mounts and network is observed like any other.
func TestJobInAContainer(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	apart := []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--net", "--ipc", "--uts"}
	if os.Geteuid() == 0 {
		apart = append(apart[:1], apart[3:]...)
	}
	if out, err := exec.Command(apart[0], append(apart[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("unshare: %v: %s", err, out)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, fstest.MapFS{
		"utils/data/dataloader.py": {Data: []byte(loaderSource)}, "train.py": {Data: []byte(trainSource)},
		"utils/__init__.py": {}, "utils/data/__init__.py": {},
	}); err != nil {
		t.Fatal(err)
	}
	r := watchLive(t, CPU, append(apart, python, filepath.Join(dir, "train.py"), dir, "cpu")...)
	if strings.Contains(strings.Join(r.Skipped, "\n"), "Python frames") {
		t.Skipf("frames cannot be read here: %q", r.Skipped)
	}
	if r.Verdict != CPU || r.Loader.Kind != "torch" || r.Waiting < 0.3 {
		t.Errorf("%s\n%+v\nnot seen: %q", r.Line, r.Loader, r.Skipped)
	}
}

// watchVariable holds the process that this program is to watch as another user.
const watchVariable = "STOKER_TEST_WATCH"

// TestJobOfAnotherUser: a job with unreadable files in /proc gets a line that reports it.
func TestJobOfAnotherUser(t *testing.T) {
	if pid, err := strconv.Atoi(os.Getenv(watchVariable)); err == nil {
		r, err := Watch(context.Background(), Options{PID: pid, Seconds: 2, Patience: 1})
		if err != nil {
			fmt.Println("error", err)
		} else {
			fmt.Printf("said %s %.2f %s\n", r.Verdict, r.Gain, r.Line)
		}
		return
	}
	python, err := exec.LookPath("python3")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("it takes python3, and root to be two users")
	}
	// Other users cannot read the folder of the test's program.
	dir, err := os.MkdirTemp("", "another-user")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "doctor.test")
	data, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	job, err := StartWith([]string{python, script(t, ownLoop)}, JobOptions{Group: true})
	if err != nil {
		t.Fatal(err)
	}
	defer job.End(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^TestJobOfAnotherUser$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), fmt.Sprintf("%s=%d", watchVariable, job.PID()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if said := string(out); !strings.Contains(said, "said unknown 1.00 unknown: process") || !strings.Contains(said, "belongs to another user") {
		t.Errorf("%s", said)
	}
}
