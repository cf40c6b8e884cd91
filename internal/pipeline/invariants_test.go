//go:build invariants

package pipeline

import (
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/invariants"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
)

// Bytes of a batch are destroyed after its release, and a slot that is freed twice ends the program.
func TestUseAfterReleaseIsFound(t *testing.T) {
	p := mustOpen(t, Config{OpenSource: use(sourcetest.Raw(16, 8, 8, 3, 5)), BatchSize: 16, DropLast: true})
	p.Start(item.Position{})
	ev, err := p.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &p.slots.batches[ev.Slot]
	p.mu.Lock()
	if invariants.IsMangled(p.memory.ring.Slot(ev.Slot)[:64]) {
		t.Error("a batch that is held is destroyed")
	}
	p.stopLocked(p.streams.cur) // the slot is not filled again
	p.mu.Unlock()
	p.Release(ev.Slot)
	if !invariants.IsMangled(p.memory.ring.Slot(ev.Slot)) {
		t.Error("a released batch can still be read")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "freed twice") {
			t.Errorf("panic %q", r)
		}
	}()
	p.freeLocked(b)
}
