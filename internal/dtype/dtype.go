// Package dtype is the one list of the types that elements of arrays have:
// their numbers, names and sizes. Sources, batches, .npy files, packs and plans
// take theirs from here, and Python's tests compare its own with it. It imports
// nothing of the project.
package dtype

import "fmt"

// Type is the type of an element.
type Type uint8

// The element types. The numbers are part of docs/reference/protocol.md. Values are
// little-endian; those of Bool are bytes 0 and 1.
const (
	U8   Type = 1
	F16  Type = 2
	BF16 Type = 3
	F32  Type = 4
	I64  Type = 5
	I8   Type = 6
	U16  Type = 7
	I16  Type = 8
	U32  Type = 9
	I32  Type = 10
	U64  Type = 11
	F64  Type = 12
	Bool Type = 13
)

// types are what there is to know of each. numpy is NumPy's description without
// the byte order, empty for what NumPy does not have. others are more names that
// people use, NumPy's descriptions not among them: there u8 has 64 bits.
var types = [...]struct {
	name   string
	size   int
	numpy  string
	others []string
}{
	U8:   {"uint8", 1, "u1", []string{"u8"}},
	I8:   {"int8", 1, "i1", []string{"i8"}},
	U16:  {"uint16", 2, "u2", []string{"u16"}},
	I16:  {"int16", 2, "i2", []string{"i16", "short"}},
	U32:  {"uint32", 4, "u4", []string{"u32"}},
	I32:  {"int32", 4, "i4", []string{"i32", "int"}},
	U64:  {"uint64", 8, "u8", []string{"u64"}},
	I64:  {"int64", 8, "i8", []string{"i64", "long"}},
	F16:  {"float16", 2, "f2", []string{"f16", "half"}},
	BF16: {"bfloat16", 2, "", []string{"bf16"}},
	F32:  {"float32", 4, "f4", []string{"f32", "float"}},
	F64:  {"float64", 8, "f8", []string{"f64", "double"}},
	Bool: {"bool", 1, "b1", nil},
}

// All lists the element types, in the order of their numbers.
func All() []Type {
	all := make([]Type, 0, len(types)-1)
	for t := range types {
		if t > 0 {
			all = append(all, Type(t))
		}
	}
	return all
}

// Size returns the size of an element in bytes, 0 for what is no type.
func (t Type) Size() int {
	if int(t) < len(types) {
		return types[t].size
	}
	return 0
}

// String returns the name, which is NumPy's where NumPy has the type.
func (t Type) String() string {
	if int(t) < len(types) && t != 0 {
		return types[t].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(t))
}

// NumPy returns NumPy's description without the byte order, such as "f4"; "" for
// what NumPy does not have.
func (t Type) NumPy() string {
	if int(t) < len(types) {
		return types[t].numpy
	}
	return ""
}

// byName finds types by their names, byNumPy by their descriptions, and byOther by
// those and all others.
var byName, byNumPy, byOther = index()

func index() (names, numpy, others map[string]Type) {
	names, numpy, others = map[string]Type{}, map[string]Type{}, map[string]Type{}
	for _, t := range All() {
		names[types[t].name], others[types[t].name] = t, t
		if types[t].numpy != "" {
			numpy[types[t].numpy] = t
		}
		for _, name := range types[t].others {
			others[name] = t
		}
	}
	return names, numpy, others
}

// Parse is the reverse of String.
func Parse(name string) (Type, bool) {
	t, ok := byName[name]
	return t, ok
}

// ParseNumPy is the reverse of NumPy.
func ParseNumPy(descr string) (Type, bool) {
	t, ok := byNumPy[descr]
	return t, ok
}

// ParseAny knows the other names, too, as people write them on a command line:
// f32, half, long.
func ParseAny(name string) (Type, bool) {
	t, ok := byOther[name]
	return t, ok
}
