package arrowsource

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// part is where the values of a column lie in a record batch.
type part struct {
	// valid has a bit for each row that has a value, nil when all have one.
	valid []byte
	// offsets count values, one more than there are rows; nil when each row has one.
	offsets []byte
	wide    bool
	// values is where value 0 lies in the file, of a truth value the byte of row 0.
	// Where lists lie in lists, value 0 may be one that is not used, in front of the
	// buffer.
	values int64
	// elems has a bit for each number that is one, nil when all are. Number 0 of
	// value 0 is bit first.
	elems []byte
	first int64
	// paths says where the paths of files lie whose bytes may be elsewhere.
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

func bit(b []byte, i int64) bool { return b == nil || b[i>>3]>>(i&7)&1 != 0 }

// uniform is what is seen of the values of a column in all record batches.
type uniform struct {
	missing int64
	sizes   sizes
	// least and most are the elements of the outermost lists, sides those of the
	// lists in them, -1 where there are none.
	least, most int64
	sides       []int64
	uneven      bool
	mask        driver.DType
}

func newUniform(c *column) *uniform {
	u := &uniform{least: math.MaxInt64, mask: driver.Uint8}
	for i := 1; i < len(c.levels); i++ {
		u.sides = append(u.sides, -1)
	}
	return u
}

func (u *uniform) merge(o *uniform) {
	u.missing += o.missing
	u.sizes.merge(&o.sizes)
	u.least, u.most = min(u.least, o.least), max(u.most, o.most)
	u.uneven = u.uneven || o.uneven
	for i, n := range o.sides {
		u.side(i, n)
	}
}

// side takes note of lists with n elements, n < 0 of none.
func (u *uniform) side(i int, n int64) {
	switch {
	case n < 0:
	case u.sides[i] < 0:
		u.sides[i] = n
	case u.sides[i] != n:
		u.uneven = true
	}
}

// sizes counts values by their size.
type sizes struct {
	count, bytes, least, most int64
	by                        map[int64]int64
	bound, upto, run          int64 // sizes from bound to upto that by does not have yet
}

func (s *sizes) add(n int64) {
	if s.count == 0 {
		s.least = n
	}
	s.count++
	s.bytes += n
	s.least, s.most = min(s.least, n), max(s.most, n)
	if n < s.bound || n >= s.upto || s.run == 0 {
		s.flush()
		s.bound = driver.SizeBound(n)
		s.upto = n + 1
	}
	s.run++
}

func (s *sizes) flush() {
	if s.run > 0 {
		if s.by == nil {
			s.by = map[int64]int64{}
		}
		s.by[s.bound] += s.run
	}
	s.run = 0
}

func (s *sizes) merge(o *sizes) {
	s.flush()
	o.flush()
	if o.count == 0 {
		return
	}
	if s.count == 0 {
		s.least, s.by = o.least, map[int64]int64{}
	}
	s.count += o.count
	s.bytes += o.bytes
	s.least, s.most = min(s.least, o.least), max(s.most, o.most)
	for k, n := range o.by {
		s.by[k] += n
	}
}

func (s *sizes) stats() *driver.FieldStats {
	s.flush()
	return &driver.FieldStats{Count: s.count, Bytes: s.bytes, MinBytes: s.least, MaxBytes: s.most, Sizes: s.by}
}

// indexer reads what has to be known of a record batch before its rows can be
// located: which of them have values, and offsets.
type indexer struct {
	o    store.Object
	body int64 // where the body of the batch begins
	size int64
	b    *batch
	left int64 // bytes that may still be read: no buffer is another one's, too
}

// buffer reads the first size bytes of a buffer.
func (x *indexer) buffer(ctx context.Context, n int, size int64) ([]byte, error) {
	at := x.b.buffers[n]
	if at.size < size {
		return nil, damaged("a buffer of %d bytes where %d are needed", at.size, size)
	}
	if x.left -= size; x.left < 0 {
		return nil, damaged("its buffers lie in each other")
	}
	out := make([]byte, size)
	return out, x.o.ReadAt(ctx, out, x.body+at.off)
}

// bits reads which values of a node are there, nil when all are.
func (x *indexer) bits(ctx context.Context, n *node) ([]byte, error) {
	if x.b.nodes[n.at].nulls == 0 {
		return nil, nil
	}
	return x.buffer(ctx, n.buffer, (x.b.nodes[n.at].rows+7)/8)
}

// data is where the values of a node with the given size of a value lie, in the
// file. bits > 0 is a size in bits.
func (x *indexer) data(n *node, values, size, bits int64) (int64, error) {
	need := (values*bits + 7) / 8
	if bits == 0 {
		if size > 0 && values > math.MaxInt64/size {
			return 0, damaged("%d values of %d bytes", values, size)
		}
		need = values * size
	}
	at := x.b.buffers[n.buffer+1]
	if n.class == text || n.class == binaries {
		at = x.b.buffers[n.buffer+2]
	}
	if at.size < need {
		return 0, damaged("%d bytes for %d values", at.size, values)
	}
	return x.body + at.off, nil
}

// offsets reads those of a list, text or bytes, whose values are count, of which
// it does not have to be all.
func (x *indexer) offsets(ctx context.Context, n *node, count int64) ([]byte, error) {
	width := int64(4)
	if n.wide {
		width = 8
	}
	rows := x.b.nodes[n.at].rows
	out, err := x.buffer(ctx, n.buffer+1, width*(rows+1))
	if err != nil {
		return nil, err
	}
	if rows > math.MaxInt32*256 {
		return nil, damaged("%d rows", rows)
	}
	return out, arrowipc.CheckOffsets(out, width, int(rows), count)
}

// column reads the index of a column, and counts its values in u.
func (x *indexer) column(ctx context.Context, c *column, u *uniform) (*part, error) {
	rows := x.b.rows
	p := &part{}
	for _, n := range append(append([]*node{}, c.around...), c.value) {
		if x.b.nodes[n.at].rows != rows {
			return nil, damaged("%d values for %d rows", x.b.nodes[n.at].rows, rows)
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
	case c.elem == nil:
		at := x.b.buffers[c.value.buffer+2]
		p.wide, p.values = c.value.wide, x.body+at.off
		if p.offsets, err = x.offsets(ctx, c.value, at.size); err != nil {
			return nil, err
		}
	case c.elem.class == boolean:
		if p.values, err = x.data(c.elem, rows, 0, 1); err != nil {
			return nil, err
		}
	default:
		if err := x.lists(ctx, c, p, u); err != nil {
			return nil, err
		}
	}
	unit := c.unit()
	for _, n := range u.sides {
		unit *= max(n, 1)
	}
	for i := range rows {
		if !bit(p.valid, i) {
			u.missing++
			u.sizes.add(0)
			continue
		}
		n := p.at(i+1) - p.at(i)
		u.least, u.most = min(u.least, n), max(u.most, n)
		u.sizes.add(n * unit)
	}
	if c.paths != nil && u.missing > 0 {
		p.paths = &part{wide: c.paths.wide, values: x.body + x.b.buffers[c.paths.buffer+2].off}
		if x.b.nodes[c.paths.at].rows != rows {
			return nil, damaged("%d paths for %d rows", x.b.nodes[c.paths.at].rows, rows)
		}
		if p.paths.valid, err = x.bits(ctx, c.paths); err != nil {
			return nil, err
		}
		if p.paths.offsets, err = x.offsets(ctx, c.paths, x.b.buffers[c.paths.buffer+2].size); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// lists reads the index of a column of numbers, in lists or not. Lists within lists
// have to be of one length: their offsets are then no longer needed.
func (x *indexer) lists(ctx context.Context, c *column, p *part, u *uniform) error {
	// Outermost list i begins with value mul*i + base of those of the level reached.
	base, mul := int64(0), int64(1)
	lo, hi := int64(0), x.b.rows // which of them are used
	for k, n := range c.levels {
		count := x.b.nodes[n.children[0].at].rows
		offsets, err := x.offsets(ctx, n, count)
		if err != nil {
			return err
		}
		in := part{offsets: offsets, wide: n.wide}
		if k == 0 {
			p.offsets, p.wide = offsets, n.wide
			lo, hi = in.at(0), in.at(x.b.rows)
			continue
		}
		if hi > x.b.nodes[n.at].rows {
			return damaged("lists of %d rows, %d are there", hi, x.b.nodes[n.at].rows)
		}
		if x.b.nodes[n.at].nulls > 0 {
			u.uneven = true
		}
		if lo == hi {
			continue
		}
		side := in.at(lo+1) - in.at(lo)
		for i := lo; i < hi; i++ {
			if in.at(i+1)-in.at(i) != side {
				u.uneven = true
				return nil
			}
		}
		u.side(k-1, side)
		if side == 0 {
			u.uneven = true
			return nil
		}
		base = in.at(lo) + (base-lo)*side
		mul *= side
		lo, hi = in.at(lo), in.at(hi)
	}
	inner := c.elem
	count := x.b.nodes[inner.at].rows
	n := int64(1)
	for _, side := range c.fixed {
		n *= int64(side)
	}
	if hi > math.MaxInt64/n || hi*n > count {
		return damaged("%d numbers where %d are needed", count, hi)
	}
	at, err := x.data(inner, count, int64(inner.dtype.Size()), 0)
	if err != nil {
		return err
	}
	size := int64(inner.dtype.Size())
	p.values, p.first = at+base*n*size, base*n
	if len(c.levels)+len(c.fixed) == 0 {
		return nil // its bits are those of the rows
	}
	// A fixedList that is no value itself has all of its elements.
	skip := c.value
	for f := c.fixedNode(); f != nil && f.class == fixedList; f = f.children[0] {
		if f != skip && x.b.nodes[f.at].nulls > 0 {
			return fmt.Errorf("lists within its lists have no value, which is not read")
		}
	}
	p.elems, err = x.bits(ctx, inner)
	return err
}

// fixedNode is the outermost fixedList, nil when there is none.
func (c *column) fixedNode() *node {
	n := c.value
	for n.class == list {
		n = n.children[0]
	}
	if n.class == fixedList {
		return n
	}
	return nil
}
