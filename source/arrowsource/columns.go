package arrowsource

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/tablesource"
)

// column is a column, or a member of one that is a struct, that values are read of.
type column struct {
	name    string
	around  []*node // the structs that it lies in
	value   *node
	feature *feature

	// levels are the lists, from the outside, and elem is what they are lists of;
	// of text and bytes, levels is the value itself and elem nil.
	levels []*node
	elem   *node
	// fixed are the sides of the fixedLists below the lists.
	fixed []int
	// paths is the member of a struct of bytes that has their paths, nil without.
	paths *node
	// why says why it cannot be read, "" when it can.
	why string
}

// feature is what `datasets` says of a column.
type feature struct {
	Type    string          `json:"_type"`
	Names   []string        `json:"names"`
	Feature json.RawMessage `json:"feature"`
	members map[string]*feature
}

// parseFeatures reads what `datasets` writes into a schema. What it does not know
// it leaves out: the types are enough to read the columns.
func parseFeatures(text string) map[string]*feature {
	var meta struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if json.Unmarshal([]byte(text), &meta) != nil {
		return nil
	}
	return features(meta.Info.Features, maxDepth)
}

func features(in map[string]json.RawMessage, depth int) map[string]*feature {
	out := map[string]*feature{}
	for name, raw := range in {
		out[name] = parseFeature(raw, depth)
	}
	return out
}

func parseFeature(raw json.RawMessage, depth int) *feature {
	f := &feature{}
	if depth == 0 {
		return f
	}
	if json.Unmarshal(raw, f) != nil {
		f = &feature{}
	}
	var members map[string]json.RawMessage
	if f.Type == "" && json.Unmarshal(raw, &members) == nil {
		f.members = features(members, depth-1)
	}
	return f
}

// of is the feature of what a list has, nil when there is none.
func (f *feature) of() *feature {
	if f == nil || f.Feature == nil {
		return nil
	}
	return parseFeature(f.Feature, 2)
}

func (f *feature) is(name string) bool { return f != nil && f.Type == name }

// columnsOf lists what can be read of a schema, structs taken apart.
func columnsOf(s *schema) []*column {
	all := parseFeatures(s.features)
	var out []*column
	var walk func(n *node, name string, around []*node, f *feature)
	walk = func(n *node, name string, around []*node, f *feature) {
		if n.class == structs && !n.isFile() {
			for _, c := range n.children {
				var of *feature
				if f != nil {
					of = f.members[c.name]
				}
				walk(c, name+"."+c.name, append(slices.Clip(around), n), of)
			}
			return
		}
		c := &column{name: name, around: around, value: n, feature: f}
		c.describe()
		out = append(out, c)
	}
	for _, n := range s.columns {
		walk(n, n.name, nil, all[n.name])
	}
	return out
}

// isFile says whether a struct is a file as `datasets` has images and sounds: its
// bytes, its path or both.
func (n *node) isFile() bool {
	if n.class != structs || len(n.children) != 2 {
		return false
	}
	at := slices.IndexFunc(n.children, func(c *node) bool { return c.name == "bytes" && c.class == binaries })
	return at >= 0 && n.children[1-at].name == "path" && n.children[1-at].class == text
}

// describe finds out how values lie in the buffers.
func (c *column) describe() {
	if c.value.isFile() {
		n := c.value
		c.around = append(slices.Clip(c.around), n)
		c.value, c.paths = n.children[0], n.children[1]
		if c.paths.class != text {
			c.value, c.paths = c.paths, c.value
		}
	}
	n := c.value
	if n.class == text || n.class == binaries {
		c.levels = []*node{n}
		return
	}
	for n.class == list {
		c.levels = append(c.levels, n)
		n = n.children[0]
	}
	size := int64(1)
	for n.class == fixedList {
		c.fixed = append(c.fixed, int(n.size))
		if size *= n.size; size > driver.MaxArrayBytes {
			c.why = "its values are too large"
			return
		}
		n = n.children[0]
	}
	c.elem = n
	switch {
	case n.class == boolean && len(c.levels)+len(c.fixed) == 0:
	case n.class != number:
		c.why = "is not read: numbers, truth values, text, bytes, lists of numbers, and structs of these are"
	case size*int64(n.dtype.Size()) > driver.MaxArrayBytes:
		c.why = "its values are too large"
	case len(c.levels)+len(c.fixed) > driver.MaxAxes:
		c.why = "its lists are too deep"
	}
}

// typ is the type for messages.
func (c *column) typ() string {
	if c.paths != nil {
		return c.around[len(c.around)-1].typ
	}
	return c.value.typ
}

// unit is the size of an innermost row in bytes: of what the offsets count, or of
// a value of a column without.
func (c *column) unit() int64 {
	if c.elem == nil {
		return 1
	}
	size := int64(c.elem.dtype.Size())
	for _, side := range c.fixed {
		size *= int64(side)
	}
	return size
}

