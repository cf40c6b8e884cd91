package pystack

import (
	"slices"
	"strings"
	"time"
	"unicode/utf16"
)

// A code is a code object, which a frame executes.
type code struct {
	key   codeKey // its state when it was read
	valid bool    // it is a code object
	epoch uint64  // sample in which key was compared last
	addr  uint64
	tlbc  uint64 // array of copies of the bytecode (free-threaded), or 0

	file, name, qual string
	first            int
	lines            []lineRange
	copies           map[uint32]uint64 // start addresses of the copies
}

// codeKey has the fields that distinguish a code object from a later one at the same address.
type codeKey struct {
	kind, size             uint64
	file, name, qual, line uint64
	first                  uint32
}

// lineRange maps the bytecode up to end, in bytes, to a line.
type lineRange struct {
	end  uint32
	line int32
}

// Limits for cached code objects. The line table of a function of 1,000 lines has some 5 kB.
const (
	maxLineTable = 256 << 10
	maxRemember  = 64 << 20 // bytes, over all code objects
	loadBatch    = 64       // code objects that are read together
	maxNewCodes  = 4096     // in one sample
)

// readCodes reads the code objects of the threads that were just read, checks the threads, and caches new code objects.
// In the last attempt, a thread may have continued meanwhile.
func (p *Process) readCodes(lastAttempt bool, deadline time.Time) {
	l := p.layout
	p.reqs = p.reqs[:0]
	p.fresh = p.fresh[:0]
	headers := p.headers[:0]
	for _, t := range p.threads {
		if t.state != readAgain || !t.complete {
			continue
		}
		if t.leafAt != 0 {
			p.ask(t.leafAt, t.verify[:])
		}
		for _, r := range t.raw {
			c := p.codes[r.code]
			if c == nil {
				c = &code{addr: r.code}
				p.codes[r.code] = c
			}
			if c.epoch == p.epoch {
				continue
			}
			c.epoch = p.epoch
			p.fresh = append(p.fresh, c)
		}
	}
	verified := len(p.reqs)
	headers = slices.Grow(headers, len(p.fresh)*int(l.codeBytes))[:len(p.fresh)*int(l.codeBytes)]
	p.headers = headers
	for i, c := range p.fresh {
		p.ask(c.addr, headers[i*int(l.codeBytes):(i+1)*int(l.codeBytes)])
	}
	if len(p.reqs) > 0 {
		p.read(p.reqs)
	}
	var load []*code
	for i, c := range p.fresh {
		if !p.reqs[verified+i].ok {
			c.valid = false
			continue
		}
		b := p.reqs[verified+i].buf
		key := codeKey{
			kind: le64(b, l.objectType), size: le64(b, l.sizeOf),
			file: le64(b, l.codeFile), name: le64(b, l.codeName), line: le64(b, l.codeLines), first: le32(b, l.codeFirst),
		}
		if l.codeQual != 0 {
			key.qual = le64(b, l.codeQual)
		}
		if l.codeTLBC != 0 {
			c.tlbc = le64(b, l.codeTLBC)
		}
		if c.valid && c.key == key {
			continue
		}
		c.key = key
		if c.valid = p.isCode(key.kind); c.valid {
			load = append(load, c)
		}
	}
	for i := 0; i < len(load); i += loadBatch {
		batch := load[i:min(i+loadBatch, len(load))]
		if i >= maxNewCodes || time.Now().After(deadline) {
			for _, c := range batch {
				c.valid, c.key = false, codeKey{} // another time
			}
			continue
		}
		p.load(batch)
	}
	p.judge(lastAttempt)
}

// judge decides which of the threads that were read are consistent.
func (p *Process) judge(lastAttempt bool) {
	i := 0
	for _, t := range p.threads {
		if t.state != readAgain || !t.complete {
			continue
		}
		still := true
		if t.leafAt != 0 {
			still = p.reqs[i].ok && le64(t.verify[:], 0) == t.leaf
			i++
		}
		if !still && !lastAttempt {
			continue
		}
		if p.coherent(t) {
			t.state = readWhole
		}
	}
}

// coherent reports whether the position of every frame is inside its code.
func (p *Process) coherent(t *thread) bool {
	for _, r := range t.raw {
		c := p.codes[r.code]
		if c == nil || !c.valid {
			return false
		}
		if p.layout.instrIsIndex {
			continue
		}
		if off := p.offset(c, r); off < -2 || off > 2*int64(min(c.key.size, 1<<30)) {
			return false
		}
	}
	return true
}

