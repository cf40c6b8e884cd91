package stoker

import (
	"encoding/binary"
	"math"
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
	// Repeated is the number of records, at the end, that already occurred in the epoch. It is 0 unless
	// Ranks.Uneven is UnevenPad.
	Repeated int
	// Epoch and Step are the epoch of this batch and its number in the epoch.
	Epoch, Step int64

	l        *Loader
	slot     int
	mem      []byte
	released atomic.Bool
}

// Array is one array of a batch: Rows x Shape elements, little-endian.
type Array struct {
	Name string
	// Kind is the kind of the original field, such as "image" or "text"; "" for arrays that the engine adds.
	Kind string
	// DType is the element type under NumPy's name, such as "uint8", or
	// "bfloat16".
	DType string
	// Shape is the shape of one row. Rows of a ragged array have an additional first axis, whose length varies.
	Shape []int
	// Bytes are the rows that are in use.
	Bytes []byte
	// Offsets is nil unless the array is ragged. Then it has Rows+1 elements: row i begins at position Offsets[i] of
	// the first axis and ends at Offsets[i+1].
	Offsets []int64

	rowBytes int64 // or of one position of a ragged array's first axis
}

// Row returns the bytes of row i. The array must come from a batch that was not
// released.
func (a *Array) Row(i int) []byte {
	lo, hi := int64(i), int64(i)+1
	if a.Offsets != nil {
		lo, hi = a.Offsets[i], a.Offsets[i+1]
	}
	return a.Bytes[lo*a.rowBytes : hi*a.rowBytes : hi*a.rowBytes]
}

// Arrays returns all arrays: outputs, other fields as stored, numbers, and "index".
func (b *Batch) Arrays() []Array {
	info := b.l.p.Info()
	out := make([]Array, len(info.Arrays))
	for i := range info.Arrays {
		out[i] = b.array(&info.Arrays[i])
	}
	return out
}

// Array returns the array of a name, and false when there is none.
func (b *Batch) Array(name string) (Array, bool) {
	for i, arrays := 0, b.l.p.Info().Arrays; i < len(arrays); i++ {
		if arrays[i].Name == name {
			return b.array(&arrays[i]), true
		}
	}
	return Array{}, false
}

func (b *Batch) array(a *item.Array) Array {
	out := Array{Name: a.Name, Kind: a.Kind, DType: a.DType.String(), Shape: a.Shape, rowBytes: a.ElementBytes()}
	if b.released.Load() {
		return out
	}
	rows := int64(b.Rows)
	if a.Padded {
		length := int64(binary.LittleEndian.Uint64(b.mem[a.LengthAt:]))
		out.Shape = append([]int{int(length)}, a.Shape...)
		out.rowBytes *= length
	}
	if a.Ragged {
		out.Offsets = make([]int64, rows+1)
		for i := range out.Offsets {
			out.Offsets[i] = int64(binary.LittleEndian.Uint64(b.mem[a.Offsets+8*int64(i):]))
		}
		rows = out.Offsets[b.Rows]
	}
	out.Bytes = b.mem[a.Offset : a.Offset+rows*out.rowBytes]
	return out
}

// Bytes returns the rows of an array, or nil if there is no array of that name. The rows of a ragged array follow
// each other without gaps.
func (b *Batch) Bytes(name string) []byte {
	a, _ := b.Array(name)
	return a.Bytes
}

// Ints returns a copy of all elements of an int64 array, such as "label" or
// "index"; nil when there is none of that name.
func (b *Batch) Ints(name string) []int64 {
	return numbers(b, name, item.I64, func(v uint64) int64 { return int64(v) })
}

// Floats returns a copy of all elements of a float64 array; nil when there is
// none of that name.
func (b *Batch) Floats(name string) []float64 {
	return numbers(b, name, item.F64, math.Float64frombits)
}

func numbers[T any](b *Batch, name string, dtype item.DType, number func(uint64) T) []T {
	a, _ := b.Array(name)
	if a.DType != dtype.String() || a.Bytes == nil {
		return nil
	}
	out := make([]T, 0, len(a.Bytes)/8)
	for raw := a.Bytes; len(raw) >= 8; raw = raw[8:] {
		out = append(out, number(binary.LittleEndian.Uint64(raw)))
	}
	return out
}

// Strings returns copies of the rows of a ragged array of bytes, such as texts;
// nil when there is none of that name.
func (b *Batch) Strings(name string) []string {
	a, _ := b.Array(name)
	if a.Offsets == nil || a.rowBytes != 1 {
		return nil
	}
	out := make([]string, b.Rows)
	for i := range out {
		out[i] = string(a.Row(i))
	}
	return out
}

// Release releases the batch's memory for another batch. It may be called repeatedly.
func (b *Batch) Release() {
	if !b.released.Swap(true) {
		b.mem = nil
		b.l.p.Release(b.slot)
	}
}
