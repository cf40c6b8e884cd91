package tarsink_test

import (
	"math"
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, &sinktest.Suite{
		Target: "tar:out", Kinds: sinktest.Kinds,
		Names: map[string]string{"bytes": "bytes.bin"},
		Same: func(want, got *driver.Field, w, g *driver.Value) bool {
			switch {
			case want.Kind == driver.KindFloat: // an array without axes
				return got.Kind == driver.KindArray && string(g.Bytes) == string(le(w.Float))
			case got.Kind == driver.KindRagged && (want.Kind == driver.KindTokens || want.Kind == driver.KindBoxes || want.Kind == driver.KindMultiLabel):
				return string(g.Bytes) == string(w.Bytes)
			case want.Kind == driver.KindMask: // raw pixels are read back as a file
				return got.Kind == want.Kind && sinktest.File(want, w) == string(g.Bytes)
			}
			return false
		},
	})
}

func le(x float64) (b []byte) {
	for i := range 8 {
		b = append(b, byte(math.Float64bits(x)>>(8*i)))
	}
	return b
}