// offset returns the position of a frame in its bytecode, in bytes; -2 before the first instruction.
func (p *Process) offset(c *code, r rawFrame) int64 {
	l := p.layout
	if l.instrIsIndex {
		return 2 * int64(int32(uint32(r.instr)))
	}
	start := c.addr + l.codeStart
	if r.tlbc != 0 {
		start = p.copyOf(c, r.tlbc)
	}
	return int64(r.instr - start)
}

// copyOf returns the start address of a thread's own copy of the bytecode.
func (p *Process) copyOf(c *code, index uint32) uint64 {
	if at, ok := c.copies[index]; ok {
		return at
	}
	const maxCopies = 4096
	size, ok := p.u64(c.tlbc)
	if !ok || uint64(index) >= min(size, maxCopies) {
		return 0
	}
	at, ok := p.u64(c.tlbc + 8 + 8*uint64(index))
	if !ok || at == 0 {
		return 0
	}
	if c.copies == nil {
		c.copies = map[uint32]uint64{}
	}
	c.copies[index] = at
	return at
}

// isCode reports whether a type is the type of code objects, by its name.
func (p *Process) isCode(kind uint64) bool {
	if kind == 0 || p.codeType != 0 {
		return kind != 0 && kind == p.codeType
	}
	name, ok := p.u64(kind + p.layout.typeName)
	var b [5]byte
	if ok && p.bytes(name, b[:]) && string(b[:]) == "code\x00" {
		p.codeType = kind
		return true
	}
	return false
}

// load reads the names and line tables of code objects: their headers in one call, their contents in another. Code
// objects with inconsistent texts become invalid.
func (p *Process) load(codes []*code) {
	l := p.layout
	const parts = 4 // file, name, qualified name, line table
	size := int(max(l.asciiBytes, l.bytesData, l.stringLength+8, l.stringState+4, l.sizeOf+8))
	headers := make([]byte, parts*size*len(codes))
	reqs := make([]request, 0, parts*len(codes))
	at := func(c *code, part int) uint64 {
		return [parts]uint64{c.key.file, c.key.name, c.key.qual, c.key.line}[part]
	}
	for i, c := range codes {
		for part := range parts {
			n := parts*i + part
			r := request{addr: at(c, part), buf: headers[n*size : (n+1)*size]}
			if part == 2 && r.addr == 0 {
				r.addr = c.key.name
			}
			reqs = append(reqs, r)
		}
	}
	p.read(reqs)
	contents := make([]request, len(reqs))
	for n := range reqs {
		if !reqs[n].ok {
			continue
		}
		addr, b := reqs[n].addr, reqs[n].buf
		switch part := n % parts; part {
		case 3:
			if length := le64(b, l.sizeOf); length <= maxLineTable {
				contents[n] = request{addr: addr + l.bytesData, buf: make([]byte, length)}
			}
		default:
			limit := uint64(maxName)
			if part == 0 {
				limit = maxPath
			}
			if s, ok := l.stringAt(b); ok {
				contents[n] = request{addr: addr + s.data, buf: make([]byte, min(s.length, limit)*s.kind)}
			}
		}
	}
	p.read(contents)
	for i, c := range codes {
		texts := [3]string{}
		for part := range texts {
			n := parts*i + part
			s, ok := l.stringAt(reqs[n].buf)
			if !reqs[n].ok || !ok || !contents[n].ok {
				c.valid = false
				continue
			}
			texts[part] = decodeString(contents[n].buf, s.kind)
		}
		if !c.valid {
			c.key = codeKey{}
			continue
		}
		c.file, c.name, c.qual, c.copies, c.lines = texts[0], texts[1], texts[2], nil, nil
		c.first = int(int32(c.key.first))
		if lines := contents[parts*i+3]; lines.ok {
			if l.instrIsIndex {
				c.lines = lines310(lines.buf, c.first)
			} else {
				c.lines = lines311(lines.buf, c.first)
			}
		}
		p.cached += len(c.file) + len(c.name) + len(c.qual) + 8*len(c.lines)
	}
}

// aString describes the storage of a str object's characters.
type aString struct {
	length uint64 // characters
	kind   uint64 // bytes per character
	data   uint64 // start address of the characters
}

// stringAt reads the header of a str object. Names are always compact strings, the only ones that Python creates since
// 3.3.
func (l *layout) stringAt(b []byte) (aString, bool) {
	state := le32(b, l.stringState) >> l.kindShift
	s := aString{length: le64(b, l.stringLength), kind: uint64(state & 7), data: l.compactBytes}
	compact, ascii := state>>3&1, state>>4&1
	if compact == 0 || s.kind != 1 && s.kind != 2 && s.kind != 4 || s.length > 1<<32 || ascii == 1 && s.kind != 1 {
		return aString{}, false
	}
	if ascii == 1 {
		s.data = l.asciiBytes
	}
	return s, true
}

