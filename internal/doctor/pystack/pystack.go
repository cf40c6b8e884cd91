// Package pystack reads the Python frames of all threads of a running CPython
// from outside: the process is not changed, not paused and need not help. It
// understands CPython 3.10 to 3.14 on 64-bit Linux, shared and static builds.
//
// # How
//
// [Open] finds the variable _PyRuntime in the ELF file of the interpreter by its section or by a symbol. It then learns
// the offsets of the fields of CPython's structures. From 3.13 on the interpreter describes itself in _PyRuntime
// (_Py_DebugOffsets); older versions are in a table. [Process.Sample] then follows runtime -> interpreters -> thread
// states -> frames -> code objects with process_vm_readv(2), many addresses per call.
//
// The process keeps running, so the bytes read may be half old and half new. Frames of a thread that are neighbours are
// read in one call. Each frame must refer to a code object and a valid offset in it, and the chain must end. A thread
// that changed during the read is read again. If a check still fails, the thread's frames are dropped and its [Thread]
// has Torn set. If a program only calls functions, 2 to 15% of the samples are dropped, more on a busy machine. Fewer
// than 0.7% show a call that was not made (TestFastCallsGiveNoFalseChains). Threads that wait or run C code are always
// read completely.
//
// # Cost
//
// A sample of two threads with 25 frames takes two system calls and 12 to 20 us
// (BenchmarkSample, all versions). The first one takes a millisecond or so, because names and
// line tables are read once per code object and kept.
//
// A Process may be used by one goroutine at a time.
package pystack

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
)

// Limits for following pointers in foreign memory. They are far above the use of real programs, and keep a sample short
// whatever the memory contains.
const (
	maxInterpreters = 64
	maxThreads      = 2048
	maxDepth        = 512                   // frames per thread; the outermost are left out beyond it
	maxName         = 256                   // characters of a function name
	maxPath         = 4096                  // characters of a file name
	maxCodes        = 1 << 16               // code objects remembered
	maxSample       = 50 * time.Millisecond // then the threads that are left count as torn
	attempts        = 3                     // to read a thread that changes meanwhile
)

// Frame is one Python function that is being executed.
type Frame struct {
	File string // co_filename: a path as Python saw it, or "<string>"
	Func string // co_name
	// Qual is co_qualname, "Class.method". It equals Func if the version has none (3.10).
	Qual string
	Line int // 0 if the code has no line numbers
}

// Thread is one thread that Python knows.
type Thread struct {
	// TID is the thread's id as this process sees it; 0 if it is unknown.
	TID int
	// GIL reports that the thread held the interpreter lock. No thread does in free-threaded builds.
	GIL bool
	// Torn reports that the frames could not be read consistently. Frames is then empty, and the thread should not be
	// counted.
	Torn bool
	// Frames begins with the innermost frame. It is empty for a thread without Python code.
	Frames []Frame
}

// Version is a version of CPython.
type Version struct {
	Major, Minor, Micro int
	FreeThreaded        bool
}

// String returns for example "3.13.0", followed by "t" for a free-threaded build.
func (v Version) String() string {
	s := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro)
	if v.FreeThreaded {
		s += "t"
	}
	return s
}

// Stats counts events since Open.
type Stats struct {
	Samples int64
	Threads int64 // threads seen, summed over the samples
	Retried int64 // threads that were read more than once in a sample
	Torn    int64 // threads that were dropped
	Calls   int64 // system calls that read memory
}

// Process is a running Python interpreter that is observed.
type Process struct {
	pid     int
	mem     memory
	layout  *layout
	runtime uint64 // address of _PyRuntime
	size    uint64 // of that; 0 if unknown
	tids    tidFinder

	codeType uint64 // address of PyCode_Type, once seen
	codes    map[uint64]*code
	epoch    uint64 // number of the sample
	// cached is roughly how many bytes codes holds.
	cached int

	interps []*interp
	threads []*thread
	stats   Stats

	// Scratch of one sample.
	reqs    []request
	fresh   []*code
	headers []byte
	outside []uint64
}

// Open looks for a CPython interpreter in process pid. Errors are of type [*Error], with the missing part and advice.
func Open(pid int) (*Process, error) {
	bin, err := findRuntime(pid)
	if err != nil {
		return nil, err
	}
	p := newProcess(pid, bin.mem, bin.layout, bin.runtime)
	p.size = bin.size
	return p, nil
}

