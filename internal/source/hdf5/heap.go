package hdf5

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// Values of variable length are stored in global heaps. The data set has a reference for each: a length, the
// address of a heap, and a number in it.

// Heaps finds values in the heaps of a file. It is safe for concurrent use.
type Heaps struct {
	f  *File
	mu sync.Mutex
	// last are the heaps that were read last. Values are usually stored in order.
	last map[int64]map[uint32]span
	held int
}

type span struct{ offset, size int64 }

// Heaps returns the Heaps of the data set's file.
func (d *Dataset) Heaps() *Heaps { return &Heaps{f: d.f, last: map[int64]map[uint32]span{}} }

// maxHeld limits the number of cached positions of values.
const maxHeld = 1 << 16

// Find returns the position of a value in the file and its size in bytes. place is a reference, element the size of
// an element. An empty value has size 0.
func (h *Heaps) Find(place []byte, element int64) (offset, size int64, err error) {
	d := h.f.decode(place)
	count := int64(d.u32())
	addr := d.offset()
	number := d.u32()
	if d.bad {
		return 0, 0, fmt.Errorf("damaged: a reference of %d bytes", len(place))
	}
	if count == 0 {
		return 0, 0, nil
	}
	if addr == undefined || addr == 0 {
		return 0, 0, fmt.Errorf("damaged: a value of %d elements has no address", count)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	heap, ok := h.last[addr]
	if !ok {
		if heap, err = h.read(addr); err != nil {
			return 0, 0, err
		}
		if h.held > maxHeld {
			clear(h.last)
			h.held = 0
		}
		h.last[addr] = heap
		h.held += len(heap) + 1
	}
	at, ok := heap[number]
	if !ok {
		return 0, 0, h.f.damaged(addr, "a heap has no value %d", number)
	}
	if size = count * element; size > at.size {
		return 0, 0, h.f.damaged(addr, "value %d of a heap has %d bytes, expected %d", number, at.size, size)
	}
	return h.f.base + at.offset, size, nil
}

// headBytes is the size of the first read of a heap. Most heaps are not larger.
const headBytes = 4096

// read lists the values of a heap.
func (h *Heaps) read(addr int64) (map[uint32]span, error) {
	f := h.f
	first := min(headBytes, f.size-f.base-addr)
	b, err := f.read(addr, first, "heap of values")
	if err != nil {
		return nil, err
	}
	head := 8 + f.lengths
	if len(b) < head || string(b[:4]) != "GCOL" || b[4] != 1 {
		return nil, f.damaged(addr, "expected a heap of values (GCOL)")
	}
	d := f.decode(b[8:])
	size := d.length()
	if err := f.within(addr, size, "heap of values"); err != nil {
		return nil, err
	}
	out := map[uint32]span{}
	entry := int64(8 + f.lengths)
	entry = (entry + 7) &^ 7
	begin := addr // address of b
	for at := addr + (int64(head)+7)&^7; at+entry <= addr+size; {
		if at+entry > begin+int64(len(b)) {
			if b, err = f.read(at, min(headBytes, addr+size-at), "heap of values"); err != nil {
				return nil, err
			}
			begin = at
		}
		p := b[at-begin:]
		number := uint32(binary.LittleEndian.Uint16(p))
		e := f.decode(p[8:])
		n := e.length()
		if number == 0 {
			break // free space
		}
		if n > addr+size-at-entry {
			return nil, f.damaged(at, "value %d of a heap has %d bytes, the heap ends after %d", number, n, addr+size-at-entry)
		}
		if len(out) > 1<<16 {
			return nil, f.damaged(addr, "a heap of more than %d values", 1<<16)
		}
		out[number] = span{at + entry, n}
		at += entry + (n+7)&^7
	}
	return out, nil
}
