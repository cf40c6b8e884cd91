package bench

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTicks is the unit of CPU times in /proc: USER_HZ, 100 on every Linux.
const clockTicks = 100

// Usage is what a tree of processes has used.
type Usage struct {
	// CPU is user and system time, of children that have ended as well.
	CPU time.Duration
	// BlockBytes were read from storage, ReadBytes by read() from anywhere, the
	// page cache included. What is used through a mapping is in neither, but for
	// the pages that had to be read.
	BlockBytes, ReadBytes int64
	// PSS is the memory in use: shared pages count for each process in part.
	PSS int64
	// Processes is their number.
	Processes int
}

// Sub returns what was used between before and u; PSS and Processes are u's.
func (u Usage) Sub(before Usage) Usage {
	u.CPU -= before.CPU
	u.BlockBytes -= before.BlockBytes
	u.ReadBytes -= before.ReadBytes
	return u
}

// Add returns the sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.CPU + v.CPU, u.BlockBytes + v.BlockBytes, u.ReadBytes + v.ReadBytes, u.PSS + v.PSS, u.Processes + v.Processes}
}

// Tree returns the live processes of which root is an ancestor, and root.
func Tree(root int) []int {
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		children, ok := childrenOf(tree[i])
		if !ok {
			return scanTree(root)
		}
		tree = append(tree, children...)
	}
	return tree
}

// childrenOf lists the children of a process by /proc/PID/task/*/children, which
// kernels without CONFIG_PROC_CHILDREN do not have; ok is false there.
func childrenOf(pid int) (children []int, ok bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "task")
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, true // it has ended
	}
	for _, t := range tasks {
		data, err := os.ReadFile(filepath.Join(dir, t.Name(), "children"))
		if err != nil {
			if _, gone := os.Stat(filepath.Join(dir, t.Name())); gone != nil {
				continue
			}
			return nil, false
		}
		for _, field := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children, true
}

// scanTree is Tree by the parents of all processes.
func scanTree(root int) []int {
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []int{root}
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if f := statFields(pid); len(f) > 1 {
				parent, _ := strconv.Atoi(f[1])
				children[parent] = append(children[parent], pid)
			}
		}
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

// statFields returns the fields of /proc/PID/stat behind the name: state,
// parent, ...
func statFields(pid int) []string {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	_, rest, ok := bytes.Cut(data[max(0, bytes.LastIndexByte(data, ')')):], []byte(" "))
	if !ok {
		return nil
	}
	return strings.Fields(string(rest))
}

// usageOf adds up what processes have used; withMemory also reads their PSS,
// which takes the kernel a millisecond for each.
func usageOf(pids []int, withMemory bool) Usage {
	var u Usage
	for _, pid := range pids {
		f := statFields(pid)
		if len(f) < 15 {
			continue
		}
		u.Processes++
		for _, field := range f[11:15] { // utime, stime, and those of children that ended
			if n, err := strconv.ParseInt(field, 10, 64); err == nil {
				u.CPU += time.Duration(n) * time.Second / clockTicks
			}
		}
		u.BlockBytes += keyed(pid, "io", "read_bytes:")
		u.ReadBytes += keyed(pid, "io", "rchar:")
		if withMemory {
			u.PSS += keyed(pid, "smaps_rollup", "Pss:") << 10
		}
	}
	return u
}

// keyed reads "key value" of a file in /proc/PID; 0 when it may not be seen.
func keyed(pid int, file, key string) int64 {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	if err != nil {
		return 0
	}
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) >= 2 && f[0] == key {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// ownCPU is the CPU time of this process, to the microsecond.
func ownCPU() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// threadCPU is the CPU time of the calling thread.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// idleTime is how long the given CPUs (all of the machine when empty) have had
// nothing to do, summed; false where the system does not say.
func idleTime(cpus []int) (time.Duration, bool) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	wanted := map[string]bool{}
	for _, c := range cpus {
		wanted["cpu"+strconv.Itoa(c)] = true
	}
	var ticks int64
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 6 || !wanted[f[0]] {
			continue
		}
		for _, field := range f[4:6] { // idle, iowait
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, false
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / clockTicks, true
}
