package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// A tensor joins columns of a table to one array: numbers, normalised or not, and texts and class
// numbers as codes or one-hot. This needs facts about all records, such as the vocabulary of a
// column. They are computed once (tensor_fit.go), returned in driver.Field.Columns of the array,
// and stored in packs.

// Tensor lists columns that form an array with one axis, in order.
type Tensor []Column

// Column is a column of a Tensor. Its text form is FIELD:OPTION:OPTION..., for example
// age:fill=0:normalize or city:onehot.
type Column struct {
	// Field is the name of a field. AllFields means all fields of numbers or texts that no other
	// column names.
	Field string `json:"field"`
	// OneHot and Code set the conversion of a text, a label or a whole number. By default texts get
	// codes, and the others stay numbers.
	OneHot bool `json:"onehot,omitempty"`
	Code   bool `json:"code,omitempty"`
	// Classes are the values that have a code, in this order. Nil means all values in ascending
	// order, or the Top most frequent ones.
	Classes []string `json:"classes,omitempty"`
	Top     int      `json:"top,omitempty"`
	// Fill replaces missing numbers: FillMean (the default, also as ""), FillNone, or a number.
	Fill string `json:"fill,omitempty"`
	// Flag adds elements that mark missing values.
	Flag bool `json:"flag,omitempty"`
	// Normalize subtracts the mean and divides by the standard deviation. Mean and Std set these by
	// element; nil means that they are computed.
	Normalize bool      `json:"normalize,omitempty"`
	Mean      []float64 `json:"mean,omitempty"`
	Std       []float64 `json:"std,omitempty"`
}

// Special values of Column.Fill.
const (
	FillMean = "mean"
	FillNone = "none"
)

// columnOptions are the options of a column in text form.
const columnOptions = "onehot, code, top=N, fill=mean, fill=none, fill=NUMBER, flag and normalize"

// ParseColumns parses columns in text form, separated by commas.
func ParseColumns(text string) (Tensor, error) {
	var t Tensor
	for part := range strings.SplitSeq(text, ",") {
		c, err := parseColumn(part)
		if err != nil {
			return nil, err
		}
		t = append(t, c)
	}
	return t, nil
}

// parseColumn parses a column in text form. A name may contain a colon.
func parseColumn(text string) (Column, error) {
	c, rest := Column{}, text
	for {
		i := strings.LastIndexByte(rest, ':')
		if i < 0 {
			break
		}
		known, err := c.option(rest[i+1:])
		if err != nil {
			return c, fmt.Errorf("column %q: %w", text, err)
		}
		if !known {
			if hint := didYouMean(rest[i+1:], []string{"onehot", "code", "flag", "normalize", "top=", "fill="}); hint != "" {
				return c, fmt.Errorf("column %q: %q is not known%s", text, rest[i+1:], hint)
			}
			break
		}
		rest = rest[:i]
	}
	if c.Field = rest; rest == "" {
		return c, fmt.Errorf("column %q has no name: write FIELD or FIELD:OPTION, where OPTION is one of %s", text, columnOptions)
	}
	return c, nil
}

// option sets the option that a word names.
func (c *Column) option(word string) (known bool, err error) {
	key, value, has := strings.Cut(word, "=")
	switch {
	case word == "onehot":
		c.OneHot = true
	case word == "code":
		c.Code = true
	case word == "flag":
		c.Flag = true
	case word == "normalize":
		c.Normalize = true
	case has && key == "top":
		if c.Top, err = strconv.Atoi(value); err != nil || c.Top < 1 {
			return true, fmt.Errorf("top=%s: give a number of values, 1 or more", value)
		}
	case has && key == "fill":
		c.Fill = value
	default:
		return false, nil
	}
	return true, nil
}

// UnmarshalJSON reads a column as text or as an object.
func (c *Column) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		var err error
		*c, err = parseColumn(text)
		return err
	}
	if err := transform.CheckKeysOf[Column](b, "column"); err != nil {
		return err
	}
	type plain Column
	return json.Unmarshal(b, (*plain)(c))
}

// String is the inverse of parseColumn, for columns that have a text form.
func (c Column) String() string {
	text := c.Field
	add := func(yes bool, word string) {
		if yes {
			text += ":" + word
		}
	}
	add(c.OneHot, "onehot")
	add(c.Code, "code")
	add(c.Top > 0, "top="+strconv.Itoa(c.Top))
	add(c.Fill != "", "fill="+c.Fill)
	add(c.Flag, "flag")
	add(c.Normalize, "normalize")
	return text
}

// MarshalJSON writes a column as text if the text has all of it, else as an object.
func (c Column) MarshalJSON() ([]byte, error) {
	if o, err := parseColumn(c.String()); err == nil && c.Classes == nil && c.Mean == nil && c.Std == nil && o.Field == c.Field {
		return json.Marshal(c.String())
	}
	type plain Column
	return json.Marshal(plain(c))
}

