package collate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/item"
)

// This file pads rows of different lengths to one length. Rows are first stored one after another, as ragged rows. When
// all are there, the length is known, and the rows are moved apart in the same memory, the last one first.

// Pad describes how rows of any length become an array with rows of one length.
type Pad struct {
	// Value is the padding value.
	Value float64 `json:"value"`
	// Length is the length of all rows. 0 means that of the longest row of the batch, rounded up to a multiple of
	// Multiple.
	Length   int64 `json:"length"`
	Multiple int64 `json:"multiple"`
	// Truncate cuts rows that are longer than Length; otherwise they are errors.
	Truncate bool `json:"truncate"`
	// Mask adds an array that marks the elements that are not padding.
	Mask bool `json:"mask"`
	// Most is the limit of rows x length of a batch, 0 if it is not known.
	Most int64 `json:"-"`
}

// The suffixes of the arrays with the lengths of a padded array's rows and with their mask.
const (
	LengthSuffix = "_length"
	MaskSuffix   = "_mask"
)

// maxLength bounds lengths so that no arithmetic overflows.
const maxLength = 1 << 40

// Check refuses settings that are invalid for any column.
func (p *Pad) Check() error {
	switch {
	case p.Length < 0 || p.Length > maxLength:
		return fmt.Errorf("a length of %d is out of range", p.Length)
	case p.Multiple < 0 || p.Multiple > maxLength:
		return fmt.Errorf("a multiple of %d is out of range", p.Multiple)
	case p.Length > 0 && p.Multiple > 1:
		return fmt.Errorf("length is %d and multiple is %d: only one of them can be had", p.Length, p.Multiple)
	case p.Truncate && p.Length == 0:
		return fmt.Errorf("truncate cuts rows to a length, and there is none")
	}
	return nil
}

// MaxRow returns the size limit of a row: most, or Length elements if rows are truncated and that is less.
func (p *Pad) MaxRow(most, element int64) int64 {
	if p.Truncate {
		return min(most, p.Length*element)
	}
	return most
}

// padding is a Pad of a column.
type padding struct {
	Pad
	fill          []byte // one number
	element       int64
	lengths, mask int // the arrays, -1 for none
}

func newPadding(c *Column, element int64) (*padding, error) {
	if err := c.Pad.Check(); err != nil {
		return nil, fmt.Errorf("array %q: pad: %w", c.Name, err)
	}
	p := &padding{Pad: *c.Pad, element: element, lengths: -1, mask: -1}
	p.Multiple = max(p.Multiple, 1)
	fits := c.DType.Floating()
	if !fits {
		p.fill = c.DType.Append(nil, p.Value)
		fits = p.Value == math.Trunc(p.Value) && math.Abs(p.Value) < 1<<63 && c.DType.Float(p.fill) == p.Value
		if c.DType == dtype.Bool {
			fits = p.Value == 0 || p.Value == 1
		}
	}
	if !fits {
		return nil, fmt.Errorf("array %q: pad: the value %g does not fit elements of %s", c.Name, p.Value, c.DType)
	}
	if p.fill == nil {
		p.fill = c.DType.Append(nil, p.Value)
	}
	return p, nil
}

// most is the largest row that rows of up to maxRow bytes are filled up to.
func (p *padding) most(maxRow int64) int64 { return p.length(maxRow/p.element) * p.element }

// length returns the padded length of rows with the given longest row.
func (p *padding) length(longest int64) int64 {
	if p.Length > 0 {
		return p.Length
	}
	return (longest + p.Multiple - 1) / p.Multiple * p.Multiple
}

// cut truncates a value to the length of rows.
func (p *padding) cut(arr *item.Array, element int64, v []byte) ([]byte, error) {
	n := int64(len(v)) / element
	switch {
	case p.Length == 0 || n <= p.Length:
		return v, nil
	case p.Truncate:
		return v[:p.Length*element], nil
	}
	return v, fmt.Errorf("%q has %d elements, more than the length of %d that its rows are filled up to; truncate cuts such rows", arr.Name, n, p.Length)
}

// padded adds the columns with the lengths of padded rows.
func padded(cols []Column) []Column {
	for _, c := range cols[:len(cols):len(cols)] {
		if !c.Ragged || c.Pad == nil {
			continue
		}
		cols = append(cols[:len(cols):len(cols)], Column{Name: c.Name + LengthSuffix, DType: item.I64, of: c.Name})
		if c.Pad.Mask {
			cols = append(cols, Column{Name: c.Name + MaskSuffix, DType: item.Bool, of: c.Name, mask: true})
		}
	}
	return cols
}

// fillUp moves the adjacent rows of a ragged array apart and pads them.
func (b *Batch) fillUp(r *raggedArray, at, size []int64) {
	p, arr := r.pad, &b.l.Arrays[r.array]
	longest := int64(0)
	for _, n := range size {
		longest = max(longest, n/r.element)
	}
	length := p.length(longest)
	binary.LittleEndian.PutUint64(b.slot[arr.LengthAt:], uint64(length))
	row := length * r.element
	values := b.l.values(b.slot, r.array)
	same := bytes.Count(p.fill, p.fill[:1]) == len(p.fill)
	for k := len(size) - 1; k >= 0; k-- {
		to := values[int64(k)*row : int64(k+1)*row]
		n := size[k]
		if n > 0 {
			copy(to[:n], values[at[k]:at[k]+n])
		}
		fill(to[n:], p.fill, same)
	}
	if p.lengths >= 0 {
		for k, n := range size {
			b.PutInt(p.lengths, k, n/r.element)
		}
	}
	if p.mask >= 0 {
		at := b.l.Arrays[p.mask].Offset
		for k, n := range size {
			m := b.slot[at+int64(k)*length : at+int64(k+1)*length]
			fill(m[:n/r.element], []byte{1}, true)
			clear(m[n/r.element:])
		}
	}
}

// fill fills b with a number.
func fill(b, number []byte, same bool) {
	if same && number[0] == 0 {
		clear(b)
		return
	}
	for n := copy(b, number); n > 0 && n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
