package parquetsink

import "encoding/binary"

// compact writes structures in Thrift's compact protocol, which Parquet uses for its metadata.
// Fields must be written in the order of their numbers.
type compact struct {
	b    []byte
	last []int16 // number of the last field, by depth
}

// Types of the protocol.
const (
	typeTrue   = 1
	typeFalse  = 2
	typeByte   = 3
	typeI16    = 4
	typeI32    = 5
	typeI64    = 6
	typeBinary = 8
	typeList   = 9
	typeStruct = 12
)

func (c *compact) field(id int16, typ byte) {
	d := len(c.last) - 1
	if delta := id - c.last[d]; delta > 0 && delta < 16 {
		c.b = append(c.b, byte(delta)<<4|typ)
	} else {
		c.b = binary.AppendVarint(append(c.b, typ), int64(id))
	}
	c.last[d] = id
}

// begin and end enclose a structure that is not a field: the outermost one, or an element of a
// list.
func (c *compact) begin() { c.last = append(c.last, 0) }

func (c *compact) end() {
	c.b = append(c.b, 0)
	c.last = c.last[:len(c.last)-1]
}

func (c *compact) structure(id int16, members func()) {
	c.field(id, typeStruct)
	c.begin()
	members()
	c.end()
}

func (c *compact) bool(id int16, v bool) {
	if v {
		c.field(id, typeTrue)
	} else {
		c.field(id, typeFalse)
	}
}

func (c *compact) byte(id int16, v int8) {
	c.field(id, typeByte)
	c.b = append(c.b, byte(v))
}

func (c *compact) i16(id int16, v int16) {
	c.field(id, typeI16)
	c.b = binary.AppendVarint(c.b, int64(v))
}

func (c *compact) i32(id int16, v int32) {
	c.field(id, typeI32)
	c.b = binary.AppendVarint(c.b, int64(v))
}

func (c *compact) i64(id int16, v int64) {
	c.field(id, typeI64)
	c.b = binary.AppendVarint(c.b, v)
}

func (c *compact) binary(id int16, v []byte) {
	c.field(id, typeBinary)
	c.blob(v)
}

func (c *compact) string(id int16, v string) { c.binary(id, []byte(v)) }

// list starts a list of n elements. The caller writes the elements next.
func (c *compact) list(id int16, n int, typ byte) {
	c.field(id, typeList)
	if n < 15 {
		c.b = append(c.b, byte(n)<<4|typ)
	} else {
		c.b = binary.AppendUvarint(append(c.b, 0xF0|typ), uint64(n))
	}
}

func (c *compact) structures(id int16, n int, element func(i int)) {
	c.list(id, n, typeStruct)
	for i := range n {
		c.begin()
		element(i)
		c.end()
	}
}

// blob writes a string or bytes as an element of a list.
func (c *compact) blob(v []byte) {
	c.b = append(binary.AppendUvarint(c.b, uint64(len(v))), v...)
}
