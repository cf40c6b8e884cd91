package arrowsource

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/store"
)

// part has the positions of a column's values in a record batch.
type part struct {
	// valid has a bit for each row with a value. It is nil if all rows have one.
	valid []byte
	// offsets count values, one more than rows. It is nil if each row has one value.
	offsets []byte
	wide    bool
	// values is the offset of value 0 in the file, or for booleans of the byte of row 0. With nested lists, value 0
	// may be an unused one before the buffer.
	values int64
	// elems has a bit for each number that is not null. It is nil if none is null. Number 0 of value 0 is bit
	// first.
	elems []byte
	first int64
	// packed is the compressed buffer of the values. Values and offsets are then relative to its decompressed
	// start.
	packed *packed
	// paths has the positions of the paths of files, for rows whose bytes are not in the table.
	paths *part
}

// at returns offset i.
func (p *part) at(i int64) int64 {
	switch {
	case p.offsets == nil:
		return i
	case p.wide:
		return int64(binary.LittleEndian.Uint64(p.offsets[8*i:]))
	}
	return int64(binary.LittleEndian.Uint32(p.offsets[4*i:]))
}

// indexer reads the parts of a record batch that are needed to locate its rows: validity bits and offsets.
type indexer struct {
	o    store.Object
	body int64 // offset of the body of the batch
	size int64
	b    *batch
	left int64 // bytes that may still be read, since buffers do not overlap
}

// buffer reads the first size bytes of a buffer.
func (x *indexer) buffer(ctx context.Context, n int, size int64) ([]byte, error) {
	at, p, err := x.span(ctx, n)
	if err != nil {
		return nil, err
	}
	if at.size < size {
		return nil, damaged("a buffer has %d bytes, expected %d", at.size, size)
	}
	if p != nil {
		if x.left -= p.size; x.left < 0 {
			return nil, damaged("its buffers overlap")
		}
		out, err := p.load(ctx, x.o)
		if err != nil {
			return nil, err
		}
		return out[:size], nil
	}
	if x.left -= size; x.left < 0 {
		return nil, damaged("its buffers overlap")
	}
	out := make([]byte, size)
	return out, x.o.ReadAt(ctx, out, at.off)
}

// bits reads the validity bits of a node. It returns nil if all values are valid.
func (x *indexer) bits(ctx context.Context, n *columns.Node) ([]byte, error) {
	if x.b.nodes[n.At].nulls == 0 {
		return nil, nil
	}
	return x.buffer(ctx, n.Buffer, (x.b.nodes[n.At].rows+7)/8)
}

// data returns the position of the values of a node, in the file or in a compressed buffer. size is the size of a
// value in bytes, or bits if greater than 0 its size in bits.
func (x *indexer) data(ctx context.Context, n *columns.Node, values, size, bits int64) (int64, *packed, error) {
	need := (values*bits + 7) / 8
	if bits == 0 {
		if size > 0 && values > math.MaxInt64/size {
			return 0, nil, damaged("%d values of %d bytes", values, size)
		}
		need = values * size
	}
	at, p, err := x.span(ctx, n.Buffer+1)
	switch {
	case err != nil:
		return 0, nil, err
	case at.size < need:
		return 0, nil, damaged("%d bytes for %d values", at.size, values)
	case p != nil:
		return 0, p, nil
	}
	return at.off, nil, nil
}

// offsets reads the offsets of a list, text or bytes with count values. The offsets need not use all of them.
func (x *indexer) offsets(ctx context.Context, n *columns.Node, count int64) ([]byte, error) {
	width := int64(4)
	if n.Wide {
		width = 8
	}
	rows := x.b.nodes[n.At].rows
	out, err := x.buffer(ctx, n.Buffer+1, width*(rows+1))
	if err != nil {
		return nil, err
	}
	if rows > math.MaxInt32*256 {
		return nil, damaged("%d rows", rows)
	}
	return out, arrowipc.CheckOffsets(out, width, int(rows), count)
}

// strings reads the positions of text or bytes.
func (x *indexer) strings(ctx context.Context, n *columns.Node, p *part) error {
	at, packed, err := x.span(ctx, n.Buffer+2)
	if err != nil {
		return err
	}
	p.wide, p.packed = n.Wide, packed
	if p.packed == nil {
		p.values = at.off
	}
	p.offsets, err = x.offsets(ctx, n, at.size)
	return err
}

