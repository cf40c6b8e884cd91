package pystack

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
)

// A layout has the offsets of the fields in CPython's structures, in bytes. Zero marks a field that the version does
// not have, unless the field may come first in its structure.
type layout struct {
	version Version

	interpHead     uint64 // _PyRuntime.interpreters.head
	runtimeCurrent uint64 // _PyRuntime.gilstate.tstate_current: the holder of the lock (3.10, 3.11)

	interpNext, interpThreads uint64
	interpGIL                 uint64 // PyInterpreterState.ceval.gil, a pointer (from 3.12)
	gilHolder, gilLocked      uint64 // in struct _gil_runtime_state
	gilEnabled                uint64 // free-threaded builds only

	threadNext, threadInterp uint64
	threadFrame              uint64 // current frame, or the _PyCFrame that points to it
	threadID, threadNative   uint64
	threadChunk              uint64 // datastack_chunk: it has the frames (from 3.11)
	threadBytes              uint64 // the size to read of a PyThreadState
	viaCFrame                bool
	cframeFrame              uint64

	frameCode, framePrevious, frameInstr uint64
	frameOwner                           uint64
	frameTLBC                            uint64 // free-threaded 3.14: which copy of the bytecode
	frameBytes                           uint64
	// ownerShim is the first owner value that marks a call from C instead of a Python function.
	ownerShim byte
	// instrIsIndex reports that a frame has the number of the instruction and not its address (3.10).
	instrIsIndex bool

	objectType uint64 // ob_type
	sizeOf     uint64 // ob_size of an object of variable size
	typeName   uint64 // tp_name

	codeFile, codeName, codeQual, codeLines, codeFirst uint64
	codeStart                                          uint64 // co_code_adaptive
	codeTLBC                                           uint64
	codeBytes                                          uint64

	stringLength, stringState uint64
	asciiBytes, compactBytes  uint64 // size of the headers before the characters
	kindShift                 uint   // the position of the kind in the state bits

	bytesData uint64
}

// gilBytes is the number of bytes that are read from a lock.
const gilBytes = 64

// Size limits for the layout that a process describes. Interpreter state is the largest structure, 200 to 400 kB.
const (
	maxInterpOffset = 8 << 20
	maxThreadBytes  = 4096
	maxFrameBytes   = 1024
	maxCodeBytes    = 2048
)

// The tables were derived from the headers of each version (Include/internal
// and Include/cpython) and checked against the debug information of 3.10.13,
// 3.11.7 and 3.12.1 on x86_64. Within a minor version they do not change: these
// structures are part of the ABI that debuggers use.
var (
	layout310 = layout{
		interpHead: 32, runtimeCurrent: gilstateCurrent(568),
		interpNext: 0, interpThreads: 8,
		threadNext: 8, threadInterp: 16, threadFrame: 24, threadID: 176, threadBytes: 184,
		// A PyFrameObject: f_code, f_back, f_lasti.
		frameCode: 32, framePrevious: 24, frameInstr: 96, frameBytes: 104, instrIsIndex: true,
		ownerShim:  255,
		objectType: 8, sizeOf: 16, typeName: 24,
		codeFile: 104, codeName: 112, codeLines: 120, codeFirst: 40, codeBytes: 128,
		stringLength: 16, stringState: 32, asciiBytes: 48, compactBytes: 72, kindShift: 2,
		bytesData: 32,
	}
	layout311 = layout{
		interpHead: 40, runtimeCurrent: gilstateCurrent(576),
		interpNext: 0, interpThreads: 16,
		threadNext: 8, threadInterp: 16, threadFrame: 56, threadID: 152, threadNative: 160, threadChunk: 296, threadBytes: 304,
		viaCFrame: true, cframeFrame: 8,
		frameCode: 32, framePrevious: 48, frameInstr: 56, frameOwner: 69, frameBytes: 72,
		ownerShim:  255,
		objectType: 8, sizeOf: 16, typeName: 24,
		codeFile: 112, codeName: 120, codeQual: 128, codeLines: 136, codeFirst: 72, codeStart: 184, codeBytes: 144,
		stringLength: 16, stringState: 32, asciiBytes: 48, compactBytes: 72, kindShift: 2,
		bytesData: 32,
	}
	layout312 = layout{
		interpHead: 40,
		interpNext: 0, interpThreads: 72, interpGIL: 384, gilHolder: 8, gilLocked: 16,
		threadNext: 8, threadInterp: 16, threadFrame: 56, threadID: 136, threadNative: 144, threadChunk: 232, threadBytes: 240,
		viaCFrame: true, cframeFrame: 0,
		frameCode: 0, framePrevious: 8, frameInstr: 56, frameOwner: 70, frameBytes: 72,
		ownerShim:  3, // FRAME_OWNED_BY_CSTACK
		objectType: 8, sizeOf: 16, typeName: 24,
		codeFile: 112, codeName: 120, codeQual: 128, codeLines: 136, codeFirst: 68, codeStart: 192, codeBytes: 144,
		stringLength: 16, stringState: 32, asciiBytes: 40, compactBytes: 56, kindShift: 2,
		bytesData: 32,
	}
)

