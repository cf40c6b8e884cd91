//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A program started by a real-time process gets the normal schedule for all of its threads. Go's runtime could hang
// otherwise.
func TestDoesNotInheritRealTime(t *testing.T) {
	const fifo = 1
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "STOKER_TEST_POLICIES=1")
	var got strings.Builder
	cmd.Stdout, cmd.Stderr = &got, &got
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: fifo, Priority: 1}, 0); err != nil {
			started <- fmt.Errorf("no right to be a real-time process: %w", err)
			return
		}
		err := cmd.Start()
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0); err != nil {
			t.Error(err)
		}
		started <- err
	}()
	if err := <-started; err != nil {
		t.Skip(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if p := got.String(); strings.Contains(p, "1") || !strings.Contains(p, "0") {
		t.Errorf("the policies of its threads are %q, want zeros", p)
	}
}

// printPolicies prints how each thread of this process is scheduled.
func printPolicies() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		fmt.Println(err)
	}
	for _, task := range tasks {
		id, _ := strconv.Atoi(task.Name())
		if a, err := unix.SchedGetAttr(id, 0); err == nil {
			fmt.Print(a.Policy, " ")
		}
	}
}
