package pipeline

import (
	"reflect"
	"testing"

	"github.com/stokerdata/stoker/internal/gen"
	"github.com/stokerdata/stoker/internal/item"
)

// Batches are the same with a cache, bit for bit, while it is filled and when it is
// full, for each step of the way to the batch; from the second epoch on they come from
// there.
func TestCacheGivesTheSameBatches(t *testing.T) {
	root := genFolder(t)
	for _, list := range [][]string{{opRRC, opFlip}, {`{"op":"Resize","size":[40,40]}`, `{"op":"ColorJitter","brightness":0.4}`}} {
		cfg := Config{Source: root, BatchSize: 8, Shuffle: true, Seed: 3, Cache: CacheOff, Outputs: imageOps(list...), ApplyOrientation: true}
		plain := mustOpen(t, cfg)
		plain.Start(item.Position{})
		want, _ := epochs(t, plain, 3)
		cfg.Cache, cfg.CacheDir = CacheAuto, t.TempDir()
		cfg.Say = func(what string) { t.Errorf("said: %s", what) }
		for round := range 2 {
			p := mustOpen(t, cfg)
			p.Start(item.Position{})
			got, _ := epochs(t, p, 3)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("round %d: other batches", round)
			}
			st := p.Stats()
			// How many are kept depends on how long things take; those that are there are used.
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
