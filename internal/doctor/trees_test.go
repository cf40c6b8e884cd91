package doctor

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/stokerdata/stoker/internal/proc"
)

// unpack writes a recorded tree; the files of step N replace earlier ones.
func unpack(t *testing.T, dir string, a *txtar.Archive, step string) {
	t.Helper()
	for _, f := range a.Files {
		name := f.Name
		if rest, ok := strings.CutPrefix(name, "later/"); ok {
			if step != "later" {
				continue
			}
			name = rest
		} else if step == "later" {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecordedTrees reads different machines: control groups of both versions, no pressure stall information, hidden
// processes.
func TestRecordedTrees(t *testing.T) {
	for _, c := range []struct {
		name    string
		skipped string // must be in the skipped lines
		check   func(t *testing.T, c *collector, b *bin)
	}{
		{"cgroup1", "pressure", func(t *testing.T, c *collector, b *bin) {
			if c.sys.cores != 1.5 || c.sys.limited != "quota" || c.sys.bytes != 1<<30 {
				t.Errorf("cores %v by %q, memory %d", c.sys.cores, c.sys.limited, c.sys.bytes)
			}
			if b.v[mThrottled] != 0.3 || b.v[mFailures] != 5 || math.Abs(b.v[gMemory]/b.dt-0.75) > 0.01 {
				t.Errorf("throttled %v, failures %v, memory %v", b.v[mThrottled], b.v[mFailures], b.v[gMemory])
			}
			if b.v[mReadBytes] != 8192 || b.v[mRun] != 0.5 || b.v[mDelay] != 0.25 || b.v[mMajorFaults] != 3 {
				t.Errorf("read %v, ran %v, waited %v, faults %v", b.v[mReadBytes], b.v[mRun], b.v[mDelay], b.v[mMajorFaults])
			}
			if len(c.tree.members) != 2 {
				t.Errorf("%d members", len(c.tree.members))
			}
		}},
		{"cgroup2", "", func(t *testing.T, c *collector, b *bin) {
			if c.sys.cores != 0.5 || c.sys.bytes != 2<<20 {
				t.Errorf("cores %v, memory %d", c.sys.cores, c.sys.bytes)
			}
			if b.v[mPSIMemory] != 0.5 || b.v[mThrottled] != 0.7 {
				t.Errorf("pressure %v, throttled %v", b.v[mPSIMemory], b.v[mThrottled])
			}
		}},
		{"hidepid", "pressure", func(t *testing.T, c *collector, b *bin) {
			if len(c.tree.members) != 1 || c.line.known[mReadBytes] {
				t.Errorf("%d members, reads known %v", len(c.tree.members), c.line.known[mReadBytes])
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := txtar.ParseFile(filepath.Join("testdata", c.name+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			unpack(t, dir, a, "")
			fs := proc.FS{Proc: dir + "/proc", Sys: dir + "/sys"}
			w, err := newCollector(Options{PID: 100, FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			defer w.close()
			now := w.start.Add(time.Second)
			w.lastSlow = w.start
			w.flush(now)
			w.seconds = rareEvery - 1 // the next reading takes everything
			unpack(t, dir, a, "later")
			w.updateTree(now)
			w.tick(now)
			w.flush(now.Add(time.Second))
			b := w.line.bins[len(w.line.bins)-1]
			c.check(t, w, &b)
			if c.skipped != "" && !strings.Contains(strings.Join(w.skipped, "\n"), c.skipped) {
				t.Errorf("skipped %q", w.skipped)
			}
			if r := w.report(w.line); r.Line == "" {
				t.Error("no line")
			}
		})
	}
}

// A tree with nonsense in its files does not cause a failure.
func TestNonsenseTree(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"stat", "meminfo", "vmstat", "diskstats", "loadavg", "pressure/cpu", "100/status", "100/io", "100/cgroup", "100/cmdline", "100/net/dev", "100/task/100/schedstat", "100/task/100/stat", "100/task/100/syscall"} {
		path := filepath.Join(dir, "proc", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("\xff(x) 5: -1 \n:\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "proc/100/stat"), []byte("100 (x) R 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	r, err := Watch(ctx, Options{PID: 100, FS: proc.FS{Proc: dir + "/proc", Sys: dir + "/sys"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict == "" || r.Line == "" {
		t.Errorf("%+v", r)
	}
}
