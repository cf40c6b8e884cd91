package pipeline

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stokerdata/stoker/internal/gen"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
)

// Batches are the same with a cache, bit for bit, while it fills and when it is full, for each path to the batch. From
// the second epoch on, records come from the cache.
func TestCacheGivesTheSameBatches(t *testing.T) {
	root := genFolder(t)
	for _, list := range [][]string{{opRRC, opFlip}, {`{"op":"Resize","size":[40,40]}`, `{"op":"ColorJitter","brightness":0.4}`}} {
		cfg := Config{Source: root, BatchSize: 8, Shuffle: true, Seed: 3, Cache: CacheOff, Outputs: imageOps(list...), ApplyOrientation: true}
		plain := mustOpen(t, cfg)
		plain.Start(item.Position{})
		want, _ := epochs(t, plain, 3)
		cfg.Cache, cfg.CacheDir = CacheOn, t.TempDir()
		cfg.Say = func(what string) { t.Errorf("said: %s", what) }
		for round := range 2 {
			p := mustOpen(t, cfg)
			p.Start(item.Position{})
			got, _ := epochs(t, p, 3)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("round %d: other batches", round)
			}
			st := p.Stats()
			// The number of cached records depends on the timing. All cached records are used.
			if st.Cache == nil || round == 1 && (st.Cache.Records == st.Cache.Kept || st.Cache.Hits < 3*(st.Cache.Records-st.Cache.Kept)) {
				t.Errorf("round %d: %+v", round, st.Cache)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func genFolder(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	g, err := gen.New(gen.Options{Count: 150, Classes: 3, Width: 120, Height: 90})
	if err == nil {
		err = g.WriteTree(t.Context(), root, func(int64) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// The number of converted groups keeps the loss of speed within its limit, also if the cache was requested.
func TestCacheRates(t *testing.T) {
	k := keeping{p: &Pipeline{}, groups: firstGroups, plain: 0.92, kept: 0.2, extra: 2*0.92 - 0.2}
	k.open.Store(true)
	n := 0
	for range 1000 {
		if k.allow() {
			n++
		}
	}
	if n < 530 || n > 545 {
		t.Errorf("%d of 1000 groups", n)
	}
}

// Without a request, images of folders are cached if there is a disk for the cache.
func TestUnaskedCache(t *testing.T) {
	root := genFolder(t)
	open := func(cfg Config) *Pipeline {
		cfg.BatchSize, cfg.Outputs = 8, imageOps(opRRC)
		p := mustOpen(t, cfg)
		p.Start(item.Position{})
		epochs(t, p, 2)
		return p
	}
	if hasDisk(t.TempDir()) {
		p := open(Config{Source: root, Cache: CacheAuto, CacheDir: t.TempDir()})
		if st := p.Stats().Cache; st == nil || st.Hits+st.Misses < 300 {
			t.Errorf("folder: %+v", st)
		}
		p = open(Config{Source: packed(t, root), Cache: CacheAuto, CacheDir: t.TempDir()})
		if st := p.Stats().Cache; st != nil {
			t.Errorf("pack: %+v", st)
		}
	}
	if m, ok := proc.Live.MountOf("/dev/shm"); !ok || m.Type != "tmpfs" {
		return
	}
	p := open(Config{Source: root, Cache: CacheAuto, CacheDir: "/dev/shm/none"})
	if st := p.Stats().Cache; st != nil {
		t.Errorf("in memory: %+v", st)
	}
}

func packed(t testing.TB, root string) string {
	t.Helper()
	src, err := source.Open(t.Context(), root, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	to := filepath.Join(t.TempDir(), "pack")
	if _, err := pack.WriteSource(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	return to
}
