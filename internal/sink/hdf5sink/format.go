package hdf5sink

import (
	"encoding/binary"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
)

// What the parts of a file look like, in the oldest versions of the format, which
// everything reads: superblock 0, object headers 1, groups as symbol tables.

var le = binary.LittleEndian

// undefined is the address of what is not there.
const undefined = math.MaxUint64

// message is a message of an object header.
type message struct {
	kind uint16
	data []byte
}

// The kinds of messages.
const (
	msgDataspace   = 0x01
	msgDatatype    = 0x03
	msgFill        = 0x05
	msgLayout      = 0x08
	msgFilters     = 0x0B
	msgAttribute   = 0x0C
	msgSymbolTable = 0x11
)

// maxMessage is the largest message: its size has 16 bits.
const maxMessage = 1<<16 - 8

// pad appends zeros up to a multiple of 8.
func pad(b []byte) []byte { return append(b, make([]byte, (8-len(b)%8)%8)...) }

// objectHeader is the header of an object with such messages.
func objectHeader(all ...message) []byte {
	var body []byte
	for _, m := range all {
		data := pad(m.data)
		body = le.AppendUint16(le.AppendUint16(body, m.kind), uint16(len(data)))
		body = append(append(body, 0, 0, 0, 0), data...)
	}
	b := le.AppendUint16([]byte{1, 0}, uint16(len(all)))
	b = le.AppendUint32(le.AppendUint32(b, 1), uint32(len(body)))
	return append(pad(b), body...)
}

// dataspace says how many elements there are; without sides it is one.
func dataspace(sides ...int64) []byte {
	b := []byte{1, byte(len(sides)), 0, 0, 0, 0, 0, 0}
	for _, n := range sides {
		b = le.AppendUint64(b, uint64(n))
	}
	return b
}

// The classes of datatypes, version 1.
const (
	classInteger  = 0x10
	classFloat    = 0x11
	classString   = 0x13
	classEnum     = 0x18
	classVariable = 0x19
)

// integer is the type of whole numbers.
func integer(size int, signed bool) []byte {
	bits := byte(0)
	if signed {
		bits = 8
	}
	b := le.AppendUint32([]byte{classInteger, bits, 0, 0}, uint32(size))
	return le.AppendUint16(le.AppendUint16(b, 0), uint16(8*size))
}

// float is the type of numbers with a point: where sign, exponent and mantissa are,
// and what is added to the exponent.
func float(size int) []byte {
	exponent := map[int]int{2: 5, 4: 8, 8: 11}[size]
	mantissa := 8*size - 1 - exponent
	b := le.AppendUint32([]byte{classFloat, 0x20, byte(8*size - 1), 0}, uint32(size))
	b = le.AppendUint16(le.AppendUint16(b, 0), uint16(8*size))
	b = append(b, byte(mantissa), byte(exponent), 0, byte(mantissa))
	return le.AppendUint32(b, 1<<(exponent-1)-1)
}

// text is the type of UTF-8 of so many bytes, with zeros behind it.
func text(size int) []byte { return le.AppendUint32([]byte{classString, 0x11, 0, 0}, uint32(size)) }

// boolean is the enumeration that h5py takes for numpy's bool.
func boolean() []byte {
	b := le.AppendUint32([]byte{classEnum, 2, 0, 0}, 1)
	b = append(b, integer(1, true)...)
	b = append(b, "FALSE\x00\x00\x00TRUE\x00\x00\x00\x00"...)
	return append(b, 0, 1)
}

// element is the type of the elements of arrays.
func element(t dtype.Type) []byte {
	switch {
	case t == dtype.Bool:
		return boolean()
	case t.Floating():
		return float(t.Size())
	}
	return integer(t.Size(), t == dtype.I8 || t == dtype.I16 || t == dtype.I32 || t == dtype.I64)
}

// variable is the type of any number of elements.
func variable(of []byte) []byte {
	return append(le.AppendUint32([]byte{classVariable, 0, 0, 0}, 16), of...)
}

// variableText is the type of UTF-8 of any length.
func variableText() []byte {
	b := le.AppendUint32([]byte{classVariable, 1, 1, 0}, 16)
	return le.AppendUint32(append(b, classString, 0x10, 0, 0), 1)
}

// fill is the message that what is not written is zero.
func fill() []byte { return []byte{2, 2, 2, 1, 0, 0, 0, 0} }

