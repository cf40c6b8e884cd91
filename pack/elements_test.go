package pack

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/source/driver"
)

// Every element type that can be stored has a column type of its size.
func TestEveryTypeHasAColumn(t *testing.T) {
	stored := 0
	for _, e := range dtype.All() {
		d := driver.DType(e.String())
		if d.Size() == 0 {
			if e != dtype.BF16 { // which neither NumPy nor Arrow has
				t.Errorf("%s cannot be stored", e)
			}
			continue
		}
		stored++
		a, ok := arrowTypes[d]
		if !ok || d.Type() != e || a.Width() != e.Size() {
			t.Errorf("%s has no column type", e)
			continue
		}
		for _, kind := range []driver.Kind{driver.KindArray, driver.KindRagged} {
			sch, err := newSchema([]Field{{Name: "x", Kind: kind, DType: d, Shape: []int{3}}}, false)
			if err != nil {
				t.Errorf("%s as %s: %v", e, kind, err)
				continue
			}
			if n := sch.leaves[0].Width; int(n) != 3*e.Size() && int(n) != e.Size() {
				t.Errorf("%s as %s is a column of %d bytes", e, kind, n)
			}
		}
	}
	if stored != len(arrowTypes) || stored != len(driver.DTypes) {
		t.Errorf("%d types can be stored, %d have columns, driver lists %d", stored, len(arrowTypes), len(driver.DTypes))
	}
}

// Statistics that are computed for several numbers at a time equal those computed one by one.
func TestElementStats(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}
	for n := range 70 {
		for _, some := range []int{0, 3, n} { // odd ones
			var floats, ints32, ints64 []byte
			for range n {
				v := float32(rng.NormFloat64()) * 100
				if some > 0 && rng.IntN(n) < some {
					v = odd[rng.IntN(len(odd))]
				}
				floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(v))
				ints32 = binary.LittleEndian.AppendUint32(ints32, rng.Uint32())
				ints64 = binary.LittleEndian.AppendUint64(ints64, rng.Uint64())
			}
			want := finite{min: math.Inf(1), max: math.Inf(-1)}
			for i := 0; i < len(floats); i += 4 {
				want.add(dtype.F32.Float(floats[i:]))
			}
			got := floatStats(dtype.F32, floats)
			if want.count == 0 {
				want.min, want.max = 0, 0
			}
			mean := want.sum / float64(max(want.count, 1))
			if got.Count != want.count || got.NotFinite != want.not || got.Min != want.min || got.Max != want.max || math.Abs(got.Mean-mean) > 1e-9*max(math.Abs(want.max), math.Abs(want.min)) {
				t.Fatalf("%d numbers: %+v, want %+v", n, got, want)
			}
			for d, b := range map[driver.DType][]byte{driver.Int32: ints32, driver.Int64: ints64} {
				s, _ := elementStats(d, b)
				lo, hi, sum := int64(math.MaxInt64), int64(math.MinInt64), 0.0
				for i := 0; i < len(b); i += d.Size() {
					v := d.Type().Int(b[i:])
					lo, hi, sum = min(lo, v), max(hi, v), sum+float64(v)
				}
				if n > 0 && (s.Min != lo || s.Max != hi || math.Abs(s.Mean-sum/float64(n)) > 1e-6*math.Abs(sum)+1) {
					t.Fatalf("%d of %s: %+v, want %d to %d, sum %g", n, d, s, lo, hi, sum)
				}
			}
		}
	}
}
