package proc

import (
	"os"
	"slices"
	"testing"
)

func TestFreeMemory(t *testing.T) {
	const meminfo = "MemTotal: 100000 kB\nMemFree: 1000 kB\nMemAvailable:   80000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no groups": {map[string]string{"proc/meminfo": meminfo}, 80000 << 10},
		"version 2, limit in the parent": {map[string]string{
			"proc/meminfo":                       meminfo,
			"proc/self/cgroup":                   "0::/job/step\n",
			"sys/fs/cgroup/job/step/memory.max":  "max\n",
			"sys/fs/cgroup/job/memory.max":       "50000000\n",
			"sys/fs/cgroup/job/memory.current":   "30000000\n",
			"sys/fs/cgroup/job/memory.stat":      "anon 1\ninactive_file 4000000\n",
			"sys/fs/cgroup/job/cgroup.procs":     "",
			"sys/fs/cgroup/other/memory.current": "1\n",
		}, 24000000},
		"version 2, path of the host in a container": {map[string]string{
			"proc/meminfo":                 meminfo,
			"proc/self/cgroup":             "0::/docker/abc\n",
			"sys/fs/cgroup/memory.max":     "50000000\n",
			"sys/fs/cgroup/memory.current": "60000000\n",
		}, 0},
		"version 2, the tighter limit has more room": {map[string]string{
			"proc/meminfo":                     meminfo,
			"proc/self/cgroup":                 "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max":     "20000000\n",
			"sys/fs/cgroup/a/b/memory.current": "1000000\n",
			"sys/fs/cgroup/a/memory.max":       "60000000\n",
			"sys/fs/cgroup/a/memory.current":   "59000000\n",
		}, 1000000},
		"version 1": {map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": "9:cpu,memory:/x\n1:cpuset:/y\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "70000000\n",
			"sys/fs/cgroup/memory/x/memory.usage_in_bytes": "30000000\n",
			"sys/fs/cgroup/memory/x/memory.stat":           "total_inactive_file 1000000\n",
		}, 41000000},
		"version 1, no limit": {map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 80000 << 10},
		"a limit of address space": {map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/status": "VmSize:\t  30000 kB\nVmData:\t  10000 kB\n",
			"proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n" +
				"Max data size             unlimited            unlimited            bytes     \n" +
				"Max address space         40960000             unlimited            bytes     \n",
		}, 40960000 - 30000<<10},
		"a limit of data that is used up": {map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/status": "VmSize:\t  30000 kB\nVmData:\t  10000 kB\n",
			"proc/self/limits": "Max data size             1000            unlimited            bytes     \n",
		}, 0},
	} {
		got, err := root(t, c.files).FreeMemory()
		if err != nil || got != c.want {
			t.Errorf("%s: %d bytes, want %d (%v)", name, got, c.want, err)
		}
	}
	if _, err := root(t, nil).FreeMemory(); err == nil {
		t.Error("no error without /proc/meminfo")
	}
	if n, err := Live.FreeMemory(); err != nil || n <= 0 {
		t.Errorf("this machine has %d bytes free (%v)", n, err)
	}
	if rss, private := Resident(); rss < int64(os.Getpagesize()) || private <= 0 || private > rss {
		t.Errorf("resident %d, private %d", rss, private)
	}
}

