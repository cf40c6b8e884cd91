package view

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// This file binds an expression to a source: it resolves the names and returns a function that
// evaluates the expression for a record.

// row is a record to evaluate.
type row struct {
	rows *scan.Rows
	k    int
	id   int64
}

func (r *row) value(field int) *driver.Value { return &r.rows.Records[r.k].Values[field] }

// operand is one side of a comparison: exactly one of its functions is set.
type operand struct {
	ints   func(r *row) int64
	floats func(r *row) float64
	text   func(r *row) []byte
	// classes are set for class numbers, which may be compared with text.
	classes []string
	label   bool
	// many returns class numbers of a field with several per record.
	many func(r *row) []byte
	what string // for messages
}

// columns lists what must be read from a source to evaluate something.
type columns struct {
	src   driver.Source
	info  *driver.Info
	paths driver.Pather
	req   scan.Request
}

func newColumns(src driver.Source) *columns {
	c := &columns{src: src, info: src.Info()}
	c.paths, _ = driver.As[driver.Pather](src)
	return c
}

// reads reports whether anything must be read.
func (c *columns) reads() bool {
	return len(c.req.Values)+len(c.req.Sizes)+len(c.req.Shapes) > 0
}

// place returns the index of a field in a list of a Request, and adds the field if necessary.
func place(list *[]int, field int) int {
	i := slices.Index(*list, field)
	if i < 0 {
		i = len(*list)
		*list = append(*list, field)
	}
	return i
}

// facets are the properties of values that expressions can use.
var facets = []string{"width", "height", "channels", "length", "bytes"}

// operand resolves a name.
func (c *columns) operand(name string) (*operand, error) {
	for i := range c.info.Fields {
		if c.info.Fields[i].Name == name {
			return c.field(i)
		}
	}
	if dot := strings.LastIndexByte(name, '.'); dot > 0 && slices.Contains(facets, name[dot+1:]) {
		for i := range c.info.Fields {
			if c.info.Fields[i].Name == name[:dot] {
				return c.facet(i, name[dot+1:])
			}
		}
	}
	switch name {
	case "width", "height", "channels":
		i, err := c.image(name)
		if err != nil {
			return nil, err
		}
		return c.facet(i, name)
	case "path", "folder":
		if c.paths == nil {
			return nil, fmt.Errorf("records of format %s have no path", c.info.Format)
		}
		paths, folder := c.paths, name == "folder"
		return &operand{what: "text", text: func(r *row) []byte {
			p := paths.Path(r.id, 0)
			if folder {
				p = p[:max(strings.LastIndexByte(p, '/'), 0)]
			}
			return []byte(p)
		}}, nil
	case "index":
		return &operand{what: "a number", ints: func(r *row) int64 { return r.id }}, nil
	}
	var names []string
	for i := range c.info.Fields {
		names = append(names, c.info.Fields[i].Name)
	}
	hint := didYouMean(name, append(slices.Clone(names), "width", "height", "channels", "path", "folder", "index"))
	if hint == "" {
		hint = "; the fields are " + strings.Join(names, ", ")
	}
	return nil, fmt.Errorf("there is no field %q%s", name, hint)
}

// image returns the only field of images. The names width and height without a field refer to it.
func (c *columns) image(what string) (int, error) {
	var images []int
	for i := range c.info.Fields {
		if c.info.Fields[i].Kind == driver.KindImage {
			images = append(images, i)
		}
	}
	switch len(images) {
	case 0:
		return 0, fmt.Errorf("%s needs a field of images, and there is none", what)
	case 1:
		return images[0], nil
	}
	return 0, fmt.Errorf("there are %d fields of images: write %s.%s or %s.%s", len(images),
		c.info.Fields[images[0]].Name, what, c.info.Fields[images[1]].Name, what)
}

