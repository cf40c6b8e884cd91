package dynvalue

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// Columns looks at the values of all columns of a source, in one goroutine.
type Columns struct {
	all    map[string]*Column
	wanted []column.Want
	rest   bool // all columns become fields
	// Records counts those that were looked at.
	Records int64
	err     error
}

// maxColumns bounds the columns.
const maxColumns = 4096

// NewColumns looks for the columns that are wanted, nil for all.
func NewColumns(wanted []column.Want) *Columns {
	c := &Columns{all: map[string]*Column{}, wanted: wanted, rest: len(wanted) == 0}
	for _, w := range wanted {
		if w.Name == column.Rest {
			c.rest = true
		}
	}
	return c
}

// Of is the column of a name, nil when it is not wanted.
func (c *Columns) Of(name []byte) *Column {
	if col, ok := c.all[string(name)]; ok {
		return col
	}
	var col *Column
	at := slices.IndexFunc(c.wanted, func(w column.Want) bool { return w.From == string(name) && w.Name != column.Rest })
	switch {
	case len(c.all) >= maxColumns:
		if c.err == nil {
			c.err = fmt.Errorf("its records have more than %d different names of values", maxColumns)
		}
		return nil
	case at >= 0:
		col = &Column{Name: string(name), Want: c.wanted[at].Kind}
	case c.rest:
		col = &Column{Name: string(name)}
	}
	c.all[string(name)] = col
	return col
}

// Has says whether a column was seen.
func (c *Columns) Has(name string) bool { return c.all[name] != nil }

// Merge adds what another goroutine has seen.
func (c *Columns) Merge(o *Columns) {
	c.Records += o.Records
	if c.err == nil {
		c.err = o.err
	}
	for name, col := range o.all {
		switch have := c.all[name]; {
		case have != nil && col != nil:
			have.Merge(col)
		case have == nil:
			c.all[name] = col
		}
	}
}

// Schema is how values become fields.
type Schema struct {
	Fields  []driver.Field
	Columns []column.Want // by field
	texts   []bool        // by field: single strings become lists of one
	by      map[string][]int
}

