package kind

import (
	"context"
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/units"
)

// Large is memory for images that need more than a worker's own memory, for decoding or between two steps. Images wait
// until enough is free. Images that need more than the total are refused.
type Large struct {
	*arena.Pool
	// enough returns the total memory budget with which an image of the given need fits Large.
	enough func(need int64) (memory int64)
}

// NewLarge returns memory of total bytes.
func NewLarge(total int64, enough func(need int64) (memory int64)) *Large {
	return &Large{Pool: arena.NewPool(total), enough: enough}
}

// wish is the memory that a record needs if it did not fit a worker's own memory.
type wish struct {
	// decode are bytes to decode an image in, of the Go heap if heap is set.
	decode int64
	heap   bool
	// scratch reports that an image between two steps needs memory. The amount is not known in advance, so it takes all
	// that is left.
	scratch bool
}

// learn adds the need in err to a wish. It returns false if err has nothing new.
func (w *wish) learn(err error) bool {
	var short *decode.MemoryError
	switch {
	case errors.As(err, &short) && short.Need > w.decode:
		w.decode, w.heap = short.Need, w.heap || short.Heap
	case errors.Is(err, arena.ErrBudget) && !w.scratch:
		w.scratch = true
	default:
		return false
	}
	return true
}

// with calls f while the tools have the memory of the wish. It fails if that is more than the total.
func (l *Large) with(t *Tools, w *wish, f func()) error {
	if w.decode > l.Total() {
		err := &decode.MemoryError{Need: w.decode, Limit: l.Total()}
		return fmt.Errorf("%w; set memory to %d MiB or more", err, units.MiB(l.enough(w.decode)))
	}
	n := w.decode
	if w.scratch {
		n = l.Total()
	}
	_ = l.Take(context.Background(), n) // the holders will release it
	defer l.Give(n, w.heap)
	if w.decode > t.decodeMemory {
		t.dec.SetMemory(w.decode)
		defer t.dec.SetMemory(t.decodeMemory)
	}
	if w.scratch {
		own := t.scratch
		t.scratch = newScratch(t.dec, arena.NewBudget(l.Total()-w.decode))
		defer func() {
			t.scratch.free()
			t.scratch = own
		}()
	}
	f()
	return nil
}
