package probe

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/gen"
	"github.com/stokerdata/stoker/internal/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestLimitsOfControlGroups(t *testing.T) {
	v1 := fstest.MapFS{
		"proc/self/cgroup":                               file("4:memory:/job/a\n3:cpu,cpuacct:/job\n2:blkio:/job\n"),
		"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us":         file("150000\n"),
		"sys/fs/cgroup/cpu/job/cpu.cfs_period_us":        file("100000\n"),
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us":             file("-1\n"),
		"sys/fs/cgroup/cpu/cpu.cfs_period_us":            file("100000\n"),
		"sys/fs/cgroup/memory/job/memory.limit_in_bytes": file("1073741824\n"),
		"proc/meminfo": file("MemTotal:       4194304 kB\n"),
		"sys/fs/cgroup/blkio/job/blkio.throttle.read_bps_device":  file("0:0 52428800\n9:9 1\n"),
		"sys/fs/cgroup/blkio/job/blkio.throttle.read_iops_device": file("0:0 300\n"),
	}
	v2 := fstest.MapFS{
		"proc/self/cgroup":             file("0::/job\n"),
		"sys/fs/cgroup/job/cpu.max":    file("50000 100000\n"),
		"sys/fs/cgroup/cpu.max":        file("max 100000\n"),
		"sys/fs/cgroup/job/memory.max": file("1073741824\n"),
		"sys/fs/cgroup/memory.max":     file("max\n"),
		"proc/meminfo":                 file("MemTotal:       4194304 kB\n"),
		"sys/fs/cgroup/job/io.max":     file("0:0 rbps=52428800 wbps=max riops=300 wiops=max\n"),
	}
	for _, test := range []struct {
		name string
		root fstest.MapFS
		cpu  float64
	}{{"version 1", v1, 1.5}, {"version 2", v2, 0.5}} {
		quota := math.Inf(1)
		for _, g := range groups(test.root, "cpu") {
			quota = min(quota, g.cpuQuota(test.root))
		}
		if quota != test.cpu {
			t.Errorf("%s: quota of %g cores, want %g", test.name, quota, test.cpu)
		}
		if got := totalMemory(test.root); got != 1<<30 {
			t.Errorf("%s: memory %d", test.name, got)
		}
		if bw, iops := ioLimits(test.root, 0); bw != 52428800 || iops != 300 {
			t.Errorf("%s: limits %g and %g", test.name, bw, iops)
		}
	}
	if got := totalMemory(fstest.MapFS{}); got != 0 {
		t.Errorf("memory of nothing: %d", got)
	}
}