// field returns the value of a field.
func (c *columns) field(i int) (*operand, error) {
	f := &c.info.Fields[i]
	switch f.Kind {
	case driver.KindLabel, driver.KindInt:
		place(&c.req.Values, i)
		return &operand{
			ints: func(r *row) int64 { return r.value(i).Int }, classes: f.Classes,
			label: f.Kind == driver.KindLabel, what: "a number",
		}, nil
	case driver.KindFloat:
		place(&c.req.Values, i)
		return &operand{what: "a number", floats: func(r *row) float64 { return r.value(i).Float }}, nil
	case driver.KindText, driver.KindJSON:
		place(&c.req.Values, i)
		return &operand{what: "text", text: func(r *row) []byte { return r.value(i).Bytes }}, nil
	case driver.KindMultiLabel:
		place(&c.req.Values, i)
		return &operand{what: "several classes", many: func(r *row) []byte { return r.value(i).Bytes }, classes: f.Classes}, nil
	case driver.KindArray:
		if len(f.Shape) == 0 {
			return c.element(i)
		}
	}
	return nil, fmt.Errorf("%q has kind %s, whose values cannot be compared; you can compare %s", f.Name, f.Kind, facetsOf(f))
}

func facetsOf(f *driver.Field) string {
	if f.Kind == driver.KindImage || f.Kind == driver.KindMask {
		return f.Name + ".width, " + f.Name + ".height and " + f.Name + ".bytes"
	}
	return f.Name + ".length and " + f.Name + ".bytes"
}

// element returns the value of an array with one number.
func (c *columns) element(i int) (*operand, error) {
	place(&c.req.Values, i)
	t := c.info.Fields[i].DType.Type()
	if t.Size() == 0 {
		return nil, fmt.Errorf("%q has elements of the unknown type %q", c.info.Fields[i].Name, c.info.Fields[i].DType)
	}
	o := &operand{what: "a number"}
	if t.Floating() {
		o.floats = func(r *row) float64 {
			if b := r.value(i).Bytes; len(b) >= t.Size() {
				return t.Float(b)
			}
			return math.NaN()
		}
	} else {
		o.ints = func(r *row) int64 {
			if b := r.value(i).Bytes; len(b) >= t.Size() {
				return t.Int(b)
			}
			return 0
		}
	}
	return o, nil
}

// facet returns a property of a value.
func (c *columns) facet(i int, what string) (*operand, error) {
	f := &c.info.Fields[i]
	picture := f.Kind == driver.KindImage || f.Kind == driver.KindMask
	o := &operand{what: "a number"}
	switch what {
	case "width", "height", "channels":
		if !picture {
			return nil, fmt.Errorf("%q has kind %s, which has no %s", f.Name, f.Kind, what)
		}
		at := place(&c.req.Shapes, i)
		o.ints = func(r *row) int64 {
			s := &r.rows.Shapes[at][r.k]
			switch what {
			case "width":
				return int64(s.Width)
			case "height":
				return int64(s.Height)
			}
			return int64(s.Channels)
		}
		return o, nil
	}
	element := int64(1)
	if what == "length" {
		var err error
		if element, err = ElementBytes(f); err != nil {
			return nil, err
		}
	} else if f.Kind == driver.KindLabel || f.Kind == driver.KindInt || f.Kind == driver.KindFloat {
		return nil, fmt.Errorf("%q is a number, which has no %s", f.Name, what)
	}
	at := place(&c.req.Sizes, i)
	o.ints = func(r *row) int64 { return r.rows.Sizes[at][r.k] / element }
	return o, nil
}

// HasShape reports whether values of a field are images, with a width and a height.
func HasShape(f *driver.Field) bool {
	return f.Kind == driver.KindImage || f.Kind == driver.KindMask
}

// ElementBytes returns the size in bytes of one element along the first axis of a field with values
// of any length.
func ElementBytes(f *driver.Field) (int64, error) {
	switch f.Kind {
	case driver.KindText, driver.KindJSON, driver.KindBytes, driver.KindAudio:
		return 1, nil
	case driver.KindMultiLabel:
		return 8, nil
	case driver.KindRagged, driver.KindTokens, driver.KindBoxes, driver.KindKeyPoints:
		return driver.ArrayBytes(f.DType, f.Shape)
	}
	return 0, fmt.Errorf("%q has kind %s, whose values have no length", f.Name, f.Kind)
}

