package parquetsink_test

import (
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, &sinktest.Suite{
		Target: "parquet:out", Kinds: sinktest.Kinds,
		Same: func(want, got *driver.Field, w, g *driver.Value) bool {
			if want.Kind == driver.KindMask { // raw pixels are read back as a file
				return sinktest.File(want, w) == string(g.Bytes)
			}
			return string(g.Bytes) == string(w.Bytes)
		},
	})
}
