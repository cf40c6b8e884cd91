package collate

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
)

// raggedArray describes a ragged array of a Layout: the sizes in bytes of the largest row and of an element of the
// first axis.
type raggedArray struct {
	array           int
	maxRow, element int64
	pad             *padding // nil for rows that stay as long as they are
}

// spans are the positions of a ragged array's rows among its values, in bytes. Rows are placed one after another as
// they come. When all are there, Finish puts them into their order.
type spans struct {
	// at is -1 for a row outside the array; size is -1 for a row without a position.
	at, size []int64
	used     atomic.Int64
	// beside has the rows that did not fit the array before it was put in order.
	beside map[int][]byte
}

func (sp *spans) begin(rows int) {
	sp.used.Store(0)
	sp.beside = nil
	for k := range rows {
		sp.at[k], sp.size[k] = 0, -1
	}
}

// has reports whether row k has a position with n bytes.
func (sp *spans) has(k int, n int64) bool { return n == sp.size[k] && sp.at[k] >= 0 }

// take returns a position for n bytes if there is space.
func (sp *spans) take(n, capacity int64) (at int64, ok bool) {
	if n < 0 || n > capacity {
		return 0, false
	}
	at = sp.used.Add(n) - n
	return at, at <= capacity-n
}

// place gives row k a position for n bytes if there is space.
func (sp *spans) place(k int, n, capacity int64) (at int64, ok bool) {
	if sp.has(k, n) {
		return sp.at[k], true
	}
	if at, ok = sp.take(n, capacity); ok {
		sp.at[k], sp.size[k] = at, n
	}
	return at, ok
}

// Sizes assigns positions to all rows of the ragged array a in advance, so that they are in order. fill sets their
// sizes in bytes. If it returns false, nothing is done.
func (b *Batch) Sizes(a int, fill func(sizes []int64) bool) error {
	arr, sp := &b.l.Arrays[a], &b.spans[b.l.of[a]]
	size := sp.size[:b.rows]
	if !fill(size) {
		sp.begin(b.rows)
		return nil
	}
	total := int64(0)
	if r := &b.l.ragged[b.l.of[a]]; r.pad != nil {
		for k, n := range size {
			if n > r.maxRow && !r.pad.Truncate {
				sp.begin(b.rows) // PutRows reports the row that is too long
				return nil
			}
			size[k] = min(n, r.maxRow)
		}
	}
	for k, n := range size {
		if n < 0 || n > arr.Capacity-total {
			sp.begin(b.rows)
			return fmt.Errorf("the values of %q of this batch have more than the %d bytes that the source spoke of", arr.Name, arr.Capacity)
		}
		sp.at[k] = total
		total += n
	}
	sp.used.Store(total)
	return nil
}

// Put puts v into row k of the ragged array a. It uses the row's position, where v may be already, or separate memory
// if there is no space for it.
func (b *Batch) Put(a, k int, v []byte) error {
	values, errs := [1][]byte{v}, [1]error{}
	b.PutRows(a, k, values[:], errs[:])
	return errs[0]
}

// PutRows is Put for rows first, first+1, ..., which are placed together, in order. Errors of values go to errs. Values
// that already have an error are skipped.
func (b *Batch) PutRows(a, first int, values [][]byte, errs []error) {
	arr, sp, r := &b.l.Arrays[a], &b.spans[b.l.of[a]], &b.l.ragged[b.l.of[a]]
	need := int64(0)
	for k, v := range values {
		if r.pad != nil && errs[k] == nil {
			values[k], errs[k] = r.pad.cut(arr, r.element, v)
			v = values[k]
		}
		switch n := int64(len(v)); {
		case errs[k] != nil:
		case n%r.element != 0:
			errs[k] = fmt.Errorf("%q has %d bytes, which is not a number of elements of %d bytes each", arr.Name, n, r.element)
		case n > r.maxRow:
			errs[k] = fmt.Errorf("%q has %d bytes, more than the %d that the source spoke of", arr.Name, n, r.maxRow)
		case !sp.has(first+k, n):
			need += n
		}
	}
	at, together := sp.take(need, arr.Capacity)
	all := b.l.values(b.slot, a)
	for k, v := range values {
		if errs[k] != nil {
			continue
		}
		row, n := first+k, int64(len(v))
		if together && !sp.has(row, n) {
			sp.at[row], sp.size[row] = at, n
			at += n
		} else if _, ok := sp.place(row, n, arr.Capacity); !ok {
			b.putBeside(sp, row, v)
			continue
		}
		b.Copy(all[sp.at[row]:sp.at[row]+n], v)
	}
}

func (b *Batch) putBeside(sp *spans, k int, v []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sp.beside == nil {
		sp.beside = map[int][]byte{}
	}
	sp.at[k], sp.size[k], sp.beside[k] = -1, int64(len(v)), slices.Clone(v)
}

// Ragged reports whether Finish has anything to do.
func (b *Batch) Ragged() bool { return len(b.spans) > 0 }

// Finish puts the rows of ragged arrays into their order, without gaps, and
// writes their offsets, when all rows of the batch are there.
func (b *Batch) Finish() error {
	for i := range b.spans {
		sp, r := &b.spans[i], &b.l.ragged[i]
		arr := &b.l.Arrays[r.array]
		at, size := sp.at[:b.rows], sp.size[:b.rows]
		total, end, dense, rising := int64(0), int64(0), true, true
		for k, n := range size {
			if n <= 0 {
				size[k] = 0
				continue
			}
			dense = dense && at[k] == total
			if at[k] >= 0 {
				rising = rising && at[k] >= end
				end = at[k] + n
			}
			total += n
		}
		if total > arr.Capacity {
			return fmt.Errorf("%q: with the records that took the place of bad ones the values of the batch have %d bytes, more than the %d there is room for",
				arr.Name, total, arr.Capacity)
		}
		if !dense {
			values := b.l.values(b.slot, r.array)
			if !rising {
				order(values, at, size)
			}
			closeGaps(values, at, size, sp.beside)
			sp.beside = nil
		}
		offsets := b.slot[arr.Offsets:]
		end = 0
		for k, n := range size {
			binary.LittleEndian.PutUint64(offsets[8*k:], uint64(end/r.element))
			end += n
		}
		for k := b.rows; k <= b.l.Rows; k++ {
			binary.LittleEndian.PutUint64(offsets[8*k:], uint64(total/r.element))
		}
		if r.pad != nil {
			b.fillUp(r, at, size)
		}
	}
	return nil
}
