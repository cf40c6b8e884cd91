package hdf5

import (
	"errors"
	"fmt"
	"math/bits"
)

// Layout is how a data set is stored.
type Layout uint8

// The layouts.
const (
	Nowhere    Layout = iota // never written: all elements are the fill value
	Compact                  // in the object header: Bytes
	Contiguous               // at Offset
	Chunked
)

// Dataset describes a data set.
type Dataset struct {
	Path string
	// Addr is the offset of its object header in the file.
	Addr int64
	// Why is the reason why it cannot be read, "" if it can.
	Why  string
	Type *Type
	// Dims is the shape. It is empty for a scalar.
	Dims    []int64
	Layout  Layout
	Bytes   []byte // Compact
	Offset  int64  // Contiguous: offset in the file
	Chunk   []int64
	Filters []Filter
	// Fill is the value of elements that were never written, nil for zeros.
	Fill []byte

	f     *File
	most  []int64
	index index
}

// index is the position of the index of chunks.
type index struct {
	kind  int // the types of layout versions 4 and 5, 0 for a B-tree of version 1
	addr  int64
	flags int
	// for a single chunk
	size int64
	mask uint32
}

// The types of indexes.
const (
	treeV1 = iota
	singleChunk
	implicit
	fixedArray
	extensible
	treeV2
)

// partialUnfiltered is the flag for unfiltered chunks at the edges.
const partialUnfiltered = 1

// elements returns the number of elements of a shape. It returns false for more than any file can have.
func elements(dims []int64) (int64, bool) {
	n := uint64(1)
	for _, side := range dims {
		hi, lo := bits.Mul64(n, uint64(side))
		if hi != 0 || lo > 1<<50 {
			return 0, false
		}
		n = lo
	}
	return int64(n), true
}

// dataset parses the description of a data set. It returns nil for other objects.
func (f *File) dataset(path string, addr int64, all []message) (*Dataset, error) {
	layout, err := f.find(all, msgLayout)
	if err != nil || layout == nil {
		return nil, err
	}
	d := &Dataset{Path: path, Addr: f.base + addr, f: f}
	msg := func(kind int) []byte {
		var b []byte
		if err == nil {
			b, err = f.find(all, kind)
		}
		return b
	}
	space, typ, filters, fill, old := msg(msgSpace), msg(msgType), msg(msgFilters), msg(msgFill), msg(msgOldFill)
	external := msg(msgExternal)
	switch {
	case err != nil:
		return nil, err
	case space == nil || typ == nil:
		return nil, errors.New("damaged: a data set has no shape or no type")
	}
	some := false
	if d.Dims, d.most, some, err = f.parseSpace(space); err != nil {
		return nil, err
	}
	if !some {
		d.Why = "has no elements"
		return d, nil
	}
	if d.Type, err = parseType(f.decode(typ), 0); err != nil {
		return nil, err
	}
	if _, ok := elements(d.Dims); !ok {
		return nil, fmt.Errorf("damaged: a shape of %v", d.Dims)
	}
	if external != nil {
		d.Why = "stores its bytes in other files, which is not read"
		return d, nil
	}
	if filters != nil {
		if d.Filters, err = f.parseFilters(filters); err != nil {
			return nil, err
		}
	}
	if fill != nil {
		d.Fill, err = f.parseFill(fill, false)
	} else if old != nil {
		d.Fill, err = f.parseFill(old, true)
	}
	if err == nil && d.Fill != nil && int64(len(d.Fill)) != d.Type.Size {
		if len(d.Fill) != 0 {
			return nil, fmt.Errorf("damaged: a fill value of %d bytes for elements of %d", len(d.Fill), d.Type.Size)
		}
		d.Fill = nil
	}
	if err == nil {
		err = d.layout(layout)
	}
	return d, err
}

// size returns the number of bytes of all elements.
func (d *Dataset) size() (int64, error) {
	n, _ := elements(d.Dims)
	if n > 0 && d.Type.Size > (1<<60)/n {
		return 0, fmt.Errorf("damaged: %d elements of %d bytes", n, d.Type.Size)
	}
	return n * d.Type.Size, nil
}

