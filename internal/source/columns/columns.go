// Package columns is the common part of the sources of typed tables, Arrow and Parquet. It chooses
// the columns that become fields, reads the features that Hugging Face `datasets` stores in the
// schema, and converts stored values to values of fields.
package columns

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// Class is the class of a column's type, the same for both formats.
type Class uint8

// Classes of types.
const (
	Other Class = iota
	Number
	Boolean
	Text
	Binaries
	List
	FixedList
	Structs
	Nothing // Arrow's null
)

// Node is a column of a file, or a node below a column.
type Node struct {
	Name  string
	Class Class
	DType driver.DType // of Number
	Size  int64        // of FixedList
	Typ   string       // name of the type in the format

	Children []*Node

	// Only the format uses these. At is the index of the node among all nodes of an Arrow file, or
	// of the chunk in a row group of a Parquet file. Buffer is the index of the first buffer. Wide
	// is set if offsets have 64 bits.
	At, Buffer int
	Wide       bool
}

// Column is a column with values, or a member with values of a struct column.
type Column struct {
	Name    string
	Around  []*Node // the structs that contain it, from the outside
	Value   *Node
	Feature *Feature

	// Levels are the nested lists, from the outside. Elem is the node of their elements. For text
	// and bytes, Levels has only the value itself, and Elem is nil.
	Levels []*Node
	Elem   *Node
	typ    dtype.Type // type of Elem
	// Fixed are the lengths of the FixedLists below the lists.
	Fixed []int
	// Paths is the member of a file struct with the paths, nil if there is none.
	Paths *Node
	// Why is the reason that the column cannot be read, "" if it can.
	Why string
}

// Feature is the description of a column by `datasets`.
type Feature struct {
	Type    string          `json:"_type"`
	Names   []string        `json:"names"`
	Feature json.RawMessage `json:"feature"`
	members map[string]*Feature
}

// parseFeatures reads the features that `datasets` writes into a schema. It skips features that it
// does not know, because the types are enough to read the columns.
func parseFeatures(text string) map[string]*Feature {
	var meta struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if json.Unmarshal([]byte(text), &meta) != nil {
		return nil
	}
	return features(meta.Info.Features, depthLimit)
}

func features(in map[string]json.RawMessage, depth int) map[string]*Feature {
	out := map[string]*Feature{}
	for name, raw := range in {
		out[name] = parseFeature(raw, depth)
	}
	return out
}

func parseFeature(raw json.RawMessage, depth int) *Feature {
	f := &Feature{}
	if depth == 0 {
		return f
	}
	if json.Unmarshal(raw, f) != nil {
		f = &Feature{}
	}
	var members map[string]json.RawMessage
	if f.Type == "" && json.Unmarshal(raw, &members) == nil {
		f.members = features(members, depth-1)
	}
	return f
}

// Of returns the feature of the elements of a list, nil if there is none.
func (f *Feature) Of() *Feature {
	if f == nil || f.Feature == nil {
		return nil
	}
	return parseFeature(f.Feature, 2)
}

// Is reports whether the feature has this type name.
func (f *Feature) Is(name string) bool { return f != nil && f.Type == name }

// depthLimit limits the nesting of descriptions.
const depthLimit = 40

// Of lists the columns of a file. Members of structs are columns of their own. features is the
// description by `datasets`, "" if there is none.
func Of(columns []*Node, features string) []*Column {
	all := parseFeatures(features)
	var out []*Column
	var walk func(n *Node, name string, around []*Node, f *Feature)
	walk = func(n *Node, name string, around []*Node, f *Feature) {
		if n.Class == Structs && !n.IsFile() {
			for _, c := range n.Children {
				var of *Feature
				if f != nil {
					of = f.members[c.Name]
				}
				walk(c, name+"."+c.Name, append(slices.Clip(around), n), of)
			}
			return
		}
		c := &Column{Name: name, Around: around, Value: n, Feature: f}
		c.describe()
		out = append(out, c)
	}
	for _, n := range columns {
		walk(n, n.Name, nil, all[n.Name])
	}
	return out
}

// IsFile reports whether a struct is a file as `datasets` stores images and sounds: a member with
// the bytes and a member with the path.
func (n *Node) IsFile() bool {
	if n.Class != Structs || len(n.Children) != 2 {
		return false
	}
	at := slices.IndexFunc(n.Children, func(c *Node) bool { return c.Name == "bytes" && c.Class == Binaries })
	return at >= 0 && n.Children[1-at].Name == "path" && n.Children[1-at].Class == Text
}

