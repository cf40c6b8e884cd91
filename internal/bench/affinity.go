package bench

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup puts a child into a process group of its own, so that Ctrl-C in a
// terminal reaches this process alone, which then ends the child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// UsableCPUs lists the CPUs that this process may run on.
func UsableCPUs() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var cpus []int
	for i := range 8 * len(set) * 8 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus
}

func setOf(cpus []int) *unix.CPUSet {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return &set
}

// onCPUs starts a child through start so that it runs on the given CPUs, all
// of its threads and children included; with none it changes nothing.
func onCPUs(cpus []int, start func() error) error {
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

// confine keeps all threads of this process on the given CPUs until the
// function that it returns is called: the simulated trainer must not use cores
// that the engine may not.
func confine(cpus []int) (undo func()) {
	if len(cpus) == 0 {
		return func() {}
	}
	all := UsableCPUs()
	setAll(cpus)
	return func() { setAll(all) }
}

func setAll(cpus []int) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	set := setOf(cpus)
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			_ = unix.SchedSetaffinity(tid, set) // a thread may have ended meanwhile
		}
	}
}
