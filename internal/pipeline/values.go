package pipeline

import (
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// This file is about fields that are not images: arrays of one shape and bytes
// of any length. They are not decoded: where a source can, it reads them
// straight into the batch (batch.Place), else they are copied once.

// arrayColumn is an array of the batch with the values of a KindArray field.
type arrayColumn struct {
	name         string
	field, array int
	bytes        int64
}

// raggedColumn is a ragged array of the batch with the values of a KindBytes
// field.
type raggedColumn struct {
	name         string
	field, array int
	// stride is how far the rows of a batch lie apart until all are there. It
	// is -1 when the source says the sizes in advance; then they have their
	// final places from the beginning.
	stride int64
}

// spans say where the values of a ragged array lie in a batch, by row.
type spans struct {
	at, size []int64
	// extra holds values that did not fit their place: those of records that
	// took the place of bad ones.
	extra map[int][]byte
}

// place is where the values of a stored field are wanted: in arrays[index] or
// ragged[index]; index is -1 for fields that are not read into the batch.
type place struct {
	ragged bool
	index  int
}

// gatherFrom is the size from which a copy past the caches is worth a call
// into C.
const gatherFrom = 4 << 10

// backFrom is the size of a value from which a call to back its memory is less
// than the faults that it saves.
const backFrom = 64 << 10

// exactCapacity is the size of a batch's values from which the largest batch
// is computed instead of taking each value to be as large as the largest.
const exactCapacity = 64 << 20

// isValue says whether a field is an array or bytes.
func isValue(f *driver.Field) bool { return f.Kind == driver.KindArray || f.Kind == driver.KindBytes }

// wantsValue says whether a field comes along that no output is made from.
func (p *Pipeline) wantsValue(i int, wanted map[int]bool) bool {
	for _, c := range p.arrays {
		if c.field == i {
			return false
		}
	}
	for _, c := range p.ragged {
		if c.field == i {
			return false
		}
	}
	return len(p.cfg.Fields) == 0 || wanted[i]
}

// images names the arrays that are made from images.
func (p *Pipeline) images() []string {
	names := []string{}
	for _, o := range p.outputs {
		names = append(names, p.layout.Arrays[o.array].Name)
	}
	return names
}

// planValue adds the array for a KindArray or KindBytes field.
func (p *Pipeline) planValue(name string, field int, info *driver.Info, at int) (collate.Column, error) {
	f := &info.Fields[field]
	if f.Kind == driver.KindArray {
		size, err := driver.ArrayBytes(f.DType, f.Shape)
		if err != nil {
			return collate.Column{}, fmt.Errorf("field %q: %w", f.Name, err)
		}
		dtype, ok := item.ParseDType(string(f.DType))
		if !ok {
			return collate.Column{}, fmt.Errorf("field %q: element type %q is not known", f.Name, f.DType)
		}
		p.arrays = append(p.arrays, arrayColumn{name, field, at, size})
		return collate.Column{Name: name, DType: dtype, Shape: f.Shape}, nil
	}
	c := raggedColumn{name: name, field: field, array: at, stride: f.MaxBytes}
	capacity := f.MaxBytes * int64(p.cfg.BatchSize)
	sizer, sized := p.src.(driver.Sizer)
	switch {
	case f.MaxBytes < 0 || f.MaxBytes == 0 && !sized:
		return collate.Column{}, fmt.Errorf("field %q: %s does not say how large its values can get, so that there is no room for them in a batch; "+
			"leave it out of fields", f.Name, info.URL)
	case f.MaxBytes > collate.MaxBatch/int64(p.cfg.BatchSize):
		return collate.Column{}, fmt.Errorf("field %q: values of up to %d bytes in batches of %d do not fit a batch of a terabyte; "+
			"leave it out of fields or lower batch_size", f.Name, f.MaxBytes, p.cfg.BatchSize)
	case sized:
		c.stride = -1
		if capacity > exactCapacity {
			capacity = min(capacity, largestBatch(sizer, field, info.Len, p.cfg.BatchSize))
		}
	}
	p.ragged = append(p.ragged, c)
	return collate.Column{Name: name, DType: item.U8, Ragged: true, Capacity: capacity}, nil
}

// largestBatch returns the sum of the rows largest values of a field: no batch
// has more.
func largestBatch(s driver.Sizer, field int, records int64, rows int) int64 {
	const step = 4096
	ids, sizes := make([]int64, step), make([]int64, step)
	largest := make([]int64, 0, rows+step)
	for at := int64(0); at < records; at += step {
		n := int(min(step, records-at))
		for i := range ids[:n] {
			ids[i] = at + int64(i)
		}
		s.Sizes(field, ids[:n], sizes[:n])
		largest = append(largest, sizes[:n]...)
		if len(largest) > rows {
			slices.SortFunc(largest, func(a, b int64) int { return int(min(max(b-a, -1), 1)) })
			largest = largest[:rows]
		}
	}
	total := int64(0)
	for _, n := range largest {
		total += n
	}
	return total
}

// planPlaces notes where sources may put the values of each field.
func (p *Pipeline) planPlaces(info *driver.Info) {
	p.places = make([]place, len(info.Fields))
	for i := range p.places {
		p.places[i].index = -1
	}
	for i := range slices.Backward(p.arrays) {
		p.places[p.arrays[i].field] = place{index: i}
	}
	for i := range slices.Backward(p.ragged) {
		p.places[p.ragged[i].field] = place{ragged: true, index: i}
	}
}

// valueBytes is about how many bytes the array and bytes fields of a record
// have.
func (p *Pipeline) valueBytes() int64 {
	total := int64(0)
	for _, c := range p.arrays {
		total += c.bytes
	}
	for _, c := range p.ragged {
		total += p.layout.Arrays[c.array].Capacity / int64(p.cfg.BatchSize)
	}
	return total
}

// unplacedBytes is the size of the largest value that may have to be read into
// memory of its own.
func (p *Pipeline) unplacedBytes(info *driver.Info) int64 {
	largest := int64(0)
	for _, c := range p.arrays {
		largest = max(largest, c.bytes)
	}
	for _, c := range p.ragged {
		if c.stride >= 0 {
			largest = max(largest, info.Fields[c.field].MaxBytes)
		}
	}
	return largest
}

func (p *Pipeline) newSpans() []spans {
	s := make([]spans, len(p.ragged))
	for i := range s {
		s[i].at, s[i].size = make([]int64, p.cfg.BatchSize), make([]int64, p.cfg.BatchSize)
	}
	return s
}

// placeValues gives the values of a new batch their places.
func (p *Pipeline) placeValues(b *batch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicError("asking for the sizes of values", r)
		}
	}()
	for i := range p.ragged {
		c, sp := &p.ragged[i], &b.spans[i]
		sp.extra = nil
		at, size := sp.at[:len(b.ids)], sp.size[:len(b.ids)]
		if c.stride >= 0 {
			for k := range at {
				at[k], size[k] = int64(k)*c.stride, 0
			}
			continue
		}
		p.src.(driver.Sizer).Sizes(c.field, b.ids, size)
		total := int64(0)
		for k, n := range size {
			if n < 0 || n > p.layout.Arrays[c.array].Capacity-total {
				clear(size) // so that no value finds a place
				return fmt.Errorf("the values of %q of this batch have more than the %d bytes that the source spoke of", c.name, p.layout.Arrays[c.array].Capacity)
			}
			at[k] = total
			total += n
		}
	}
	return nil
}

