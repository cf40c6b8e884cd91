// Package ndarray reads large arrays for several formats (HDF5, Zarr, .npz). The first axis of an
// array numbers the records. An array is stored in one piece or in chunks that went through codecs.
// Arrays with the same first axis are fields of the same records. Several files with the same
// arrays are read one after the other.
//
// A format lists the arrays and the positions of their pieces. This package chooses the arrays that
// become fields, locates rows, and turns their bytes into values.
package ndarray

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/stokerdata/stoker/internal/source/codec"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Place is the position of a chunk: Size bytes of an object. Codecs whose bit in Mask is set were
// not applied.
type Place struct {
	Object, Offset, Size int64
	Mask                 uint32
}

// Array describes the positions of the elements of an array.
type Array struct {
	// Name is for messages.
	Name string
	// Dims is the shape. The first axis numbers the records. Elem is the size of a stored element
	// in bytes.
	Dims []int64
	Elem int64
	// Fill is the value of elements that were never written, nil for zeros.
	Fill []byte

	// Held has all elements in C order if they are in memory.
	Held []byte
	// Chunk is the shape of chunks, nil if the array is one piece, Whole.
	Chunk []int64
	Whole Place
	// Order is the order in which chunks store their axes, the slowest first. Nil is C order.
	Order []int
	// Find returns the position of chunk n, false if the chunk was never written. Chunks are
	// numbered in C order.
	Find func(n int64) (Place, bool)
	// Codecs are the codecs of chunks.
	Codecs codec.Pipeline
	// File names an object for messages if the array spans several objects.
	File func(object int64) string

	// init sets these fields.

	row    int64   // bytes in a row
	chunk  int64   // bytes in a chunk
	slice  int64   // bytes of one row in a chunk
	grid   []int64 // number of chunks along each axis
	parts  int64   // number of chunks that share a row
	values *refs   // locations of values of any length
	// spans has the rows of the records: record n is rows spans[n] to spans[n+1]. If spans is nil,
	// each row is a record.
	spans []int64
	cache *cache // nil if chunks are not cached
}

// maxChunk limits the bytes of a decoded chunk.
const maxChunk = 1 << 30

// init checks the description and computes the sizes that follow from it.
func (a *Array) init() error {
	product := func(sides []int64, unit int64) (int64, error) {
		n := uint64(unit)
		for _, side := range sides {
			hi, lo := bits.Mul64(n, uint64(max(side, 1)))
			if hi != 0 || lo > 1<<60 {
				return 0, fmt.Errorf("the shape %v is too large", sides)
			}
			n = lo
		}
		return int64(n), nil
	}
	var err error
	if a.row, err = product(a.Dims[1:], a.Elem); err != nil {
		return err
	}
	if _, err = product(a.Dims, a.Elem); err != nil || a.Chunk == nil {
		return err
	}
	if len(a.Chunk) != len(a.Dims) {
		return fmt.Errorf("chunks of the shape %v of an array of the shape %v", a.Chunk, a.Dims)
	}
	if a.chunk, err = product(a.Chunk, a.Elem); err != nil {
		return err
	}
	a.slice = a.chunk / a.Chunk[0]
	a.parts = 1
	for i, side := range a.Dims {
		n := (side + a.Chunk[i] - 1) / a.Chunk[i]
		a.grid = append(a.grid, n)
		if i > 0 {
			a.parts *= n
		}
	}
	if a.decoded() {
		if a.chunk > maxChunk {
			return fmt.Errorf("its chunks have %d bytes, the limit is %d", a.chunk, int64(maxChunk))
		}
		return a.Codecs.Check(a.chunk)
	}
	return nil
}

// decoded reports whether chunks must be decoded before rows can be copied from them.
func (a *Array) decoded() bool { return a.Chunk != nil && (len(a.Codecs) > 0 || a.Order != nil) }

// scratch returns the memory that decoding a chunk takes, in bytes.
func (a *Array) scratch() int64 {
	if !a.decoded() || a.Held != nil {
		return 0
	}
	steps := int64(len(a.Codecs)) + 1 // results of the codecs, and the chunk
	if a.Order == nil && steps > 1 {
		steps--
	}
	if a.cache != nil || a.parts > 1 || a.row != a.chunk {
		steps++
	}
	return steps * (a.chunk + 64 + 4*int64(len(a.Codecs)))
}

// bytes returns the size of all elements in bytes.
func (a *Array) bytes() int64 { return a.row * a.Dims[0] }

// records returns the number of records.
func (a *Array) records() int64 {
	if a.spans != nil {
		return int64(len(a.spans) - 1)
	}
	return a.Dims[0]
}

// span returns the rows of record r, from lo to hi.
func (a *Array) span(r int64) (lo, hi int64) {
	if a.spans != nil {
		return a.spans[r], a.spans[r+1]
	}
	return r, r + 1
}

// band is a range of rows, from lo to hi, that share the same chunks. The first of these chunks is
// number first, and the others follow it. Row lo is row at of each of these chunks.
type band struct{ lo, hi, first, at int64 }

