package hdf5sink

import (
	"encoding/binary"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
)

// The encoders below write the oldest versions of the format, which every reader supports:
// superblock 0, object headers 1, and groups as symbol tables.

var le = binary.LittleEndian

// undefined is the address of a part that does not exist.
const undefined = math.MaxUint64

// message is a message of an object header.
type message struct {
	kind uint16
	data []byte
}

// Message types.
const (
	msgDataspace   = 0x01
	msgDatatype    = 0x03
	msgFill        = 0x05
	msgLayout      = 0x08
	msgFilters     = 0x0B
	msgAttribute   = 0x0C
	msgSymbolTable = 0x11
)

// maxMessage is the largest message: its size is a uint16.
const maxMessage = 1<<16 - 8

// pad appends zeros up to a multiple of 8.
func pad(b []byte) []byte { return append(b, make([]byte, (8-len(b)%8)%8)...) }

// objectHeader returns an object header with the given messages.
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

// dataspace returns the shape of a dataset; without sides it is a scalar.
func dataspace(sides ...int64) []byte {
	b := []byte{1, byte(len(sides)), 0, 0, 0, 0, 0, 0}
	for _, n := range sides {
		b = le.AppendUint64(b, uint64(n))
	}
	return b
}

// Classes of datatypes, version 1.
const (
	classInteger  = 0x10
	classFloat    = 0x11
	classString   = 0x13
	classEnum     = 0x18
	classVariable = 0x19
)

// integer returns the type of integers.
func integer(size int, signed bool) []byte {
	bits := byte(0)
	if signed {
		bits = 8
	}
	b := le.AppendUint32([]byte{classInteger, bits, 0, 0}, uint32(size))
	return le.AppendUint16(le.AppendUint16(b, 0), uint16(8*size))
}

// float returns the type of IEEE floats: the positions of sign, exponent and mantissa, and the
// exponent bias.
func float(size int) []byte {
	exponent := map[int]int{2: 5, 4: 8, 8: 11}[size]
	mantissa := 8*size - 1 - exponent
	b := le.AppendUint32([]byte{classFloat, 0x20, byte(8*size - 1), 0}, uint32(size))
	b = le.AppendUint16(le.AppendUint16(b, 0), uint16(8*size))
	b = append(b, byte(mantissa), byte(exponent), 0, byte(mantissa))
	return le.AppendUint32(b, 1<<(exponent-1)-1)
}

// text returns the type of UTF-8 strings of a fixed size, padded with zeros.
func text(size int) []byte { return le.AppendUint32([]byte{classString, 0x11, 0, 0}, uint32(size)) }

// boolean returns the enumeration that h5py uses for bool of NumPy.
func boolean() []byte {
	b := le.AppendUint32([]byte{classEnum, 2, 0, 0}, 1)
	b = append(b, integer(1, true)...)
	b = append(b, "FALSE\x00\x00\x00TRUE\x00\x00\x00\x00"...)
	return append(b, 0, 1)
}

// element returns the type of array elements.
func element(t dtype.Type) []byte {
	switch {
	case t == dtype.Bool:
		return boolean()
	case t.Floating():
		return float(t.Size())
	}
	return integer(t.Size(), t == dtype.I8 || t == dtype.I16 || t == dtype.I32 || t == dtype.I64)
}

// variable returns the type of variable-length sequences.
func variable(of []byte) []byte {
	return append(le.AppendUint32([]byte{classVariable, 0, 0, 0}, 16), of...)
}

// variableText returns the type of variable-length UTF-8 strings.
func variableText() []byte {
	b := le.AppendUint32([]byte{classVariable, 1, 1, 0}, 16)
	return le.AppendUint32(append(b, classString, 0x10, 0, 0), 1)
}

// fill returns the message for the fill value zero.
func fill() []byte { return []byte{2, 2, 2, 1, 0, 0, 0, 0} }

// contiguous returns the layout of a contiguous dataset.
func contiguous(at, size int64) []byte {
	address := uint64(at)
	if size == 0 {
		address = undefined
	}
	return le.AppendUint64(le.AppendUint64([]byte{3, 1}, address), uint64(size))
}

// chunked returns the layout of a chunked dataset; tree is the address of its B-tree.
func chunked(tree uint64, sides []int64, size int) []byte {
	b := le.AppendUint64([]byte{3, 2, byte(len(sides) + 1)}, tree)
	for _, n := range sides {
		b = le.AppendUint32(b, uint32(n))
	}
	return le.AppendUint32(b, uint32(size))
}

// deflated returns the filter pipeline for gzip.
func deflated(level uint32) []byte {
	b := []byte{1, 1, 0, 0, 0, 0, 0, 0}
	b = le.AppendUint16(le.AppendUint16(b, 1), 0)        // gzip, without a name
	b = le.AppendUint16(le.AppendUint16(b, 1), 1)        // optional, one parameter
	return le.AppendUint32(le.AppendUint32(b, level), 0) // and padding
}

// attribute returns an attribute message.
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
	at   int64 // address of its object header
}

// The superblock of version 0 declares both: a node of a group's tree has at most 2*internalK
// children, a node of a chunk tree 2*chunkK.
const (
	internalK = 16
	chunkK    = 32
)

// group lays out a group that starts at the address at. The links must be sorted by name. It
// returns the bytes, the addresses of header, tree and heap, and half the capacity of the symbol
// table.
func group(at int64, links []link) (b []byte, header, tree, heap int64, leafK int) {
	leafK = max(4, (len(links)+1)/2)
	names := make([]byte, 8)
	offsets := make([]uint64, len(links))
	for i, l := range links {
		offsets[i] = uint64(len(names))
		names = pad(append(append(names, l.name...), 0))
	}
	// The heap with the names.
	heap = at
	b = le.AppendUint64([]byte("HEAP\x00\x00\x00\x00"), uint64(len(names)))
	b = le.AppendUint64(le.AppendUint64(b, 1), uint64(heap+32)) // no free space
	b = append(b, names...)
	// The symbol table.
	table := at + int64(len(b))
	t := le.AppendUint16([]byte("SNOD\x01\x00"), uint16(len(links)))
	for i, l := range links {
		t = le.AppendUint64(le.AppendUint64(t, offsets[i]), uint64(l.at))
		t = append(t, make([]byte, 24)...)
	}
	b = append(append(b, t...), make([]byte, 8+2*leafK*40-len(t))...)
	// The tree with one leaf: the table.
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

// superblock returns the start of a file. The arguments are the addresses in its root group and the
// size of the file.
func superblock(header, tree, heap, end int64, leafK int) []byte {
	b := []byte("\x89HDF\r\n\x1a\n\x00\x00\x00\x00\x00\x08\x08\x00")
	b = le.AppendUint16(le.AppendUint16(b, uint16(leafK)), internalK)
	b = le.AppendUint64(le.AppendUint32(b, 0), 0)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, undefined), uint64(end)), undefined)
	b = le.AppendUint64(le.AppendUint64(b, 0), uint64(header)) // the root group's entry
	b = le.AppendUint64(b, 1)                                  // the entry caches tree and heap
	return le.AppendUint64(le.AppendUint64(b, uint64(tree)), uint64(heap))
}
