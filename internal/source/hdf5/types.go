package hdf5

import (
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
)

// Class is the class of a type.
type Class uint8

// The classes.
const (
	Number   Class = iota // integers and floating-point numbers
	Text                  // Size bytes of text
	Opaque                // Size bytes
	Enum                  // numbers with names
	Compound              // a structure of Members
	VarText               // text of variable length, in a heap
	VarList               // lists of Base of variable length, in a heap
	Other                 // not supported: Why
)

// Type is the type of the elements of a data set.
type Type struct {
	Class Class
	// Size is the size of an element in bytes, including array dimensions.
	Size int64
	// Float, Signed and Big describe a number.
	Float, Signed, Big bool
	// Pad is the padding of a text: 0 for a zero byte at its end, 1 for zeros, 2 for blanks.
	Pad int
	// Dims are the dimensions of an array type. The other fields describe its elements.
	Dims []int64
	// Base is the element type of a list or an enumeration.
	Base    *Type
	Members []Member // of Compound
	// Names and Values are the members of an Enum.
	Names  []string
	Values []int64
	// Why names the type if the class is Other.
	Why string
}

// Member is a member of a compound type.
type Member struct {
	Name   string
	Offset int64
	Type   *Type
}

// Element returns the size of an element of an array type.
func (t *Type) Element() int64 {
	n := t.Size
	for _, side := range t.Dims {
		n /= side
	}
	return n
}

// IsBool reports whether the type is h5py's enumeration for booleans.
func (t *Type) IsBool() bool {
	return t.Class == Enum && t.Element() == 1 && len(t.Names) == 2 && t.Names[0] == "FALSE" && t.Names[1] == "TRUE" && t.Values[0] == 0 && t.Values[1] == 1
}

// String returns the name of the type for messages.
func (t *Type) String() string {
	switch t.Class {
	case Number, Enum:
		n := t
		if t.Class == Enum {
			n = t.Base
		}
		name := "uint"
		switch {
		case n.Float:
			name = "float"
		case n.Signed:
			name = "int"
		}
		name = fmt.Sprintf("%s%d", name, 8*n.Element())
		if t.Class == Enum {
			name = "enum of " + name
		}
		if len(t.Dims) > 0 {
			name += fmt.Sprint(t.Dims)
		}
		return name
	case Text:
		return fmt.Sprintf("text of %d bytes", t.Element())
	case Opaque:
		return fmt.Sprintf("%d bytes", t.Element())
	case Compound:
		return "compound"
	case VarText:
		return "text"
	case VarList:
		return "list of " + t.Base.String()
	}
	return t.Why
}

const (
	maxTypeDepth = 16
	maxMembers   = 4096
	maxElement   = 1 << 30
)

var errTypeCut = errors.New("the description of its type is cut off")

// parseType parses a type message.
func parseType(d *decoder, depth int) (*Type, error) {
	if depth > maxTypeDepth {
		return nil, fmt.Errorf("its type is more than %d types deep", maxTypeDepth)
	}
	version := d.u8()
	class := version & 15
	version >>= 4
	bits := int(d.number(3))
	t := &Type{Size: int64(d.u32())}
	if d.bad {
		return nil, errTypeCut
	}
	if version < 1 || version > 5 {
		return nil, fmt.Errorf("unsupported version %d of its type (supported: 1 to 5)", version)
	}
	if t.Size < 1 || t.Size > maxElement {
		return nil, fmt.Errorf("an element of %d bytes", t.Size)
	}
	pad := 8
	if version >= 3 {
		pad = 1
	}
	other := func(why string, args ...any) (*Type, error) {
		t.Class, t.Why = Other, fmt.Sprintf(why, args...)
		return t, nil
	}
	var err error
	switch class {
	case 0, 4: // integers, bit fields
		t.Big, t.Signed = bits&1 != 0, class == 0 && bits&8 != 0
		offset, precision := d.u16(), d.u16()
		if d.bad {
			return nil, errTypeCut
		}
		if s := t.Size; s != 1 && s != 2 && s != 4 && s != 8 || offset != 0 || int64(precision) != 8*s {
			return other("integers of %d bits in %d bytes", precision, s)
		}
	case 1:
		t.Float = true
		t.Big = bits&1 != 0
		offset, precision := d.u16(), d.u16()
		exponent, size := d.u8(), d.u8()
		d.skip(2)
		bias := d.u32()
		if d.bad {
			return nil, errTypeCut
		}
		known := false
		switch t.Size {
		case 2:
			known = exponent == 10 && size == 5 && bias == 15
		case 4:
			known = exponent == 23 && size == 8 && bias == 127
		case 8:
			known = exponent == 52 && size == 11 && bias == 1023
		}
		if bits&64 != 0 || offset != 0 || int64(precision) != 8*t.Size || !known {
			return other("floats of %d bytes with an exponent of %d bits", t.Size, size)
		}
	case 2:
		d.skip(2)
		return other("times")
	case 3:
		t.Class, t.Pad = Text, bits&15
	case 5:
		t.Class = Opaque
		d.skip(bits & 255)
	case 6:
		t.Class = Compound
		err = t.members(d, version, bits&0xFFFF, pad, depth)
	case 7:
		return other("references")
	case 8:
		err = t.enum(d, bits&0xFFFF, pad, depth)
	case 9:
		if t.Base, err = parseType(d, depth+1); err != nil {
			return nil, err
		}
		if t.Size != int64(8+d.offsets) {
			return nil, fmt.Errorf("a reference of %d bytes to a value of variable length", t.Size)
		}
		if t.Class = VarList; bits&15 == 1 {
			t.Class = VarText
		} else if b := t.Base; b.Class != Number && b.Class != Enum {
			return other("lists of %s", b)
		}
	case 10:
		return t.array(d, version, depth)
	default:
		return other("a type of class %d", class)
	}
	if err == nil && d.bad {
		err = errTypeCut
	}
	return t, err
}