// gilstateCurrent returns the offset of _PyRuntime.gilstate.tstate_current that is x on x86_64. The lock before it has
// two mutexes, which are 40 bytes long in glibc on x86_64 and 48 on arm64 (bits/pthreadtypes-arch.h).
func gilstateCurrent(x uint64) uint64 {
	if runtime.GOARCH == "arm64" {
		return x + 2*8
	}
	return x
}

// knownVersions are the minor versions of 3 that this package reads.
const (
	oldestMinor = 10
	newestMinor = 14
	// describedMinor is the first that describes itself.
	describedMinor = 13
)

// versionError returns the error for an unknown version.
func versionError(pid int, v Version) *Error {
	e := &Error{PID: pid, Kind: Unknown, Msg: fmt.Sprintf("it runs CPython %d.%d; 3.%d to 3.%d can be read", v.Major, v.Minor, oldestMinor, newestMinor)}
	if v.Major > 3 || v.Major == 3 && v.Minor > newestMinor {
		e.Hint = "a newer version of this program may know it"
	}
	return e
}

// versionOf splits PY_VERSION_HEX.
func versionOf(hex uint64) Version {
	return Version{Major: int(hex >> 24 & 0xff), Minor: int(hex >> 16 & 0xff), Micro: int(hex >> 8 & 0xff)}
}

// tableFor returns the layout of a version that does not describe itself.
func tableFor(v Version) (*layout, bool) {
	if v.Major != 3 || v.Minor < oldestMinor || v.Minor >= describedMinor {
		return nil, false
	}
	l := []layout{layout310, layout311, layout312}[v.Minor-oldestMinor]
	l.version = v
	return &l, true
}

// debugCookie is the beginning of _Py_DebugOffsets.
const debugCookie = "xdebugpy"

// debugBytes is the size of the largest _Py_DebugOffsets known, rounded up.
const debugBytes = 1024

// Fields of _Py_DebugOffsets in their order, one word each, after cookie, version and free_threaded. Unused fields are
// "". Source: Include/internal/pycore_runtime.h of 3.13 and pycore_debug_offsets.h of 3.14.
var (
	debugFields313 = []string{
		"", "", "interpHead", // runtime state: size, finalizing, interpreters_head
		"", "", "interpNext", "interpThreads", "", "", "", "", "interpGIL", "gil", "gilEnabled", "gilLocked", "gilHolder",
		"threadBytes", "", "threadNext", "threadInterp", "threadFrame", "threadID", "threadNative", "threadChunk", "",
		"frameBytes", "framePrevious", "frameCode", "frameInstr", "", "frameOwner",
		"codeBytes", "codeFile", "codeName", "codeQual", "codeLines", "codeFirst", "", "", "", "codeStart",
		"objectBytes", "objectType",
		"", "typeName", "", "",
		"", "", "", // tuple
		"", "", "", // list
		"", "", "", // dict
		"", "", // float
		"", "", "", // long
		"", "", "bytesData",
		"", "stringState", "stringLength", "asciiBytes",
	}
	debugFields314 = []string{
		"", "", "interpHead",
		"", "", "interpNext", "interpThreads", "", "", "", "", "", "interpGIL", "gil", "gilEnabled", "gilLocked", "gilHolder", "", "",
		"threadBytes", "", "threadNext", "threadInterp", "threadFrame", "threadID", "threadNative", "threadChunk", "",
		"frameBytes", "framePrevious", "frameCode", "frameInstr", "", "frameOwner", "", "frameTLBC",
		"codeBytes", "codeFile", "codeName", "codeQual", "codeLines", "codeFirst", "", "", "", "codeStart", "codeTLBC",
		"objectBytes", "objectType",
		"", "typeName", "", "",
		"", "", "", // tuple
		"", "", "", // list
		"", "", "", "", // set
		"", "", "", // dict
		"", "", // float
		"", "", "", // long
		"", "", "bytesData",
		"", "stringState", "stringLength", "asciiBytes",
	}
)

