package pack

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// view is the head of a chunk, whose layout has been checked: all numbers and
// the offsets of everything but the tail are in it.
type view struct {
	r    *Reader
	c    int
	head []byte
	lay  *arrowipc.Layout
	// right is true if the checksum of the whole chunk was compared.
	right bool
}

// viewOf checks the head of chunk c.
func (r *Reader) viewOf(c int, head []byte) (*view, error) {
	v := &view{r: r, c: c, head: head}
	if got := Checksum(xxh3.Hash(head)); got != r.chunks[c].headSum {
		return nil, r.damaged(c, fmt.Errorf("the head has the checksum %016x, should be %016x", uint64(got), uint64(r.chunks[c].headSum)))
	}
	var err error
	if v.lay, err = arrowipc.ParseBatch(head, r.chunks[c].bytes, r.sch.cols); err == nil {
		err = v.check()
	}
	if err != nil {
		return nil, r.damaged(c, err)
	}
	return v, nil
}

// damaged names a chunk in which something is wrong.
func (r *Reader) damaged(c int, err error) error {
	return driver.Damaged(fmt.Errorf("%s: %w; stoker verify says what else is damaged", r.chunkPlace(c), err))
}

func (v *view) inHead(s arrowipc.Span) bool { return s.Off+s.Len <= int64(len(v.head)) }

func (v *view) span(s arrowipc.Span) []byte { return v.head[s.Off : s.Off+s.Len] }

func (v *view) check() error {
	r := v.r
	if int64(v.lay.Rows) != r.chunks[v.c].rows {
		return fmt.Errorf("%w: %d rows, the manifest says %d", arrowipc.ErrFormat, v.lay.Rows, r.chunks[v.c].rows)
	}
	for i := range r.sch.leaves {
		l, p := &r.sch.leaves[i], &v.lay.Leaves[i]
		if p.Values.Off > math.MaxUint32 || p.Items > math.MaxUint32 {
			return fmt.Errorf("%w: column %s begins at %d", arrowipc.ErrFormat, l.Name, p.Values.Off)
		}
		if l.inTail() {
			continue
		}
		if !v.inHead(p.Offsets) || r.sch.number(i) && !v.inHead(p.Values) {
			return fmt.Errorf("%w: column %s ends after the head", arrowipc.ErrFormat, l.Name)
		}
		if l.OffsetWidth > 0 {
			if err := arrowipc.CheckOffsets(v.span(p.Offsets), l.OffsetWidth, v.lay.Rows, p.Items); err != nil {
				return fmt.Errorf("column %s: %w", l.Name, err)
			}
		}
	}
	return nil
}

// int returns a number of a leaf that is stored in the head.
func (v *view) int(leaf int, row int64) int64 {
	b := v.head[v.lay.Leaves[leaf].Values.Off:]
	switch v.r.sch.leaves[leaf].Width {
	case 1:
		return int64(b[row])
	case 2:
		return int64(binary.LittleEndian.Uint16(b[2*row:]))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b[4*row:])))
	}
	return int64(binary.LittleEndian.Uint64(b[8*row:]))
}

// offset reads entry i of offsets.
func offset(offsets []byte, width, i int64) int64 {
	if width == 4 {
		return int64(binary.LittleEndian.Uint32(offsets[4*i:]))
	}
	return int64(binary.LittleEndian.Uint64(offsets[8*i:]))
}

// value returns the location of a value of a leaf outside the tail, counted from the beginning of the chunk.
func (v *view) value(leaf int, row int64) (at, size int64) {
	l, p := &v.r.sch.leaves[leaf], &v.lay.Leaves[leaf]
	if l.OffsetWidth == 0 {
		return p.Values.Off + row*l.Width, l.Width
	}
	o := v.head[p.Offsets.Off:]
	from, to := offset(o, l.OffsetWidth, row), offset(o, l.OffsetWidth, row+1)
	return p.Values.Off + from*l.Width, (to - from) * l.Width
}

// checkRow compares a row of a field with the manifest's bounds for all rows, because the index cannot store other
// values.
func (v *view) checkRow(x *fieldIndex, row int64) error {
	f := &v.r.sch.fields[x.field]
	s := &f.Stats
	outside := func(what string, n int64) error {
		return fmt.Errorf("%w: row %d has %s %d in field %q, outside of the manifest's statistics", arrowipc.ErrFormat, row, what, n, f.Name)
	}
	if x.number {
		n := v.int(x.leaf, row)
		if f.Kind == driver.KindFloat {
			return nil
		}
		if n < s.Ints.Min || n > s.Ints.Max {
			return outside("the number", n)
		}
		return nil
	}
	_, size := v.value(x.leaf, row)
	if size > s.MaxBytes {
		return outside("a size of", size)
	}
	if !f.picture() {
		return nil
	}
	for k := range x.side {
		c := &x.side[k]
		if c.leaf < 0 {
			continue
		}
		if n := v.int(c.leaf, row); n < c.min || n > c.max {
			return outside(c.what, n)
		}
	}
	codec := driver.Codec(v.int(x.side[sideCodec].leaf, row))
	if _, ok := s.Images.Codecs[codecNames[codec]]; !ok {
		return fmt.Errorf("%w: row %d has codec %d in field %q, which the manifest does not list", arrowipc.ErrFormat, row, codec, f.Name)
	}
	if codec == driver.CodecRaw {
		want := v.int(x.side[sideWidth].leaf, row) * v.int(x.side[sideHeight].leaf, row)
		if f.Kind == driver.KindMask {
			want *= int64(f.DType.Size())
		} else {
			want *= v.int(x.side[sideChannels].leaf, row) * ((v.int(x.side[sideDepth].leaf, row) + 7) / 8)
		}
		if size != want {
			return fmt.Errorf("%w: row %d has %d bytes in field %q where its raw pixels need %d", arrowipc.ErrFormat, row, size, f.Name, want)
		}
	}
	return nil
}
