package collate

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// raggedArray is what a Layout knows of a ragged array: room as
// Column.RowRoom, and the bytes of an element of the first axis.
type raggedArray struct {
	array         int
	room, element int64
}

// spans say where the rows of a ragged array lie among its values, in bytes.
// Until all are there, gaps may lie between them.
type spans struct {
	at, size []int64
	// extra holds rows that did not fit their place: those of records that took
	// the place of bad ones.
	extra map[int][]byte
}

// beginRagged gives the rows of a new batch their places.
func (b *Batch) beginRagged() {
	for i := range b.spans {
		sp, room := &b.spans[i], max(b.l.ragged[i].room, 0)
		sp.extra = nil
		for k := range b.rows {
			sp.at[k], sp.size[k] = int64(k)*room, 0
		}
	}
}

// Sizes gives the rows of the ragged array a, a column of SizesKnown, their
// final places. fill is given room for their sizes in bytes.
func (b *Batch) Sizes(a int, fill func(sizes []int64)) error {
	arr, sp := &b.l.Arrays[a], &b.spans[b.l.of[a]]
	size := sp.size[:b.rows]
	fill(size)
	total := int64(0)
	for k, n := range size {
		if n < 0 || n > arr.Capacity-total {
			clear(size) // so that no value finds a place
			return fmt.Errorf("the values of %q of this batch have more than the %d bytes that the source spoke of", arr.Name, arr.Capacity)
		}
		sp.at[k] = total
		total += n
	}
	return nil
}

// place returns where among the values row k of ragged array i may be put.
func (b *Batch) place(i, k int, n int64) (at int64, ok bool) {
	sp, room := &b.spans[i], b.l.ragged[i].room
	if room >= 0 {
		return sp.at[k], n >= 0 && n <= room
	}
	return sp.at[k], n == sp.size[k]
}

// Put puts v into row k of the ragged array a: into its place, where it may lie
// already, or beside it when the place was made for another value.
func (b *Batch) Put(a, k int, v []byte) error {
	i := b.l.of[a]
	sp, r := &b.spans[i], &b.l.ragged[i]
	n := int64(len(v))
	if n%r.element != 0 {
		return fmt.Errorf("%q has %d bytes, which is not a number of elements of %d bytes each", b.l.Arrays[a].Name, n, r.element)
	}
	if r.room >= 0 {
		if n > r.room {
			return fmt.Errorf("%q has %d bytes, more than the %d that the source spoke of", b.l.Arrays[a].Name, n, r.room)
		}
		sp.size[k] = n
	} else if n != sp.size[k] {
		b.mu.Lock()
		defer b.mu.Unlock()
		if sp.extra == nil {
			sp.extra = map[int][]byte{}
		}
		sp.size[k], sp.extra[k] = n, slices.Clone(v)
		return nil
	}
	at := sp.at[k]
	b.Copy(b.l.values(b.slot, a)[at:at+n], v)
	return nil
}

// Ragged says whether Finish has anything to do.
func (b *Batch) Ragged() bool { return len(b.spans) > 0 }

// Finish closes the gaps between the rows of ragged arrays and writes their
// offsets, when all rows of the batch are there.
func (b *Batch) Finish() error {
	for i := range b.spans {
		sp, r := &b.spans[i], &b.l.ragged[i]
		arr := &b.l.Arrays[r.array]
		at, size := sp.at[:b.rows], sp.size[:b.rows]
		total, dense := int64(0), len(sp.extra) == 0
		for k, n := range size {
			dense = dense && at[k] == total
			total += n
		}
		if total > arr.Capacity {
			return fmt.Errorf("%q: with the records that took the place of bad ones the values of the batch have %d bytes, more than the %d there is room for",
				arr.Name, total, arr.Capacity)
		}
		if !dense {
			closeGaps(b.l.values(b.slot, r.array), at, size, sp.extra)
			sp.extra = nil
		}
		offsets := b.slot[arr.Offsets:]
		end := int64(0)
		for k, n := range size {
			binary.LittleEndian.PutUint64(offsets[8*k:], uint64(end/r.element))
			end += n
		}
		for k := b.rows; k <= b.l.Rows; k++ {
			binary.LittleEndian.PutUint64(offsets[8*k:], uint64(total/r.element))
		}
	}
	return nil
}

// closeGaps moves values so that they follow each other from 0 on. Their order
// stays: those that move down are moved in order, those that move up in
// reverse, so that none is written over before it has moved. Values in extra
// are not among those that move and are put into their places at the end.
func closeGaps(values []byte, at, size []int64, extra map[int][]byte) {
	to := int64(0)
	for k, n := range size {
		if _, ok := extra[k]; !ok && to < at[k] {
			copy(values[to:to+n], values[at[k]:at[k]+n])
		}
		to += n
	}
	for k := len(size) - 1; k >= 0; k-- {
		n := size[k]
		to -= n
		if _, ok := extra[k]; !ok && to > at[k] {
			copy(values[to:to+n], values[at[k]:at[k]+n])
		}
	}
	to = 0
	for k, n := range size {
		if v, ok := extra[k]; ok {
			copy(values[to:to+n], v)
		}
		at[k] = to
		to += n
	}
}
