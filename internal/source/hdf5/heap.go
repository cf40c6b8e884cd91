package hdf5

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// What has any length lies in heaps of the whole file. Where a data set has such
// values it has places: a length, the address of a heap, and a number in it.

// Heaps finds values in the heaps of a file. Its methods may be called from several
// goroutines at once.
type Heaps struct {
	f  *File
	mu sync.Mutex
	// last is the heap that was read last: values lie there one after the other.
	last map[int64]map[uint32]span
	held int
}

type span struct{ offset, size int64 }

// Heaps returns what finds values in heaps.
func (d *Dataset) Heaps() *Heaps { return &Heaps{f: d.f, last: map[int64]map[uint32]span{}} }

// maxHeld is how many places of values are kept of the heaps that were read last.
const maxHeld = 1 << 16

// Find returns where the value lies that a place leads to, as bytes of the file, and
// how many elements it has. One without elements has no bytes.
func (h *Heaps) Find(place []byte, element int64) (offset, size int64, err error) {
	d := h.f.decode(place)
	count := int64(d.u32())
	addr := d.offset()
	number := d.u32()
	if d.bad {
		return 0, 0, fmt.Errorf("damaged: a place of %d bytes", len(place))
	}
	if count == 0 {
		return 0, 0, nil
	}
	if addr == undefined || addr == 0 {
		return 0, 0, fmt.Errorf("damaged: a value of %d elements has no place", count)
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
		return 0, 0, h.f.damaged(addr, "value %d of a heap has %d bytes, and not the %d that it should", number, at.size, size)
	}
	return h.f.base + at.offset, size, nil
}

// headBytes are read of a heap at first: most are not larger.
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
		return nil, f.damaged(addr, "no heap of values (GCOL) is there")
	}
	d := f.decode(b[8:])
	size := d.length()
	if err := f.within(addr, size, "heap of values"); err != nil {
		return nil, err
	}
	out := map[uint32]span{}
	entry := int64(8 + f.lengths)
	entry = (entry + 7) &^ 7
	begin := addr // of b
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
			break // what is free
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