func TestCountRange(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-1,4,6-7": 5, "": 0, "x": 0, "3-1": 0, "0-99999999": 1<<16 + 1} {
		if got := countRange(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
}

func TestAccelerators(t *testing.T) {
	root := fstest.MapFS{
		"proc/driver/nvidia/gpus/0000:01:00.0/information": file("Model: \t\t NVIDIA H200\nIRQ: 5\n"),
		"sys/class/kfd/kfd/topology/nodes/0/properties":    file("cpu_cores_count 2\ngfx_target_version 0\n"),
		"sys/class/kfd/kfd/topology/nodes/1/properties":    file("gfx_target_version 90402\n"),
	}
	got := accelerators(root)
	if len(got) != 2 || got[0] != "NVIDIA H200" || got[1] != "AMD gfx90402" {
		t.Errorf("accelerators %q", got)
	}
}

func TestClass(t *testing.T) {
	rates := func(iops, bandwidth float64) *plan.Store {
		return &plan.Store{Random: []plan.ReadRate{{IOPS: iops, Bandwidth: bandwidth}}}
	}
	for _, test := range []struct {
		m    mount
		s    *plan.Store
		want string
	}{
		{mount{kind: "tmpfs"}, rates(1e6, 1e10), plan.ClassRAM},
		{mount{kind: "nfs4"}, rates(1000, 1e8), plan.ClassNFS},
		{mount{kind: "fuse.s3fs"}, rates(10, 1e8), plan.ClassObject},
		{mount{kind: "ext4"}, rates(150, 1.5e8), plan.ClassHDD},
		{mount{kind: "ext4"}, rates(80_000, 5e8), plan.ClassSATA},
		{mount{kind: "ext4"}, rates(80_000, 2e9), plan.ClassNVMe},
		{mount{kind: "ext4"}, &plan.Store{}, ""},
	} {
		if got := test.m.class(fstest.MapFS{}, test.s); got != test.want {
			t.Errorf("%+v %+v: %q, want %q", test.m, test.s.Random, got, test.want)
		}
	}
}

func TestLatencies(t *testing.T) {
	var l, other latencies
	for i := range 1000 {
		d := time.Duration(i+1) * time.Millisecond
		if i%2 == 0 {
			l.add(d)
		} else {
			other.add(d)
		}
	}
	l.merge(&other)
	s := l.summary()
	for _, test := range []struct{ got, want float64 }{{s.Mean, 0.5005}, {s.P50, 0.5}, {s.P90, 0.9}, {s.P99, 0.99}, {s.P999, 0.999}, {s.Max, 1}} {
		if math.Abs(test.got/test.want-1) > 0.02 {
			t.Errorf("%g, want %g", test.got, test.want)
		}
	}
	var none latencies
	if got := none.summary(); got != (plan.Latency{}) {
		t.Errorf("of nothing: %+v", got)
	}
	none.add(0)
	none.add(1000 * time.Hour)
	if got := none.summary(); got.P50 > 1e-6 || got.P99 > got.Max {
		t.Errorf("extremes: %+v", got)
	}
}

// A short run on a folder of a few images: everything is measured or said to be
// missing, and nothing is left behind.
func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	g, err := gen.New(gen.Options{Count: 12, Classes: 2, Width: 64, Height: 48})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.WriteTree(t.Context(), dir, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	var seen []string
	m, err := Run(t.Context(), dir, Options{For: time.Second, Size: 32, Progress: func(_, _ int, name string) { seen = append(seen, name) }})
	if err != nil {
		t.Fatal(err)
	}
	if m.Cores <= 0 || m.MemoryFree <= 0 || m.MemoryTotal < m.MemoryFree/2 || m.Store == nil || len(seen) != 7 {
		t.Errorf("machine %+v, parts %q", m, seen)
	}
	if len(m.Codecs) != 3 {
		t.Fatalf("codecs %+v, notes %q", m.Codecs, m.Notes)
	}
	for _, r := range m.Codecs {
		if r.PerCore <= 0 || r.AllCores <= 0 || r.CPUSeconds <= 0 || r.RecordBytes <= 0 || r.OutputBytes < 32*32*3 || r.Origin != "measured" {
			t.Errorf("codec %+v", r)
		}
	}
	if m.Handoff == nil || m.Handoff.PerBatch <= 0 || m.Handoff.PerBatch > 1 {
		t.Errorf("hand-off %+v, notes %q", m.Handoff, m.Notes)
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".*"))
	temporary, _ := os.ReadDir(os.Getenv("TMPDIR"))
	if len(left) > 0 || len(temporary) > 0 {
		t.Errorf("left behind: %q, %v", left, temporary)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, dir, Options{For: time.Second, Progress: func(done, _ int, _ string) {
		if done == 3 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRunRefusesWhatIsNotThere(t *testing.T) {
	_, err := Run(t.Context(), filepath.Join(t.TempDir(), "nothing"), Options{})
	if err == nil || !strings.Contains(err.Error(), "nothing: no such file or directory") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func TestSaveAndLoad(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	if _, _, err := Load(dir); !errors.Is(err, ErrNone) {
		t.Errorf("before: %v", err)
	}
	m := &plan.Machine{Cores: 2, Measured: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), Store: &plan.Store{Class: plan.ClassNVMe}}
	name, err := Save(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	// By any name of the folder.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	got, age, err := Load(link)
	if err != nil || got.Cores != 2 || got.Store.Class != plan.ClassNVMe || age < 59*time.Minute || age > 61*time.Minute {
		t.Errorf("loaded %+v, %v old: %v", got, age, err)
	}
	if err := os.WriteFile(name, []byte(`{"version":1`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(dir); !errors.Is(err, ErrNone) {
		t.Errorf("damaged: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"host":"h","path":"/p","machine":{"cores":2,"store":{"random":[{"block":4096,"depth":1,"iops":10}]}}}`))
	f.Add([]byte(`{"version":1,"machine":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, ok := parse(data)
		if ok && s.Machine == nil {
			t.Error("no machine")
		}
		if ok {
			// What was read may be anything; predicting from it must not fail.
			p := plan.Predict(plan.Pipeline{Batch: 64, Step: 0.1, Codec: plan.CodecKeep, RecordBytes: 1e5}, *s.Machine)
			_ = p.Throughput
		}
	})
}

func FuzzMountinfo(f *testing.F) {
	f.Add("25 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n26 25 0:5 / /a\\040b rw - tmpfs tmpfs rw\n", "1:name:/x\n0::/a")
	f.Fuzz(func(t *testing.T, mounts, cgroups string) {
		root := fstest.MapFS{"proc/self/mountinfo": file(mounts), "proc/self/cgroup": file(cgroups)}
		if _, err := mountOf(root, "/"); err != nil {
			t.Fatal(err)
		}
		groups(root, "cpu")
	})
}

func TestMountOf(t *testing.T) {
	root := fstest.MapFS{"proc/self/mountinfo": file("25 1 254:0 / / rw - ext4 /dev/vda rw\n26 25 0:5 / " + os.TempDir() + " rw shared:1 - nfs4 server:/a\\040b rw\n")}
	m, err := mountOf(root, os.TempDir())
	if err != nil || m.kind != "nfs4" || m.device != "server:/a b" {
		t.Errorf("mount %+v: %v", m, err)
	}
	if m, _ := mountOf(root, "/"); m.kind != "ext4" {
		t.Errorf("mount %+v", m)
	}
}
