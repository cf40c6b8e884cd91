package hdf5sink_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, &sinktest.Suite{
		Target: "out.h5", Kinds: sinktest.Kinds,
		Same: func(want, got *driver.Field, w, g *driver.Value) bool {
			switch want.Kind {
			case driver.KindLabel, driver.KindInt:
				return g.Int == w.Int || string(g.Bytes) == string(binary.LittleEndian.AppendUint64(nil, uint64(w.Int)))
			case driver.KindFloat:
				return g.Float == w.Float || string(g.Bytes) == string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(w.Float)))
			case driver.KindMask: // raw pixels are read back as a file
				return sinktest.File(want, w) == string(g.Bytes)
			}
			return string(g.Bytes) == string(w.Bytes)
		},
	})
}
