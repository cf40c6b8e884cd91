package proc

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const statLine = "4711 (a) b (c)) S 4000 4711 4000 34816 4711 4194304 900 0 7 0 1234 567 0 0 20 0 12 0 987654 22896640 4096 18446744073709551615 1 1 140726194301120 0 0 0 0 16781312 1 0 0 0 17 1 0 0 42 0 0 0 0 0 0 0 0 0 0\n"

func TestParseStat(t *testing.T) {
	got, err := ParseStat([]byte(statLine))
	if err != nil {
		t.Fatal(err)
	}
	want := Stat{PID: 4711, Comm: "a) b (c)", State: 'S', PPID: 4000, MajFlt: 7, UTime: 1234, STime: 567, Threads: 12, Start: 987654, RSS: 4096, Stack: 140726194301120, Blkio: 42}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if StateOf([]byte(statLine)) != 'S' {
		t.Error("state")
	}
	for _, bad := range []string{"", "1", "1 (x", "1 (x)", "1 (x) ", "x (x) S 1", "1 (x) SS 1"} {
		if _, err := ParseStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestParseSmallFiles(t *testing.T) {
	if s, err := ParseSched([]byte("123456 789 10\n")); err != nil || s != (Sched{123456, 789}) {
		t.Errorf("schedstat %v %v", s, err)
	}
	io, err := ParseIO([]byte("rchar: 100\nwchar: 5\nsyscr: 7\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n"))
	if err != nil || io != (IO{ReadChars: 100, ReadBytes: 4096, WriteBytes: 8192, ReadCalls: 7}) {
		t.Errorf("io %+v %v", io, err)
	}
	if _, err := ParseIO([]byte("nothing\n")); err == nil {
		t.Error("io without figures was accepted")
	}
	s := ParseStatus([]byte("Name:\tpython\nNSpid:\t77\t5\nUid:\t1000\t1001\t1000\t1000\nVmRSS:\t  2048 kB\nVmSwap:\t 4 kB\nCpus_allowed:\tff,0000000f\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t3\n"))
	if s.UID != 1000 || s.EUID != 1001 || s.Inner != 5 || s.RSS != 2<<20 || s.Swap != 4096 || s.CPUs != 12 || s.Voluntary != 9 || s.Involuntary != 3 {
		t.Errorf("status %+v", s)
	}
	if c, err := ParseSyscall([]byte("0 0x3 0x7ffd 0x20 0x0 0x0 0x0 0x7ffe 0x7fff\n")); err != nil || c.NR != 0 || c.Args[0] != 3 || c.PC != 0x7fff || c.Running {
		t.Errorf("syscall %+v %v", c, err)
	}
	if c, err := ParseSyscall([]byte("running\n")); err != nil || !c.Running {
		t.Errorf("running %+v %v", c, err)
	}
	if c, err := ParseSyscall([]byte("-1 0x7ffe 0x7fff\n")); err != nil || c.NR != -1 || c.PC != 0x7fff {
		t.Errorf("page fault %+v %v", c, err)
	}
	if c := ParseChildren([]byte("12 345 \n")); !reflect.DeepEqual(c, []int{12, 345}) {
		t.Errorf("children %v", c)
	}
	if m := ParseStatm([]byte("500 40 30 1 0 9 0\n")); m != (Statm{500, 40, 30}) {
		t.Errorf("statm %+v", m)
	}
	m, ok := ParseMapping("7f1c2000-7f1c4000 r-xp 00001000 08:01 77   /usr/lib/my lib.so")
	if !ok || m != (Mapping{Start: 0x7f1c2000, End: 0x7f1c4000, Offset: 0x1000, Exec: true, Device: "08:01", Inode: 77, Name: "/usr/lib/my lib.so"}) {
		t.Errorf("mapping %+v", m)
	}
	if ticks, err := ParseIdle([]byte("cpu  10 1 5 107 7 0\ncpu0 5 1 2 50 3 0\ncpu1 5 0 3 57 4 0\n"), []int{1}); err != nil || ticks != 61 {
		t.Errorf("idle %d %v", ticks, err)
	}
	for _, bad := range []string{"", "x", "5", "5 0x", "-2 0x1"} {
		if _, err := ParseSyscall([]byte(bad)); err == nil {
			t.Errorf("syscall %q was accepted", bad)
		}
	}
}

func TestInnermostPID(t *testing.T) {
	for status, want := range map[string]int{
		"Name:\tx\nNSpid:\t4711\t12\t1\nThreads:\t1\n": 1,
		"NSpid:\t4711\n": 4711,
		"NSpid:\n":       0, // a line that was cut
		"NSpid:":         0,
		"NSpid:\tx\n":    0,
		"":               0,
	} {
		if n := ParseStatus([]byte(status)).Inner; n != want {
			t.Errorf("%q: %d, want %d", status, n, want)
		}
	}
}

func TestParseSystem(t *testing.T) {
	c, err := ParseCPU([]byte("cpu  10 1 5 100 7 0 2 3 0 0\ncpu0 5 1 2 50 3 0 1 1 0 0\ncpu1 5 0 3 50 4 0 1 2 0 0\nctxt 99\nprocs_blocked 2\n"))
	if err != nil || c.Cores != 2 || c.User != 10 || c.IOWait != 7 || c.Steal != 3 || c.Switches != 99 || c.Blocked != 2 || c.Total() != 128 || c.Busy() != 18 {
		t.Errorf("stat %+v %v", c, err)
	}
	p, err := ParsePressure([]byte("some avg10=1.00 avg60=6.34 avg300=10.06 total=47\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=11\n"))
	if err != nil || p != (Pressure{47, 11}) {
		t.Errorf("pressure %v %v", p, err)
	}
	if _, err := ParsePressure(nil); err == nil {
		t.Error("empty pressure was accepted")
	}
	d := ParseDisks([]byte(" 254       0 vda 100 2 800 40 7 1 16 3 0 60 43 0 0 0 0 0 0\n"))
	if want := []Disk{{Major: 254, Name: "vda", Reads: 100, Writes: 7, ReadBytes: 800 * 512, WriteBytes: 16 * 512, ReadMS: 40, BusyMS: 60}}; !reflect.DeepEqual(d, want) {
		t.Errorf("disks %+v", d)
	}
	n := ParseNet([]byte("Inter-|   Receive\n face |bytes packets\n    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n  eth0:200 2 0 0 0 0 0 0 30 3 0 0 0 0 0 0\n"))
	if n != (Net{Received: 200, Sent: 30, Loopback: 10}) {
		t.Errorf("net %+v", n)
	}
	m := ParseMounts([]byte("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - fuse.sshfs host:/x rw\n25 0 8:1 / / rw - ext4 /dev/sda1 rw\n"))
	if found, ok := MountOf(m, "/mnt 2/a/b"); !ok || found.Type != "fuse.sshfs" || found.Point != "/mnt 2" {
		t.Errorf("mount %+v", found)
	}
	if found, ok := MountOf(m, "/mnt 23"); !ok || found.Type != "ext4" {
		t.Errorf("mount %+v", found)
	}
	var inodes []uint64
	ParseSockets([]byte("  sl  local_address rem_address\n   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 624 1 00 100\n"), func(n uint64) { inodes = append(inodes, n) })
	ParseUnix([]byte("Num       RefCount Protocol Flags    Type St Inode Path\n00000000d46af5d2: 00000003 00000000 00000000 0005 03 817840\n"), func(n uint64) { inodes = append(inodes, n) })
	if !reflect.DeepEqual(inodes, []uint64{624, 817840}) {
		t.Errorf("sockets %v", inodes)
	}
}

func TestGroups(t *testing.T) {
	got := ParseGroups([]byte("9:name=systemd:/\n4:memory:/a/b\n2:cpu,cpuacct:/../..\n0::/x\nbroken\n"))
	want := map[string]string{"name=systemd": "/", "memory": "/a/b", "cpu": "/", "cpuacct": "/", "": "/x"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

// root creates a machine of files below /proc and /sys.
func root(t testing.TB, files map[string]string) FS {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return FS{Proc: dir + "/proc", Sys: dir + "/sys"}
}

func TestLimitsOfBothVersions(t *testing.T) {
	fs := root(t, map[string]string{
		"proc/7/cgroup":                                   "4:memory:/job\n2:cpu,cpuacct:/job\n",
		"sys/fs/cgroup/cpu,cpuacct/job/cpu.stat":          "nr_periods 10\nnr_throttled 4\nthrottled_time 5000\n",
		"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us":  "150000\n",
		"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
		"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":      "-1\n",
		"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":     "100000\n",
		"sys/fs/cgroup/memory/job/memory.usage_in_bytes":  "900\n",
		"sys/fs/cgroup/memory/job/memory.limit_in_bytes":  "1000\n",
		"sys/fs/cgroup/memory/job/memory.failcnt":         "3\n",
		"sys/fs/cgroup/memory/job/memory.stat":            "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\ntotal_workingset_refault_file 6\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes":      "9223372036854771712\n",
		"sys/fs/cgroup/memory/memory.usage_in_bytes":      "5000\n",
	})
	g := fs.Group(7)
	if got, want := fs.Throttle(g), (Throttle{Quota: 1.5, Periods: 10, Limited: 4, Time: 5000}); got != want {
		t.Errorf("v1 CPU %+v", got)
	}
	if got, want := fs.MemoryLimit(g), (MemoryLimit{Limit: 1000, Usage: 900, Inactive: 200, Reusable: 300, Refaults: 6, Failures: 3}); got != want {
		t.Errorf("v1 memory %+v", got)
	}

	fs = root(t, map[string]string{
		"proc/7/cgroup":                           "0::/outer/job\n",
		"sys/fs/cgroup/outer/job/cgroup.procs":    "7\n",
		"sys/fs/cgroup/outer/job/cpu.max":         "max 100000\n",
		"sys/fs/cgroup/outer/cpu.max":             "50000 100000\n",
		"sys/fs/cgroup/outer/cpu.stat":            "usage_usec 1\nnr_periods 8\nnr_throttled 2\nthrottled_usec 9\n",
		"sys/fs/cgroup/outer/job/memory.max":      "2000\n",
		"sys/fs/cgroup/outer/job/memory.current":  "1500\n",
		"sys/fs/cgroup/outer/job/memory.stat":     "inactive_file 100\nactive_file 50\nworkingset_refault_file 5\n",
		"sys/fs/cgroup/outer/job/memory.events":   "low 0\nhigh 0\nmax 12\noom 0\n",
		"sys/fs/cgroup/outer/job/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\n",
	})
	g = fs.Group(7)
	if got, want := fs.Throttle(g), (Throttle{Quota: 0.5, Periods: 8, Limited: 2, Time: 9000}); got != want {
		t.Errorf("v2 CPU %+v", got)
	}
	if got, want := fs.MemoryLimit(g), (MemoryLimit{Limit: 2000, Usage: 1500, Inactive: 100, Reusable: 150, Refaults: 5, Failures: 12}); got != want {
		t.Errorf("v2 memory %+v", got)
	}
	if p, ok := fs.GroupPressure(g, "memory"); !ok || p.Some != 77 {
		t.Errorf("v2 pressure %v %v", p, ok)
	}
	if g := (FS{Proc: "/nowhere", Sys: "/nowhere"}).Group(1); g != (Group{}) {
		t.Errorf("no group: %+v", g)
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte(statLine))
	f.Add([]byte("0 0x3 0x7ffd 0x20 0x0 0x0 0x0 0x7ffe 0x7fff\n"))
	f.Add([]byte("some avg10=1.00 avg60=6.34 avg300=10.06 total=47\n"))
	f.Add([]byte("36 35 98:0 /mnt1 /mnt\\0402 rw - ext4 /dev/root rw\n"))
	f.Add([]byte("cpu  10 1 5 100 7 0 2 3 0 0\ncpu0 5\n"))
	f.Add([]byte("0::/../x\n4:a,b:/c\n"))
	f.Add([]byte("7f1c2000-7f1c4000 r-xp 00001000 08:01 77   /usr/lib/libc.so.6\n12 13\n"))
	f.Add([]byte("MemTotal: 5 kB\nlo: 1 2 3\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := ParseStat(data); err == nil && (s.PID <= 0 || StateOf(data) == 0) {
			t.Errorf("%+v", s)
		}
		_, _ = ParseSched(data)
		_, _ = ParseIO(data)
		ParseStatus(data)
		_, _ = ParseSyscall(data)
		ParsePSS(data)
		ParseStatm(data)
		_, _ = ParseIdle(data, []int{0, 3})
		for _, pid := range ParseChildren(data) {
			if pid <= 0 {
				t.Errorf("child %d", pid)
			}
		}
		for line := range strings.Lines(string(data)) {
			ParseMapping(line)
		}
		_, _ = ParseCPU(data)
		if m, err := ParseMemory(data); err == nil && (int64(m.Total) < 0 || int64(m.Available) < 0) {
			t.Errorf("%+v", m)
		}
		ParseCounters(data, func(string) bool { return true })
		_, _ = ParsePressure(data)
		ParseDisks(data)
		ParseNet(data)
		if v, err := ParseLoad(data); err == nil && v < 0 {
			t.Error(v)
		}
		ParseModel(data)
		ParseSockets(data, func(uint64) {})
		ParseUnix(data, func(uint64) {})
		ParsePeers(data, func(inode uint64, _, _ string) {
			if inode == 0 {
				t.Error("no inode")
			}
		})
		ParseUnixDiag(data, map[uint64]uint64{})
		MountOf(ParseMounts(data), "/a/b")
		for _, p := range ParseGroups(data) {
			if p == "" || p[0] != '/' {
				t.Errorf("group %q", p)
			}
		}
	})
}