// bands calls f for each band of the rows from lo to hi. It stops at the first error.
func (a *Array) bands(lo, hi int64, f func(b band) error) error {
	for lo < hi {
		n := lo / a.Chunk[0]
		b := band{lo, min(hi, (n+1)*a.Chunk[0]), n * a.parts, lo - n*a.Chunk[0]}
		if err := f(b); err != nil {
			return err
		}
		lo = b.hi
	}
	return nil
}

// locate appends the extents of the rows from lo to hi to g. These are the bytes of the rows, or
// the chunks if they must be decoded. An extent with all bytes of the rows gets field as its Field,
// other extents get -1.
func (a *Array) locate(g *driver.Group, lo, hi int64, field int32) {
	switch {
	case a.Held != nil || lo == hi:
	case a.Chunk == nil:
		if a.Whole.Size > 0 {
			g.Extents = append(g.Extents, driver.Extent{Object: a.Whole.Object, Offset: a.Whole.Offset + lo*a.row, Size: (hi - lo) * a.row, Field: field})
		}
	default:
		if a.parts > 1 || a.slice != a.row || lo/a.Chunk[0] != (hi-1)/a.Chunk[0] {
			field = -1
		}
		_ = a.bands(lo, hi, func(b band) error {
			for p := range a.parts {
				place, ok := a.Find(b.first + p)
				if !ok {
					continue
				}
				e := driver.Extent{Object: place.Object, Offset: place.Offset, Size: place.Size, Field: -1}
				if !a.decoded() {
					e.Offset, e.Size, e.Field = e.Offset+b.at*a.slice, (b.hi-b.lo)*a.slice, field
				}
				g.Extents = append(g.Extents, e)
			}
			return nil
		})
	}
}

// assembleRows is assemble for several rows of the same chunk.
func (a *Array) assembleRows(dst []byte, part int64, slices []byte) {
	switch {
	case a.parts == 1 && slices != nil && a.slice == a.row:
		copy(dst, slices)
	case a.parts == 1 && slices == nil:
		a.copy(dst, nil)
	default:
		for k := range int64(len(dst)) / a.row {
			var s []byte
			if slices != nil {
				s = slices[k*a.slice : (k+1)*a.slice]
			}
			a.assemble(dst[k*a.row:(k+1)*a.row], part, s)
		}
	}
}

// assemble copies the share of chunk number part of a row to dst. slice is the row in the chunk. If
// slice is nil, assemble writes the fill value.
func (a *Array) assemble(dst []byte, part int64, slice []byte) {
	if a.parts == 1 && slice != nil && a.slice == a.row {
		copy(dst, slice)
		return
	}
	rank := len(a.Dims)
	if rank == 1 {
		a.copy(dst[:a.Elem], slice)
		return
	}
	a.axis(dst, slice, part, 1)
}

// axis copies slice to dst along axis i of a row and, recursively, the axes after it.
func (a *Array) axis(dst, slice []byte, part int64, i int) {
	inner := int64(1) // chunks after axis i for each chunk along it
	to, from := a.Elem, a.Elem
	for k := i + 1; k < len(a.Dims); k++ {
		inner *= a.grid[k]
		to *= a.Dims[k]
		from *= a.Chunk[k]
	}
	c := part / inner
	begin := c * a.Chunk[i]
	n := min(a.Chunk[i], a.Dims[i]-begin)
	dst = dst[begin*to:]
	// If the chunk covers the later axes entirely, the bytes are contiguous.
	if inner == 1 && to == from {
		if slice != nil {
			slice = slice[:n*from]
		}
		a.copy(dst[:n*to], slice)
		return
	}
	for k := range n {
		var s []byte
		if slice != nil {
			s = slice[k*from : (k+1)*from]
		}
		a.axis(dst[k*to:(k+1)*to], s, part%inner, i+1)
	}
}

// copy copies src to dst. If src is nil, it writes the fill value.
func (a *Array) copy(dst, src []byte) {
	if src != nil {
		copy(dst, src)
		return
	}
	if len(a.Fill) == 0 {
		clear(dst)
		return
	}
	n := copy(dst, a.Fill)
	for n < len(dst) {
		n += copy(dst[n:], dst[:n])
	}
}

// decode decodes the chunk src into dst, in C order.
func (a *Array) decode(dst, src []byte, mask uint32, alloc func(int) ([]byte, error)) error {
	if a.Order == nil {
		return a.Codecs.Decode(dst, src, mask, alloc)
	}
	turned := src
	if len(a.Codecs) > 0 {
		var err error
		if turned, err = alloc(len(dst)); err != nil {
			return err
		}
		if err := a.Codecs.Decode(turned, src, mask, alloc); err != nil {
			return err
		}
	} else if len(src) != len(dst) {
		return fmt.Errorf("it has %d bytes, it should have %d", len(src), len(dst))
	}
	// step[i] is the distance in stored bytes between neighbours along axis i.
	step := make([]int64, len(a.Chunk))
	n := a.Elem
	for k := len(a.Order) - 1; k >= 0; k-- {
		step[a.Order[k]] = n
		n *= a.Chunk[a.Order[k]]
	}
	turn(dst, turned, a.Chunk, step, a.Elem)
	return nil
}

