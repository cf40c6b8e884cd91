package npysink_test

import (
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

var kinds = []driver.Kind{driver.KindArray, driver.KindInt, driver.KindLabel, driver.KindFloat}

func numbers(want, got *driver.Field, w, g *driver.Value) bool {
	if got.Kind != driver.KindArray || len(got.Shape) > 0 {
		return false
	}
	if want.Kind == driver.KindFloat {
		return got.DType == driver.Float64 && driver.Float64.Type().Float(g.Bytes) == w.Float
	}
	return got.DType == driver.Int64 && driver.Int64.Type().Int(g.Bytes) == w.Int
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, &sinktest.Suite{Target: "npy:out", Kinds: kinds, Same: numbers})
}

func TestZip(t *testing.T) {
	ragged := []driver.Kind{driver.KindRagged, driver.KindTokens, driver.KindMultiLabel, driver.KindBoxes}
	sinktest.Run(t, &sinktest.Suite{Target: "out.npz", Kinds: append(ragged, kinds...), Read: "-"})
}