// describe sets the levels and elements of the column from its nodes.
func (c *Column) describe() {
	if c.Value.IsFile() {
		n := c.Value
		c.Around = append(slices.Clip(c.Around), n)
		c.Value, c.Paths = n.Children[0], n.Children[1]
		if c.Paths.Class != Text {
			c.Value, c.Paths = c.Paths, c.Value
		}
	}
	n := c.Value
	if n.Class == Text || n.Class == Binaries {
		c.Levels = []*Node{n}
		return
	}
	for n.Class == List {
		c.Levels = append(c.Levels, n)
		n = n.Children[0]
	}
	size := int64(1)
	for n.Class == FixedList {
		c.Fixed = append(c.Fixed, int(n.Size))
		if size *= n.Size; size > driver.MaxArrayBytes {
			c.Why = "its values are too large"
			return
		}
		n = n.Children[0]
	}
	c.Elem, c.typ = n, n.DType.Type()
	switch {
	case n.Class == Boolean && len(c.Levels)+len(c.Fixed) == 0:
	case n.Class != Number:
		c.Why = "is not read: " + advice(n.Typ)
	case size*int64(n.DType.Size()) > driver.MaxArrayBytes:
		c.Why = "its values are too large"
	case len(c.Levels)+len(c.Fixed) > driver.MaxAxes:
		c.Why = "its lists are too deep"
	}
}

// advice says what can be done about a type that is not read.
func advice(typ string) string {
	switch {
	case strings.HasPrefix(typ, "decimal"):
		return "cast it to double, or to a whole number of the smallest unit"
	case typ == "int96":
		return "write it as a 64-bit timestamp, in Spark with spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS"
	}
	return "numbers, truth values, text, bytes, lists of numbers, and structs of these are"
}

// Typ returns the name of the type, for messages.
func (c *Column) Typ() string {
	if c.Paths != nil {
		return c.Around[len(c.Around)-1].Typ
	}
	return c.Value.Typ
}

// Unit returns the size of an innermost row in bytes. For lists this is the unit of the offsets,
// otherwise the size of a value.
func (c *Column) Unit() int64 {
	if c.Elem == nil {
		return 1
	}
	size := int64(c.Elem.DType.Size())
	for _, side := range c.Fixed {
		size *= int64(side)
	}
	return size
}

// Seen returns what the schema declares about the column, before any value is read. wants are the
// fields made from the column.
func (c *Column) Seen(wants ...column.Want) *column.Seen {
	s := &column.Seen{Name: c.Name, Type: c.Typ(), Shaped: true, Form: column.Bytes}
	for _, w := range wants {
		s.Want(w)
	}
	s.Names, s.Tokens = false, false // opening a table does not read values
	class := c.Feature
	switch {
	case c.Elem == nil && c.Value.Class == Text:
		s.Form = column.Text
	case c.Elem == nil && class.Is("Image"):
		s.Files = driver.KindImage
	case c.Elem == nil && class.Is("Audio"):
		s.Files = driver.KindAudio
	case c.Elem == nil:
	case len(c.Levels)+len(c.Fixed) == 0:
		s.Form = column.Number
	case len(c.Levels) == 0:
		s.Form, s.Fixed, s.Most, s.Inner = column.List, true, int64(c.Fixed[0]), c.Fixed[1:]
	default:
		s.Form, class = column.List, class.Of()
		s.Inner = append(slices.Repeat([]int{-1}, len(c.Levels)-1), c.Fixed...)
	}
	if c.Elem != nil {
		if s.DType = c.Elem.DType; c.Elem.Class == Boolean {
			s.DType = driver.Bool
		}
		if s.Class = class.Is("ClassLabel"); s.Class {
			s.Classes = class.Names
		}
	}
	return s
}

// Row returns the size in bytes of a row of the outermost lists, which is the unit of their
// offsets.
func (c *Column) Row(s *column.Seen) int64 {
	size := c.Unit()
	for i := 0; i+1 < len(c.Levels); i++ {
		size *= int64(max(s.Inner[i], 1))
	}
	return size
}

// Bounded reports whether the values must be read to choose the kind of the column. This is so if
// it lacks some values and has 64-bit numbers, which may be too large for a field of floats.
func (c *Column) Bounded(s *column.Seen) bool {
	return s.Form == column.Number && s.Count[column.Missing] > 0 && column.Whole(s.DType) && s.DType.Size() == 8
}

// Bound adds a value of a column for which Bounded returns true.
func (c *Column) Bound(s *column.Seen, raw []byte) {
	n := c.typ.Int(raw)
	s.Bounds(n, n)
}

// refuse returns the error for a column that cannot be read, with columns that can.
func refuse(where fmt.Stringer, c *Column, all []*Column) error {
	var rest []string
	for _, o := range all {
		if o.Why == "" && len(rest) < 4 {
			rest = append(rest, column.Query(column.Want{Name: o.Name, From: o.Name}))
		}
	}
	if len(rest) == 0 {
		return fmt.Errorf("%s: column %q of the type %s %s", where, c.Name, c.Typ(), c.Why)
	}
	return fmt.Errorf("%s: column %q of the type %s %s; choose others, such as ?%s", where, c.Name, c.Typ(), c.Why, strings.Join(rest, "&"))
}