// turn copies the elements of src to dst in C order. step has the distance between neighbours in
// src along each axis. It returns the number of bytes written.
func turn(dst, src []byte, sides, step []int64, elem int64) int64 {
	at := int64(0)
	if len(sides) == 1 {
		for k := range sides[0] {
			at += int64(copy(dst[at:at+elem], src[k*step[0]:]))
		}
		return at
	}
	for k := range sides[0] {
		at += turn(dst[at:], src[k*step[0]:], sides[1:], step[1:], elem)
	}
	return at
}

// Reader reads bytes of an object while the source is opened.
type Reader func(ctx context.Context, object int64, p []byte, off int64) error

// ReadFrom returns a Reader of the files of a list.
func ReadFrom(pool *store.Pool, list *filelist.List) Reader {
	return func(ctx context.Context, object int64, p []byte, off int64) error {
		o, err := pool.Open(ctx, list.Entry(int(object)))
		if err != nil {
			return err
		}
		defer o.Close()
		return o.ReadAt(ctx, p, off)
	}
}

// each calls f for each row from lo to hi, in order.
func (a *Array) each(ctx context.Context, read Reader, lo, hi int64, f func(row int64, b []byte) error) error {
	if a.Held != nil {
		for r := lo; r < hi; r++ {
			if err := f(r, a.Held[r*a.row:(r+1)*a.row]); err != nil {
				return err
			}
		}
		return nil
	}
	rows := int64(1)
	if a.Chunk != nil {
		rows = min(a.Chunk[0], a.Dims[0])
	} else {
		rows = max(1, min(a.Dims[0], (1<<20)/a.row))
	}
	if rows > maxChunk/a.row {
		return fmt.Errorf("%d of its rows have %d bytes, the limit is %d", rows, rows*a.row, int64(maxChunk))
	}
	buf := make([]byte, rows*a.row)
	var w whole
	for r := lo; r < hi; {
		n := min(rows, hi-r)
		if a.Chunk != nil { // up to the end of the chunk
			n = min(n, a.Chunk[0]-r%a.Chunk[0])
		}
		b := buf[:n*a.row]
		switch {
		case a.Chunk != nil:
			if err := a.bands(r, r+n, func(at band) error { return a.fill(ctx, read, b, at, &w) }); err != nil {
				return err
			}
		case a.Whole.Size == 0:
			a.copy(b, nil)
		default:
			if err := read(ctx, a.Whole.Object, b, a.Whole.Offset+r*a.row); err != nil {
				return err
			}
		}
		for k := range n {
			if err := f(r+k, b[k*a.row:(k+1)*a.row]); err != nil {
				return err
			}
		}
		r += n
	}
	return nil
}

// whole has buffers for chunks that are read while the source is opened.
type whole struct{ raw, chunk []byte }

// fill reads the rows of a band into dst.
func (a *Array) fill(ctx context.Context, read Reader, dst []byte, b band, w *whole) error {
	heap := func(n int) ([]byte, error) { return make([]byte, n), nil }
	for p := range a.parts {
		place, ok := a.Find(b.first + p)
		if !ok {
			a.assembleRows(dst, p, nil)
			continue
		}
		if int64(cap(w.raw)) < place.Size {
			w.raw = make([]byte, place.Size)
		}
		raw := w.raw[:place.Size]
		if err := read(ctx, place.Object, raw, place.Offset); err != nil {
			return err
		}
		if a.decoded() {
			if w.chunk == nil {
				w.chunk = make([]byte, a.chunk)
			}
			if err := a.decode(w.chunk, raw, place.Mask, heap); err != nil {
				return a.wrong(b.first+p, place, err)
			}
			raw = w.chunk
		}
		a.assembleRows(dst, p, raw[b.at*a.slice:(b.at+b.hi-b.lo)*a.slice])
	}
	return nil
}

// wrong adds the position of a chunk to an error about its content.
func (a *Array) wrong(n int64, p Place, err error) error {
	if a.File != nil {
		return fmt.Errorf("%s, chunk %d (%s, byte %d): %w", a.Name, n, a.File(p.Object), p.Offset, err)
	}
	return fmt.Errorf("%s, chunk %d (byte %d): %w", a.Name, n, p.Offset, err)
}

// Check returns an error if the array cannot be read.
func (a *Array) Check() error {
	if len(a.Dims) == 0 {
		return errors.New("it is a single value")
	}
	return a.Clone().init()
}

// ChunkBytes returns the size of a decoded chunk in bytes.
func (a *Array) ChunkBytes() int64 {
	n := a.Elem
	for _, side := range a.Chunk {
		n *= side
	}
	return n
}

// Clone returns a copy of the description.
func (a *Array) Clone() *Array {
	b := *a
	return &b
}