// Place implements fetch.Places: the bytes of the slot in which a source may
// put a value of n bytes.
func (b *batch) Place(row, field int, n int64) []byte {
	p := b.p
	pl := p.places[field]
	if pl.index < 0 {
		return nil
	}
	slot := p.ring.Slot(b.slot)
	if !pl.ragged {
		c := &p.arrays[pl.index]
		if n != c.bytes {
			return nil
		}
		b.back(p.layout.Arrays[c.array].Offset+int64(row)*c.bytes, n)
		return p.layout.Row(slot, c.array, row)
	}
	c, sp := &p.ragged[pl.index], &b.spans[pl.index]
	if c.stride < 0 && n != sp.size[row] || c.stride >= 0 && n > c.stride || n < 0 {
		return nil
	}
	at := sp.at[row]
	b.back(p.layout.Arrays[c.array].Offset+at, n)
	return p.layout.Values(slot, c.array)[at : at+n : at+n]
}

// back backs n bytes of a slot that was never used with memory, in one call,
// before a source writes them; worker.populate comes too late for that.
func (b *batch) back(lo, n int64) {
	if b.populate && n >= backFrom {
		b.p.ring.Prefault(b.slot, lo, lo+n)
	}
}

// putValues makes the rows of the array and bytes fields of recs.
func (w *worker) putValues(recs []driver.Record) {
	for i := range w.p.arrays {
		w.putArrays(&w.p.arrays[i], recs)
	}
	for i := range w.p.ragged {
		for k := range recs {
			if w.errs[k] == nil {
				w.errs[k] = w.putBytes(i, w.first+k, recs[k].Values[w.p.ragged[i].field].Bytes)
			}
		}
	}
}