// contiguous is the layout of elements that lie together.
func contiguous(at, size int64) []byte {
	address := uint64(at)
	if size == 0 {
		address = undefined
	}
	return le.AppendUint64(le.AppendUint64([]byte{3, 1}, address), uint64(size))
}

// chunked is the layout of chunks that a tree leads to.
func chunked(tree uint64, sides []int64, size int) []byte {
	b := le.AppendUint64([]byte{3, 2, byte(len(sides) + 1)}, tree)
	for _, n := range sides {
		b = le.AppendUint32(b, uint32(n))
	}
	return le.AppendUint32(b, uint32(size))
}

// deflated is the pipeline of filters with gzip in it.
func deflated(level uint32) []byte {
	b := []byte{1, 1, 0, 0, 0, 0, 0, 0}
	b = le.AppendUint16(le.AppendUint16(b, 1), 0)        // gzip, without a name
	b = le.AppendUint16(le.AppendUint16(b, 1), 1)        // optional, one parameter
	return le.AppendUint32(le.AppendUint32(b, level), 0) // and a place for a second one
}

// attribute is a value beside a data set.
func attribute(name string, datatype, space, data []byte) []byte {
	b := le.AppendUint16([]byte{1, 0}, uint16(len(name)+1))
	b = le.AppendUint16(le.AppendUint16(b, uint16(len(datatype))), uint16(len(space)))
	b = append(b, pad(append([]byte(name), 0))...)
	b = append(b, pad(append([]byte(nil), datatype...))...)
	b = append(b, pad(append([]byte(nil), space...))...)
	return append(b, data...)
}

// link is an entry of a group.
type link struct {
	name string
	at   int64 // of its object header
}

// internalK is half of the most children of a node of a group's tree, chunkK that of
// a tree of chunks: what version 0 of the superblock says.
const (
	internalK = 16
	chunkK    = 32
)

// group lays a group out whose first byte is at: links are sorted by name. It returns
// its bytes, where its object header is, and half the number of places in the table.
func group(at int64, links []link) (b []byte, header, tree, heap int64, leafK int) {
	leafK = max(4, (len(links)+1)/2)
	names := make([]byte, 8)
	offsets := make([]uint64, len(links))
	for i, l := range links {
		offsets[i] = uint64(len(names))
		names = pad(append(append(names, l.name...), 0))
	}
	// The names.
	heap = at
	b = le.AppendUint64([]byte("HEAP\x00\x00\x00\x00"), uint64(len(names)))
	b = le.AppendUint64(le.AppendUint64(b, 1), uint64(heap+32)) // nothing is free
	b = append(b, names...)
	// The table.
	table := at + int64(len(b))
	t := le.AppendUint16([]byte("SNOD\x01\x00"), uint16(len(links)))
	for i, l := range links {
		t = le.AppendUint64(le.AppendUint64(t, offsets[i]), uint64(l.at))
		t = append(t, make([]byte, 24)...)
	}
	b = append(append(b, t...), make([]byte, 8+2*leafK*40-len(t))...)
	// The tree with the one table.
	tree = at + int64(len(b))
	n := []byte("TREE\x00\x00")
	last := uint64(0)
	if len(links) > 0 {
		last = offsets[len(links)-1]
	}
	n = le.AppendUint64(le.AppendUint64(le.AppendUint16(n, 1), undefined), undefined)
	n = le.AppendUint64(le.AppendUint64(le.AppendUint64(n, 0), uint64(table)), last)
	b = append(append(b, n...), make([]byte, 24+(2*internalK+1)*8+2*internalK*8-len(n))...)
	header = at + int64(len(b))
	b = append(b, objectHeader(message{msgSymbolTable, le.AppendUint64(le.AppendUint64(nil, uint64(tree)), uint64(heap))})...)
	return b, header, tree, heap, leafK
}

// superblock begins a file whose root group has its header, tree and heap there.
func superblock(header, tree, heap, end int64, leafK int) []byte {
	b := []byte("\x89HDF\r\n\x1a\n\x00\x00\x00\x00\x00\x08\x08\x00")
	b = le.AppendUint16(le.AppendUint16(b, uint16(leafK)), internalK)
	b = le.AppendUint64(le.AppendUint32(b, 0), 0)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, undefined), uint64(end)), undefined)
	b = le.AppendUint64(le.AppendUint64(b, 0), uint64(header)) // the root group's entry
	b = le.AppendUint64(b, 1)                                  // which says where these are, too
	return le.AppendUint64(le.AppendUint64(b, uint64(tree)), uint64(heap))
}
