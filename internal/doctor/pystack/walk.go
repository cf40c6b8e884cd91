package pystack

import (
	"slices"
	"time"
)

const (
	// windowBytes is the number of bytes of the data stack that are read in one call: the part below the innermost
	// frame. A frame has 72 bytes and 8 per local variable and stack slot, so the window has 100 frames or more.
	windowBytes = 16 << 10
	// windowAhead is the number of bytes that are read beyond the last top of the stack, because the stack may have
	// grown.
	windowAhead = 1 << 10
	// maxChunk limits the size of a data stack chunk. CPython's have 16 KiB, or as much as a larger frame needs.
	maxChunk = 64 << 20
	// maxExtra limits the number of frames outside the window that are read.
	maxExtra = 256
)

// askThread requests everything of a thread in one call, at the last known addresses. A pointer and its target are then
// read within a fraction of a microsecond. With separate calls, a program that calls functions all the time would have
// changed the target.
func (p *Process) askThread(t *thread) {
	l := p.layout
	t.at = len(p.reqs)
	p.ask(t.addr, t.block)
	t.cframeAt, t.windowAt, t.extraAt = -1, -1, -1
	if t.cframe != 0 {
		t.cframeAt = p.ask(t.cframe, t.cframeB[:])
	}
	if t.chunkSize != 0 {
		end := min(t.chunk+t.chunkSize, max(t.top, t.chunk)+windowAhead)
		t.base = max(t.chunk, end-min(end, windowBytes))
		t.window = slices.Grow(t.window[:0], windowBytes)[:end-t.base]
		t.windowAt = p.ask(t.base, t.window)
	}
	n := int(l.frameBytes)
	t.heap = slices.Grow(t.heap[:0], n*len(t.extra))[:n*len(t.extra)]
	for i, addr := range t.extra {
		at := p.ask(addr, t.heap[i*n:(i+1)*n])
		if i == 0 {
			t.extraAt = at
		}
	}
}

// takeThread stores the results of askThread.
func (p *Process) takeThread(t *thread) {
	ok := func(at int) bool { return at >= 0 && p.reqs[at].ok }
	t.ok, t.okCF, t.okWindow = ok(t.at), ok(t.cframeAt), ok(t.windowAt)
	t.okExtra = t.okExtra[:0]
	for i := range t.extra {
		t.okExtra = append(t.okExtra, ok(t.extraAt+i))
	}
}

// readFrames reads the chain of frames of all threads that were not read yet, or
// not well. It returns how many it tried.
func (p *Process) readFrames(again bool, deadline time.Time) int {
	if again {
		p.reqs = p.reqs[:0]
		for _, t := range p.threads {
			if t.state == readAgain {
				p.stats.Retried++
				p.askThread(t)
			}
		}
		if len(p.reqs) == 0 {
			return 0
		}
		p.read(p.reqs)
		for _, t := range p.threads {
			if t.state == readAgain {
				p.takeThread(t)
			}
		}
	}
	tried := 0
	for _, t := range p.threads {
		if t.state != readAgain {
			continue
		}
		tried++
		t.complete = false
		t.raw = t.raw[:0]
		if !t.ok || !p.currentFrame(t) || !time.Now().Before(deadline) {
			continue
		}
		if t.leaf == 0 {
			t.complete = true // no Python code is running
			continue
		}
		p.walk(t)
	}
	return tried
}

// currentFrame sets t.leaf, the innermost frame (0 for none), and t.leafAt, the address of that pointer. It also
// records the position of the data stack.
func (p *Process) currentFrame(t *thread) bool {
	l := p.layout
	if l.threadChunk != 0 {
		if chunk := le64(t.block, l.threadChunk); chunk != t.chunk {
			t.chunk, t.chunkSize, t.top, t.okWindow = chunk, 0, 0, false
			// A _PyStackChunk: previous, size, top, data.
			if size, ok := p.u64(chunk + 8); ok && chunk != 0 {
				t.chunkSize = min(size, maxChunk)
			}
		}
	}
	t.leaf, t.leafAt = le64(t.block, l.threadFrame), t.addr+l.threadFrame
	if !l.viaCFrame || t.leaf == 0 {
		return true
	}
	if t.cframe != t.leaf || !t.okCF {
		t.cframe = t.leaf
		if !p.bytes(t.cframe, t.cframeB[:]) {
			return false
		}
	}
	t.leaf, t.leafAt = le64(t.cframeB[:], l.cframeFrame), t.cframe+l.cframeFrame
	return true
}

// frameIn returns the memory of a frame, if it is in the part of the data stack that was read.
func (t *thread) frameIn(addr, size uint64) []byte {
	if !t.okWindow || addr < t.base {
		return nil
	}
	from, length := addr-t.base, uint64(len(t.window))
	if from > length || length-from < size {
		return nil
	}
	return t.window[from:]
}

// inChunk reports whether an address is in the current chunk of the data stack.
func (t *thread) inChunk(addr uint64) bool {
	return addr >= t.chunk && addr-t.chunk < t.chunkSize
}

// walk follows the chain of frames through the memory that was read, and reads the missing parts.
func (p *Process) walk(t *thread) {
	l := p.layout
	var single [maxFrameBytes + 8]byte
	outside := p.outside[:0]
	guess := 0 // they mostly come in the order of the last sample
	top, before := uint64(0), uint64(0)
	for addr, depth := t.leaf, 0; ; depth++ {
		if addr == 0 || depth == maxDepth {
			t.complete = true
			break
		}
		b := t.frameIn(addr, l.frameBytes)
		switch {
		case t.inChunk(addr):
			top = max(top, addr+l.frameBytes)
		case len(outside) < maxExtra:
			outside = append(outside, addr)
		}
		if b == nil {
			i := guess
			if i >= len(t.extra) || t.extra[i] != addr {
				i = slices.Index(t.extra, addr)
			}
			guess = i + 1
			if i >= 0 && t.okExtra[i] {
				b = t.heap[i*int(l.frameBytes):]
			} else if b = single[:l.frameBytes]; !p.bytes(addr, b) {
				break
			}
		}
		owner := byte(0)
		if l.frameOwner != 0 {
			owner = b[l.frameOwner]
		}
		const mostOwner = 4
		if owner > mostOwner {
			break // there is no frame here any more
		}
		if owner < l.ownerShim {
			r := rawFrame{code: le64(b, l.frameCode) &^ 7, instr: le64(b, l.frameInstr)} // the low bits tag references from 3.14 on
			if l.frameTLBC != 0 {
				r.tlbc = le32(b, l.frameTLBC)
			}
			t.raw = append(t.raw, r)
		}
		previous := le64(b, l.framePrevious)
		if previous >= addr && t.inChunk(addr) && t.inChunk(previous) {
			break // callers are below: this is old data
		}
		if depth&(depth-1) == 0 {
			before = addr // in a cyclic chain, one of these comes again
		}
		if addr = previous; addr == before {
			break
		}
	}
	// If the stack grows and shrinks, the window covers most of it.
	if top != 0 {
		t.top = max(top, t.top-(t.top-min(top, t.top))/8)
	}
	p.outside = outside
	t.extra = append(t.extra[:0], outside...)
}