// Schema makes fields of what was seen. names are the columns in their order; nil
// stands for those that were seen, in the order of their names.
func (c *Columns) Schema(names []string) (*Schema, error) {
	if c.err != nil {
		return nil, c.err
	}
	if names == nil {
		for name := range c.all {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	chosen, from, err := column.Choose(names, c.wanted)
	if err != nil {
		return nil, err
	}
	if len(c.wanted) == 0 || c.rest {
		// What comes of itself has names that fields can have.
		clean := column.Named(names)
		for i := range chosen {
			if chosen[i].Kind == "" && chosen[i].Name == names[from[i]] && chosen[i].From == chosen[i].Name {
				chosen[i].Name = clean[from[i]]
			}
		}
	}
	s := &Schema{Columns: chosen, by: map[string][]int{}}
	var good, bad []string
	var why error
	for i, want := range chosen {
		col := c.all[names[from[i]]]
		if col == nil {
			col = &Column{Name: names[from[i]]}
		}
		texts := col.forms[Texts] > 0
		f, err := col.Field(want, c.Records)
		if err != nil {
			bad = append(bad, want.From)
			if why == nil {
				why = err
			}
			continue
		}
		good = append(good, column.Query(column.Want{Name: want.From, From: want.From}))
		s.Fields, s.texts = append(s.Fields, f), append(s.texts, texts)
		s.by[want.From] = append(s.by[want.From], i)
	}
	if len(bad) > 0 {
		if len(good) > 0 {
			return nil, fmt.Errorf("%w; choose others, such as ?%s", why, strings.Join(good[:min(len(good), 4)], "&"))
		}
		return nil, why
	}
	return s, nil
}

// Of are the fields of a column.
func (s *Schema) Of(name []byte) []int { return s.by[string(name)] }

// Sink is where the values of a record go.
type Sink struct {
	Group *driver.Group
	// K is the record's place in Group.
	K int
	// In is set, and Group is not, while records are read in order.
	In *driver.InOrder
	ID int64
	// Rec is the record.
	Rec *driver.Record
	// Place, when it is set, is asked about bytes that could stay where they lie in the
	// record: what it returns becomes the value.
	Place func(field int, b []byte) []byte
}

func (s *Sink) take(field, n int) ([]byte, error) {
	if s.In == nil {
		return s.Group.Take(s.K, field, int64(n))
	}
	p, err := s.In.Alloc(s.ID, field, int64(n))
	if err != nil {
		return nil, &driver.MemoryError{Err: err}
	}
	return p, nil
}

// keep is b where it stays.
func (s *Sink) keep(field int, v *Value, b []byte) ([]byte, error) {
	if s.In == nil && !v.Temp || len(b) == 0 {
		if s.Place != nil && !v.Temp {
			return s.Place(field, b), nil
		}
		return b, nil
	}
	p, err := s.take(field, len(b))
	if err == nil {
		copy(p, b)
	}
	return p, err
}

var errMissing = errors.New("it has no value")

// Put makes a value that of a field.
func (s *Schema) Put(to *Sink, field int, v *Value) error {
	if err := s.put(to, field, v); err != nil {
		var m *driver.MemoryError
		if errors.As(err, &m) {
			return err
		}
		return fmt.Errorf("%q: %w", s.Columns[field].From, err)
	}
	return nil
}

func (s *Schema) put(to *Sink, field int, v *Value) (err error) {
	f := &s.Fields[field]
	out := &to.Rec.Values[field]
	switch v.Form {
	case Other:
		return fmt.Errorf("it %s", v.Why)
	case Number, List, Array:
		switch f.Kind {
		case driver.KindLabel, driver.KindInt, driver.KindFloat:
			return scalar(f, out, v)
		case driver.KindArray, driver.KindRagged, driver.KindTokens, driver.KindMultiLabel:
			return s.elements(to, field, v)
		}
		return fmt.Errorf("it has numbers, where %s was expected", f.Kind)
	case Pixels:
		if f.Kind != driver.KindImage {
			return fmt.Errorf("it is an image, where %s was expected", f.Kind)
		}
		out.Codec, out.Width, out.Height, out.Channels, out.Orientation = driver.CodecRaw, v.Width, v.Height, v.Channels, 1
		out.Bytes, err = to.keep(field, v, v.Bytes)
		return err
	case None:
		switch f.Kind {
		case driver.KindFloat:
			out.Float = math.NaN()
		case driver.KindText, driver.KindBytes, driver.KindRagged, driver.KindTokens, driver.KindMultiLabel:
		case driver.KindJSON:
			out.Bytes = wordNull
		default:
			return errMissing
		}
		return nil
	}
	b := v.Bytes
	switch f.Kind {
	case driver.KindImage, driver.KindMask, driver.KindAudio:
		if len(b) == 0 {
			return errors.New("it has no bytes")
		}
	case driver.KindText, driver.KindBytes:
	case driver.KindLabel:
		i, ok := slices.BinarySearchFunc(f.Classes, b, func(c string, name []byte) int { return bytes.Compare([]byte(c), name) })
		if !ok {
			return fmt.Errorf("%.40q is none of its %d classes", b, len(f.Classes))
		}
		out.Int = int64(i)
		return nil
	case driver.KindJSON:
		if s.texts[field] && v.Form == Bytes {
			list := appendTexts(nil, b)
			v = &Value{Form: Texts, Temp: true}
			b = list
		}
		if !json.Valid(b) {
			return fmt.Errorf("%.40q is no JSON", b)
		}
	default:
		return fmt.Errorf("it has bytes, where %s was expected", f.Kind)
	}
	if v.Form == Texts && f.Kind != driver.KindJSON {
		return fmt.Errorf("it has several strings, where %s was expected", f.Kind)
	}
	if err := fits(f, len(b)); err != nil {
		return err
	}
	out.Bytes, err = to.keep(field, v, b)
	return err
}

// fits refuses values that are larger than any was when the source was opened.
func fits(f *driver.Field, n int) error {
	if f.Kind != driver.KindArray && int64(n) > f.MaxBytes {
		return fmt.Errorf("%d bytes, where the largest had %d when it was opened", n, f.MaxBytes)
	}
	return nil
}

// scalar makes a number.
func scalar(f *driver.Field, out *driver.Value, v *Value) error {
	if v.Form != Number && (len(v.Shape) != 1 || v.Shape[0] > 1 || len(v.Bytes) < v.DType.Size()) {
		if len(v.Shape) == 1 && v.Shape[0] == 0 {
			if f.Kind == driver.KindFloat {
				out.Float = math.NaN()
				return nil
			}
			return errMissing
		}
		return fmt.Errorf("it has the shape %v, where one number was expected", v.Shape)
	}
	n, x := number(v.DType, v.Bytes)
	if f.Kind == driver.KindFloat {
		out.Float = x
		if whole(v.DType) && (n > exact || n < -exact) {
			return fmt.Errorf("%d is too large for a number with a point", n)
		}
		return nil
	}
	switch {
	case !whole(v.DType) && v.DType != driver.Bool:
		return errors.New("it is a number with a point, where a whole one was expected")
	case v.DType == driver.Uint64 && binary.LittleEndian.Uint64(v.Bytes) > math.MaxInt64:
		return errors.New("it does not fit 64 bits with a sign")
	case f.Kind == driver.KindLabel && n < 0:
		return fmt.Errorf("%d is no class number: choose it as numbers, such as ?%s:int", n, f.Name)
	}
	out.Int = n
	return nil
}

// elements makes an array or a list.
func (s *Schema) elements(to *Sink, field int, v *Value) error {
	f := &s.Fields[field]
	out := &to.Rec.Values[field]
	t := f.DType
	if f.Kind == driver.KindMultiLabel {
		t = driver.Int64
	}
	var err error
	if t == v.DType || len(v.Bytes) == 0 {
		if err := shaped(f, v); err != nil {
			return err
		}
		if err := fits(f, len(v.Bytes)); err != nil {
			return err
		}
		out.Bytes, err = to.keep(field, v, v.Bytes)
		return err
	}
	if f.Kind == driver.KindArray || f.Kind == driver.KindRagged || !whole(v.DType) {
		return fmt.Errorf("its elements are %s, where %s was expected", v.DType, t)
	}
	have, size := v.DType.Size(), t.Size()
	n := len(v.Bytes) / have
	if err := fits(f, n*size); err != nil {
		return err
	}
	p, err := to.take(field, n*size)
	if err != nil {
		return err
	}
	for i := range n {
		x, _ := number(v.DType, v.Bytes[i*have:])
		switch t {
		case driver.Uint16, driver.Uint32:
			if x < 0 || x>>(8*size) != 0 {
				return fmt.Errorf("element %d is %d, which is no %s", i, x, t)
			}
			if t == driver.Uint16 {
				binary.LittleEndian.PutUint16(p[2*i:], uint16(x))
			} else {
				binary.LittleEndian.PutUint32(p[4*i:], uint32(x))
			}
		default:
			binary.LittleEndian.PutUint64(p[8*i:], uint64(x))
		}
	}
	out.Bytes = p
	return nil
}

// shaped compares the shape of a value with that of the field.
func shaped(f *driver.Field, v *Value) error {
	shape := v.Shape
	if v.Steps && len(shape) == 2 && shape[1] == 1 {
		shape = shape[:1]
	}
	switch {
	case f.Kind == driver.KindArray && slices.Equal(shape, f.Shape):
	case f.Kind != driver.KindArray && len(shape) > 0 && (slices.Equal(shape[1:], f.Shape) || shape[0] == 0):
	case f.Kind == driver.KindArray:
		return fmt.Errorf("it has the shape %v, the others have %v", shape, f.Shape)
	default:
		return fmt.Errorf("it has the shape %v, rows of the others have %v", shape, f.Shape)
	}
	return nil
}

// AppendTexts appends strings as a list in JSON.
func AppendTexts(out []byte, all ...[]byte) []byte { return appendTexts(out, all...) }

func appendTexts(out []byte, all ...[]byte) []byte {
	out = append(out, '[')
	for i, s := range all {
		if i > 0 {
			out = append(out, ',')
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(strings.ToValidUTF8(string(s), "\uFFFD"))
		out = append(out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
	}
	return append(out, ']')
}

// textsSize is what a string has at most as a list in JSON.
func textsSize(b []byte) int64 {
	n := int64(len(b) + len(`[""]`))
	for _, c := range b {
		switch {
		case c < ' ':
			n += 5
		case c == '"' || c == '\\':
			n++
		case c == 0xE2: // of which some are written as escapes
			n += 3
		}
	}
	return n
}

// Fingerprint is what a Schema says, for that of its source.
func (s *Schema) Fingerprint() []string {
	var of []string
	for i := range s.Fields {
		of = append(of, s.Fields[i].Name, string(s.Fields[i].Kind), s.Columns[i].From)
	}
	return of
}
