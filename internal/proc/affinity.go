package proc

import (
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func setOf(cpus []int) *unix.CPUSet {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return &set
}

// OnCPUs starts a child through start so that it runs on the given CPUs, with all of its threads and children. Without
// CPUs it changes nothing.
func OnCPUs(cpus []int, start func() error) error {
	if len(cpus) == 0 {
		return start()
	}
	// A child inherits the mask of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return start()
	}
	if err := unix.SchedSetaffinity(0, setOf(cpus)); err != nil {
		return fmt.Errorf("using %d of the CPUs: %w", len(cpus), err)
	}
	err := start()
	if back := unix.SchedSetaffinity(0, &before); back != nil && err == nil {
		err = fmt.Errorf("using all CPUs again: %w", back)
	}
	return err
}

// Confine keeps all threads of this process on the given CPUs until the returned function is called. The simulated
// trainer must not use cores that the engine may not use.
func Confine(cpus []int) (undo func()) {
	if len(cpus) == 0 {
		return func() {}
	}
	all := AllowedCPUs()
	setAll(cpus)
	return func() { setAll(all) }
}

func setAll(cpus []int) {
	tids, err := Live.Numbers("self", "task")
	if err != nil {
		return
	}
	set := setOf(cpus)
	for _, tid := range tids {
		_ = unix.SchedSetaffinity(tid, set) // a thread may have ended meanwhile
	}
}

// OwnGroup puts a child into its own process group, so that Ctrl-C in a terminal reaches only this process, which then
// ends the child.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
