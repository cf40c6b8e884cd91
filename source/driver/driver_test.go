package driver

import (
	"testing"

	"github.com/stokerdata/stoker/internal/dtype"
)

// Values are stored in the types of batches, except bfloat16, which no format stores.
func TestDTypes(t *testing.T) {
	if len(DTypes) != len(dtype.All())-1 {
		t.Errorf("%d types, batches have %d", len(DTypes), len(dtype.All()))
	}
	for _, d := range DTypes {
		if of, ok := dtype.Parse(string(d)); !ok || d.Size() != of.Size() {
			t.Errorf("%s has %d bytes, in batches %d", d, d.Size(), of.Size())
		}
	}
	if DType("bfloat16").Size() != 0 || DType("half").Size() != 0 {
		t.Error("a type that is not stored has a size")
	}
}
