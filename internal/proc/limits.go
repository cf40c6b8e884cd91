package proc

import (
	"bytes"
	"math"
	"runtime"

	"golang.org/x/sys/unix"
)

// UsableCores returns the number of cores that this process may use, which may be a fraction. The limits are its
// affinity and the quotas of all control groups above it.
func (fs FS) UsableCores() float64 {
	if n := fs.UsableCoresOf(Self); n > 0 {
		return n
	}
	// Sandboxes do not report it in the file.
	n := float64(runtime.NumCPU())
	if cpus := AllowedCPUs(); len(cpus) > 0 {
		n = float64(len(cpus))
	}
	return fs.withinQuota(n, Self)
}

// UsableCoresOf is UsableCores for any process, 0 if unknown.
func (fs FS) UsableCoresOf(pid int) float64 {
	s, err := fs.Status(pid)
	if err != nil || s.CPUs == 0 {
		return 0
	}
	return fs.withinQuota(float64(s.CPUs), pid)
}

func (fs FS) withinQuota(cores float64, pid int) float64 {
	if quota := fs.Throttle(fs.Group(pid)).Quota; quota > 0 {
		return min(cores, quota)
	}
	return cores
}

// AllowedCPUs returns the CPUs on which the calling thread may run, none if unknown.
func AllowedCPUs() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var cpus []int
	for i := range 8 * 8 * len(set) {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus
}

// Memory reads /proc/meminfo.
func (fs FS) Memory() (Memory, error) {
	data, err := fs.Read(nil, "meminfo")
	if err != nil {
		return Memory{}, err
	}
	return ParseMemory(data)
}

// TotalMemory returns the machine's memory, or the limit of this process's control groups if that is less; 0 if it is
// unknown.
func (fs FS) TotalMemory() int64 {
	m, err := fs.Memory()
	if err != nil {
		return 0
	}
	total := m.Total
	if limit := fs.MemoryLimit(fs.Group(Self)).Limit; limit > 0 {
		total = min(total, limit)
	}
	return int64(total)
}

// FreeMemory returns the bytes of memory that this process may still take: the system's available memory, or less if a
// control group or a limit of the process (ulimit -v, ulimit -d) leaves less. Memory of the page cache counts as free,
// because the kernel can release it.
func (fs FS) FreeMemory() (int64, error) {
	m, err := fs.Memory()
	if err != nil {
		return 0, err
	}
	free := m.Available
	if free == 0 { // before Linux 3.14
		free = m.Free
	}
	g := fs.Group(Self)
	for dir := range up(g.Memory, "fs/cgroup") {
		limit := fs.memoryLimit(dir, g.V2)
		if limit == 0 {
			continue
		}
		used := fs.memory(dir, g.V2)
		inUse := used.Usage - min(used.Usage, used.Inactive)
		free = min(free, limit-min(limit, inUse))
	}
	return int64(min(free, fs.unmapped())), nil
}

// unmapped returns the bytes that this process may still map, the largest number without a limit.
func (fs FS) unmapped() uint64 {
	left := uint64(math.MaxInt64)
	s, err := fs.Status(Self)
	data, lerr := fs.Process(nil, Self, "limits")
	if err != nil || lerr != nil {
		return left
	}
	for name, used := range map[string]uint64{"Max address space": s.Mapped, "Max data size": s.Data} {
		if limit := parseLimit(data, name); limit > 0 {
			left = min(left, limit-min(limit, used))
		}
	}
	return left
}

// parseLimit reads a soft limit of /proc/PID/limits, 0 for none.
func parseLimit(data []byte, name string) (limit uint64) {
	eachLine(data, func(line []byte) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			f := fields(rest)
			limit = f.uint() // "unlimited" is 0
		}
	})
	return limit
}
