package probe

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/gen"
	"github.com/stokerdata/stoker/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		if got := test.m.class(test.s); got != test.want {
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

// A short run on a folder of a few images: everything is measured or reported as missing, and no files remain.
func TestRun(t *testing.T) {
	before := grace
	grace = time.Hour // on a busy machine as well
	defer func() { grace = before }()
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
	if m.Handoff == nil || m.Handoff.PerBatch <= 0 {
		t.Errorf("hand-off %+v, notes %q", m.Handoff, m.Notes)
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".*"))
	temporary, _ := os.ReadDir(os.Getenv("TMPDIR"))
	if len(left) > 0 || len(temporary) > 0 {
		t.Errorf("left behind: %q, %v", left, temporary)
	}
}

// Cold reads are measured with the loader's own code; all that it starts ends, and
// there is a result even in no time at all.
func TestReadsAsTheLoader(t *testing.T) {
	p := &probe{path: t.TempDir(), m: &plan.Machine{MemoryFree: 1 << 30}}
	target, err := p.openScratch(t.Context(), mount{}, 64<<20, time.Hour)
	if err != nil {
		t.Skip(err)
	}
	defer target.close()
	fd, err := target.throughCache()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, block := range []int64{loaderBlock, loaderLarge} {
		r, err := p.asLoader(t.Context(), time.Nanosecond, newBlocks(target.total, block).ofFile(fd))
		if err != nil || r.Block != block || r.Depth < 1 || r.IOPS <= 0 || r.Bandwidth <= 0 || r.CPUSeconds <= 0 || r.Latency.Samples == 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := p.asLoader(ended, time.Hour, newBlocks(target.total, loaderBlock).ofFile(fd)); err != nil || r.IOPS != 0 {
		t.Errorf("when the time is up: %+v, %v", r, err)
	}
	// Too few records for the order to be random.
	if r, err := p.asLoader(t.Context(), time.Hour, newBlocks(1<<20, loaderBlock).ofFile(fd)); err != nil || r.IOPS != 0 {
		t.Errorf("of a small file: %+v, %v", r, err)
	}
	// The file is shorter than declared: an error and no panic.
	if _, err := p.asLoader(t.Context(), time.Hour, newBlocks(1<<40, loaderBlock).ofFile(fd)); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a file that became shorter: %v", err)
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
	t.Setenv("STOKER_CACHE_DIR", t.TempDir())
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
	f.Add([]byte(`{"measured":"2026-01-02T03:04:05Z","cores":2,"store":{"random":[{"block":4096,"depth":1,"iops":10}]}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, ok := parse(data)
		if ok && m == nil {
			t.Error("no machine")
		}
		if ok {
			// The file content may be anything, and predicting from it must not fail.
			p := plan.Predict(plan.Pipeline{Batch: 64, Step: 0.1, Codec: plan.CodecKeep, RecordBytes: 1e5}, *m)
			_ = p.Throughput
		}
	})
}
