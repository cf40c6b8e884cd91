package hdf5

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The types of messages in object headers that this package parses.
const (
	msgSpace        = 0x01
	msgLinkInfo     = 0x02
	msgType         = 0x03
	msgOldFill      = 0x04
	msgFill         = 0x05
	msgLink         = 0x06
	msgExternal     = 0x07
	msgLayout       = 0x08
	msgFilters      = 0x0B
	msgContinuation = 0x10
	msgSymbols      = 0x11
)

const (
	maxBlocks   = 4096 // blocks of an object header
	maxMessages = 1 << 16
)

// message is a message of an object header.
type message struct {
	kind   int
	shared bool
	data   []byte
}

// header returns all messages of the object at an address.
func (f *File) header(addr int64) ([]message, error) {
	b, err := f.read(addr, min(16, f.size-f.base-max(addr, 0)), "object header")
	if err != nil {
		return nil, err
	}
	if len(b) < 16 {
		return nil, f.damaged(addr, "an object header is cut off")
	}
	h := &reader{f: f}
	if string(b[:4]) == "OHDR" {
		err = h.v2(addr, b)
	} else if b[0] == 1 {
		err = h.v1(addr, b)
	} else {
		err = f.damaged(addr, "expected an object header")
	}
	// A block may point to further blocks.
	for n := 0; err == nil && len(h.next) > 0; n++ {
		if n == maxBlocks {
			return nil, f.damaged(addr, "an object header of more than %d blocks", maxBlocks)
		}
		at, size := h.next[0].addr, h.next[0].size
		h.next = h.next[1:]
		if !h.second {
			b, rerr := f.read(at, size, "block of an object header")
			if rerr != nil {
				return nil, rerr
			}
			err = h.messages(at, f.decode(b))
			continue
		}
		d, rerr := f.checked(at, size, "OCHK", "block of an object header")
		if rerr != nil {
			return nil, rerr
		}
		err = h.messages(at, d)
	}
	return h.all, err
}

// reader collects the messages of an object header.
type reader struct {
	f      *File
	second bool // version 2
	order  bool // each message has a creation order number
	all    []message
	next   []struct{ addr, size int64 }
}

func (h *reader) v1(addr int64, b []byte) error {
	size := int64(binary.LittleEndian.Uint32(b[8:]))
	b, err := h.f.read(addr+16, size, "object header")
	if err != nil {
		return err
	}
	return h.messages(addr+16, h.f.decode(b))
}

func (h *reader) v2(addr int64, b []byte) error {
	h.second = true
	if b[4] != 2 {
		return h.f.damaged(addr, "an object header of version %d", b[4])
	}
	flags := int(b[5])
	h.order = flags&4 != 0
	n := int64(6)
	if flags&32 != 0 {
		n += 16
	}
	if flags&16 != 0 {
		n += 4
	}
	width := int64(1) << (flags & 3)
	head, err := h.f.read(addr, n+width, "object header")
	if err != nil {
		return err
	}
	d := h.f.decode(head)
	d.skip(int(n))
	size := d.number(int(width))
	if size > maxBlock {
		return h.f.damaged(addr, "an object header of %d bytes", size)
	}
	if d, err = h.f.checked(addr, n+width+int64(size)+4, "OHDR", "object header"); err != nil {
		return err
	}
	return h.messages(addr+n+width, h.f.decode(d.b[n+width:]))
}

// messages parses the messages of a block.
func (h *reader) messages(addr int64, d *decoder) error {
	head := 8
	if h.second {
		if head = 4; h.order {
			head = 6
		}
	}
	for d.left() >= head {
		var m message
		var size, flags int
		if h.second {
			m.kind, size, flags = d.u8(), d.u16(), d.u8()
			if h.order {
				d.skip(2)
			}
		} else {
			m.kind, size, flags = d.u16(), d.u16(), d.u8()
			d.skip(3)
		}
		m.shared = flags&2 != 0
		at := addr + int64(d.at)
		m.data = d.bytes(size)
		if d.bad {
			return h.f.damaged(at, "a message of %d bytes in a block with %d left", size, d.left())
		}
		if m.kind == msgContinuation {
			c := h.f.decode(m.data)
			to, n := c.offset(), c.length()
			if c.bad {
				return h.f.damaged(at, "a continuation of an object header is cut off")
			}
			h.next = append(h.next, struct{ addr, size int64 }{to, n})
			continue
		}
		if len(h.all) == maxMessages {
			return h.f.damaged(addr, "an object header of more than %d messages", maxMessages)
		}
		h.all = append(h.all, m)
	}
	return nil
}