// Fork opens process pid, a fork of p's process or of its ancestor that still runs the same program. Its interpreter
// has the same addresses, so nothing has to be searched, and the code that p knows is reused. Fork fails if the process
// is not such a fork.
func (p *Process) Fork(pid int) (*Process, error) {
	mem, err := openMemory(pid, p.runtime)
	if err != nil {
		return nil, err
	}
	if err := p.layout.check(pid, reader(mem), p.runtime); err != nil {
		_ = mem.close()
		return nil, err
	}
	q := newProcess(pid, mem, p.layout, p.runtime)
	q.size, q.codeType, q.tids.pthreadTID = p.size, p.codeType, p.tids.pthreadTID
	for addr, c := range p.codes {
		if !c.valid {
			continue
		}
		// Each sample compares the cached code with the memory.
		known := *c
		known.epoch, known.copies = 0, nil
		q.codes[addr] = &known
	}
	q.cached = p.cached
	return q, nil
}

// reader returns a function that reads one block at a time.
func reader(mem memory) func(uint64, []byte) bool {
	return func(addr uint64, b []byte) bool {
		r := []request{{addr: addr, buf: b}}
		mem.read(r)
		return r[0].ok
	}
}

func newProcess(pid int, mem memory, l *layout, runtime uint64) *Process {
	return &Process{
		pid: pid, mem: mem, layout: l, runtime: runtime,
		tids:  tidFinder{pid: pid},
		codes: map[uint64]*code{},
	}
}

// PID returns the process's id.
func (p *Process) PID() int { return p.pid }

// Version returns the version of the interpreter.
func (p *Process) Version() Version { return p.layout.version }

// Stats returns the counts so far.
func (p *Process) Stats() Stats { return p.stats }

// lockBytes is more than the size of an interpreter's lock with its condition variables.
const lockBytes = 256

// Owns reports whether an address is in the interpreter's own state, which contains its lock. A thread that waits there
// does not wait for the lock of a library. known is false if that is unknown.
func (p *Process) Owns(address uint64) (owns, known bool) {
	if p.size == 0 {
		return false, false
	}
	within := func(from, size uint64) bool { return from <= address && address-from < size }
	owns = within(p.runtime, p.size) || slices.ContainsFunc(p.interps, func(in *interp) bool {
		return in.gil != 0 && within(in.gil, lockBytes) // an interpreter with a lock of its own
	})
	return owns, true
}

// Close lets go of the process.
func (p *Process) Close() error { return p.mem.close() }

// interp is the last known state of an interpreter or sub-interpreter.
type interp struct {
	addr                 uint64
	gil                  uint64
	nextB, threadsB      [8]byte
	gilB                 [8]byte
	gilState             [gilBytes]byte
	okNext, okHead, okGP bool
	okGIL                bool
}

// thread is the last known thread state and its address.
type thread struct {
	addr   uint64
	block  []byte // the needed part of the PyThreadState
	ok     bool   // block was read in this sample
	native uint64
	id     uint64 // pthread_self
	tid    int
	epoch  uint64 // sample in which tid was looked up

	cframe  uint64 // address of the struct that points to the frame, or 0
	cframeB [24]byte
	okCF    bool

	leaf   uint64 // current frame, or 0
	leafAt uint64 // the address of that pointer
	verify [8]byte

	// The data stack with most frames: a chunk of memory, whose part from base on is read ahead.
	chunk, chunkSize uint64
	base, top        uint64 // top is about the end of its frames in the last sample
	window           []byte
	okWindow         bool

	extra   []uint64 // frames outside the window, which are also read ahead
	heap    []byte   // their memory
	okExtra []bool

	at, cframeAt, windowAt, extraAt int // requests; -1 for none

	raw      []rawFrame
	complete bool // raw reaches the outermost frame
	state    threadRead
}

type threadRead uint8

const (
	readAgain threadRead = iota // not read yet, or changed meanwhile
	readWhole                   // consistent
)

// rawFrame is a frame before its code object is known.
type rawFrame struct {
	code  uint64
	instr uint64 // address of the instruction; from 3.10 the index instead
	tlbc  uint32
}

func le64(b []byte, off uint64) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

// u64 reads one word.
func (p *Process) u64(addr uint64) (uint64, bool) {
	var b [8]byte
	if !p.bytes(addr, b[:]) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}