// tensor is an array that is made of columns.
type tensor struct {
	field driver.Field
	dtype driver.DType
	parts []part
	size  int64 // in bytes
	whole bool  // its elements are whole numbers
}

// part is a column of a tensor.
type part struct {
	driver.Column
	source int // the field
	of     *driver.Field
	values int // number of elements, without flags
	// convert makes the kind that the view sets, nil if there is nothing to convert.
	convert func(v *driver.Value) error
	// These report what must be computed: the mean for missing numbers, mean and deviation, or the
	// classes, limited to the top most frequent.
	mean, normalize, classes bool
	top                      int
	// read returns a number, and number a whole number. name returns the text of a category, false
	// if there is none. code returns its code.
	read   func(v *driver.Value, k int) float64
	number func(v *driver.Value) int64
	name   func(v *driver.Value) ([]byte, bool)
	code   func(v *driver.Value) int64
}

// maxTensor limits the elements of a tensor.
const maxTensor = 1 << 20

// planTensors lists the parts of the tensors of a view.
func (v *view) planTensors(fields []driver.Field) ([]*tensor, error) {
	var all []*tensor
	for _, name := range slices.Sorted(maps.Keys(v.spec.Tensors)) {
		t := &tensor{field: driver.Field{Name: name, Kind: driver.KindArray}}
		if i := strings.LastIndexByte(name, ':'); i >= 0 {
			t.field.Name, t.dtype = name[:i], driver.DType(name[i+1:])
		}
		fail := func(err error) error { return fmt.Errorf("tensors: %q: %w", name, err) }
		switch {
		case t.field.Name == "" || t.field.Name == "index":
			return nil, fail(fmt.Errorf("an array cannot be called %q", t.field.Name))
		case t.dtype != "" && !slices.Contains([]driver.DType{driver.Float32, driver.Float64, driver.Int32, driver.Int64}, t.dtype):
			return nil, fail(fmt.Errorf("its type is %q; it is float32, float64, int32 or int64", t.dtype))
		case len(v.spec.Tensors[name]) == 0:
			return nil, fail(fmt.Errorf("it has no columns"))
		}
		for _, c := range v.spec.Tensors[name] {
			var err error
			if c.Field == AllFields {
				err = t.addRest(v, fields, c)
			} else {
				err = t.add(v, fields, c)
			}
			if err != nil {
				return nil, fail(err)
			}
		}
		if len(t.parts) == 0 {
			return nil, fail(fmt.Errorf("%s has no fields of numbers or texts except those of other tensors", v.in.URL))
		}
		if err := t.chooseType(); err != nil {
			return nil, fail(err)
		}
		all = append(all, t)
	}
	return all, nil
}

// addRest adds all fields that can be columns and that no column names.
func (t *tensor) addRest(v *view, fields []driver.Field, c Column) error {
	named := map[string]bool{}
	for _, columns := range v.spec.Tensors {
		for _, o := range columns {
			named[o.Field] = true
		}
	}
	for i := range fields {
		f := &fields[i]
		if named[f.Name] || !isNumber(f) && f.Kind != driver.KindText {
			continue
		}
		one := c
		one.Field = f.Name
		// A field gets only the options that apply to it.
		if f.Kind == driver.KindText {
			one.Fill, one.Normalize = "", false
		} else if !isCategory(f) {
			one.OneHot, one.Code, one.Top = false, false, 0
		} else if one.OneHot || one.Code {
			one.Fill, one.Normalize = "", false
		}
		if err := t.add(v, fields, one); err != nil {
			return err
		}
	}
	return nil
}

// isNumber reports whether the values of a field are numbers, with the same count in each record.
func isNumber(f *driver.Field) bool {
	switch f.Kind {
	case driver.KindInt, driver.KindLabel, driver.KindFloat:
		return true
	}
	return f.Kind == driver.KindArray && len(f.Shape) <= 1 && f.DType.Size() > 0
}

// isCategory reports whether values of a field can have codes.
func isCategory(f *driver.Field) bool {
	return f.Kind == driver.KindText || isNumber(f) && f.Kind != driver.KindFloat && len(f.Shape) == 0 && (f.Kind != driver.KindArray || !f.DType.Type().Floating())
}