// find returns the first message of a type, or nil if there is none. A shared message is read from the object that
// has it.
func (f *File) find(all []message, kind int) ([]byte, error) {
	for _, m := range all {
		if m.kind != kind {
			continue
		}
		if !m.shared {
			return m.data, nil
		}
		d := f.decode(m.data)
		version, typ := d.u8(), d.u8()
		if version == 1 {
			d.skip(6)
		}
		if version < 1 || version > 3 || version == 3 && typ != 2 {
			return nil, errors.New("its description is in a heap of shared messages, which is not supported: rewrite the file with h5repack")
		}
		addr := d.offset()
		if d.bad {
			return nil, errors.New("damaged: the address of a shared message is cut off")
		}
		other, err := f.header(addr)
		if err != nil {
			return nil, err
		}
		for _, o := range other {
			if o.kind == kind && !o.shared {
				return o.data, nil
			}
		}
		return nil, f.damaged(addr, "a shared message is missing")
	}
	return nil, nil
}

// parseSpace parses the shape of a data set and its maximum. ok is false for a data set without elements.
func (f *File) parseSpace(b []byte) (dims, most []int64, ok bool, err error) {
	d := f.decode(b)
	version, rank, flags := d.u8(), d.u8(), d.u8()
	switch version {
	case 1:
		d.skip(5)
	case 2:
		if d.u8() == 2 {
			return nil, nil, false, nil
		}
	default:
		return nil, nil, false, fmt.Errorf("unsupported version %d of its shape (supported: 1, 2)", version)
	}
	if rank > 32 {
		return nil, nil, false, fmt.Errorf("damaged: a shape of %d axes", rank)
	}
	for range rank {
		dims = append(dims, d.length())
	}
	if flags&1 != 0 {
		for i := range rank {
			n := d.number(d.lengths)
			if n > 1<<62 || d.lengths < 8 && n == 1<<(8*d.lengths)-1 {
				most = append(most, undefined) // without a limit
			} else if most = append(most, int64(n)); int64(n) < dims[i] {
				return nil, nil, false, fmt.Errorf("damaged: axis %d has %d elements, at most %d", i, dims[i], n)
			}
		}
	} else {
		most = append(most, dims...)
	}
	if d.bad {
		return nil, nil, false, errors.New("damaged: the description of its shape is cut off")
	}
	return dims, most, true, nil
}

// Filter is an encoding step of chunks.
type Filter struct {
	ID     int
	Name   string
	Values []uint32
}

func (f *File) parseFilters(b []byte) ([]Filter, error) {
	d := f.decode(b)
	version, n := d.u8(), d.u8()
	if version == 1 {
		d.skip(6)
	} else if version != 2 {
		return nil, fmt.Errorf("unsupported version %d of its filters (supported: 1, 2)", version)
	}
	if n > 32 {
		return nil, fmt.Errorf("damaged: %d filters, a chunk has at most 32", n)
	}
	var out []Filter
	for range n {
		p := Filter{ID: d.u16()}
		size := 0
		if version == 1 || p.ID >= 256 {
			size = d.u16()
		}
		d.skip(2) // flags: whether the filter is optional
		values := d.u16()
		name := d.bytes(size)
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		p.Name = string(name)
		if version == 1 && size%8 != 0 {
			d.skip(8 - size%8)
		}
		if d.bad || values > d.left()/4 {
			return nil, errors.New("damaged: the description of its filters is cut off")
		}
		for range values {
			p.Values = append(p.Values, d.u32())
		}
		if version == 1 && values%2 != 0 {
			d.skip(4)
		}
		out = append(out, p)
	}
	if d.bad {
		return nil, errors.New("damaged: the description of its filters is cut off")
	}
	return out, nil
}

// parseFill parses the fill value. It returns nil for zeros.
func (f *File) parseFill(b []byte, old bool) ([]byte, error) {
	d := f.decode(b)
	if !old {
		switch version := d.u8(); version {
		case 1, 2:
			d.skip(2)
			if defined := d.u8(); version == 2 && defined == 0 {
				return nil, nil
			}
		case 3:
			if flags := d.u8(); flags&32 == 0 {
				return nil, nil
			}
		default:
			return nil, fmt.Errorf("unsupported version %d of its fill value (supported: 1 to 3)", version)
		}
	}
	n := d.u32()
	if n > 1<<30 || d.bad {
		if d.bad && len(b) <= 4 {
			return nil, nil
		}
		return nil, errors.New("damaged: its fill value is cut off")
	}
	out := d.bytes(int(n))
	if d.bad {
		return nil, errors.New("damaged: its fill value is cut off")
	}
	return out, nil
}