// bytes reads len(b) bytes at addr.
func (p *Process) bytes(addr uint64, b []byte) bool {
	one := [1]request{{addr: addr, buf: b}}
	p.read(one[:])
	return one[0].ok
}

func (p *Process) read(reqs []request) {
	p.stats.Calls++
	p.mem.read(reqs)
}

// ask adds a request to the next call.
func (p *Process) ask(addr uint64, buf []byte) int {
	p.reqs = append(p.reqs, request{addr: addr, buf: buf})
	return len(p.reqs) - 1
}

// Sample reads the present frames of all threads. An error ([*Error]) means that the process has ended or may no longer
// be read. Single threads that could not be read are marked instead.
func (p *Process) Sample() ([]Thread, error) {
	p.epoch++
	p.stats.Samples++
	if len(p.codes) > maxCodes || p.cached > maxRemember {
		clear(p.codes)
		p.cached = 0
	}
	holder, err := p.list()
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(maxSample)
	for _, t := range p.threads {
		t.state = readAgain
	}
	for attempt := range attempts {
		if p.readFrames(attempt > 0, deadline) == 0 {
			break
		}
		p.readCodes(attempt == attempts-1, deadline)
	}
	out := make([]Thread, 0, len(p.threads))
	for _, t := range p.threads {
		th := Thread{TID: t.tid, GIL: holder(t.addr)}
		if t.state != readWhole {
			th.Torn = true
			p.stats.Torn++
		} else {
			th.Frames = p.frames(t)
		}
		out = append(out, th)
	}
	p.stats.Threads += int64(len(out))
	return out, nil
}

// list updates p.interps and p.threads. It returns a function that reports whether a thread state holds an interpreter
// lock.
func (p *Process) list() (func(uint64) bool, error) {
	l := p.layout
	var head, current [8]byte
	p.reqs = p.reqs[:0]
	headAt := p.ask(p.runtime+l.interpHead, head[:])
	currentAt := -1
	if l.runtimeCurrent != 0 {
		currentAt = p.ask(p.runtime+l.runtimeCurrent, current[:])
	}
	// Assume that the lists have not changed: then everything comes in one call.
	for _, in := range p.interps {
		p.ask(in.addr+l.interpNext, in.nextB[:])
		p.ask(in.addr+l.interpThreads, in.threadsB[:])
		if l.interpGIL != 0 {
			p.ask(in.addr+l.interpGIL, in.gilB[:])
			if in.gil != 0 {
				p.ask(in.gil, in.gilState[:])
			}
		}
	}
	for _, t := range p.threads {
		p.askThread(t)
	}
	p.read(p.reqs)
	if !p.reqs[headAt].ok {
		return nil, p.gone()
	}
	i := headAt + 1
	if currentAt >= 0 {
		i++
	}
	next := func() bool { ok := p.reqs[i].ok; i++; return ok }
	for _, in := range p.interps {
		in.okNext, in.okHead = next(), next()
		in.okGP, in.okGIL = false, false
		if l.interpGIL != 0 {
			in.okGP = next()
			if in.gil != 0 {
				in.okGIL = next()
			}
		}
	}
	for _, t := range p.threads {
		p.takeThread(t)
	}

	var interps []*interp
	var threads []*thread
	if sameLists := p.unchanged(le64(head[:], 0)); sameLists {
		interps, threads = p.interps, p.threads
	} else {
		interps, threads = p.follow(le64(head[:], 0))
	}
	var holders [4]uint64
	n := 0
	for _, in := range interps {
		if l.interpGIL == 0 {
			break
		}
		if h := p.gilHolder(in); h != 0 && n < len(holders) {
			holders[n] = h
			n++
		}
	}
	if currentAt >= 0 && p.reqs[currentAt].ok {
		if h := le64(current[:], 0); h != 0 {
			holders[0], n = h, 1
		}
	}
	p.interps, p.threads = interps, threads
	for _, t := range threads {
		p.identify(t)
	}
	held := holders
	return func(addr uint64) bool { return slices.Contains(held[:n], addr) }, nil
}

