package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store/storetest"
)

// flippedOnce are faults that change some bytes of each shard the first time that they are read, as a network or the
// memory of a server may.
func flippedOnce(t *testing.T) (faults []*faulttest.Fault) {
	t.Helper()
	objects, err := remotePack()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range objects {
		for i := 1; name != pack.ManifestName && i < 8; i++ {
			at := int64(i * len(b) / 8)
			faults = append(faults, faulttest.Flip(at).Named(name).Bytes(at, at+1).Times(1))
		}
	}
	return faults
}

// Bytes that were damaged in transit, or in a cache whose checksums do not show it, are read from the store again. They
// never fail a job, and all epochs have the same values.
//
// The number of repeated reads of a record depends on the epochs that were read ahead before the first one was decoded.
func TestDamagedCache(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"no cache": func(*Config) {},
		"memory":   func(c *Config) { c.CacheMemory = 100 << 20 },
		"disk":     func(c *Config) { c.Cache, c.CacheDir, c.CacheLimit = CacheOn, t.TempDir(), 1<<30 },
		"copy":     func(c *Config) { c.Stage, c.CacheDir = t.TempDir(), t.TempDir() },
	} {
		for _, window := range []int{0, 16} {
			t.Run(fmt.Sprint(name, window), func(t *testing.T) {
				cfg := remoteConfig(t, Config{BatchSize: 64, Window: window, Memory: 300 << 20, Threads: 2})
				change(&cfg)
				objects, _ := remotePack()
				faults := flippedOnce(t)
				cfg.OpenSource = func(ctx context.Context, _ string) (driver.Source, error) {
					return pack.OpenStore(ctx, faulttest.New(storetest.NewMemory(objects), 1, faults...), nil)
				}
				p := mustOpen(t, cfg)
				p.Start(item.Position{})
				goThrough(t, p, 2)
				hits := int64(0)
				for _, f := range faults {
					hits += f.Hits()
				}
				st := p.Stats()
				if hits == 0 || st.Repaired.Store == 0 || st.Skipped != 0 || st.Repaired.Copy != 0 {
					t.Errorf("%d bytes were flipped, %+v, %d skipped", hits, st.Repaired, st.Skipped)
				}
			})
		}
	}
}

// damagedPack is the pack with flipped bits in its shards, at a share of each.
func damagedPack(t *testing.T, at ...float64) map[string][]byte {
	t.Helper()
	objects, err := remotePack()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for name, b := range objects {
		out[name] = append([]byte{}, b...)
		for _, share := range at {
			if name != pack.ManifestName {
				out[name][int(share*float64(len(b)))] ^= 4
			}
		}
	}
	return out
}

// openBoth is a configuration of a damaged pack and another copy of it.
func openBoth(t *testing.T, places map[string]map[string][]byte) Config {
	t.Helper()
	cfg := remoteConfig(t, Config{BatchSize: 64, Memory: 200 << 20, Threads: 2, Source: "one", OnError: OnErrorRepair, RepairFrom: "two"})
	cfg.OpenSource = func(ctx context.Context, url string) (driver.Source, error) {
		return pack.OpenStore(ctx, storetest.NewMemory(places[url]), &pack.ReadOptions{URL: url})
	}
	return cfg
}

// Records that are damaged in one copy of a pack are read from another copy. Records that are damaged in both are
// errors that name both.
func TestRepairFrom(t *testing.T) {
	intact := damagedPack(t)
	p := mustOpen(t, openBoth(t, map[string]map[string][]byte{"one": damagedPack(t, 0.3, 0.7), "two": intact}))
	p.Start(item.Position{})
	goThrough(t, p, 2)
	if st := p.Stats(); st.Repaired.Copy == 0 || st.Repaired.Store != 0 || st.Skipped != 0 {
		t.Errorf("%+v, %d skipped", st.Repaired, st.Skipped)
	}

	p = mustOpen(t, openBoth(t, map[string]map[string][]byte{"one": damagedPack(t, 0.5), "two": damagedPack(t, 0.5)}))
	p.Start(item.Position{})
	var err error
	for err == nil {
		var ev Event
		if ev, err = p.Next(testContext(t)); err == nil && ev.Kind == EventBatch {
			p.Release(ev.Slot)
		}
	}
	if strings.Count(err.Error(), "checksum") != 2 || !strings.Contains(err.Error(), "the copy of repair_from") {
		t.Errorf("%v", err)
	}
}

// Only a copy of the same pack is taken.
func TestRepairFromRefuses(t *testing.T) {
	dir := t.TempDir()
	other := &valueSource{n: windowLen, own: true, max: 4000, wide: 3999, bad: map[int64]bool{}}
	if _, err := pack.WriteSource(t.Context(), other, dir+"/p", nil); err != nil {
		t.Fatal(err)
	}
	cfg := openBoth(t, nil)
	intact, open := damagedPack(t), cfg.OpenSource
	cfg.OpenSource = func(ctx context.Context, url string) (driver.Source, error) {
		if url == "two" {
			return pack.Open(ctx, dir+"/p", &pack.ReadOptions{URL: url})
		}
		return pack.OpenStore(ctx, storetest.NewMemory(intact), &pack.ReadOptions{URL: url})
	}
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "two is not a copy of one: it has the fingerprint") {
		t.Errorf("%v", err)
	}
	cfg.OpenSource = func(context.Context, string) (driver.Source, error) { return windowSource(), nil }
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "is not a pack") {
		t.Errorf("%v", err)
	}
	cfg.OpenSource, cfg.RepairFrom = open, ""
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "go together") {
		t.Errorf("%v", err)
	}
}

// The views of a URL are those of the copy, too.
func TestRepairFromWithViews(t *testing.T) {
	dir := t.TempDir() + "/p"
	src := &valueSource{n: 300, own: true, max: 400, wide: 399, bad: map[int64]bool{}}
	if _, err := pack.WriteSource(t.Context(), src, dir, nil); err != nil {
		t.Fatal(err)
	}
	cfg := Config{BatchSize: 8, Memory: 200 << 20, Threads: 2, Source: dir + "#rows=0:100#rows=90:-1:-1", OnError: OnErrorRepair, RepairFrom: dir, WorldSize: 1}
	p := mustOpen(t, cfg)
	if n := p.Info().Len; n != 91 {
		t.Error(n)
	}
	cfg.RepairFrom = dir + "#rows=0:91"
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "is not a copy of") {
		t.Errorf("%v", err)
	}
}
