package hdf5

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// link is a named member of a group.
type link struct {
	name string
	addr int64
	soft bool // a link to a path or to another file, which is not followed
}

// Left is an object that is not read, and the reason.
type Left struct{ Path, Why string }

// Walk returns all data sets in the order of their paths, and all other objects. An object with several names is
// returned once, with its first name.
func (f *File) Walk() ([]*Dataset, []Left, error) {
	w := &walk{f: f, seen: map[int64]bool{}}
	err := w.object("", f.root, 0)
	return w.sets, w.left, err
}

type walk struct {
	f    *File
	seen map[int64]bool
	sets []*Dataset
	left []Left
}

func (w *walk) object(path string, addr int64, depth int) error {
	f := w.f
	if w.seen[addr] {
		if path != "" {
			w.left = append(w.left, Left{path, "a second name of another object"})
		}
		return nil
	}
	w.seen[addr] = true
	if f.objects++; f.objects > maxObjects {
		return fmt.Errorf("it has more than %d objects", maxObjects)
	}
	if depth > maxDepth {
		return fmt.Errorf("its groups are more than %d deep, at %.200q", maxDepth, path)
	}
	fail := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("object %.200q (byte %d): %w", "/"+path, f.base+max(addr, 0), err)
	}
	all, err := f.header(addr)
	if err != nil {
		return fail(err)
	}
	links, group, err := f.links(all)
	if err != nil {
		return fail(err)
	}
	if !group {
		d, err := f.dataset(path, addr, all)
		if err != nil {
			return fail(err)
		}
		if d != nil {
			w.sets = append(w.sets, d)
		}
		return nil
	}
	slices.SortFunc(links, func(a, b link) int { return strings.Compare(a.name, b.name) })
	for _, l := range links {
		name := l.name
		if path != "" {
			name = path + "/" + l.name
		}
		if l.soft {
			w.left = append(w.left, Left{name, "a link to another path or file, which is not followed"})
			continue
		}
		if err := w.object(name, l.addr, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// links returns the links of a group. group is false if the object is not a group.
func (f *File) links(all []message) (links []link, group bool, err error) {
	for _, m := range all {
		switch m.kind {
		case msgSymbols:
			d := f.decode(m.data)
			tree, heap := d.offset(), d.offset()
			if d.bad {
				return nil, true, errors.New("damaged: its table of names is cut off")
			}
			more, err := f.symbols(tree, heap)
			if err != nil {
				return nil, true, err
			}
			links, group = append(links, more...), true
		case msgLink:
			l, err := f.parseLink(m.data)
			if err != nil {
				return nil, true, err
			}
			links, group = append(links, l), true
		case msgLinkInfo:
			group = true
			d := f.decode(m.data)
			if version := d.u8(); version != 0 {
				return nil, true, fmt.Errorf("unsupported version %d of its link info (supported: 0)", version)
			}
			if d.u8()&1 != 0 {
				d.skip(8)
			}
			heap, names := d.offset(), d.offset()
			if d.bad {
				return nil, true, errors.New("damaged: the description of its links is cut off")
			}
			if heap == undefined {
				continue
			}
			more, err := f.dense(heap, names)
			if err != nil {
				return nil, true, err
			}
			links = append(links, more...)
		}
		if len(links) > maxObjects {
			return nil, true, fmt.Errorf("it has more than %d objects", maxObjects)
		}
	}
	return links, group, nil
}

// parseLink parses a link message.
func (f *File) parseLink(b []byte) (link, error) {
	d := f.decode(b)
	version, flags := d.u8(), d.u8()
	if version != 1 {
		return link{}, fmt.Errorf("unsupported version %d of a link (supported: 1)", version)
	}
	kind := 0
	if flags&8 != 0 {
		kind = d.u8()
	}
	if flags&4 != 0 {
		d.skip(8)
	}
	if flags&16 != 0 {
		d.skip(1)
	}
	n := d.number(1 << (flags & 3))
	l := link{name: string(d.bytes(int(min(n, 1<<20))))}
	if kind == 0 {
		l.addr = d.offset()
	} else {
		l.soft = true
	}
	if d.bad {
		return link{}, errors.New("damaged: a link is cut off")
	}
	return l, nil
}

// maxSymbols is the maximum number of names in a symbol table node.
const maxSymbols = 1 << 16

// symbols returns the links of a group with a symbol table.
func (f *File) symbols(tree, heap int64) ([]link, error) {
	d, err := f.signed(heap, int64(8+2*f.lengths+f.offsets), "HEAP", "heap of names")
	if err != nil {
		return nil, err
	}
	d.skip(4)
	size := d.length()
	d.skip(f.lengths)
	names, err := f.read(d.offset(), size, "heap of names")
	if err != nil {
		return nil, err
	}
	t := &oldTree{f: f, kind: 0, key: f.lengths}
	var out []link
	seen := map[int64]bool{}
	err = t.walk(tree, func(_ []byte, child int64) error {
		if seen[child] {
			return f.damaged(child, "a table of names is listed twice")
		}
		seen[child] = true
		head, err := f.signed(child, 8, "SNOD", "table of names")
		if err != nil {
			return err
		}
		head.skip(2)
		n := head.u16()
		if n > maxSymbols || len(out)+n > maxObjects {
			return f.damaged(child, "a table of %d names", n)
		}
		entry := 2*f.offsets + 24
		b, err := f.read(child+8, int64(n*entry), "table of names")
		if err != nil {
			return err
		}
		e := f.decode(b)
		for range n {
			at := e.number(f.offsets)
			l := link{addr: e.offset()}
			l.soft = e.u32() == 2
			e.skip(20)
			if at >= uint64(len(names)) {
				return f.damaged(child, "a name at byte %d of a heap of %d", at, len(names))
			}
			end := strings.IndexByte(string(names[at:min(uint64(len(names)), at+1<<16)]), 0)
			if end < 0 {
				return f.damaged(child, "a name has no end")
			}
			l.name = string(names[at : at+uint64(end)])
			out = append(out, l)
		}
		return nil
	})
	return out, err
}

// dense returns the links of a group that stores them in a fractal heap.
func (f *File) dense(addr, names int64) ([]link, error) {
	h, err := f.heap(addr)
	if err != nil {
		return nil, err
	}
	var out []link
	err = f.newTree(names, 5, func(rec []byte, _ int) error {
		if len(rec) < 4+h.id {
			return f.damaged(names, "a name of %d bytes in an index of a group", len(rec))
		}
		if len(out) == maxObjects {
			return fmt.Errorf("it has more than %d objects", maxObjects)
		}
		b, err := h.object(rec[4 : 4+h.id])
		if err != nil {
			return err
		}
		l, err := f.parseLink(b)
		out = append(out, l)
		return err
	})
	return out, err
}

// fractal is a fractal heap: objects of different sizes in blocks of growing size.
type fractal struct {
	f          *File
	addr       int64
	id         int // bytes of an object's identifier
	flags      int
	width      int
	start      int64 // size of the first blocks
	direct     int64 // maximum size of direct blocks, which contain objects
	bits       int   // bits of an offset
	offsetSize int
	lengthSize int
	root       int64
	rows       int
	blocks     map[int64][]byte // blocks that were read, by address
	held       int64
}

func (f *File) heap(addr int64) (*fractal, error) {
	n := int64(4 + 1 + 2 + 2 + 1 + 4 + 12*f.lengths + 3*f.offsets + 2 + 2 + 2 + 2 + 4)
	b, err := f.read(addr, n, "heap of links")
	if err != nil {
		return nil, err
	}
	if string(b[:4]) != "FRHP" {
		return nil, f.damaged(addr, "expected a heap of links (FRHP)")
	}
	d := f.decode(b)
	d.skip(5)
	h := &fractal{f: f, addr: addr, blocks: map[int64][]byte{}}
	h.id = d.u16()
	if filters := d.u16(); filters != 0 {
		return nil, f.damaged(addr, "a heap of links that is compressed, which is not read")
	}
	if d, err = f.checked(addr, n, "FRHP", "heap of links"); err != nil {
		return nil, err
	}
	d.skip(1 + 2 + 2)
	h.flags = d.u8()
	managed := d.u32()
	d.skip(f.lengths + f.offsets + f.lengths + f.offsets + 8*f.lengths)
	h.width = d.u16()
	h.start, h.direct = d.length(), d.length()
	h.bits = d.u16()
	d.skip(2)
	h.root, h.rows = d.offset(), d.u16()
	if d.bad {
		return nil, f.damaged(addr, "a heap of links is cut off")
	}
	power := func(n int64) bool { return n > 0 && n&(n-1) == 0 && n <= maxBlock }
	if h.width < 1 || h.width > 1024 || !power(h.start) || !power(h.direct) || h.direct < h.start || h.bits < 8 || h.bits > 64 || h.id < 3 || h.id > 64 || h.rows > 64 {
		return nil, f.damaged(addr, "a heap of links of blocks of %d to %d bytes, %d in a row, offsets of %d bits", h.start, h.direct, h.width, h.bits)
	}
	h.offsetSize = (h.bits + 7) / 8
	h.lengthSize = min((bits.Len64(uint64(h.direct))-1+7)/8, bytesFor(uint64(managed)))
	return h, nil
}

// object returns the object with this identifier.
func (h *fractal) object(id []byte) ([]byte, error) {
	d := h.f.decode(id)
	switch first := d.u8(); first >> 4 & 3 {
	case 0:
	case 2:
		b := d.bytes(first&15 + 1)
		if d.bad {
			return nil, h.f.damaged(h.addr, "an identifier of a link is cut off")
		}
		return b, nil
	default:
		return nil, fmt.Errorf("one of its names is longer than %d bytes, which is not supported", h.direct)
	}
	off := d.number(h.offsetSize)
	n := d.number(h.lengthSize)
	if d.bad || off > 1<<60 || n > uint64(h.direct) {
		return nil, h.f.damaged(h.addr, "a link of %d bytes at byte %d of its heap", n, off)
	}
	return h.at(h.root, h.rows, int64(off), int64(n), 0)
}

// at returns n bytes at an offset of the space that a block covers. The block is direct if rows is 0, otherwise
// indirect.
func (h *fractal) at(addr int64, rows int, off, n int64, depth int) ([]byte, error) {
	f := h.f
	head := int64(5 + f.offsets + h.offsetSize)
	if rows == 0 {
		return h.slice(addr, h.start, off, n)
	}
	if depth > 16 {
		return nil, f.damaged(addr, "a heap of links that is too deep")
	}
	maxDirect := bits.Len64(uint64(h.direct)) - bits.Len64(uint64(h.start)) + 2
	b, err := h.block(addr, head+int64(rows*h.width*f.offsets)+4, "FHIB", true)
	if err != nil {
		return nil, err
	}
	d := f.decode(b)
	d.skip(int(head))
	size := h.start
	for row := range rows {
		if row > 1 {
			size *= 2
		}
		if size > 1<<60 {
			break
		}
		if off >= size*int64(h.width) {
			off -= size * int64(h.width)
			d.skip(h.width * f.offsets)
			continue
		}
		d.skip(int(off/size) * f.offsets)
		child := d.offset()
		if d.bad {
			break
		}
		if off %= size; row < maxDirect {
			return h.slice(child, size, off, n)
		}
		// An indirect block has as many rows as cover its size.
		inner := bits.Len64(uint64(size)) - bits.Len64(uint64(h.start*int64(h.width))) + 1
		if inner < 1 || inner >= rows {
			return nil, f.damaged(addr, "a heap of links with a block of %d rows", inner)
		}
		return h.at(child, inner, off, n, depth+1)
	}
	return nil, f.damaged(addr, "a link is after the end of its heap")
}

// slice returns bytes of a direct block.
func (h *fractal) slice(addr, size, off, n int64) ([]byte, error) {
	b, err := h.block(addr, size, "FHDB", false)
	if err != nil {
		return nil, err
	}
	if off > size || n > size-off {
		return nil, h.f.damaged(addr, "a link at bytes %d to %d of a block of %d", off, off+n, size)
	}
	return b[off : off+n], nil
}

// block reads a block of the heap and caches it.
func (h *fractal) block(addr, size int64, name string, sum bool) ([]byte, error) {
	if b := h.blocks[addr]; int64(len(b)) == size {
		return b, nil
	}
	var d *decoder
	var err error
	if sum {
		if d, err = h.f.checked(addr, size, name, "block of a heap of links"); err == nil {
			d.b = d.b[:len(d.b):len(d.b)]
			d.b = append(d.b, 0, 0, 0, 0)
		}
	} else {
		d, err = h.f.signed(addr, size, name, "block of a heap of links")
	}
	if err != nil {
		return nil, err
	}
	if h.held += size; h.held > 4*maxBlock {
		return nil, h.f.damaged(addr, "a heap of links of more than %d bytes", 4*maxBlock)
	}
	h.blocks[addr] = d.b
	return d.b, nil
}