var errLayout = errors.New("damaged: the description of its layout is cut off")

// layout parses the layout message.
func (d *Dataset) layout(b []byte) error {
	f := d.f
	p := f.decode(b)
	version := p.u8()
	size, err := d.size()
	if err != nil {
		return err
	}
	var class, rank int
	at := undefined
	switch version {
	case 1, 2:
		rank, class = p.u8(), p.u8()
		p.skip(5)
		if class != 0 {
			at = p.offset()
		}
		if rank > 33 {
			return fmt.Errorf("damaged: a layout of %d axes", rank)
		}
		if class != 2 {
			p.skip(4 * rank)
		}
	case 3, 4, 5:
		class = p.u8()
	default:
		return fmt.Errorf("unsupported version %d of its layout (supported: 1 to 5)", version)
	}
	switch class {
	case 0:
		n := int64(0)
		if version < 3 {
			n = int64(p.u32())
		} else {
			n = int64(p.u16())
		}
		d.Layout, d.Bytes = Compact, p.bytes(int(n))
		if p.bad || n < size {
			return fmt.Errorf("damaged: its header has %d of its %d bytes", n, size)
		}
		return nil
	case 1:
		if version >= 3 {
			at = p.offset()
		}
		if p.bad {
			return errLayout
		}
		if at == undefined || size == 0 {
			d.Layout = Nowhere
			return nil
		}
		d.Layout, d.Offset = Contiguous, f.base+at
		return f.within(at, size, "data")
	case 2:
	case 3:
		d.Why = "is virtual (a view of other data sets), which is not read"
		return nil
	default:
		return fmt.Errorf("unknown layout class %d", class)
	}
	d.index.addr = at
	if err := d.chunks(p, version, rank); err != nil || version < 4 {
		return err
	}
	return d.chunkIndex(p)
}

// chunks reads the shape of the chunks. In version 3 and later, their number of axes is read, too.
func (d *Dataset) chunks(p *decoder, version, rank int) error {
	d.Layout = Chunked
	width := 4
	switch version {
	case 3:
		rank = p.u8()
		d.index.addr = p.offset()
	case 4, 5:
		d.index.flags, rank, width = p.u8(), p.u8(), p.u8()
		if width < 1 || width > 8 {
			return fmt.Errorf("damaged: sides of chunks in %d bytes", width)
		}
	}
	if p.bad || rank != len(d.Dims)+1 {
		return fmt.Errorf("damaged: chunks of %d axes in a data set of %d", rank-1, len(d.Dims))
	}
	for range rank - 1 {
		side := p.number(width)
		if side < 1 || side > 1<<40 {
			return fmt.Errorf("damaged: a chunk with a side of %d", side)
		}
		d.Chunk = append(d.Chunk, int64(side))
	}
	if n := p.number(width); p.bad || n != uint64(d.Type.Size) {
		return fmt.Errorf("damaged: its chunks have elements of %d bytes, its type has %d", n, d.Type.Size)
	}
	if n, ok := elements(d.Chunk); !ok || n > (1<<32)/d.Type.Size {
		return fmt.Errorf("damaged: chunks of the shape %v", d.Chunk)
	}
	return nil
}

// chunkIndex reads the kind and the position of the index of chunks.
func (d *Dataset) chunkIndex(p *decoder) error {
	switch d.index.kind = p.u8(); d.index.kind {
	case singleChunk:
		if d.index.flags&2 != 0 {
			d.index.size = p.length()
			d.index.mask = p.u32()
		}
	case implicit:
	case fixedArray:
		p.skip(1)
	case extensible:
		p.skip(5)
	case treeV2:
		p.skip(6)
	default:
		return fmt.Errorf("unknown type %d of its index of chunks", d.index.kind)
	}
	if d.index.addr = p.offset(); p.bad {
		return errLayout
	}
	return nil
}
