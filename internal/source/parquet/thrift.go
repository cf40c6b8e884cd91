package parquet

import "encoding/binary"

// reader parses Thrift's compact protocol, the encoding of the metadata. After the first error it returns zeros.
type reader struct {
	b   []byte
	pos int
	err error
}

// The types of the compact protocol.
const (
	tTrue   = 1
	tFalse  = 2
	tI8     = 3
	tI16    = 4
	tI32    = 5
	tI64    = 6
	tDouble = 7
	tBinary = 8
	tList   = 9
	tSet    = 10
	tMap    = 11
	tStruct = 12
	tUUID   = 13
)

func (r *reader) fail(format string, a ...any) {
	if r.err == nil {
		r.err = damaged("metadata, byte %d: "+format, append([]any{r.pos}, a...)...)
	}
	r.pos = len(r.b)
}

func (r *reader) byte() byte {
	if r.pos >= len(r.b) {
		r.fail("it is cut off")
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b[r.pos:])
	if n <= 0 {
		r.fail("no number")
		return 0
	}
	r.pos += n
	return v
}

func (r *reader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)-r.pos) {
		r.fail("a string of %d bytes", n)
		return nil
	}
	r.pos += int(n)
	return r.b[r.pos-int(n) : r.pos]
}

// list parses the header of a list.
func (r *reader) list() (n int, typ byte) {
	h := r.byte()
	count := uint64(h >> 4)
	if count == 15 {
		count = r.uvarint()
	}
	if count > uint64(len(r.b)-r.pos) { // each element has at least a byte
		r.fail("a list of %d elements", count)
		return 0, 0
	}
	return int(count), h & 15
}

// each calls f for each element of a list, if the elements have the wanted type.
func (r *reader) each(typ, want byte, f func()) {
	if typ != tList && typ != tSet {
		r.skip(typ, maxDepth)
		return
	}
	n, of := r.list()
	for range n {
		if r.err != nil {
			return
		}
		if of == want {
			f()
		} else {
			r.skip(of, maxDepth)
		}
	}
}

// fields calls f for each field of a struct. If f does not read the value, it is skipped.
func (r *reader) fields(f func(id int16, typ byte)) {
	id := int16(0)
	for r.err == nil {
		h := r.byte()
		if h == 0 {
			return
		}
		if h>>4 == 0 {
			id = int16(r.varint())
		} else {
			id += int16(h >> 4)
		}
		typ := h & 15
		before := r.pos
		f(id, typ)
		if r.pos == before && typ != tTrue && typ != tFalse {
			r.skip(typ, maxDepth)
		}
	}
}

// skip skips a value.
func (r *reader) skip(typ byte, depth int) {
	if depth == 0 {
		r.fail("values too deep in each other")
	}
	if r.err != nil {
		return
	}
	switch typ {
	case tTrue, tFalse:
	case tI8:
		r.byte()
	case tI16, tI32, tI64:
		r.uvarint()
	case tDouble:
		r.jump(8)
	case tUUID:
		r.jump(16)
	case tBinary:
		r.bytes()
	case tList, tSet:
		n, of := r.list()
		for range n {
			if r.err != nil {
				return
			}
			r.element(of, depth-1)
		}
	case tMap:
		n := r.uvarint()
		if n == 0 {
			return
		}
		types := r.byte()
		for range min(n, uint64(len(r.b))) {
			if r.err != nil {
				return
			}
			r.element(types>>4, depth-1)
			r.element(types&15, depth-1)
		}
	case tStruct:
		for r.err == nil {
			h := r.byte()
			if h == 0 {
				return
			}
			if h>>4 == 0 {
				r.varint()
			}
			r.skip(h&15, depth-1)
		}
	default:
		r.fail("a value of the type %d", typ)
	}
}

// element skips an element of a list or a map. There a boolean takes a byte.
func (r *reader) element(typ byte, depth int) {
	if typ == tTrue || typ == tFalse {
		r.byte()
		return
	}
	r.skip(typ, depth)
}

func (r *reader) jump(n int) {
	if n > len(r.b)-r.pos {
		r.fail("it is cut off")
		return
	}
	r.pos += n
}

// integer reads an integer. It returns 0 for other types.
func (r *reader) integer(typ byte) int64 {
	switch typ {
	case tI8:
		return int64(int8(r.byte()))
	case tI16, tI32, tI64:
		return r.varint()
	}
	return 0
}

// text reads a string. It returns nil for other types.
func (r *reader) text(typ byte) []byte {
	if typ == tBinary {
		return r.bytes()
	}
	return nil
}

// sub reads a struct. It ignores other types.
func (r *reader) sub(typ byte, f func(id int16, typ byte)) {
	if typ == tStruct {
		r.fields(f)
	}
}
