package tfrecordsink_test

import (
	"math"
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, &sinktest.Suite{
		Target: "tfrecord:out", Kinds: sinktest.Kinds,
		Same: func(want, got *driver.Field, w, g *driver.Value) bool {
			switch want.Kind {
			case driver.KindLabel:
				return g.Int == w.Int
			case driver.KindFloat:
				return g.Float == w.Float
			case driver.KindMask:
				return sinktest.File(want, w) == string(g.Bytes)
			}
			if t, _, _, ok := elements(want); ok && t != driver.Uint8 {
				return same(t, w.Bytes, got.DType, g.Bytes)
			}
			return string(g.Bytes) == string(w.Bytes)
		},
	})
}

// elements returns the element type and shape of an array field.
func elements(f *driver.Field) (driver.DType, []int, bool, bool) {
	switch f.Kind {
	case driver.KindMultiLabel:
		return driver.Int64, nil, true, true
	case driver.KindArray, driver.KindRagged, driver.KindTokens, driver.KindBoxes:
		return f.DType, f.Shape, f.Kind != driver.KindArray, true
	}
	return "", nil, false, false
}

// same reports whether numbers of two types are equal. Floats are compared as float32.
func same(a driver.DType, x []byte, b driver.DType, y []byte) bool {
	if b == "" {
		b = driver.Int64
	}
	if len(x)/a.Size() != len(y)/b.Size() {
		return false
	}
	for i := range len(x) / a.Size() {
		p, q := a.Type().Float(x[i*a.Size():]), b.Type().Float(y[i*b.Size():])
		if math.Float32bits(float32(p)) != math.Float32bits(float32(q)) {
			return false
		}
	}
	return true
}
