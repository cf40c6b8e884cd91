package procfs

import (
	"path"
	"strings"
)

// Group is where a process stands in the control groups. Paths are below /sys.
type Group struct {
	CPU, Memory string // directories; "" where there is none
	V2          bool   // of both: one hierarchy for everything
	Unified     string // directory in the second version's hierarchy, for its pressure files; may be ""
}

// Group finds the control groups of a process. In a container the paths of
// /proc/PID/cgroup may be those of the host; then the root of the mounted
// hierarchy is the container's own group.
func (fs FS) Group(pid int) Group {
	data, err := fs.Process(nil, pid, "cgroup")
	if err != nil {
		return Group{}
	}
	var g Group
	paths := ParseGroups(data)
	_, g.V2 = paths[""]
	exists := func(dir, file string) bool {
		_, err := fs.ReadSys(nil, dir, file)
		return err == nil
	}
	pick := func(mount, sub, file string) string {
		for _, dir := range []string{path.Join(mount, sub), mount} {
			if exists(dir, file) {
				return dir
			}
		}
		return ""
	}
	if sub, ok := paths["memory"]; ok {
		g.Memory = pick("fs/cgroup/memory", sub, "memory.usage_in_bytes")
	}
	if sub, ok := paths["cpu"]; ok {
		for _, mount := range []string{"fs/cgroup/cpu", "fs/cgroup/cpu,cpuacct", "fs/cgroup/cpuacct,cpu"} {
			if g.CPU = pick(mount, sub, "cpu.stat"); g.CPU != "" {
				break
			}
		}
	}
	if g.CPU != "" || g.Memory != "" {
		g.V2 = false
		if sub, ok := paths[""]; ok {
			g.Unified = pick("fs/cgroup/unified", sub, "cgroup.procs")
		}
		return g
	}
	if sub, ok := paths[""]; ok {
		g.V2 = true
		dir := pick("fs/cgroup", sub, "cgroup.procs")
		g.CPU, g.Memory, g.Unified = dir, dir, dir
	}
	return g
}

// ParseGroups reads /proc/PID/cgroup: the path for each controller, "" for the
// hierarchy of the second version.
func ParseGroups(data []byte) map[string]string {
	out := map[string]string{}
	eachLine(data, func(line []byte) {
		parts := strings.SplitN(string(line), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			return
		}
		// What lies outside of a container's own part shows as /../..: its
		// own part is all there is to see.
		where := path.Clean(parts[2])
		if strings.HasPrefix(parts[2], "/..") {
			where = "/"
		}
		for _, controller := range strings.Split(parts[1], ",") {
			out[controller] = where
		}
	})
	return out
}

// Throttle is how a control group limits CPU time.
type Throttle struct {
	Quota   float64 // cores; 0 is unlimited
	Periods uint64  // periods in which the group ran
	Limited uint64  // of these, periods in which it was stopped
	Time    uint64  // nanoseconds stopped, summed over cores
}

// Throttle reads the CPU limit of a group and of all that it lies in: the
// tightest quota counts.
func (fs FS) Throttle(g Group) Throttle {
	var t Throttle
	if g.CPU == "" {
		return t
	}
	want := func(name string) bool {
		switch name {
		case "nr_periods", "nr_throttled", "throttled_time", "throttled_usec":
			return true
		}
		return false
	}
	for dir := range up(g.CPU) {
		var quota float64
		if g.V2 {
			data, _ := fs.ReadSys(nil, dir, "cpu.max")
			f := fields(data)
			q, period := f.uint(), f.uint()
			if period > 0 {
				quota = float64(q) / float64(period)
			}
		} else {
			data, _ := fs.ReadSys(nil, dir, "cpu.cfs_quota_us")
			f := fields(data)
			q := parseSigned(f.next())
			data, _ = fs.ReadSys(nil, dir, "cpu.cfs_period_us")
			f = fields(data)
			if period := f.uint(); period > 0 && q > 0 {
				quota = float64(q) / float64(period)
			}
		}
		if quota <= 0 || t.Quota > 0 && quota >= t.Quota {
			continue
		}
		t.Quota = quota
		data, err := fs.ReadSys(nil, dir, "cpu.stat")
		if err != nil {
			continue
		}
		c := ParseCounters(data, want)
		t.Periods, t.Limited = c["nr_periods"], c["nr_throttled"]
		t.Time = c["throttled_time"] + c["throttled_usec"]*1000
	}
	return t
}

// MemoryLimit is how a control group limits memory, in bytes.
type MemoryLimit struct {
	Limit    uint64 // 0 is unlimited
	Usage    uint64 // of the group that has the limit
	Reusable uint64 // of Usage, page cache that can go
	Refaults uint64 // pages read again after they had been pushed out
	Failures uint64 // times that the limit was hit
	Swapped  uint64 // bytes
}

// MemoryLimit reads the limit of a group and of all that it lies in: the
// tightest counts.
func (fs FS) MemoryLimit(g Group) MemoryLimit {
	var m MemoryLimit
	if g.Memory == "" {
		return m
	}
	names := [...]string{"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.failcnt"}
	if g.V2 {
		names = [...]string{"memory.max", "memory.current", ""}
	}
	want := func(name string) bool {
		switch name {
		case "total_inactive_file", "inactive_file", "total_active_file", "active_file",
			"total_workingset_refault_file", "workingset_refault_file", "total_swap":
			return true
		}
		return false
	}
	number := func(dir, name string) uint64 {
		data, err := fs.ReadSys(nil, dir, name)
		if err != nil {
			return 0
		}
		f := fields(data)
		return f.uint()
	}
	for dir := range up(g.Memory) {
		limit := number(dir, names[0])
		// The first version writes a number close to 2^63 for no limit.
		if limit == 0 || limit > 1<<60 || m.Limit > 0 && limit >= m.Limit {
			continue
		}
		m = MemoryLimit{Limit: limit, Usage: number(dir, names[1])}
		data, err := fs.ReadSys(nil, dir, "memory.stat")
		if err == nil {
			c := ParseCounters(data, want)
			either := func(name string) uint64 {
				if v, ok := c["total_"+name]; ok {
					return v
				}
				return c[name]
			}
			m.Reusable = either("inactive_file") + either("active_file")
			m.Refaults = either("workingset_refault_file")
			m.Swapped = c["total_swap"]
		}
		if g.V2 {
			m.Swapped = number(dir, "memory.swap.current")
			data, err := fs.ReadSys(nil, dir, "memory.events")
			if err == nil {
				m.Failures = ParseCounters(data, func(n string) bool { return n == "max" })["max"]
			}
		} else {
			m.Failures = number(dir, names[2])
		}
	}
	return m
}

// GroupPressure reads the pressure of a group of the second version ("cpu",
// "io" or "memory"); ok is false where there is none.
func (fs FS) GroupPressure(g Group, what string) (Pressure, bool) {
	if g.Unified == "" {
		return Pressure{}, false
	}
	data, err := fs.ReadSys(nil, g.Unified, what+".pressure")
	if err != nil {
		return Pressure{}, false
	}
	p, err := ParsePressure(data)
	return p, err == nil
}

// up yields a directory below fs/cgroup and those that it lies in, up to the
// root of its hierarchy, which has no limit of its own in the second version
// but does in a container.
func up(dir string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for d := dir; strings.HasPrefix(d, "fs/cgroup"); d = path.Dir(d) {
			if !yield(d) {
				return
			}
		}
	}
}