// add adds a column.
func (t *tensor) add(v *view, fields []driver.Field, c Column) error {
	i := slices.IndexFunc(fields, func(f driver.Field) bool { return f.Name == c.Field })
	if i < 0 {
		_, err := v.field("column", c.Field)
		return err
	}
	f := &fields[i]
	fail := func(format string, a ...any) error {
		return fmt.Errorf("column %q: %s", c.Field, fmt.Sprintf(format, a...))
	}
	p := part{Column: driver.Column{Field: f.Name, As: driver.AsNumber, Flag: c.Flag}, source: i, of: f, values: 1, top: c.Top}
	switch {
	case !isNumber(f) && f.Kind != driver.KindText:
		return fail("values of the kind %s cannot be columns of a tensor; numbers, labels and texts can", f.Kind)
	case c.OneHot && c.Code:
		return fail("it can be onehot or code, not both")
	case c.OneHot:
		p.As = driver.AsOneHot
	case c.Code || f.Kind == driver.KindText:
		p.As = driver.AsCode
	}
	if p.As != driver.AsNumber {
		switch {
		case !isCategory(f):
			return fail("onehot and code are for texts, labels and whole numbers, and it has numbers of another sort")
		case c.Normalize || c.Fill != "" || c.Mean != nil || c.Std != nil:
			return fail("fill and normalize are for numbers, and it has categories: a value that is missing has the code 0, or no 1 in it")
		case c.Classes == nil && c.Top == 0 && f.Kind == driver.KindLabel && f.Classes != nil:
			p.Classes = f.Classes
		default:
			p.Classes, p.classes = c.Classes, c.Classes == nil
		}
		t.parts = append(t.parts, p)
		return nil
	}
	if c.Classes != nil || c.Top != 0 {
		return fail("classes and top are for code and onehot")
	}
	if len(f.Shape) == 1 {
		p.values = f.Shape[0]
	}
	switch c.Fill {
	case "", FillMean:
		p.mean = p.missing()
	case FillNone:
	default:
		n, err := strconv.ParseFloat(c.Fill, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return fail("fill=%s: it is mean, none or a number", c.Fill)
		}
		if p.missing() {
			p.Fill = slices.Repeat([]float64{n}, p.values)
		}
	}
	if (c.Mean == nil) != (c.Std == nil) {
		return fail("give both mean and std, or neither")
	}
	if p.normalize = c.Normalize && c.Mean == nil; c.Mean != nil {
		if p.Mean, p.Std = spread(c.Mean, p.values), spread(c.Std, p.values); p.Mean == nil || p.Std == nil || slices.Contains(c.Std, 0) {
			return fail("mean and std are one number or %d, and std is not 0", p.values)
		}
	}
	t.parts = append(t.parts, p)
	return nil
}

// spread returns one number per element, nil if there are too few or too many.
func spread(of []float64, n int) []float64 {
	switch len(of) {
	case n:
		return of
	case 1:
		return slices.Repeat(of, n)
	}
	return nil
}

// missing reports whether numbers may be missing.
func (p *part) missing() bool {
	return p.of.Kind == driver.KindFloat || p.of.Kind == driver.KindArray && p.of.DType.Type().Floating()
}

// isWhole reports whether the elements are whole numbers before any conversion.
func (p *part) isWhole() bool {
	return p.As == driver.AsCode || p.As == driver.AsNumber && !p.missing() && !p.normalize && p.Mean == nil && p.Fill == nil
}

// chooseType sets the type of the elements.
func (t *tensor) chooseType() error {
	whole := true
	for i := range t.parts {
		p := &t.parts[i]
		ok := p.isWhole()
		if !ok && p.As != driver.AsOneHot && (t.dtype == driver.Int32 || t.dtype == driver.Int64) {
			return fmt.Errorf("type %s holds whole numbers, but column %q has others", t.dtype, p.Field)
		}
		whole = whole && ok
	}
	if t.dtype == "" {
		if t.dtype = driver.Float32; whole {
			t.dtype = driver.Int64
		}
	}
	t.whole = t.dtype == driver.Int32 || t.dtype == driver.Int64
	return nil
}

// finish fills in what follows from the computed facts.
func (t *tensor) finish(kinds []func(v *driver.Value) error) error {
	at := 0
	for i := range t.parts {
		p := &t.parts[i]
		p.convert = kinds[p.source]
		p.At, p.Width = at, p.values
		if p.As == driver.AsOneHot {
			p.Width = len(p.Classes)
		}
		p.values = p.Width
		if p.Flag {
			p.Width += p.flags()
		}
		if p.Width == 0 {
			return fmt.Errorf("column %q has no values, so onehot is not possible", p.Field)
		}
		if at += p.Width; at > maxTensor {
			return fmt.Errorf("it would have more than %d elements: column %q has %d; limit the values of a column with top=N", maxTensor, p.Field, p.Width)
		}
		p.bind()
		t.field.Columns = append(t.field.Columns, p.Column)
	}
	var err error
	t.field.DType, t.field.Shape = t.dtype, []int{at}
	t.size, err = driver.ArrayBytes(t.dtype, t.field.Shape)
	return err
}

// flags returns the number of values that may be missing.
func (p *part) flags() int {
	if p.As == driver.AsNumber {
		return p.values
	}
	return 1
}