// unchanged reports whether the lists of interpreters and threads are those of the last sample, according to the last
// read.
func (p *Process) unchanged(head uint64) bool {
	l := p.layout
	at := 0
	if head == 0 || len(p.interps) == 0 {
		return false
	}
	for i, in := range p.interps {
		if !in.okNext || !in.okHead || in.addr != head {
			return false
		}
		head = le64(in.nextB[:], 0)
		th := le64(in.threadsB[:], 0)
		for ; th != 0; at++ {
			if at >= len(p.threads) || p.threads[at].addr != th || !p.threads[at].ok ||
				le64(p.threads[at].block, l.threadInterp) != in.addr {
				return false
			}
			th = le64(p.threads[at].block, l.threadNext)
		}
		if i == len(p.interps)-1 && head != 0 {
			return false
		}
	}
	return at == len(p.threads)
}

// follow walks the lists link by link.
func (p *Process) follow(head uint64) ([]*interp, []*thread) {
	l := p.layout
	var interps []*interp
	var threads []*thread
	seen := map[uint64]bool{}
	known := make(map[uint64]*thread, len(p.threads))
	for _, t := range p.threads {
		known[t.addr] = t
	}
	for addr := head; addr != 0 && len(interps) < maxInterpreters && !seen[addr]; {
		seen[addr] = true
		in := &interp{addr: addr}
		p.reqs = append(p.reqs[:0],
			request{addr: addr + l.interpNext, buf: in.nextB[:]},
			request{addr: addr + l.interpThreads, buf: in.threadsB[:]})
		if l.interpGIL != 0 {
			p.ask(addr+l.interpGIL, in.gilB[:])
		}
		p.read(p.reqs)
		if !p.reqs[0].ok || !p.reqs[1].ok {
			break
		}
		in.okNext, in.okHead = true, true
		in.okGP = l.interpGIL != 0 && p.reqs[2].ok
		interps = append(interps, in)
		for th := le64(in.threadsB[:], 0); th != 0 && len(threads) < maxThreads && !seen[th]; {
			seen[th] = true
			t := known[th]
			if t == nil {
				t = &thread{addr: th, block: make([]byte, l.threadBytes)}
			}
			t.ok, t.okCF, t.okWindow, t.extra = p.bytes(th, t.block), false, false, t.extra[:0]
			if !t.ok || le64(t.block, l.threadInterp) != addr {
				break // unlinked meanwhile: the rest is found next time
			}
			threads = append(threads, t)
			th = le64(t.block, l.threadNext)
		}
		addr = le64(in.nextB[:], 0)
	}
	return interps, threads
}

// gilHolder returns the thread state that holds the lock of an interpreter, or
// 0.
func (p *Process) gilHolder(in *interp) uint64 {
	l := p.layout
	if !in.okGP {
		return 0
	}
	if gil := le64(in.gilB[:], 0); gil != in.gil || !in.okGIL {
		in.gil = gil
		if gil == 0 || !p.bytes(gil, in.gilState[:]) {
			return 0
		}
	}
	if l.gilEnabled != 0 && binary.LittleEndian.Uint32(in.gilState[l.gilEnabled:]) == 0 {
		return 0 // free-threaded, with the lock switched off
	}
	if int32(binary.LittleEndian.Uint32(in.gilState[l.gilLocked:])) <= 0 {
		return 0
	}
	return le64(in.gilState[:], l.gilHolder)
}

// identify finds the thread's id when the thread is new.
func (p *Process) identify(t *thread) {
	l := p.layout
	id, native := le64(t.block, l.threadID), uint64(0)
	if l.threadNative != 0 {
		native = le64(t.block, l.threadNative)
	}
	if t.epoch != 0 && id == t.id && native == t.native && (t.tid != 0 || p.epoch-t.epoch < 100) {
		return
	}
	t.id, t.native, t.epoch = id, native, p.epoch
	t.tid = p.tids.find(p, id, native)
}

// frames converts raw frames into the caller's form.
func (p *Process) frames(t *thread) []Frame {
	frames := make([]Frame, 0, len(t.raw))
	for _, r := range t.raw {
		c := p.codes[r.code]
		frames = append(frames, Frame{File: c.file, Func: c.name, Qual: c.qual, Line: c.line(p.offset(c, r))})
	}
	return frames
}

// gone returns the reason why a process can no longer be read.
func (p *Process) gone() error {
	if err := p.mem.failure(); err != nil {
		return err
	}
	if !proc.Live.Exists(p.pid) {
		return &Error{PID: p.pid, Kind: Gone, Msg: "the process has ended"}
	}
	return &Error{PID: p.pid, Kind: Gone, Msg: "its memory can no longer be read: it has ended or runs another program now"}
}