// describedLayout reads the layout from a process's own description. It returns an error text if b is not a description
// or cannot be true.
func describedLayout(b []byte) (*layout, Version, string) {
	if len(b) < 24 || string(b[:8]) != debugCookie {
		return nil, Version{}, "the interpreter does not describe its layout"
	}
	v := versionOf(le64(b, 8))
	v.FreeThreaded = le64(b, 16) != 0
	var names []string
	switch {
	case v.Major == 3 && v.Minor == 13:
		names = debugFields313
	case v.Major == 3 && v.Minor == 14:
		names = debugFields314
	default:
		return nil, v, ""
	}
	if len(b) < 24+8*len(names) {
		return nil, v, "its description of the layout is cut off"
	}
	f := map[string]uint64{}
	for i, name := range names {
		if name != "" {
			f[name] = le64(b, uint64(24+8*i))
		}
	}
	l := &layout{
		version:    v,
		interpHead: f["interpHead"],
		interpNext: f["interpNext"], interpThreads: f["interpThreads"], interpGIL: f["interpGIL"],
		gilHolder: f["gilHolder"] - f["gil"], gilLocked: f["gilLocked"] - f["gil"],
		threadNext: f["threadNext"], threadInterp: f["threadInterp"], threadFrame: f["threadFrame"],
		threadID: f["threadID"], threadNative: f["threadNative"], threadChunk: f["threadChunk"],
		frameCode: f["frameCode"], framePrevious: f["framePrevious"], frameInstr: f["frameInstr"], frameOwner: f["frameOwner"],
		ownerShim:  3, // FRAME_OWNED_BY_CSTACK in 3.13, FRAME_OWNED_BY_INTERPRETER in 3.14, and FRAME_OWNED_BY_CSTACK above it
		objectType: f["objectType"], sizeOf: f["objectBytes"], typeName: f["typeName"],
		codeFile: f["codeFile"], codeName: f["codeName"], codeQual: f["codeQual"], codeLines: f["codeLines"], codeFirst: f["codeFirst"],
		codeStart:    f["codeStart"],
		stringLength: f["stringLength"], stringState: f["stringState"], asciiBytes: f["asciiBytes"],
		compactBytes: f["asciiBytes"] + 16, // utf8_length and utf8 are in between
		kindShift:    2,
		bytesData:    f["bytesData"],
	}
	if v.FreeThreaded {
		l.gilEnabled = f["gilEnabled"] - f["gil"]
		l.frameTLBC, l.codeTLBC = f["frameTLBC"], f["codeTLBC"]
		if v.Minor >= 14 {
			l.kindShift = 8 // the state of interning has a byte of its own
		}
	}
	l.threadBytes = last(8, l.threadNext, l.threadInterp, l.threadFrame, l.threadID, l.threadNative, l.threadChunk)
	l.frameBytes = last(8, l.frameCode, l.framePrevious, l.frameInstr, l.frameOwner, l.frameTLBC)
	l.codeBytes = last(8, l.objectType, l.sizeOf, l.codeFile, l.codeName, l.codeQual, l.codeLines, l.codeFirst, l.codeTLBC)
	if !l.plausible() {
		return nil, v, "its description of the layout cannot be true"
	}
	return l, v, ""
}

// last returns how many bytes to read for fields of the given size at these offsets.
func last(size uint64, offsets ...uint64) uint64 { return slices.Max(offsets) + size }

// plausible limits all offsets, so that a hostile process cannot cause reads outside of buffers or large allocations.
func (l *layout) plausible() bool {
	within := func(limit uint64, offsets ...uint64) bool {
		return slices.Max(offsets) <= limit-8
	}
	return within(maxInterpOffset, l.interpHead, l.runtimeCurrent, l.interpNext, l.interpThreads, l.interpGIL) &&
		within(gilBytes, l.gilHolder, l.gilLocked, l.gilEnabled) &&
		within(maxThreadBytes, l.threadNext, l.threadInterp, l.threadFrame, l.threadID, l.threadNative, l.threadChunk) &&
		within(maxFrameBytes, l.frameCode, l.framePrevious, l.frameInstr, l.frameOwner, l.frameTLBC) &&
		within(maxCodeBytes, l.codeFile, l.codeName, l.codeQual, l.codeLines, l.codeFirst, l.codeStart, l.codeTLBC) &&
		within(256, l.objectType, l.sizeOf, l.stringLength, l.stringState, l.asciiBytes, l.compactBytes, l.bytesData) &&
		within(maxInterpOffset, l.typeName) &&
		l.threadBytes <= maxThreadBytes+8 && l.frameBytes <= maxFrameBytes+8 && l.codeBytes <= maxCodeBytes+8 &&
		l.frameBytes >= 16 && l.asciiBytes >= l.stringState+4
}

// le32 reads half a word.
func le32(b []byte, off uint64) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