func TestLimitsOfThisProcess(t *testing.T) {
	const status = "Name:\tx\nCpus_allowed:\tff\n"
	v1 := map[string]string{
		"proc/self/cgroup":                                        "4:memory:/job/a\n3:cpu,cpuacct:/job\n2:blkio:/job\n",
		"proc/self/status":                                        status,
		"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us":                  "150000\n",
		"sys/fs/cgroup/cpu/job/cpu.cfs_period_us":                 "100000\n",
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us":                      "-1\n",
		"sys/fs/cgroup/cpu/cpu.cfs_period_us":                     "100000\n",
		"sys/fs/cgroup/memory/job/memory.limit_in_bytes":          "1073741824\n",
		"proc/meminfo":                                            "MemTotal:       4194304 kB\n",
		"sys/fs/cgroup/blkio/job/blkio.throttle.read_bps_device":  "0:0 52428800\n9:9 1\n",
		"sys/fs/cgroup/blkio/job/blkio.throttle.read_iops_device": "0:0 300\n",
		"sys/fs/cgroup/blkio/blkio.throttle.read_iops_device":     "0:0 400\n",
	}
	v2 := map[string]string{
		"proc/self/cgroup":             "0::/job\n",
		"proc/self/status":             status,
		"sys/fs/cgroup/job/cpu.max":    "150000 100000\n",
		"sys/fs/cgroup/cpu.max":        "max 100000\n",
		"sys/fs/cgroup/job/memory.max": "1073741824\n",
		"sys/fs/cgroup/memory.max":     "max\n",
		"proc/meminfo":                 "MemTotal:       4194304 kB\n",
		"sys/fs/cgroup/job/io.max":     "0:0 rbps=52428800 wbps=max riops=300 wiops=max\n8:0 rbps=5 wbps=max\n",
	}
	for name, files := range map[string]map[string]string{"version 1": v1, "version 2": v2} {
		fs := root(t, files)
		if got := fs.UsableCores(); got != 1.5 {
			t.Errorf("%s: %g cores, want 1.5", name, got)
		}
		if got := fs.TotalMemory(); got != 1<<30 {
			t.Errorf("%s: memory %d", name, got)
		}
		if bw, iops := fs.ReadLimits(fs.Group(Self), 0, 0); bw != 52428800 || iops != 300 {
			t.Errorf("%s: limits %g and %g", name, bw, iops)
		}
	}
	if got := root(t, nil).TotalMemory(); got != 0 {
		t.Errorf("memory of nothing: %d", got)
	}
	if got := root(t, map[string]string{"proc/self/status": status}).UsableCores(); got != 8 {
		t.Errorf("%g cores by affinity, want 8", got)
	}
	cpus := AllowedCPUs()
	if len(cpus) == 0 || !slices.IsSorted(cpus) {
		t.Errorf("allowed %v", cpus)
	}
	if n := Live.UsableCores(); n <= 0 || n > float64(len(cpus)) {
		t.Errorf("%g usable cores of %d", n, len(cpus))
	}
}

// Limits are plausible for any content of the control group files.
func FuzzLimits(f *testing.F) {
	f.Add("0::/job", "50000 100000", "1073741824", "0:0 rbps=1 riops=2", "MemTotal: 5 kB\nMemAvailable: 4 kB")
	f.Add("4:memory:/../x\n2:cpu,cpuacct:/a", "-1", "max", "0:0 5", "MemTotal: 99999999999999999999 kB")
	f.Fuzz(func(t *testing.T, group, cpu, memory, io, meminfo string) {
		files := map[string]string{"proc/self/cgroup": group, "proc/meminfo": meminfo}
		for _, name := range []string{"cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us", "cpu/job/cpu.cfs_quota_us"} {
			files["sys/fs/cgroup/"+name] = cpu
		}
		for _, name := range []string{"memory.max", "memory.current", "memory.stat", "memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"} {
			files["sys/fs/cgroup/"+name] = memory
		}
		for _, name := range []string{"io.max", "blkio/blkio.throttle.read_bps_device"} {
			files["sys/fs/cgroup/"+name] = io
		}
		fs := root(t, files)
		g := fs.Group(Self)
		if n := fs.UsableCores(); !(n > 0) {
			t.Errorf("%g cores", n)
		}
		if free, err := fs.FreeMemory(); err == nil && (free < 0 || free > max(fs.TotalMemory(), 1<<60)) {
			t.Errorf("%d bytes free of %d", free, fs.TotalMemory())
		}
		if bw, iops := fs.ReadLimits(g, 0, 0); bw < 0 || iops < 0 {
			t.Errorf("%g bytes, %g reads per second", bw, iops)
		}
	})
}
