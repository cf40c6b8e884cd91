// Package ndarray is what sources of large arrays share (HDF5, Zarr, .npz): arrays whose first
// axis are the records, stored in one piece or in chunks that went through codecs.
// Several arrays with the same first axis are fields of the same records, and several
// files with the same arrays are read one after the other.
//
// A format says which arrays there are and where their pieces lie. This package
// chooses those that become fields, locates rows, and makes values of their bytes.
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

// Place is where a chunk lies: Size bytes of an object. The codecs with a bit in Mask
// were not applied.
type Place struct {
	Object, Offset, Size int64
	Mask                 uint32
}

// Array is where the elements of an array lie.
type Array struct {
	// Name is for messages.
	Name string
	// Dims is the shape, the first axis being the records, Elem the size of a stored
	// element in bytes.
	Dims []int64
	Elem int64
	// Fill is an element that was never written, nil for zeros.
	Fill []byte

	// Held is all of it, in C order, where it is in memory.
	Held []byte
	// Chunk is the shape of chunks, nil where all lies in one piece, Whole.
	Chunk []int64
	Whole Place
	// Order is in which order the axes of chunks lie, the slowest first; nil is that
	// of C.
	Order []int
	// Find returns where chunk n lies, counted row by row, false where it was never
	// written.
	Find func(n int64) (Place, bool)
	// Codecs are those of chunks.
	Codecs codec.Pipeline
	// File names an object for messages, where the array lies in several.
	File func(object int64) string

	// What follows from these.

	row    int64   // bytes of a row
	chunk  int64   // of a chunk
	slice  int64   // of a row in a chunk
	grid   []int64 // chunks along each axis
	parts  int64   // chunks that a row lies in
	values *refs   // where values of any length lie
	// spans are the rows that a record has, those of record n from spans[n] to
	// spans[n+1]; nil where each row is a record.
	spans []int64
	cache *cache // nil where chunks are not kept
}

// maxChunk bounds a chunk that is decoded.
const maxChunk = 1 << 30

// init works out what follows from the description.
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

// decoded says whether chunks have to be decoded before rows can be taken.
func (a *Array) decoded() bool { return a.Chunk != nil && (len(a.Codecs) > 0 || a.Order != nil) }

// scratch is how much memory decoding a chunk takes.
func (a *Array) scratch() int64 {
	if !a.decoded() || a.Held != nil {
		return 0
	}
	steps := int64(len(a.Codecs)) + 1 // what lies between them, and the chunk
	if a.Order == nil && steps > 1 {
		steps--
	}
	if a.cache != nil || a.parts > 1 || a.row != a.chunk {
		steps++
	}
	return steps * (a.chunk + 64 + 4*int64(len(a.Codecs)))
}

// bytes is the size of all elements.
func (a *Array) bytes() int64 { return a.row * a.Dims[0] }

// records is how many there are.
func (a *Array) records() int64 {
	if a.spans != nil {
		return int64(len(a.spans) - 1)
	}
	return a.Dims[0]
}

// span is the rows, from lo to hi, that are record r.
func (a *Array) span(r int64) (lo, hi int64) {
	if a.spans != nil {
		return a.spans[r], a.spans[r+1]
	}
	return r, r + 1
}

// band is the rows from lo to hi that lie in the same chunks: the first of them has the
// number first and the others follow it. Row lo is the at-th of each of them.
type band struct{ lo, hi, first, at int64 }

// bands calls f for the rows from lo to hi, until it returns an error.
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

// locate appends where the rows from lo to hi lie to g: their bytes, those of each chunk,
// or the chunks themselves. field is for what is stored as it is wanted.
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

// assembleRows is assemble of several rows that lie in the same chunk.
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

// assemble copies what chunk number part of a row has of it: slice, the row in the
// chunk, or the fill value where that is nil.
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

// axis goes along an axis of a row, and into the axes behind it.
func (a *Array) axis(dst, slice []byte, part int64, i int) {
	inner := int64(1) // chunks behind one along this axis
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
	// Where the axes behind are whole, there is one piece.
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

// copy copies src, or fills dst where that is nil.
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

// decode fills dst with a chunk, in C order.
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
	// How far a step along each axis is in what is stored.
	step := make([]int64, len(a.Chunk))
	n := a.Elem
	for k := len(a.Order) - 1; k >= 0; k-- {
		step[a.Order[k]] = n
		n *= a.Chunk[a.Order[k]]
	}
	turn(dst, turned, a.Chunk, step, a.Elem)
	return nil
}

// turn writes an array in C order whose elements lie steps apart.
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

// Reader reads an object of the source while it is opened.
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

// each calls f for the rows from lo to hi in their order, with their bytes.
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
		if a.Chunk != nil { // up to the end of its chunks
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

// whole is memory for chunks that are read while the source is opened.
type whole struct{ raw, chunk []byte }

// fill fills dst with the rows of a band.
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

// wrong puts the place of a chunk in front of an error of its content.
func (a *Array) wrong(n int64, p Place, err error) error {
	if a.File != nil {
		return fmt.Errorf("%s, chunk %d (%s, byte %d): %w", a.Name, n, a.File(p.Object), p.Offset, err)
	}
	return fmt.Errorf("%s, chunk %d (byte %d): %w", a.Name, n, p.Offset, err)
}

// Check says whether the description can be read.
func (a *Array) Check() error {
	if len(a.Dims) == 0 {
		return errors.New("it is a single value")
	}
	return a.Clone().init()
}

// ChunkBytes is the size of a chunk as it is decoded.
func (a *Array) ChunkBytes() int64 {
	n := a.Elem
	for _, side := range a.Chunk {
		n *= side
	}
	return n
}

// Clone returns another description of the same elements.
func (a *Array) Clone() *Array {
	b := *a
	return &b
}
