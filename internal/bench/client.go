package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/proc"
)

// openTimeout is the time an engine may take to open a source: a folder of millions of files on a slow disk takes
// minutes.
const openTimeout = 10 * time.Minute

// engine is a running `stoker serve`, a child of this process.
type engine struct {
	cmd  *exec.Cmd
	log  *tail
	dir  string // of its socket, "" when its one client came with it
	done chan struct{}
	// remove removes dir.
	remove func() error
	err    error
	once   sync.Once
}

// tail keeps the end of an engine's log.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - 1<<14; over > 0 {
		t.buf = t.buf[over:]
	}
	return len(b), nil
}

func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.buf)), "\n")
	return lines[len(lines)-1]
}

// startEngine runs the engine on the given CPUs (all when empty) with n clients. A single client uses a socket pair, as
// a loader does. Several clients use a socket in a folder of its own.
func startEngine(ctx context.Context, command []string, cpus []int, n int) (*engine, []*handoff.Client, error) {
	e := &engine{log: &tail{}, done: make(chan struct{})}
	args := append([]string{}, command[1:]...)
	var theirs *os.File
	var clients []*handoff.Client
	if n == 1 {
		c, fd, err := handoff.Pair()
		if err != nil {
			return nil, nil, err
		}
		theirs = os.NewFile(uintptr(fd), "engine")
		defer theirs.Close()
		clients = append(clients, c)
		args = append(args, "serve", "--fd=3", "--parent="+strconv.Itoa(os.Getpid()))
	} else {
		dir, remove, err := leftover.MkdirTemp("", "stoker-bench-")
		if err != nil {
			return nil, nil, err
		}
		e.dir, e.remove = dir, remove
		args = append(args, "serve", "--socket", filepath.Join(dir, "engine"))
	}
	e.cmd = exec.Command(command[0], args...)
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	if theirs != nil {
		e.cmd.ExtraFiles = []*os.File{theirs}
	}
	e.cmd.SysProcAttr = proc.OwnGroup()
	err := proc.OnCPUs(cpus, e.cmd.Start)
	if err != nil {
		closeAll(clients)
		if e.dir != "" {
			_ = e.remove()
		}
		return nil, nil, fmt.Errorf("starting the engine %s: %w", command[0], err)
	}
	reaped := leftover.Group(e.cmd.Process.Pid)
	go func() {
		e.err = e.cmd.Wait()
		reaped()
		close(e.done)
	}()
	for len(clients) < n {
		c, err := e.dial(ctx)
		if err != nil {
			closeAll(clients)
			e.stop()
			return nil, nil, err
		}
		clients = append(clients, c)
	}
	return e, clients, nil
}

func closeAll(clients []*handoff.Client) {
	for _, c := range clients {
		c.Close()
	}
}

// dialTimeout is the time an engine may take to start.
const dialTimeout = 30 * time.Second

func (e *engine) dial(ctx context.Context) (*handoff.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	go func() {
		select {
		case <-e.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	c, err := handoff.Dial(ctx, filepath.Join(e.dir, "engine"))
	if err == nil {
		return c, nil
	}
	select {
	case <-e.done:
		return nil, e.explain(handoff.ErrEnded)
	default:
		return nil, err
	}
}

// explain adds the engine's last log line to an error about its exit.
func (e *engine) explain(err error) error {
	if errors.Is(err, handoff.ErrEnded) {
		return fmt.Errorf("%w: %s", err, e.log.lastLine())
	}
	return err
}

// stop ends the engine after its connections were closed, and waits for it.
func (e *engine) stop() {
	e.once.Do(func() {
		if e.dir != "" {
			_ = e.cmd.Process.Signal(unix.SIGTERM)
		}
		select {
		case <-e.done:
		case <-time.After(8 * time.Second):
			_ = e.cmd.Process.Kill()
			<-e.done
		}
		if e.dir != "" {
			_ = e.remove()
		}
	})
}
