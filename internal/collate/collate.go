// Package collate owns the layout of a batch in its slot: one contiguous array
// per output and field, each beginning at a multiple of 64 bytes, and where a
// row of an array lies. Values of any length are offsets and values.
package collate

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/item"
)

// Align is the alignment of arrays in a slot.
const Align = 64

// Layout places arrays for batches of a number of rows.
type Layout struct {
	Rows   int
	Arrays []item.Array
	// Bytes is the used part of a slot.
	Bytes int64
}

// Column describes an array to be placed.
type Column struct {
	Name  string
	DType item.DType
	Shape []int
	// Ragged columns have values of any length, together at most Capacity bytes.
	Ragged   bool
	Capacity int64
}

// MaxBatch is the largest batch, in bytes.
const MaxBatch = 1 << 40

// New places the columns one after the other. Names must differ.
func New(rows int, cols []Column) (*Layout, error) {
	l := &Layout{Rows: rows}
	seen := map[string]bool{}
	for _, c := range cols {
		if c.Name == "" || len(c.Name) > 255 {
			return nil, fmt.Errorf("the name of an array must have 1 to 255 bytes, not %d", len(c.Name))
		}
		if seen[c.Name] {
			return nil, fmt.Errorf("two arrays of the batch are called %q", c.Name)
		}
		seen[c.Name] = true
		if c.Ragged {
			if c.Capacity < 0 || c.Capacity > MaxBatch {
				return nil, fmt.Errorf("array %q: values of up to %d bytes in a batch are out of range", c.Name, c.Capacity)
			}
			offsets := l.Bytes
			l.Bytes += aligned(8 * int64(rows+1))
			l.Arrays = append(l.Arrays, item.Array{
				Name: c.Name, DType: c.DType, Shape: []int{}, Offset: l.Bytes, Ragged: true, Offsets: offsets, Capacity: c.Capacity,
			})
			l.Bytes += aligned(c.Capacity)
			if l.Bytes > MaxBatch {
				return nil, fmt.Errorf("a batch of %d rows is larger than a terabyte", rows)
			}
			continue
		}
		row := int64(c.DType.Size())
		for _, n := range c.Shape {
			if n < 1 || row > math.MaxInt32/int64(n) {
				return nil, fmt.Errorf("array %q: a row of shape %v is out of range", c.Name, c.Shape)
			}
			row *= int64(n)
		}
		l.Arrays = append(l.Arrays, item.Array{
			Name: c.Name, DType: c.DType, Shape: append([]int{}, c.Shape...), Offset: l.Bytes, RowBytes: row,
		})
		l.Bytes += aligned(row * int64(rows))
		if l.Bytes > MaxBatch {
			return nil, fmt.Errorf("a batch of %d rows is larger than a terabyte", rows)
		}
	}
	return l, nil
}

func aligned(n int64) int64 { return (n + Align - 1) / Align * Align }

// Row returns row i of array a in a slot.
func (l *Layout) Row(slot []byte, a, i int) []byte {
	arr := &l.Arrays[a]
	lo := arr.Offset + int64(i)*arr.RowBytes
	return slot[lo : lo+arr.RowBytes : lo+arr.RowBytes]
}

// Span returns rows [lo, hi) of array a in a slot.
func (l *Layout) Span(slot []byte, a, lo, hi int) []byte {
	arr := &l.Arrays[a]
	from, to := arr.Offset+int64(lo)*arr.RowBytes, arr.Offset+int64(hi)*arr.RowBytes
	return slot[from:to:to]
}

// PutInt writes a number into row i of an int64 array a.
func (l *Layout) PutInt(slot []byte, a, i int, v int64) {
	binary.LittleEndian.PutUint64(slot[l.Arrays[a].Offset+int64(i)*8:], uint64(v))
}

// Values returns the memory for the values of the ragged array a in a slot.
func (l *Layout) Values(slot []byte, a int) []byte {
	arr := &l.Arrays[a]
	return slot[arr.Offset : arr.Offset+arr.Capacity : arr.Offset+arr.Capacity]
}

// PutOffset writes offset i of the ragged array a: where value i begins and the
// one before it ends.
func (l *Layout) PutOffset(slot []byte, a, i int, v int64) {
	binary.LittleEndian.PutUint64(slot[l.Arrays[a].Offsets+int64(i)*8:], uint64(v))
}

// ClearTail zeroes the rows from rows on, so that a short last batch shows
// nothing of an older one. Ragged arrays are told apart by their offsets.
func (l *Layout) ClearTail(slot []byte, rows int) {
	for a := range l.Arrays {
		clear(l.Span(slot, a, rows, l.Rows))
	}
}
