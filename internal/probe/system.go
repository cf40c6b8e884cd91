package probe

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
)

// system fills in what the kernel says, without measuring.
func (p *probe) system(context.Context, time.Duration) {
	root := os.DirFS("/")
	p.m.CPU = cpuName(root)
	p.m.Cores = usableCores(root)
	p.m.NUMANodes = countRange(readText(root, "sys/devices/system/node/online"))
	p.m.MemoryTotal = totalMemory(root)
	free, err := arena.FreeMemory()
	if err != nil {
		p.note("free memory: %v", err)
	}
	p.m.MemoryFree = free
	p.m.Accelerators = accelerators(root)
}

func readText(root fs.FS, name string) string {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// cpuName is the processor's name, or its architecture's own description.
func cpuName(root fs.FS) string {
	for line := range strings.Lines(readText(root, "proc/cpuinfo")) {
		key, value, ok := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); ok && (key == "model name" || key == "Model") {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// usableCores is what the affinity mask and the quotas of all control groups
// above this process leave, which may be a fraction.
func usableCores(root fs.FS) float64 {
	n := float64(cores())
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil && set.Count() > 0 {
		n = float64(set.Count())
	}
	for _, g := range groups(root, "cpu") {
		n = min(n, g.cpuQuota(root))
	}
	return n
}

// group is a control group of this process, as a path from the root.
type group struct {
	dir string
	v2  bool
}

// groups lists the control groups of this process for a controller, from its
// own up to the topmost, as far as they can be seen.
func groups(root fs.FS, controller string) []group {
	var out []group
	for line := range strings.Lines(readText(root, "proc/self/cgroup")) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		var mounts []string
		v2 := fields[1] == ""
		switch {
		case v2:
			mounts = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}
		case slices.Contains(strings.Split(fields[1], ","), controller):
			mounts = []string{"sys/fs/cgroup/" + controller, "sys/fs/cgroup/" + fields[1]}
		}
		for _, m := range mounts {
			// In a container the path may be one of the host; then only the mount
			// itself is there and is our group.
			for g := filepath.Clean("/" + fields[2]); ; g = filepath.Dir(g) {
				out = append(out, group{filepath.Join(m, g), v2})
				if g == "/" {
					break
				}
			}
		}
	}
	return out
}

// cpuQuota is the number of cores that a group may use, infinite without a limit.
func (g group) cpuQuota(root fs.FS) float64 {
	var quota, period string
	if g.v2 {
		if f := strings.Fields(readText(root, g.dir+"/cpu.max")); len(f) == 2 {
			quota, period = f[0], f[1]
		}
	} else {
		quota, period = readText(root, g.dir+"/cpu.cfs_quota_us"), readText(root, g.dir+"/cpu.cfs_period_us")
	}
	q, errQ := strconv.ParseFloat(quota, 64)
	d, errD := strconv.ParseFloat(period, 64)
	if errQ != nil || errD != nil || q <= 0 || d <= 0 {
		return math.Inf(1)
	}
	return q / d
}

// totalMemory is the machine's memory, or less where a control group allows less.
func totalMemory(root fs.FS) int64 {
	total := int64(math.MaxInt64)
	for line := range strings.Lines(readText(root, "proc/meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				total = kib << 10
			}
		}
	}
	for _, g := range groups(root, "memory") {
		name := g.dir + "/memory.limit_in_bytes"
		if g.v2 {
			name = g.dir + "/memory.max"
		}
		if limit, err := strconv.ParseInt(readText(root, name), 10, 64); err == nil && limit > 0 {
			total = min(total, limit)
		}
	}
	if total == math.MaxInt64 {
		return 0
	}
	return total
}

// countRange counts the numbers in a kernel list such as "0-3,8".
func countRange(list string) int {
	n := 0
	for _, span := range strings.Split(list, ",") {
		lo, hi, isSpan := strings.Cut(strings.TrimSpace(span), "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			continue
		}
		b := a
		if isSpan {
			if b, err = strconv.Atoi(hi); err != nil || b < a {
				continue
			}
		}
		n += min(b-a, 1<<16) + 1
	}
	return n
}

// accelerators names what the drivers list. Nothing is loaded for it.
func accelerators(root fs.FS) []string {
	var names []string
	cards, _ := fs.Glob(root, "proc/driver/nvidia/gpus/*/information")
	for _, name := range cards {
		model := "NVIDIA"
		for line := range strings.Lines(readText(root, name)) {
			if v, ok := strings.CutPrefix(line, "Model:"); ok {
				model = strings.TrimSpace(v)
			}
		}
		names = append(names, model)
	}
	nodes, _ := fs.Glob(root, "sys/class/kfd/kfd/topology/nodes/*/properties")
	for _, name := range nodes {
		if gfx := property(readText(root, name), "gfx_target_version"); gfx > 0 {
			names = append(names, fmt.Sprintf("AMD gfx%d", gfx))
		}
	}
	return names
}

// property finds "key number" among lines.
func property(text, key string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}
