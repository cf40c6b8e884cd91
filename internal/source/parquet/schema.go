package parquet

import (
	"fmt"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/source/driver"
)

// Leaf is a column with values.
type Leaf struct {
	Path   string
	Type   Type
	Length int // of FixedBytes
	// MaxDef and MaxRep are the maximum levels. A row has a value from definition level Valid on, list i (from the
	// outside) an element from level Lists[i] on.
	MaxDef, MaxRep uint8
	Valid          uint8
	Lists          []uint8
	// Width is the size of a decoded number, 0 for byte strings.
	Width int
}

// physical returns the stored size of a value, 0 if it is variable.
func (l *Leaf) physical() int {
	switch l.Type {
	case Int32, Float:
		return 4
	case Int64, Double:
		return 8
	case Int96:
		return 12
	case FixedBytes:
		return l.Length
	}
	return 0
}

// Schema describes the columns of a file.
type Schema struct {
	Columns []*columns.Node
	// Leaves are the columns with values, in the order of the chunks. A columns.Node without children is leaf
	// Node.At.
	Leaves []*Leaf
}

// String returns the columns with their types, for comparison.
func (s *Schema) String() string {
	var out []string
	for _, n := range s.Columns {
		out = append(out, fmt.Sprintf("%q: %s", n.Name, n.Typ))
	}
	return strings.Join(out, ", ")
}

// builder builds a Schema from its elements.
type builder struct {
	in     []element
	leaves []*Leaf
}

// above describes the parents of a node.
type above struct {
	def, rep int
	lists    []uint8
	path     string
}

func makeSchema(in []element) (*Schema, error) {
	if len(in) < 2 || in[0].children < 1 {
		return nil, damaged("a schema without columns")
	}
	b := &builder{in: in[1:]}
	s := &Schema{}
	for range in[0].children {
		n, err := b.node(above{}, maxDepth)
		if err != nil {
			return nil, err
		}
		s.Columns = append(s.Columns, n)
	}
	if len(b.in) > 0 {
		return nil, damaged("a schema with %d columns that are in none", len(b.in))
	}
	s.Leaves = b.leaves
	return s, nil
}

func (b *builder) next() (e element, err error) {
	if len(b.in) == 0 {
		return e, damaged("a schema that is cut off")
	}
	e, b.in = b.in[0], b.in[1:]
	if e.repeat < 0 || e.repeat > repeated || e.children < 0 || e.children > int64(len(b.in)) || e.children == 0 && (!e.hasType || e.typ < Boolean || e.typ > FixedBytes) {
		return e, damaged("column %q of the schema", e.name)
	}
	return e, nil
}

// node parses an element and its children.
func (b *builder) node(in above, depth int) (*columns.Node, error) {
	e, err := b.next()
	if err != nil {
		return nil, err
	}
	return b.of(e, in, depth)
}

// of builds a node from an element.
func (b *builder) of(e element, in above, depth int) (*columns.Node, error) {
	if depth == 0 {
		return nil, damaged("columns too deep in each other")
	}
	if in.path != "" {
		in.path += "."
	}
	if in.path += e.name; len(in.path) > maxName {
		return nil, damaged("a column with a name of %d bytes", len(in.path))
	}
	name := driver.ValidName(e.name)
	if e.repeat == repeated {
		// A repeated column without a list around it: it is never null.
		in.def++
		in.rep++
		in.lists = append(in.lists[:len(in.lists):len(in.lists)], uint8(in.def))
		e.repeat = requiredElement
		child, err := b.inner(e, in, depth-1)
		if err != nil {
			return nil, err
		}
		return &columns.Node{Name: name, Class: columns.List, Typ: limited("list<" + child.Typ + ">"), Children: []*columns.Node{child}}, nil
	}
	if e.repeat != requiredElement {
		in.def++
	}
	return b.inner(e, in, depth)
}

// inner builds a node from an element that is not repeated.
func (b *builder) inner(e element, in above, depth int) (*columns.Node, error) {
	n := &columns.Node{Name: driver.ValidName(e.name)}
	switch {
	case e.children == 0:
		return n, b.leaf(n, e, in)
	case (e.has && e.converted == convertedList || e.logical == logicalList) && e.children == 1 && len(b.in) > 0 && b.in[0].repeat == repeated:
		return n, b.list(n, in, depth-1)
	}
	isMap := e.has && (e.converted == convertedMap || e.converted == convertedMapKV) || e.logical == logicalMap
	var types []string
	long := 0
	for range e.children {
		c, err := b.node(in, depth-1)
		if err != nil {
			return nil, err
		}
		n.Children = append(n.Children, c)
		if long += len(c.Name) + len(c.Typ); long < maxName {
			types = append(types, c.Name+": "+c.Typ)
		}
	}
	n.Class, n.Typ = columns.Structs, "struct"
	if isMap {
		n.Class, n.Typ = columns.Other, "map"
	}
	n.Typ = limited(n.Typ + "<" + strings.Join(types, ", ") + ">")
	return n, nil
}

