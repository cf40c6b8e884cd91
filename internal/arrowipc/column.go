package arrowipc

import (
	"fmt"
	"slices"
	"strings"
)

// Type is the type of a column.
type Type uint8

// The types of columns.
const (
	Int8 Type = iota + 1
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float16
	Float32
	Float64
	// UTF8 and Binary count bytes with 32 bits, their large forms with 64.
	UTF8
	Binary
	LargeUTF8
	LargeBinary
	// LargeList has any number of elements in each row, counted with 64 bits.
	LargeList
	// List counts with 32 bits.
	List
	// FixedList has ColumnType.Size elements in each row.
	FixedList
	// Struct has a value of each of its children in each row.
	Struct
)

var typeNames = map[Type]string{
	Int8: "int8", Int16: "int16", Int32: "int32", Int64: "int64", Uint8: "uint8", Uint16: "uint16", Uint32: "uint32", Uint64: "uint64",
	Float16: "float16", Float32: "float32", Float64: "float64", UTF8: "utf8", Binary: "binary", LargeUTF8: "large_utf8",
	LargeBinary: "large_binary", LargeList: "large_list", List: "list", FixedList: "fixed_size_list", Struct: "struct",
}

// Width is the size of a number in bytes, 0 for the other types.
func (t Type) Width() int {
	switch t {
	case Int64, Uint64, Float64:
		return 8
	case Int32, Uint32, Float32:
		return 4
	case Int16, Uint16, Float16:
		return 2
	case Int8, Uint8:
		return 1
	}
	return 0
}

// offsetWidth is the size of an offset in bytes, 0 for types without.
func (t Type) offsetWidth() int64 {
	switch t {
	case UTF8, Binary, List:
		return 4
	case LargeUTF8, LargeBinary, LargeList:
		return 8
	}
	return 0
}

// KeyValue is an entry of the metadata of a schema or a column.
type KeyValue struct{ Key, Value string }

// ColumnType is a column of the schema, or an element of one.
type ColumnType struct {
	Name string
	Type Type
	// Size is the number of elements in a row of a FixedList.
	Size int32
	// Children is the one kind of element of a list, or the members of a struct.
	Children []ColumnType
	Meta     []KeyValue
}

// ElementName is the name that tools give to the elements of lists.
const ElementName = "item"

// ListOf is a list of a type with the given elements; size is of a FixedList.
func ListOf(name string, t Type, size int32, elem ColumnType) ColumnType {
	elem.Name = ElementName
	return ColumnType{Name: name, Type: t, Size: size, Children: []ColumnType{elem}}
}

// String is the type as Arrow writes it.
func (c *ColumnType) String() string {
	switch c.Type {
	case LargeList, List:
		return fmt.Sprintf("%s<%s>", typeNames[c.Type], c.Children[0].String())
	case FixedList:
		return fmt.Sprintf("%s<%s>[%d]", typeNames[c.Type], c.Children[0].String(), c.Size)
	case Struct:
		var members []string
		for i := range c.Children {
			members = append(members, c.Children[i].Name+": "+c.Children[i].String())
		}
		return "struct<" + strings.Join(members, ", ") + ">"
	}
	return typeNames[c.Type]
}

// Equal reports whether two schemas have the same columns.
func Equal(a, b []ColumnType) bool {
	return slices.EqualFunc(a, b, func(x, y ColumnType) bool {
		return x.Name == y.Name && x.Type == y.Type && x.Size == y.Size && slices.Equal(x.Meta, y.Meta) && Equal(x.Children, y.Children)
	})
}

// Leaf is what holds bytes: a column, or a member of one that is a struct.
type Leaf struct {
	// Name is for messages: "label", "image.bytes".
	Name string
	// OffsetWidth is the size of its offsets, 0 for a leaf whose rows are of one
	// size.
	OffsetWidth int64
	// Width is the size of what offsets count, or of a row, in bytes.
	Width int64
}

// maxRowBytes bounds the rows of a column of one size.
const maxRowBytes = 1 << 31

// Leaves lists the leaves of columns in the order of their buffers. It fails
// for columns that packs do not have.
func Leaves(cols []ColumnType) ([]Leaf, error) {
	var out []Leaf
	for i := range cols {
		c := &cols[i]
		if c.Type != Struct {
			l, err := c.leaf(c.Name)
			if err != nil {
				return nil, err
			}
			out = append(out, l)
			continue
		}
		if len(c.Children) == 0 {
			return nil, damaged("column %s is a struct of nothing", c.Name)
		}
		for k := range c.Children {
			l, err := c.Children[k].leaf(c.Name + "." + c.Children[k].Name)
			if err != nil {
				return nil, err
			}
			out = append(out, l)
		}
	}
	return out, nil
}

func (c *ColumnType) leaf(name string) (Leaf, error) {
	l := Leaf{Name: name, OffsetWidth: c.Type.offsetWidth()}
	elem := c
	switch c.Type {
	case UTF8, Binary, LargeUTF8, LargeBinary:
		l.Width = 1
		return l, nil
	case List, LargeList:
		elem = &c.Children[0]
	}
	l.Width = 1
	for elem.Type == FixedList {
		if elem.Size < 1 || int64(elem.Size) > maxRowBytes/l.Width {
			return l, damaged("column %s has rows of %d elements", name, elem.Size)
		}
		l.Width *= int64(elem.Size)
		elem = &elem.Children[0]
	}
	w := int64(elem.Type.Width())
	if w == 0 || w > maxRowBytes/l.Width {
		return l, damaged("column %s is of the type %s, which packs do not use", name, c.String())
	}
	l.Width *= w
	return l, nil
}
