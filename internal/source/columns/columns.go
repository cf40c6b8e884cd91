// Package columns is what sources of typed tables share, Arrow and Parquet: which
// columns become which fields, with what Hugging Face `datasets` has written about
// them, and how values of either format become those of a field.
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

// Class is what a type is here.
type Class uint8

// The classes.
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

// Node is a column of a file, or one within it.
type Node struct {
	Name  string
	Class Class
	DType driver.DType // of a Number
	Size  int64        // of a FixedList
	Typ   string       // the type as the format writes it

	Children []*Node

	// What only the format knows: At is its place among all nodes of an Arrow file,
	// among the chunks of a row group of a Parquet file. Buffer is the place of its
	// first buffer, Wide says that offsets have 64 bits.
	At, Buffer int
	Wide       bool
}

// Column is a column, or a member of one that is a struct, that values are read of.
type Column struct {
	Name    string
	Around  []*Node // the structs that it lies in
	Value   *Node
	Feature *Feature

	// Levels are the lists, from the outside, and Elem is what they are lists of;
	// of text and bytes, Levels is the value itself and Elem nil.
	Levels []*Node
	Elem   *Node
	typ    dtype.Type // of Elem
	// Fixed are the sides of the FixedLists below the lists.
	Fixed []int
	// Paths is the member of a struct of bytes that has their paths, nil without.
	Paths *Node
	// Why says why it cannot be read, "" when it can.
	Why string
}

// Feature is what `datasets` says of a column.
type Feature struct {
	Type    string          `json:"_type"`
	Names   []string        `json:"names"`
	Feature json.RawMessage `json:"feature"`
	members map[string]*Feature
}

// parseFeatures reads what `datasets` writes into a schema. What it does not know
// it leaves out: the types are enough to read the columns.
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

// Of is the feature of what a list has, nil when there is none.
func (f *Feature) Of() *Feature {
	if f == nil || f.Feature == nil {
		return nil
	}
	return parseFeature(f.Feature, 2)
}

// Is says whether it has a name.
func (f *Feature) Is(name string) bool { return f != nil && f.Type == name }

// depthLimit bounds what is read of a description within descriptions.
const depthLimit = 40

// Of lists what can be read of the columns of a file, structs taken apart. features
// is what `datasets` has written about them, "" for nothing.
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

// IsFile says whether a struct is a file as `datasets` has images and sounds: its
// bytes, its path or both.
func (n *Node) IsFile() bool {
	if n.Class != Structs || len(n.Children) != 2 {
		return false
	}
	at := slices.IndexFunc(n.Children, func(c *Node) bool { return c.Name == "bytes" && c.Class == Binaries })
	return at >= 0 && n.Children[1-at].Name == "path" && n.Children[1-at].Class == Text
}

// describe finds out how values lie in the buffers.
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
		c.Why = "is not read: numbers, truth values, text, bytes, lists of numbers, and structs of these are"
	case size*int64(n.DType.Size()) > driver.MaxArrayBytes:
		c.Why = "its values are too large"
	case len(c.Levels)+len(c.Fixed) > driver.MaxAxes:
		c.Why = "its lists are too deep"
	}
}

// Typ is the type for messages.
func (c *Column) Typ() string {
	if c.Paths != nil {
		return c.Around[len(c.Around)-1].Typ
	}
	return c.Value.Typ
}

// Unit is the size of an innermost row in bytes: of what the offsets count, or of
// a value of a column without.
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

// Seen returns what the schema says of the column; none of its values was seen. wants are
// the fields that become of it.
func (c *Column) Seen(wants ...column.Want) *column.Seen {
	s := &column.Seen{Name: c.Name, Type: c.Typ(), Shaped: true, Form: column.Bytes}
	for _, w := range wants {
		s.Want(w)
	}
	s.Names, s.Tokens = false, false // values are not read when a table is opened
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

// Row returns the size in bytes of a row of the outermost lists: of what their offsets count.
func (c *Column) Row(s *column.Seen) int64 {
	size := c.Unit()
	for i := 0; i+1 < len(c.Levels); i++ {
		size *= int64(max(s.Inner[i], 1))
	}
	return size
}

// Bounded reports whether the values of a column that lacks some have to be read to know
// whether it becomes a field of floats: 64-bit numbers may be too large for that.
func (c *Column) Bounded(s *column.Seen) bool {
	return s.Form == column.Number && s.Count[column.Missing] > 0 && column.Whole(s.DType) && s.DType.Size() == 8
}

// Bound adds a value of a column that is Bounded.
func (c *Column) Bound(s *column.Seen, raw []byte) {
	n := c.typ.Int(raw)
	s.Bounds(n, n)
}

// Refuse says that a column cannot be read, and how to read the others.
func Refuse(where fmt.Stringer, c *Column, all []*Column) error {
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
