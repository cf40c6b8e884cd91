package doctor

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
	"golang.org/x/sys/unix"
)

// Job is a command that runs under the doctor, with its own unmodified standard streams and the signals that the doctor
// receives.
type Job struct {
	cmd     *exec.Cmd
	signals chan os.Signal
	group   bool
	done    chan struct{} // closed when the command has ended
	wg      sync.WaitGroup
	err     error
}

// forwarded are the signals that are passed on to the job. Those that a terminal
// sends to all processes of its foreground group reach it anyway; the doctor
// itself must only survive them.
var forwarded = []os.Signal{
	syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
}

// Start runs a command. Streams that are files are passed on directly; any other stdin is not passed on.
func Start(args []string, stdin io.Reader, stdout, stderr io.Writer) (*Job, error) {
	return StartWith(args, JobOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
}

// JobOptions configure how a command runs.
type JobOptions struct {
	Stdin          io.Reader // a file, or it is left out
	Stdout, Stderr io.Writer
	Env            []string // nil: that of this process
	Group          bool     // in a process group of its own, which End ends
}

// StartWith is Start with options.
func StartWith(args []string, o JobOptions) (*Job, error) {
	// Orphaned processes become children of this one instead of init: the tree stays together.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	j := &Job{cmd: exec.Command(args[0], args[1:]...), signals: make(chan os.Signal, 16), done: make(chan struct{})}
	if f, ok := o.Stdin.(*os.File); ok {
		j.cmd.Stdin = f
	}
	j.cmd.Stdout, j.cmd.Stderr, j.cmd.Env = o.Stdout, o.Stderr, o.Env
	if o.Group {
		j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	j.group = o.Group
	// Ctrl-C and Ctrl-\ in the terminal also reach the job; the report comes when it has ended.
	signal.Notify(j.signals, append([]os.Signal{syscall.SIGINT, syscall.SIGQUIT}, forwarded...)...)
	if err := j.cmd.Start(); err != nil {
		signal.Stop(j.signals)
		return nil, err
	}
	j.wg.Add(2)
	go func() {
		defer j.wg.Done()
		j.err = j.cmd.Wait()
		close(j.done)
	}()
	go j.forward()
	return j, nil
}

// forward forwards signals and collects the exit status of orphans until the job has ended.
func (j *Job) forward() {
	defer j.wg.Done()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-j.done:
			return
		case <-tick.C:
			reapOrphans(j.cmd.Process.Pid)
		case s := <-j.signals:
			// A terminal has sent these two to the job itself. Without one only
			// the doctor has them.
			if (s == syscall.SIGINT || s == syscall.SIGQUIT) && sameForeground() {
				continue
			}
			_ = j.cmd.Process.Signal(s)
		}
	}
}

// sameForeground reports whether this process is in the foreground of a
// terminal, whose signals then reach the job as well.
func sameForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// PID is the process of the command.
func (j *Job) PID() int { return j.cmd.Process.Pid }

// Interrupt asks the job to exit, as Ctrl-C does. If this program reads the terminal, it cannot reach all processes of
// the terminal's foreground group.
func (j *Job) Interrupt() { _ = j.cmd.Process.Signal(os.Interrupt) }

// End ends a job that was started in its own process group. After the first signal, the job has some time to exit on
// its own. End reports whether the job was still running.
func (j *Job) End(grace time.Duration) bool {
	select {
	case <-j.done:
		_ = unix.Kill(-j.PID(), unix.SIGKILL) // remaining processes of its group
		return false
	default:
	}
	if !j.group {
		j.Interrupt()
		return true
	}
	_ = unix.Kill(-j.PID(), unix.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
	}
	_ = unix.Kill(-j.PID(), unix.SIGKILL)
	<-j.done
	j.Wait()
	return true
}

// Wait waits for the end of the command and returns its exit code: 128 plus the
// number of the signal that ended it, as shells have it.
func (j *Job) Wait() int {
	j.wg.Wait()
	signal.Stop(j.signals)
	var exit *exec.ExitError
	if errors.As(j.err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	}
	if j.err != nil {
		return 1
	}
	return 0
}

// Context returns a context that ends with the job or with parent.
func (j *Job) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	stop := make(chan struct{})
	var once sync.Once
	j.wg.Add(1)
	go func() {
		defer j.wg.Done()
		select {
		case <-j.done:
		case <-stop:
		}
		cancel()
	}()
	return ctx, func() { once.Do(func() { close(stop) }); cancel() }
}

// reapOrphans collects the exit status of processes that this one has adopted because their parent exited. Otherwise
// they would stay as zombies for as long as the job runs.
func reapOrphans(except int) {
	self := os.Getpid()
	pids, _ := proc.Live.Children(self)
	for _, pid := range pids {
		if pid != except {
			var status unix.WaitStatus
			_, _ = unix.Wait4(pid, &status, unix.WNOHANG, nil)
		}
	}
}
