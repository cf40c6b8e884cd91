package pack

import (
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
