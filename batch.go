package stoker

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/stokerdata/stoker/internal/item"
)

// Batch is a finished batch. Its memory belongs to the loader's ring: it is
// valid until Release or Loader.Close.
type Batch struct {
	// Rows is the number of records. It is less than the batch size, or even 0
	// when there are more ranks than records left, only in the last batch of an
	// epoch.
	Rows int
	// Epoch and Step say which batch of which epoch this is.
	Epoch, Step int64

	l        *Loader
	slot     int
	mem      []byte
	released atomic.Bool
}

// Array is one array of a batch: Rows x Shape elements, little-endian.
type Array struct {
	Name string
	// DType is the element type under NumPy's name, such as "uint8", or
	// "bfloat16".
	DType string
	// Shape is the shape of one row.
	Shape []int
	// Bytes are the rows that are in use.
	Bytes []byte
	// Offsets is nil unless the array is ragged. Then it has Rows+1 elements, and
	// value i is Bytes[Offsets[i]:Offsets[i+1]].
	Offsets []int64
}

// Arrays returns all arrays: outputs, labels and numbers, and "index".
func (b *Batch) Arrays() []Array {
	info := b.l.p.Info()
	out := make([]Array, len(info.Arrays))
	for i, a := range info.Arrays {
		out[i] = Array{a.Name, a.DType.String(), a.Shape, b.bytes(&a), b.offsets(&a)}
	}
	return out
}

// bytes are the rows of an array, or the values of a ragged one.
func (b *Batch) bytes(a *item.Array) []byte {
	if !a.Ragged {
		return b.rows(a.Offset, a.RowBytes)
	}
	if o := b.offsets(a); o != nil {
		return b.mem[a.Offset : a.Offset+o[b.Rows]]
	}
	return nil
}

func (b *Batch) offsets(a *item.Array) []int64 {
	if !a.Ragged || b.released.Load() {
		return nil
	}
	out := make([]int64, b.Rows+1)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(b.mem[a.Offsets+8*int64(i):]))
	}
	return out
}

func (b *Batch) rows(offset, rowBytes int64) []byte {
	if b.released.Load() {
		return nil
	}
	return b.mem[offset : offset+int64(b.Rows)*rowBytes]
}

// Bytes returns the rows of an array, all values of a ragged one, nil when
// there is none of that name.
func (b *Batch) Bytes(name string) []byte {
	for _, a := range b.l.p.Info().Arrays {
		if a.Name == name {
			return b.bytes(&a)
		}
	}
	return nil
}

// Ints returns a copy of an int64 array, such as "label" or "index"; nil when
// there is none of that name.
func (b *Batch) Ints(name string) []int64 {
	raw := b.Bytes(name)
	if raw == nil {
		return nil
	}
	out := make([]int64, 0, b.Rows)
	for ; len(raw) >= 8 && len(out) < b.Rows; raw = raw[8:] {
		out = append(out, int64(binary.LittleEndian.Uint64(raw)))
	}
	return out
}

// Release gives the batch's memory back for another one. It may be called
// again.
func (b *Batch) Release() {
	if !b.released.Swap(true) {
		b.mem = nil
		b.l.p.Release(b.slot)
	}
}