func (w *worker) putArrays(c *arrayColumn, recs []driver.Record) {
	w.srcs = w.srcs[:0]
	for k := range recs {
		if w.errs[k] != nil {
			continue
		}
		v := recs[k].Values[c.field].Bytes
		if int64(len(v)) != c.bytes {
			w.errs[k] = fmt.Errorf("field %q has %d bytes and not %d", c.name, len(v), c.bytes)
			continue
		}
		if !sameStart(v, w.p.layout.Row(w.slot, c.array, w.first+k)) {
			w.srcs = append(w.srcs, v)
		}
	}
	switch len(w.srcs) {
	case 0: // all were read into their place
	case len(recs):
		w.p.gather(w.p.layout.Span(w.slot, c.array, w.first, w.first+len(recs)), w.srcs, int(c.bytes))
	default:
		for k := range recs {
			if w.errs[k] == nil {
				copyTo(w.p.layout.Row(w.slot, c.array, w.first+k), recs[k].Values[c.field].Bytes)
			}
		}
	}
}

// putBytes puts a value of ragged column i into its place, or beside it when
// the place is too small.
func (w *worker) putBytes(i, row int, v []byte) error {
	p := w.p
	c, sp := &p.ragged[i], &w.b.spans[i]
	n := int64(len(v))
	if c.stride >= 0 {
		if n > c.stride {
			return fmt.Errorf("field %q has %d bytes, more than the %d that the source spoke of", c.name, n, c.stride)
		}
		sp.size[row] = n
	} else if n != sp.size[row] {
		p.mu.Lock()
		defer p.mu.Unlock()
		if sp.extra == nil {
			sp.extra = map[int][]byte{}
		}
		sp.size[row], sp.extra[row] = n, slices.Clone(v)
		return nil
	}
	at := sp.at[row]
	copyTo(p.layout.Values(w.slot, c.array)[at:at+n], v)
	return nil
}

// copyTo copies a value unless it lies there already.
func copyTo(dst, v []byte) {
	switch {
	case len(v) == 0 || sameStart(v, dst):
	case len(v) >= gatherFrom:
		src := [1][]byte{v}
		cdec.Gather(dst, src[:], len(v))
	default:
		copy(dst, v)
	}
}

// sameStart says whether two slices begin at the same byte.
func sameStart(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// finishValues closes the gaps between the values of ragged arrays and writes
// their offsets, when all rows of a batch are there.
func (p *Pipeline) finishValues(b *batch) error {
	slot := p.ring.Slot(b.slot)
	for i := range p.ragged {
		c, sp := &p.ragged[i], &b.spans[i]
		at, size := sp.at[:len(b.ids)], sp.size[:len(b.ids)]
		values := p.layout.Values(slot, c.array)
		total, dense := int64(0), len(sp.extra) == 0
		for k, n := range size {
			dense = dense && at[k] == total
			total += n
		}
		if total > int64(len(values)) {
			return fmt.Errorf("field %q: with the records that took the place of bad ones the values of the batch have %d bytes, more than the %d there is room for",
				c.name, total, len(values))
		}
		if !dense {
			closeGaps(values, at, size, sp.extra)
			sp.extra = nil
		}
		end := int64(0)
		for k, n := range size {
			p.layout.PutOffset(slot, c.array, k, end)
			end += n
		}
		for k := len(size); k <= p.layout.Rows; k++ {
			p.layout.PutOffset(slot, c.array, k, total)
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