func (t *Type) members(d *decoder, version, n, pad, depth int) error {
	if n == 0 || n > maxMembers {
		return fmt.Errorf("a compound type of %d members", n)
	}
	width := 4
	if version >= 3 {
		width = bytesFor(uint64(t.Size))
	}
	for range n {
		m := Member{Name: d.name(pad), Offset: int64(d.number(width))}
		var dims []int64
		if version == 1 {
			rank := d.u8()
			d.skip(3 + 4 + 4)
			for i := range 4 {
				if side := int64(d.u32()); i < rank {
					dims = append(dims, side)
				}
			}
			if rank > 4 {
				return fmt.Errorf("member %.100q has %d axes", m.Name, rank)
			}
		}
		if d.bad {
			return errTypeCut
		}
		var err error
		if m.Type, err = parseType(d, depth+1); err != nil {
			return err
		}
		if err := m.Type.wrap(dims); err != nil {
			return err
		}
		if m.Offset < 0 || m.Type.Size > t.Size || m.Offset > t.Size-m.Type.Size {
			return fmt.Errorf("member %.100q is at bytes %d to %d of %d", m.Name, m.Offset, m.Offset+m.Type.Size, t.Size)
		}
		t.Members = append(t.Members, m)
	}
	return nil
}

// wrap turns t into an array type of t.
func (t *Type) wrap(dims []int64) error {
	for i := len(dims) - 1; i >= 0; i-- {
		if dims[i] < 1 || dims[i] > maxElement/t.Size {
			return fmt.Errorf("an array type of the shape %v", dims)
		}
		t.Size *= dims[i]
	}
	t.Dims = append(append([]int64{}, dims...), t.Dims...)
	return nil
}

func (t *Type) enum(d *decoder, n, pad, depth int) error {
	t.Class = Enum
	var err error
	if t.Base, err = parseType(d, depth+1); err != nil {
		return err
	}
	if t.Base.Class != Number || t.Base.Float || len(t.Base.Dims) > 0 || t.Base.Size != t.Size {
		return fmt.Errorf("an enumeration of %s in %d bytes", t.Base, t.Size)
	}
	t.Big, t.Signed = t.Base.Big, t.Base.Signed
	for range n {
		t.Names = append(t.Names, driver.ValidName(d.name(pad)))
		if d.bad {
			return errTypeCut
		}
	}
	for range n {
		b := d.bytes(int(t.Size))
		if d.bad {
			return errTypeCut
		}
		var v uint64
		for i := range b {
			if k := i; t.Big {
				v = v<<8 | uint64(b[k])
			} else {
				v = v<<8 | uint64(b[len(b)-1-k])
			}
		}
		if shift := 64 - 8*len(b); t.Signed {
			v = uint64(int64(v<<shift) >> shift)
		}
		t.Values = append(t.Values, int64(v))
	}
	return nil
}

func (t *Type) array(d *decoder, version, depth int) (*Type, error) {
	rank := d.u8()
	if version < 3 {
		d.skip(3)
	}
	if rank < 1 || rank > 32 {
		return nil, fmt.Errorf("an array type of %d axes", rank)
	}
	var dims []int64
	for range rank {
		dims = append(dims, int64(d.u32()))
	}
	if version < 3 {
		d.skip(4 * rank)
	}
	if d.bad {
		return nil, errTypeCut
	}
	base, err := parseType(d, depth+1)
	if err != nil {
		return nil, err
	}
	if base.Class == Compound || base.Class == VarText || base.Class == VarList {
		return &Type{Class: Other, Size: t.Size, Why: "arrays of " + base.String()}, nil
	}
	if err := base.wrap(dims); err != nil {
		return nil, err
	}
	if base.Size != t.Size {
		return nil, fmt.Errorf("an array type of the shape %v has %d bytes, expected %d", dims, base.Size, t.Size)
	}
	return base, nil
}
