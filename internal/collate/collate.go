// Package collate defines the layout of a batch in its slot and the position of each row. The slot has one contiguous
// array per output and field, each starting at a multiple of 64 bytes. Rows of any length are stored as offsets and
// values.
package collate

import (
	"fmt"
	"math"
	"slices"

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

	ragged []raggedArray
	// of is the index of an array in ragged, -1 for arrays of fixed shape.
	of []int
}

// Column describes an array to be placed.
type Column struct {
	// Name and Kind are the array's name and kind.
	Name, Kind string
	// Format is the format of boxes.
	Format string
	// Boxes is the column of the boxes that rows belong to, "" for none.
	Boxes string
	DType item.DType
	// Shape is the shape of one row. A row of a ragged column has an additional first axis of any length.
	Shape []int
	// The rows of a Ragged column have at most MaxRow bytes each, and Capacity
	// together.
	Ragged           bool
	MaxRow, Capacity int64
	// Pad, of a Ragged column, fills rows up to one length.
	Pad *Pad

	// Of columns that padding adds: the padded one, and whether this is its mask.
	of   string
	mask bool
}

// MaxBatch is the largest batch, in bytes.
const MaxBatch = 1 << 40

// New places the columns one after another. Names must differ.
func New(rows int, cols []Column) (*Layout, error) {
	l := &Layout{Rows: rows}
	seen := map[string]bool{}
	for _, c := range padded(cols) {
		if c.Name == "" || len(c.Name) > 255 {
			return nil, fmt.Errorf("the name of an array must have 1 to 255 bytes, not %d", len(c.Name))
		}
		if seen[c.Name] {
			return nil, fmt.Errorf("two arrays of the batch are called %q", c.Name)
		}
		seen[c.Name] = true
		a := item.Array{Name: c.Name, Kind: c.Kind, Format: c.Format, Boxes: c.Boxes, DType: c.DType, Shape: append([]int{}, c.Shape...), Ragged: c.Ragged}
		element := int64(c.DType.Size())
		for _, n := range c.Shape {
			if n < 1 || element > math.MaxInt32/int64(n) {
				return nil, fmt.Errorf("array %q: a row of shape %v is out of range", c.Name, c.Shape)
			}
			element *= int64(n)
		}
		of := -1
		if c.Ragged {
			if c.Capacity < 0 || c.Capacity > MaxBatch || c.MaxRow < 0 || c.MaxRow > MaxBatch {
				return nil, fmt.Errorf("array %q: values of up to %d bytes in a batch are out of range", c.Name, c.Capacity)
			}
			of = len(l.ragged)
			r := raggedArray{array: len(l.Arrays), maxRow: c.MaxRow, element: element}
			a.Capacity, a.Offsets = c.Capacity, l.Bytes
			offsets := int64(rows + 1)
			if c.Pad != nil {
				offsets++ // the length of the batch's rows
			}
			l.Bytes += aligned(8 * offsets)
			if c.Pad != nil {
				var err error
				if r.pad, err = newPadding(&c, element); err != nil {
					return nil, err
				}
				a.Ragged, a.Padded, a.LengthAt = false, true, a.Offsets+8*int64(rows+1)
				r.maxRow = min(r.maxRow, r.pad.most(r.maxRow))
				most := r.pad.most(r.maxRow)
				if r.pad.Most == 0 && most > MaxBatch/int64(rows) {
					return nil, fmt.Errorf("array %q: rows that are filled up to %d bytes in batches of %d do not fit a batch of a terabyte; give pad a length, with truncate", c.Name, most, rows)
				}
				if a.Capacity = int64(rows) * most; r.pad.Most > 0 {
					a.Capacity = min(int64(rows)*min(most, MaxBatch/int64(rows)), r.pad.Most*element)
				}
			}
			l.ragged = append(l.ragged, r)
		} else if c.of != "" {
			a.Of = c.of
			base := l.find(c.of)
			pad := l.ragged[l.of[base]].pad
			if c.mask {
				pad.mask = len(l.Arrays)
				base := &l.Arrays[base]
				a.Padded, a.LengthAt, a.Capacity = true, base.LengthAt, base.Capacity/base.ElementBytes()
			} else {
				pad.lengths = len(l.Arrays)
				a.RowBytes = element
			}
		} else {
			a.RowBytes = element
		}
		a.Offset = l.Bytes
		l.Bytes += aligned(a.Capacity + a.RowBytes*int64(rows))
		l.Arrays, l.of = append(l.Arrays, a), append(l.of, of)
		if l.Bytes > MaxBatch {
			return nil, fmt.Errorf("a batch of %d rows is larger than a terabyte", rows)
		}
	}
	return l, nil
}

// find returns the index of the array with a name.
func (l *Layout) find(name string) int {
	return slices.IndexFunc(l.Arrays, func(a item.Array) bool { return a.Name == name })
}

func aligned(n int64) int64 { return (n + Align - 1) / Align * Align }

// rows returns rows [lo, hi) of array a, one of fixed shape, in a slot.
func (l *Layout) rows(slot []byte, a, lo, hi int) []byte {
	arr := &l.Arrays[a]
	from, to := arr.Offset+int64(lo)*arr.RowBytes, arr.Offset+int64(hi)*arr.RowBytes
	return slot[from:to:to]
}

// values returns the memory for the values of the ragged array a in a slot.
func (l *Layout) values(slot []byte, a int) []byte {
	arr := &l.Arrays[a]
	return slot[arr.Offset : arr.Offset+arr.Capacity : arr.Offset+arr.Capacity]
}
