package npysink_test

import (
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

var kinds = []driver.Kind{driver.KindArray, driver.KindInt, driver.KindLabel, driver.KindFloat}

// numbers compares numbers: an array has no class names, so a label is read as an int.
func numbers(want, got *driver.Field, w, g *driver.Value) bool {
	return want.Kind == driver.KindLabel && got.Kind == driver.KindInt && g.Int == w.Int
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, &sinktest.Suite{Target: "npy:out", Kinds: kinds, Same: numbers})
}

func TestZip(t *testing.T) {
	ragged := []driver.Kind{driver.KindRagged, driver.KindTokens, driver.KindMultiLabel, driver.KindBoxes}
	sinktest.Run(t, &sinktest.Suite{Target: "out.npz", Kinds: append(ragged, kinds...), Read: "-"})
}