// inferred is the kind of a column when nobody says it.
func (c *column) inferred(u *uniform, look driver.Kind) driver.Kind {
	switch {
	case c.elem == nil && c.value.class == text:
		return driver.KindText
	case c.elem == nil:
		return look
	case c.elem.class == boolean:
		return driver.KindArray
	case len(c.levels)+len(c.fixed) == 0 && c.feature.is("ClassLabel"):
		return driver.KindLabel
	case len(c.levels)+len(c.fixed) == 0 && (strings.HasPrefix(string(c.elem.dtype), "float") || u.missing > 0):
		return driver.KindFloat
	case len(c.levels)+len(c.fixed) == 0:
		return driver.KindInt
	case len(c.levels) == 1 && len(c.fixed) == 0 && c.feature.of().is("ClassLabel"):
		return driver.KindMultiLabel
	case len(c.levels) == 0 || u.missing == 0 && u.least == u.most && u.most > 0:
		return driver.KindArray
	}
	return driver.KindRagged
}

// field makes the field of a column: of the kind that is wanted, or that look and
// the values say.
func (c *column) field(want tablesource.Column, u *uniform, look driver.Kind) (driver.Field, error) {
	f := driver.Field{Name: want.Name, Kind: want.Kind}
	guess := c.inferred(u, look)
	if f.Kind == "" {
		f.Kind = guess
	}
	fail := func(what string) (driver.Field, error) {
		return f, fmt.Errorf("column %q cannot be %s: %s; its type is %s, which is read as %s", c.name, f.Kind, what, c.typ(), guess)
	}
	bytes := c.elem == nil
	scalar := !bytes && len(c.levels)+len(c.fixed) == 0
	whole := !bytes && c.elem.class == number && !strings.HasPrefix(string(c.elem.dtype), "float")
	var shape []int // of what the outermost list has
	if !bytes {
		for _, n := range u.sides {
			shape = append(shape, int(max(n, 1)))
		}
		shape = append(shape, c.fixed...)
		f.DType = c.elem.dtype
		if c.elem.class == boolean {
			f.DType = driver.Bool
		}
	}
	switch f.Kind {
	case driver.KindImage, driver.KindMask, driver.KindAudio, driver.KindBytes, driver.KindText, driver.KindJSON:
		if !bytes {
			return fail("it has numbers")
		}
		if f.DType = ""; f.Kind == driver.KindMask {
			f.DType = u.mask
		}
	case driver.KindInt, driver.KindFloat, driver.KindLabel:
		if !scalar || c.elem.class != number {
			return fail("it has no single numbers")
		}
		if f.Kind != driver.KindFloat && !whole {
			return fail("its numbers have fractions")
		}
		if f.DType = ""; f.Kind == driver.KindLabel && c.feature.is("ClassLabel") {
			f.Classes = c.feature.Names
		}
		return f, nil
	case driver.KindArray:
		switch {
		case bytes:
			return fail("it has no numbers")
		case len(c.levels) > 0 && u.least != u.most:
			return fail(fmt.Sprintf("its lists have %d to %d elements", u.least, u.most))
		case len(c.levels) > 0 && u.most == 0:
			return fail("its lists are empty")
		case len(c.levels) > 0:
			shape = append([]int{int(u.most)}, shape...)
		}
		f.Shape = shape
	case driver.KindRagged:
		if bytes || len(c.levels) == 0 {
			return fail("it has no lists of different lengths")
		}
		f.Shape = shape
	case driver.KindMultiLabel, driver.KindTokens:
		if len(c.levels) != 1 || len(c.fixed) > 0 || !whole {
			return fail("it has no lists of whole numbers")
		}
		if f.Kind == driver.KindMultiLabel {
			if f.DType = ""; c.feature.of().is("ClassLabel") {
				f.Classes = c.feature.of().Names
			}
		} else if f.DType = driver.Uint32; c.elem.dtype == driver.Uint8 || c.elem.dtype == driver.Uint16 {
			f.DType = driver.Uint16
		}
	}
	if f.Kind == driver.KindArray || f.Kind == driver.KindRagged {
		if _, err := driver.ArrayBytes(f.DType, f.Shape); err != nil {
			return f, fmt.Errorf("column %q: %w", c.name, err)
		}
		if f.Kind == driver.KindArray {
			return f, nil
		}
	}
	f.Stats = u.sizes.stats()
	f.MaxBytes = f.Stats.MaxBytes
	size := int64(0) // of an element where it is not stored as it becomes
	switch {
	case f.Kind == driver.KindMultiLabel:
		size = 8
	case f.Kind == driver.KindTokens:
		size = int64(f.DType.Size())
	}
	if size > 0 {
		if stored := int64(c.elem.dtype.Size()); stored != size {
			f.MaxBytes, f.Stats = f.MaxBytes/stored*size, nil
		}
		f.MaxBytes = max(f.MaxBytes, size) // room is never nothing
	}
	if f.Kind == driver.KindJSON && u.missing > 0 {
		f.MaxBytes = max(f.MaxBytes, int64(len(wordNull)))
	}
	return f, nil
}

// wordNull is missing JSON.
var wordNull = []byte("null")
