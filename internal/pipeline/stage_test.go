package pipeline

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/pack"
)

func openStaged(t *testing.T, dir string, cfg Config) (*Pipeline, *calls) {
	t.Helper()
	cfg.Stage, cfg.Memory, cfg.Threads = dir, 192<<20, 2
	p, c, _ := openRemote(t, cfg)
	if p.Info().CacheNote != "" {
		t.Fatal(p.Info().CacheNote)
	}
	return p, c
}

// staged returns the names in a folder of copies.
func staged(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// waitWhole waits until the copy is whole.
func waitWhole(t *testing.T, p *Pipeline) {
	t.Helper()
	for range 6000 {
		st := p.Stats().Stage
		if st.Whole {
			return
		}
		if st.Note != "" {
			t.Fatal(st.Note)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%+v", p.Stats().Stage)
}

// The first epoch reads the data from the store once. The copy is a pack, and later epochs and jobs do not read from
// the store any more.
func TestStage(t *testing.T) {
	all, _ := chunkBytesOf(t)
	for _, window := range []int{0, 16} {
		dir := t.TempDir()
		p, c := openStaged(t, dir, Config{BatchSize: 64, Window: window, DropLast: true})
		p.Start(item.Position{})
		goThrough(t, p, 1)
		waitWhole(t, p)
		first := c.readBytes()
		if st := p.Stats().Stage; !st.Whole || st.Bytes != st.Of || st.Note != "" {
			t.Errorf("%+v", st)
		}
		goThrough(t, p, 1)
		if got := c.readBytes(); got != first || float64(got) > 1.02*float64(all) {
			t.Errorf("window %d: %d bytes were read of the store in the first epoch, %d in both, there are %d", window, first, got, all)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		names := staged(t, dir)
		if len(names) != 1 || strings.HasSuffix(names[0], ".part") {
			t.Fatalf("%q", names)
		}
		// It is a pack of its own.
		rep, err := pack.Verify(t.Context(), filepath.Join(dir, names[0]), nil)
		if err != nil || len(rep.Problems) > 0 {
			t.Errorf("%+v, %v", rep, err)
		}
		again, c := openStaged(t, dir, Config{BatchSize: 64, Window: window})
		again.Start(item.Position{})
		goThrough(t, again, 1)
		if got := c.readBytes(); got != 0 || !again.Stats().Stage.Whole {
			t.Errorf("window %d: %d bytes were read from the store in addition to the copy", window, got)
		}
	}
}

// A job that ends early leaves its part to the next job, and no folder that looks complete.
func TestStageGoesOn(t *testing.T) {
	dir := t.TempDir()
	p, c := openStaged(t, dir, Config{BatchSize: 64, Window: 16})
	p.Start(item.Position{})
	raggedBatches(t, p, int(p.Info().Steps)/2)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	half := c.readBytes()
	for _, name := range staged(t, dir) {
		if !strings.HasSuffix(name, ".part") && !strings.HasSuffix(name, ".state") {
			t.Errorf("there is %s", name)
		}
	}
	all, _ := chunkBytesOf(t)
	d, err := cache.At("", 0)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(d.Copies(), func(c cache.Copy) bool { return filepath.Dir(c.Folder) == dir })
	if i < 0 {
		t.Fatalf("it is not among %+v", d.Copies())
	}
	if left := d.Copies()[i]; left.Whole || left.InUse || left.Bytes < half/2 || left.Origin == "" {
		t.Errorf("%+v", left)
	}
	again, c := openStaged(t, dir, Config{BatchSize: 64, Window: 16, Rank: 1, WorldSize: 2})
	again.Start(item.Position{})
	goThrough(t, again, 1)
	waitWhole(t, again)
	if got := c.readBytes() + half; got < all || float64(got) > 1.1*float64(all) {
		t.Errorf("%d bytes were read of the store, %d of them before, there are %d", got, half, all)
	}
	if !again.Stats().Stage.Whole {
		t.Errorf("%+v", again.Stats().Stage)
	}
}

// If no copy can be made, that is reported and everything works without.
func TestNoStage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, _, _ := openRemote(t, Config{BatchSize: 64, Stage: file})
	if !strings.Contains(p.Info().CacheNote, "nothing is copied") {
		t.Errorf("%q", p.Info().CacheNote)
	}
	p.Start(item.Position{})
	goThrough(t, p, 1)

	if _, err := Open(context.Background(), Config{Source: t.TempDir(), BatchSize: 1, Stage: file, Cache: CacheOn}); err == nil {
		t.Error("stage goes with cache")
	}
}