// list parses the child of a list: a repeated column, which is the element or contains it.
func (b *builder) list(n *columns.Node, in above, depth int) error {
	e, err := b.next()
	if err != nil {
		return err
	}
	outer := n.Name
	in.def++
	in.rep++
	in.lists = append(in.lists[:len(in.lists):len(in.lists)], uint8(in.def))
	in.path += "." + e.name
	var child *columns.Node
	e.repeat = requiredElement
	if e.children == 1 && e.name != "array" && e.name != outer+"_tuple" && !(len(b.in) > 0 && b.in[0].repeat == repeated) {
		inner, err := b.next()
		if err != nil {
			return err
		}
		if inner.repeat != requiredElement {
			in.def++
		}
		in.path += "." + inner.name
		child, err = b.inner(inner, in, depth-1)
		if err != nil {
			return err
		}
	} else if child, err = b.inner(e, in, depth-1); err != nil {
		return err
	}
	n.Class, n.Typ, n.Children = columns.List, limited("list<"+child.Typ+">"), []*columns.Node{child}
	return nil
}

func limited(typ string) string { return typ[:min(len(typ), maxName)] }

// leaf adds a leaf.
func (b *builder) leaf(n *columns.Node, e element, in above) error {
	if in.def > math.MaxUint8 || in.rep > math.MaxUint8 {
		return damaged("columns too deep in each other")
	}
	l := &Leaf{Path: in.path, Type: e.typ, MaxDef: uint8(in.def), MaxRep: uint8(in.rep), Lists: in.lists, Valid: uint8(in.def)}
	if len(in.lists) > 0 {
		l.Valid = in.lists[0] - 1 // the list exists, empty or not
	}
	n.At = len(b.leaves)
	b.leaves = append(b.leaves, l)
	if e.typ == FixedBytes {
		if e.length < 1 || e.length > driver.MaxArrayBytes {
			return damaged("column %q of strings of %d bytes", in.path, e.length)
		}
		l.Length = int(e.length)
	}
	describe(n, &e)
	switch n.Class {
	case columns.Number:
		l.Width = n.DType.Size()
	case columns.Boolean:
		l.Width = 1
	}
	return nil
}

// describe sets the type of a leaf.
func describe(n *columns.Node, e *element) {
	number := func(d driver.DType, typ string) {
		n.Class, n.DType, n.Typ = columns.Number, d, typ
	}
	converted := e.converted
	if !e.has {
		converted = -1
	}
	decimal := e.logical == logicalDecimal || converted == convertedDecimal
	switch e.typ {
	case Boolean:
		n.Class, n.Typ = columns.Boolean, "bool"
	case Int32, Int64:
		bits, unsigned := int64(32), false
		if e.typ == Int64 {
			bits = 64
		}
		switch {
		case decimal:
			n.Class, n.Typ = columns.Other, "decimal"
			return
		case e.logical == logicalUnknown:
			n.Class, n.Typ = columns.Nothing, "null"
			return
		case e.logical == logicalInteger:
			if e.bits == 8 || e.bits == 16 || e.bits == 32 && e.typ == Int32 || e.bits == 64 && e.typ == Int64 {
				bits, unsigned = e.bits, e.unsigned
			}
		case converted >= convertedUint8 && converted <= convertedInt64:
			k := converted - convertedUint8
			if w := int64(8) << (k % 4); w <= bits {
				bits, unsigned = w, k < 4
			}
		}
		d := fmt.Sprintf("int%d", bits)
		if unsigned {
			d = "u" + d
		}
		number(driver.DType(d), d)
	case Float:
		number(driver.Float32, "float")
	case Double:
		number(driver.Float64, "double")
	case ByteArray:
		switch {
		case decimal:
			n.Class, n.Typ = columns.Other, "decimal"
		case e.logical == logicalString || e.logical == logicalEnum || e.logical == logicalJSON ||
			converted == convertedUTF8 || converted == convertedEnum || converted == convertedJSON:
			n.Class, n.Typ = columns.Text, "utf8"
		default:
			n.Class, n.Typ = columns.Binaries, "binary"
		}
	case FixedBytes:
		switch {
		case e.logical == logicalFloat16 && e.length == 2:
			number(driver.Float16, "halffloat")
		case decimal:
			n.Class, n.Typ = columns.Other, "decimal"
		case converted == convertedInterval:
			n.Class, n.Typ = columns.Other, "interval"
		default:
			n.Class, n.Typ = columns.Binaries, fmt.Sprintf("fixed_size_binary[%d]", e.length)
		}
	default:
		n.Class, n.Typ = columns.Other, "int96"
	}
}

// Same reports whether another file has the same columns, stored in the same way.
func (s *Schema) Same(o *Schema) bool {
	if len(s.Leaves) != len(o.Leaves) || s.String() != o.String() {
		return false
	}
	for i, l := range s.Leaves {
		if m := o.Leaves[i]; l.Path != m.Path || l.Type != m.Type || l.Length != m.Length || l.MaxRep != m.MaxRep || l.MaxDef != m.MaxDef || l.Width != m.Width {
			return false
		}
	}
	return true
}
