package fetch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/faultsource"
	"github.com/stokerdata/stoker/source/driver"
)

// inRAM is a source that has all of its records in memory, in a form that has to
// be unpacked into buffers.
type inRAM struct{ *faultsource.Memory }

func (s inRAM) ReadMemory(ids []int64, buf *driver.Buffer) bool {
	return s.Read(context.Background(), ids, buf) == nil
}

// What the buffers of workers hold when they are done with a group does not
// keep a read that waits for memory waiting for ever.
func TestReadersGetWhatMemoryBuffersHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 300 << 10
		r := NewReader(inRAM{blobs(1000, size)}, arena.NewBudget(2<<20), 1, 2, 4)
		defer r.Free()
		own := r.NewBuffer(4)
		for range 3 { // until it would keep its memory in one piece
			if !r.ReadMemory(own, []int64{1, 2, 3}) {
				t.Fatal("records in memory are not found there")
			}
			r.Done(own)
		}
		b := get(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Read(ctx, 0, b, []int64{1, 2, 3, 4}); err != nil {
			t.Error(err)
		}
		// Nor does a group that does not fit beside another one.
		if r.ReadMemory(own, []int64{1, 2, 3, 4}) {
			t.Error("two groups fit")
		}
		r.Done(b)
		b = get(t, r)
		if err := r.Read(ctx, 0, b, []int64{5, 6, 7, 8}); err != nil {
			t.Error(err)
		}
		r.Done(b)
	})
}
