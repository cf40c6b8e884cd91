//go:build invariants

package arena

import (
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/invariants"
)

func TestMisuseIsFound(t *testing.T) {
	budget := NewBudget(1 << 20)
	b := NewBump(budget, PurposeRead)
	defer b.Release()
	old, err := b.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if !invariants.IsMangled(old) {
		t.Error("what was handed out can still be read after Reset")
	}
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "nobody had reserved") {
			t.Errorf("panic %q", r)
		}
	}()
	NewBudget(100).Return(PurposeRing, 1)
}
