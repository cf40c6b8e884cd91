package proc

import (
	"bytes"
	"path"
	"strings"
)

// Group is the position of a process in the control groups. Paths are below /sys.
type Group struct {
	CPU, Memory, IO string // directories; "" for none
	V2              bool   // of all: one hierarchy for everything
	Unified         string // directory in the second version's hierarchy, for its pressure files; may be ""
}

// Group finds the control groups of a process. In a container the paths of /proc/PID/cgroup may be those of the host.
// Then the nearest visible group, at most the root of the mounted hierarchy, is the container's own.
func (fs FS) Group(pid int) Group {
	data, err := fs.Process(nil, pid, "cgroup")
	if err != nil {
		return Group{}
	}
	var g Group
	paths := ParseGroups(data)
	pick := func(controller string, files []string, mounts ...string) string {
		sub, ok := paths[controller]
		if !ok {
			return ""
		}
		for _, mount := range mounts {
			for dir := range up(path.Join(mount, sub), mount) {
				for _, file := range files {
					if _, err := fs.ReadSys(nil, dir, file); err == nil {
						return dir
					}
				}
			}
		}
		return ""
	}
	g.Memory = pick("memory", []string{"memory.limit_in_bytes"}, "fs/cgroup/memory")
	g.CPU = pick("cpu", []string{"cpu.stat", "cpu.cfs_quota_us"}, "fs/cgroup/cpu", "fs/cgroup/cpu,cpuacct", "fs/cgroup/cpuacct,cpu")
	g.IO = pick("blkio", []string{"blkio.throttle.read_bps_device", "blkio.throttle.read_iops_device"}, "fs/cgroup/blkio")
	one := []string{"cgroup.procs", "memory.max", "cpu.max", "io.max"} // which group is there, whatever it limits
	if g.CPU != "" || g.Memory != "" || g.IO != "" {
		g.Unified = pick("", one, "fs/cgroup/unified")
		return g
	}
	if dir := pick("", one, "fs/cgroup"); dir != "" {
		g = Group{CPU: dir, Memory: dir, IO: dir, Unified: dir, V2: true}
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
		// Groups outside a container's own part are shown as /../..: only its own part is visible.
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

// Throttle is the CPU limit of a control group.
type Throttle struct {
	Quota   float64 // cores; 0 is unlimited
	Periods uint64  // periods in which the group ran
	Limited uint64  // of these, periods in which it was stopped
	Time    uint64  // nanoseconds stopped, summed over cores
}

// Throttle reads the CPU limits of a group and of its parents. The tightest quota counts.
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
	for dir := range up(g.CPU, "fs/cgroup") {
		quota := fs.quota(dir, g.V2)
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

// quota is the number of cores that a group may use, 0 without a limit.
func (fs FS) quota(dir string, v2 bool) float64 {
	var quota int64
	var period uint64
	if v2 {
		data, _ := fs.ReadSys(nil, dir, "cpu.max")
		f := fields(data)
		quota, period = parseSigned(f.next()), f.uint() // "max" is 0
	} else {
		data, _ := fs.ReadSys(nil, dir, "cpu.cfs_quota_us")
		f := fields(data)
		quota = parseSigned(f.next())
		data, _ = fs.ReadSys(nil, dir, "cpu.cfs_period_us")
		f = fields(data)
		period = f.uint()
	}
	if quota <= 0 || period == 0 {
		return 0
	}
	return float64(quota) / float64(period)
}

// MemoryLimit is the memory limit of a control group, in bytes.
type MemoryLimit struct {
	Limit    uint64 // 0 is unlimited
	Usage    uint64 // of the group that has the limit
	Inactive uint64 // part of Usage: page cache that was not used for a while
	Reusable uint64 // of Usage, page cache that can go
	Refaults uint64 // pages read again after they had been pushed out
	Failures uint64 // times that the limit was hit
	Swapped  uint64 // bytes
}

// MemoryLimit reads the limits of a group and of its parents. The tightest counts.
func (fs FS) MemoryLimit(g Group) MemoryLimit {
	var m MemoryLimit
	for dir := range up(g.Memory, "fs/cgroup") {
		limit := fs.memoryLimit(dir, g.V2)
		if limit == 0 || m.Limit > 0 && limit >= m.Limit {
			continue
		}
		m = fs.memory(dir, g.V2)
		m.Limit = limit
		if g.V2 {
			m.Swapped = fs.number(dir, "memory.swap.current")
			if data, err := fs.ReadSys(nil, dir, "memory.events"); err == nil {
				m.Failures = ParseCounters(data, func(n string) bool { return n == "max" })["max"]
			}
		} else {
			m.Failures = fs.number(dir, "memory.failcnt")
		}
	}
	return m
}

// memoryLimit is the limit of one group, 0 without one.
func (fs FS) memoryLimit(dir string, v2 bool) uint64 {
	name := "memory.limit_in_bytes"
	if v2 {
		name = "memory.max"
	}
	limit := fs.number(dir, name)
	if limit > 1<<60 { // the first version writes a number close to 2^63 for no limit
		return 0
	}
	return limit
}

// memory returns the memory use of one group.
func (fs FS) memory(dir string, v2 bool) MemoryLimit {
	name := "memory.usage_in_bytes"
	if v2 {
		name = "memory.current"
	}
	m := MemoryLimit{Usage: fs.number(dir, name)}
	data, err := fs.ReadSys(nil, dir, "memory.stat")
	if err != nil {
		return m
	}
	c := ParseCounters(data, wantMemory)
	either := func(name string) uint64 { // the first version counts the groups below apart
		if v, ok := c["total_"+name]; ok {
			return v
		}
		return c[name]
	}
	m.Inactive = either("inactive_file")
	m.Reusable = m.Inactive + either("active_file")
	m.Refaults = either("workingset_refault_file")
	m.Swapped = c["total_swap"]
	return m
}

func wantMemory(name string) bool {
	switch name {
	case "total_inactive_file", "inactive_file", "total_active_file", "active_file",
		"total_workingset_refault_file", "workingset_refault_file", "total_swap":
		return true
	}
	return false
}

// number reads a file with one number; 0 if it cannot be read or has none.
func (fs FS) number(dir, name string) uint64 {
	data, err := fs.ReadSys(nil, dir, name)
	if err != nil {
		return 0
	}
	f := fields(data)
	return f.uint()
}

// ReadLimits returns the control group's limits for reads from a block device: bytes and reads per second, 0 for no
// limit.
func (fs FS) ReadLimits(g Group, major, minor uint32) (bandwidth, iops float64) {
	// A limit is set on the whole disk.
	id := deviceNumber(major, minor)
	if name := fs.BlockDevice(major, minor); name != "" {
		if whole := fs.Text("block", name, "dev"); whole != "" {
			id = whole
		}
	}
	lower := func(v *float64, number []byte) {
		if n := parseUint(number); n > 0 && (*v == 0 || float64(n) < *v) {
			*v = float64(n)
		}
	}
	each := func(dir, name string, limit func(value []byte)) {
		data, err := fs.ReadSys(nil, dir, name)
		if err != nil {
			return
		}
		eachLine(data, func(line []byte) {
			f := fields(line)
			if string(f.next()) != id {
				return
			}
			for v := f.next(); len(v) > 0; v = f.next() {
				limit(v)
			}
		})
	}
	for dir := range up(g.IO, "fs/cgroup") {
		if !g.V2 {
			each(dir, "blkio.throttle.read_bps_device", func(v []byte) { lower(&bandwidth, v) })
			each(dir, "blkio.throttle.read_iops_device", func(v []byte) { lower(&iops, v) })
			continue
		}
		each(dir, "io.max", func(v []byte) {
			if n, ok := bytes.CutPrefix(v, []byte("rbps=")); ok {
				lower(&bandwidth, n)
			}
			if n, ok := bytes.CutPrefix(v, []byte("riops=")); ok {
				lower(&iops, n)
			}
		})
	}
	return bandwidth, iops
}

// GroupPressure reads the pressure of a group of the second version ("cpu", "io" or "memory"). ok is false if there is
// none.
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

// up yields a directory and its parents up to top. The root of a hierarchy has no limit of its own in the second
// version, except in a container.
func up(dir, top string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for d := dir; d == top || strings.HasPrefix(d, top+"/"); d = path.Dir(d) {
			if !yield(d) {
				return
			}
		}
	}
}
