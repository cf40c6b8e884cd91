package collate

import (
	"encoding/binary"
	"sync"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// Batch writes the rows of one batch. There is one for each slot, which is reused. Different rows may be filled
// concurrently.
type Batch struct {
	l    *Layout
	slot []byte
	rows int
	// Near reports that copied bytes should stay in the processor's caches, because these hold the whole ring.
	// Otherwise copies bypass the caches.
	Near bool

	spans []spans    // by Layout.ragged
	mu    sync.Mutex // guards the separately stored rows
}

// NewBatch returns a Batch, to be given a slot by Begin.
func (l *Layout) NewBatch() *Batch {
	b := &Batch{l: l, spans: make([]spans, len(l.ragged))}
	for i := range b.spans {
		b.spans[i].at, b.spans[i].size = make([]int64, l.Rows), make([]int64, l.Rows)
	}
	return b
}

// Begin prepares b for a batch of rows in slot. A short batch shows nothing of an older one: the rows after its own are
// zero.
func (b *Batch) Begin(slot []byte, rows int) {
	b.slot, b.rows = slot, rows
	if rows < b.l.Rows {
		for a := range b.l.Arrays {
			clear(b.l.rows(slot, a, rows, b.l.Rows))
		}
	}
	for i := range b.spans {
		b.spans[i].begin(rows)
	}
}

// Array is array a of the layout.
func (b *Batch) Array(a int) *item.Array { return &b.l.Arrays[a] }

// Row returns row i of array a.
func (b *Batch) Row(a, i int) []byte { return b.l.rows(b.slot, a, i, i+1) }

// Span returns rows [lo, hi) of array a.
func (b *Batch) Span(a, lo, hi int) []byte { return b.l.rows(b.slot, a, lo, hi) }

// PutInt writes a number into row i of an int64 array a.
func (b *Batch) PutInt(a, i int, v int64) {
	binary.LittleEndian.PutUint64(b.slot[b.l.Arrays[a].Offset+int64(i)*8:], uint64(v))
}

// Place returns the position in the slot for a value of n bytes in row i of array a, and false if there is no place of
// that size.
func (b *Batch) Place(a, i int, n int64) (at int64, ok bool) {
	arr := &b.l.Arrays[a]
	if b.l.of[a] >= 0 {
		if n > b.l.ragged[b.l.of[a]].maxRow {
			return 0, false
		}
		at, ok = b.spans[b.l.of[a]].place(i, n, arr.Capacity)
		return arr.Offset + at, ok
	}
	return arr.Offset + int64(i)*arr.RowBytes, n == arr.RowBytes
}

// gatherFrom is the size from which a copy that bypasses the caches is worth a call into C.
const gatherFrom = 4 << 10

// Copy copies v to dst, a row of the batch, unless it is already there.
func (b *Batch) Copy(dst, v []byte) {
	switch {
	case len(v) == 0 || SameStart(v, dst):
	case len(v) >= gatherFrom:
		src := [1][]byte{v}
		cdec.Gather(dst, src[:], len(v))
	default:
		copy(dst, v)
	}
}

// Gather copies values of the size of a row into rows first, first+1, ... of array a, which has a fixed shape.
func (b *Batch) Gather(a, first int, values [][]byte) {
	dst, n := b.Span(a, first, first+len(values)), int(b.l.Arrays[a].RowBytes)
	if b.Near {
		cdec.GatherNear(dst, values, n)
	} else {
		cdec.Gather(dst, values, n)
	}
}

// SameStart reports whether two slices begin at the same byte. That is so if a value was read straight into its
// position.
func SameStart(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }
