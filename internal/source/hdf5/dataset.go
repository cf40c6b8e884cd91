package hdf5

import (
	"errors"
	"fmt"
	"math/bits"
)

// Layout says how the bytes of a data set lie.
type Layout uint8

// The layouts.
const (
	Nowhere    Layout = iota // nothing was ever written: all is the fill value
	Compact                  // in the object header: Bytes
	Contiguous               // at Offset
	Chunked
)

// Dataset is a data set.
type Dataset struct {
	Path string
	// Addr is where its object header lies, from the beginning of the file.
	Addr int64
	// Why says what keeps it from being read, "" where nothing does.
	Why  string
	Type *Type
	// Dims is the shape; a single value has none.
	Dims    []int64
	Layout  Layout
	Bytes   []byte // Compact
	Offset  int64  // Contiguous: from the beginning of the file
	Chunk   []int64
	Filters []Filter
	// Fill is one element of what was never written, nil for zeros.
	Fill []byte

	f     *File
	most  []int64
	index index
}

// index says where chunks are listed.
type index struct {
	kind  int // those of layout versions 4 and 5, 0 for a tree of the first version
	addr  int64
	flags int
	// of a single chunk
	size int64
	mask uint32
}

// The kinds of indexes.
const (
	treeV1 = iota
	singleChunk
	implicit
	fixedArray
	extensible
	treeV2
)

// partialUnfiltered says that chunks at the edges are not filtered.
const partialUnfiltered = 1

// elements is the number of elements of a shape.
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

// dataset reads the description of a data set, nil for what is none.
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
		return nil, errors.New("damaged: a data set without a shape or a type")
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
		d.Why = "has its bytes in other files, which is not read"
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

// size is that of all elements in bytes.
func (d *Dataset) size() (int64, error) {
	n, _ := elements(d.Dims)
	if n > 0 && d.Type.Size > (1<<60)/n {
		return 0, fmt.Errorf("damaged: %d elements of %d bytes", n, d.Type.Size)
	}
	return n * d.Type.Size, nil
}

var errLayout = errors.New("damaged: the description of where it lies is cut off")

// layout reads where the bytes lie.
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
		return fmt.Errorf("where it lies is described in version %d: 1 to 5 are read", version)
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
			return fmt.Errorf("damaged: it has %d bytes in its header, of %d", n, size)
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
		d.Why = "is put together from other data sets (a virtual one), which is not read"
		return nil
	default:
		return fmt.Errorf("its layout is of class %d: 0 to 3 are known", class)
	}
	d.Layout = Chunked
	d.index.addr = at
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
		return fmt.Errorf("damaged: chunks of %d axes of a data set of %d", rank-1, len(d.Dims))
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
	if version < 4 {
		return nil
	}
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
		return fmt.Errorf("its index of chunks is of type %d: 1 to 5 are known", d.index.kind)
	}
	if d.index.addr = p.offset(); p.bad {
		return errLayout
	}
	return nil
}
