package stoker

import (
	"encoding/binary"
	"sync/atomic"
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
	// DType is "uint8", "float16", "bfloat16", "float32" or "int64".
	DType string
	// Shape is the shape of one row.
	Shape []int
	// Bytes are the rows that are in use.
	Bytes []byte
}

// Arrays returns all arrays: outputs, labels and numbers, and "index".
func (b *Batch) Arrays() []Array {
	info := b.l.p.Info()
	out := make([]Array, len(info.Arrays))
	for i, a := range info.Arrays {
		out[i] = Array{a.Name, a.DType.String(), a.Shape, b.rows(a.Offset, a.RowBytes)}
	}
	return out
}

func (b *Batch) rows(offset, rowBytes int64) []byte {
	if b.released.Load() {
		return nil
	}
	return b.mem[offset : offset+int64(b.Rows)*rowBytes]
}

// Bytes returns the rows of an array, nil when there is none of that name.
func (b *Batch) Bytes(name string) []byte {
	for _, a := range b.l.p.Info().Arrays {
		if a.Name == name {
			return b.rows(a.Offset, a.RowBytes)
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