// didYouMean returns a hint if one of the names is similar.
func didYouMean(name string, known []string) string {
	if near := units.Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// binder binds an expression to a source.
type binder struct {
	*columns
	text string
}

func (b *binder) fail(e *node, format string, a ...any) error {
	return &exprError{b.text, e.at, e.n, fmt.Sprintf(format, a...)}
}

// bind returns a function that evaluates an expression.
func (c *columns) bind(text string, e *node) (func(r *row) bool, error) {
	b := &binder{columns: c, text: text}
	return b.condition(e)
}

func (b *binder) condition(e *node) (func(r *row) bool, error) {
	switch e.op {
	case "and", "or":
		var all []func(r *row) bool
		for _, p := range e.parts {
			f, err := b.condition(p)
			if err != nil {
				return nil, err
			}
			all = append(all, f)
		}
		want := e.op == "or"
		return func(r *row) bool {
			for _, f := range all {
				if f(r) == want {
					return want
				}
			}
			return !want
		}, nil
	case "not":
		f, err := b.condition(e.parts[0])
		if err != nil {
			return nil, err
		}
		return func(r *row) bool { return !f(r) }, nil
	case "in":
		return b.in(e)
	case "within":
		return b.within(e)
	case "name", "number", "text":
		return nil, b.fail(e, "this is a value; say what it is to be compared with, such as %s == %s", e, example(e))
	}
	left, err := b.value(e.parts[0])
	if err != nil {
		return nil, err
	}
	right, err := b.value(e.parts[1])
	if err != nil {
		return nil, err
	}
	return b.compare(e, left, right, e.parts[0], e.parts[1])
}

func example(e *node) string {
	if e.op == "text" {
		return "text"
	}
	return "1"
}

// value returns one side of a comparison.
func (b *binder) value(e *node) (*operand, error) {
	switch e.op {
	case "name":
		o, err := b.operand(e.text)
		if err != nil {
			return nil, b.fail(e, "%v", err)
		}
		return o, nil
	case "number":
		if e.num.whole {
			return &operand{what: "a number", ints: func(*row) int64 { return e.num.i }}, nil
		}
		return &operand{what: "a number", floats: func(*row) float64 { return e.num.f }}, nil
	case "text":
		v := []byte(e.text)
		return &operand{what: "text", text: func(*row) []byte { return v }}, nil
	}
	return nil, b.fail(e, "a condition cannot be compared; join conditions by and, or and not")
}

// class resolves the name of a class to its number, if the other side of the comparison is a label.
func (b *binder) class(e *node, classes []string) (*operand, error) {
	i := slices.Index(classes, e.text)
	if i < 0 {
		if len(classes) == 0 {
			return nil, b.fail(e, "the classes have no names here; give the number")
		}
		hint := didYouMean(e.text, classes)
		if hint == "" {
			hint = fmt.Sprintf(" among the %d there are, such as %q", len(classes), classes[0])
		}
		return nil, b.fail(e, "there is no class %q%s", e.text, hint)
	}
	return &operand{what: "a number", ints: func(*row) int64 { return int64(i) }}, nil
}

func (b *binder) compare(e *node, l, r *operand, le, re *node) (func(*row) bool, error) {
	var err error
	if l.label && re.op == "text" {
		r, err = b.class(re, l.classes)
	} else if r.label && le.op == "text" {
		l, err = b.class(le, r.classes)
	}
	if err != nil {
		return nil, err
	}
	if (le.op == "text" || re.op == "text") && (l.label || r.label) && e.op != "==" && e.op != "!=" {
		return nil, b.fail(e, "names of classes have no order: compare them with == or !=, or compare numbers")
	}
	is := ordered(e.op)
	switch {
	case l.many != nil || r.many != nil:
		return nil, b.fail(e, "a record has several classes here: ask with in, such as %s", `"cat" in labels`)
	case l.ints != nil && r.ints != nil:
		return func(x *row) bool { return is(cmp.Compare(l.ints(x), r.ints(x))) }, nil
	case l.text != nil && r.text != nil:
		return func(x *row) bool { return is(bytes.Compare(l.text(x), r.text(x))) }, nil
	case l.text != nil || r.text != nil:
		return nil, b.fail(e, "%s is compared with %s", l.what, r.what)
	}
	lf, rf := l.float(), r.float()
	ne := e.op == "!="
	return func(x *row) bool {
		a, b := lf(x), rf(x)
		if a != a || b != b {
			return ne // NaN equals nothing, as usual
		}
		return is(cmp.Compare(a, b))
	}, nil
}

func (o *operand) float() func(r *row) float64 {
	if o.floats != nil {
		return o.floats
	}
	return func(r *row) float64 { return float64(o.ints(r)) }
}

// ordered returns the function that evaluates an operator on the result of a three-way comparison.
func ordered(op string) func(int) bool {
	switch op {
	case "==":
		return func(c int) bool { return c == 0 }
	case "!=":
		return func(c int) bool { return c != 0 }
	case "<":
		return func(c int) bool { return c < 0 }
	case "<=":
		return func(c int) bool { return c <= 0 }
	case ">":
		return func(c int) bool { return c > 0 }
	}
	return func(c int) bool { return c >= 0 }
}

// in evaluates a value in a list of literals.
func (b *binder) in(e *node) (func(*row) bool, error) {
	left, err := b.value(e.parts[0])
	if err != nil {
		return nil, err
	}
	if left.many != nil {
		return nil, b.fail(e, "a record has several classes here: ask for one, such as %s", `"cat" in labels`)
	}
	ints, floats, texts := map[int64]bool{}, map[float64]bool{}, map[string]bool{}
	for _, p := range e.parts[1:] {
		switch {
		case p.op == "text" && left.label:
			c, err := b.class(p, left.classes)
			if err != nil {
				return nil, err
			}
			ints[c.ints(nil)] = true
		case p.op == "text" && left.text != nil:
			texts[p.text] = true
		case p.op == "number" && left.text == nil:
			if p.num.whole {
				ints[p.num.i] = true
			}
			floats[p.num.f] = true
		default:
			return nil, b.fail(p, "%s is compared with a %s", left.what, p.op)
		}
	}
	switch {
	case left.text != nil:
		return func(r *row) bool { return texts[string(left.text(r))] }, nil
	case left.ints != nil:
		return func(r *row) bool { return ints[left.ints(r)] }, nil
	}
	return func(r *row) bool { return floats[left.floats(r)] }, nil
}

// within evaluates a class in a set of classes, or a text in another text.
func (b *binder) within(e *node) (func(*row) bool, error) {
	field := e.parts[1]
	right, err := b.value(field)
	if err != nil {
		return nil, err
	}
	literal := e.parts[0]
	switch {
	case right.text != nil && literal.op == "text":
		what := []byte(literal.text)
		return func(r *row) bool { return bytes.Contains(right.text(r), what) }, nil
	case right.many != nil && (literal.op == "text" || literal.op == "number" && literal.num.whole):
		class := literal.num.i
		if literal.op == "text" {
			c, err := b.class(literal, right.classes)
			if err != nil {
				return nil, err
			}
			class = c.ints(nil)
		}
		return func(r *row) bool {
			for v := right.many(r); len(v) >= 8; v = v[8:] {
				if int64(binary.LittleEndian.Uint64(v)) == class {
					return true
				}
			}
			return false
		}, nil
	case right.text != nil || right.many != nil:
		return nil, b.fail(literal, "a %s in quotes is expected in front of in %s", "text", field)
	}
	return nil, b.fail(field, "behind in a list is expected, such as (1, 2, 3), or a field of text or of several classes")
}