// decodeString turns the characters of a str object into UTF-8. Each has kind bytes. Surrogates, which represent
// undecodable bytes of a path, become U+FFFD.
func decodeString(b []byte, kind uint64) string {
	var out strings.Builder
	out.Grow(len(b))
	for ; uint64(len(b)) >= kind; b = b[kind:] {
		var r rune
		switch kind {
		case 1:
			r = rune(b[0])
		case 2:
			r = rune(uint16(b[0]) | uint16(b[1])<<8)
		default:
			if v := le32(b, 0); v <= 0x10ffff {
				r = rune(v)
			} else {
				r = '\uFFFD'
			}
		}
		if utf16.IsSurrogate(r) {
			r = '\uFFFD'
		}
		out.WriteRune(r)
	}
	return out.String()
}

// line returns the line at an offset of the bytecode.
func (c *code) line(offset int64) int {
	if offset < 0 || len(c.lines) == 0 {
		return c.first
	}
	i, _ := slices.BinarySearchFunc(c.lines, offset, func(r lineRange, off int64) int {
		if int64(r.end) <= off {
			return -1
		}
		return 1
	})
	if i == len(c.lines) {
		i--
	}
	return int(c.lines[i].line)
}

// lineTable collects ranges; bytecode without a line belongs to the line before
// it.
type lineTable struct {
	ranges []lineRange
	end    int64
	first  int
}

func (t *lineTable) add(length, line int64, has bool) {
	t.end += length
	if t.end > 1<<31-1 || length == 0 {
		return
	}
	switch n := len(t.ranges); {
	case !has && n == 0:
		line = int64(t.first)
	case !has:
		line = int64(t.ranges[n-1].line)
	}
	if n := len(t.ranges); n > 0 && int64(t.ranges[n-1].line) == line {
		t.ranges[n-1].end = uint32(t.end)
		return
	}
	t.ranges = append(t.ranges, lineRange{end: uint32(t.end), line: int32(line)})
}

// lines310 reads co_linetable of 3.10: pairs of a length in bytes and a signed
// step of the line, -128 for no line (PEP 626).
func lines310(b []byte, first int) []lineRange {
	t := lineTable{first: first}
	line := int64(first)
	for ; len(b) >= 2; b = b[2:] {
		step := int64(int8(b[1]))
		if step == -128 {
			t.add(int64(b[0]), 0, false)
			continue
		}
		line += step
		t.add(int64(b[0]), line, true)
	}
	return t.ranges
}

// lines311 reads co_linetable from 3.11 on, described in InternalDocs/code_objects.md ("Format of the locations table")
// of CPython. An entry begins with a byte whose top bit is set: 4 bits of its format, 3 bits of its length in code
// units less 1. The step of the line and columns follow, depending on the format.
func lines311(b []byte, first int) []lineRange {
	t := lineTable{first: first}
	line := int64(first)
	for i := 0; i < len(b); {
		head := b[i]
		i++
		if head&0x80 == 0 {
			break // not the beginning of an entry: the table is damaged
		}
		length := 2 * (int64(head&7) + 1)
		has := true
		switch form := head >> 3 & 15; {
		case form == 15: // no place
			has = false
		case form == 14: // line, end line, column, end column
			step, n := signedVarint(b[i:])
			line += step
			i += n
			for range 3 {
				_, n = varint(b[i:])
				i += n
			}
		case form == 13: // line only
			step, n := signedVarint(b[i:])
			line += step
			i += n
		case form >= 10: // up to two lines further, and two columns
			line += int64(form - 10)
			i += 2
		default: // the same line, and columns in one byte
			i++
		}
		if line < 0 || line > 1<<31-1 {
			return t.ranges // damaged
		}
		t.add(length, line, has)
	}
	return t.ranges
}

// varint reads a number of 6 bits per byte, lowest first. Bit 6 marks that more bytes follow. It also returns the
// number of bytes read.
func varint(b []byte) (uint64, int) {
	var v uint64
	for i, x := range b {
		if i == 6 {
			return 0, i // more than a line number has
		}
		v |= uint64(x&63) << (6 * i)
		if x&64 == 0 {
			return v, i + 1
		}
	}
	return 0, len(b)
}

// signedVarint is a varint whose lowest bit is the sign.
func signedVarint(b []byte) (int64, int) {
	v, n := varint(b)
	if v&1 != 0 {
		return -int64(v >> 1), n
	}
	return int64(v >> 1), n
}