// column reads the index of a column and adds its values to u.
func (x *indexer) column(ctx context.Context, c *columns.Column, u *column.Seen) (*part, error) {
	rows := x.b.rows
	p := &part{}
	for _, n := range append(append([]*columns.Node{}, c.Around...), c.Value) {
		if x.b.nodes[n.At].rows != rows {
			return nil, damaged("%d values for %d rows", x.b.nodes[n.At].rows, rows)
		}
		bits, err := x.bits(ctx, n)
		switch {
		case err != nil:
			return nil, err
		case p.valid == nil:
			p.valid = bits
		case bits != nil:
			for i := range p.valid {
				p.valid[i] &= bits[i]
			}
		}
	}
	var err error
	switch {
	case c.Elem == nil:
		if err = x.strings(ctx, c.Value, p); err != nil {
			return nil, err
		}
	case c.Elem.Class == columns.Boolean:
		if p.values, p.packed, err = x.data(ctx, c.Elem, rows, 0, 1); err != nil {
			return nil, err
		}
	default:
		if err := x.lists(ctx, c, p, u); err != nil {
			return nil, err
		}
	}
	unit := c.Row(u)
	for i := range rows {
		switch n := p.at(i+1) - p.at(i); {
		case !columns.Bit(p.valid, i):
			u.Count[column.Missing]++
		case c.Elem == nil:
			u.Size.Add(n)
		case len(c.Levels) > 0:
			u.Rows(column.List, n, n*unit)
		}
	}
	if c.Paths != nil && u.Count[column.Missing] > 0 {
		p.paths = &part{}
		if x.b.nodes[c.Paths.At].rows != rows {
			return nil, damaged("%d paths for %d rows", x.b.nodes[c.Paths.At].rows, rows)
		}
		if p.paths.valid, err = x.bits(ctx, c.Paths); err != nil {
			return nil, err
		}
		if err = x.strings(ctx, c.Paths, p.paths); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// lists reads the index of a column of numbers, in lists or not. Nested lists must have equal lengths, so that
// their offsets are not needed later.
func (x *indexer) lists(ctx context.Context, c *columns.Column, p *part, u *column.Seen) error {
	// Outermost list i begins with value mul*i + base of the current level.
	base, mul := int64(0), int64(1)
	lo, hi := int64(0), x.b.rows // the values in use
	for k, n := range c.Levels {
		count := x.b.nodes[n.Children[0].At].rows
		offsets, err := x.offsets(ctx, n, count)
		if err != nil {
			return err
		}
		in := part{offsets: offsets, wide: n.Wide}
		if k == 0 {
			p.offsets, p.wide = offsets, n.Wide
			lo, hi = in.at(0), in.at(x.b.rows)
			continue
		}
		if hi > x.b.nodes[n.At].rows {
			return damaged("lists of %d rows, of which %d exist", hi, x.b.nodes[n.At].rows)
		}
		if x.b.nodes[n.At].nulls > 0 {
			u.Uneven = true
		}
		if lo == hi {
			continue
		}
		side := in.at(lo+1) - in.at(lo)
		for i := lo; i < hi; i++ {
			if in.at(i+1)-in.at(i) != side {
				u.Uneven = true
				return nil
			}
		}
		u.Side(k-1, side)
		if side == 0 {
			u.Uneven = true
			return nil
		}
		base = in.at(lo) + (base-lo)*side
		mul *= side
		lo, hi = in.at(lo), in.at(hi)
	}
	inner := c.Elem
	count := x.b.nodes[inner.At].rows
	n := int64(1)
	for _, side := range c.Fixed {
		n *= int64(side)
	}
	if hi > math.MaxInt64/n || hi*n > count {
		return damaged("%d numbers, expected %d", count, hi)
	}
	at, packed, err := x.data(ctx, inner, count, int64(inner.DType.Size()), 0)
	if err != nil {
		return err
	}
	size := int64(inner.DType.Size())
	p.values, p.packed, p.first = at+base*n*size, packed, base*n
	if len(c.Levels)+len(c.Fixed) == 0 {
		return nil // the bits of the rows suffice
	}
	// Inner fixed-size lists must not be null.
	skip := c.Value
	for f := fixedNode(c); f != nil && f.Class == columns.FixedList; f = f.Children[0] {
		if f != skip && x.b.nodes[f.At].nulls > 0 {
			return fmt.Errorf("lists within its lists have no value, which is not read")
		}
	}
	p.elems, err = x.bits(ctx, inner)
	return err
}

// fixedNode returns the outermost fixedList, or nil if there is none.
func fixedNode(c *columns.Column) *columns.Node {
	n := c.Value
	for n.Class == columns.List {
		n = n.Children[0]
	}
	if n.Class == columns.FixedList {
		return n
	}
	return nil
}
