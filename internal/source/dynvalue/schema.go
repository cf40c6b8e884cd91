package dynvalue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// Columns collects the values of all columns of a source, in one goroutine.
type Columns struct {
	all     map[string]*column.Seen
	wanted  []column.Want
	rest    bool // all columns become fields
	untyped bool
	// Records is the number of records read.
	Records int64
	err     error
}

// maxColumns limits the number of columns.
const maxColumns = 4096

// NewColumns returns Columns for the wanted columns, nil for all. untyped is set if the source does
// not distinguish text from bytes.
func NewColumns(wanted []column.Want, untyped bool) *Columns {
	rest := len(wanted) == 0 || slices.ContainsFunc(wanted, func(w column.Want) bool { return w.Name == column.Rest })
	return &Columns{all: map[string]*column.Seen{}, wanted: wanted, rest: rest, untyped: untyped}
}

// Of returns the column of a name, nil if it is not wanted.
func (c *Columns) Of(name []byte) *column.Seen {
	if col, ok := c.all[string(name)]; ok {
		return col
	}
	var col *column.Seen
	switch {
	case len(c.all) >= maxColumns:
		if c.err == nil {
			c.err = fmt.Errorf("its records have more than %d different names of values", maxColumns)
		}
		return nil
	case c.rest || slices.ContainsFunc(c.wanted, func(w column.Want) bool { return w.From == string(name) }):
		col = column.New(string(name), c.wanted)
		col.Untyped = c.untyped
	}
	c.all[string(name)] = col
	return col
}

// Has reports whether a column was found.
func (c *Columns) Has(name string) bool { return c.all[name] != nil }

// Merge adds the columns of another goroutine.
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

// State is the content of Columns, for package indexcache.
type State struct {
	Records int64
	Columns []*column.Seen
	// Unwanted are the names of columns that are not wanted.
	Unwanted []string
}

// Version is part of the keys of package indexcache for entries with a State.
const Version = "columns 2"

// State returns the content of c, nil after an error, so that errors are not cached.
func (c *Columns) State() *State {
	if c.err != nil {
		return nil
	}
	s := &State{Records: c.Records}
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		if col := c.all[name]; col != nil {
			s.Columns = append(s.Columns, col)
		} else {
			s.Unwanted = append(s.Unwanted, name)
		}
	}
	return s
}

// Restore adds the State of earlier Columns with the same wants.
func (c *Columns) Restore(s *State) error {
	o := &Columns{all: map[string]*column.Seen{}, Records: s.Records}
	for _, name := range s.Unwanted {
		o.all[name] = nil
	}
	for _, col := range s.Columns {
		o.all[col.Name] = col
	}
	if len(o.all) > maxColumns || s.Records < 0 {
		return errors.New("what was written down of columns makes no sense")
	}
	c.Merge(o)
	return nil
}

// Schema converts values to fields.
type Schema struct {
	Fields  []driver.Field
	Columns []column.Want // by field
	texts   []bool        // by field: single strings become lists of one string
	by      map[string][]int
}

// Schema makes fields of the columns. names are the columns in their order. Nil means all columns
// that were found, sorted by name.
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
	if c.rest {
		// Columns that the user does not name get valid field names.
		clean := column.Named(names)
		for i := range chosen {
			if chosen[i].Kind == "" && chosen[i].Name == names[from[i]] && chosen[i].From == chosen[i].Name {
				chosen[i].Name = clean[from[i]]
			}
		}
	}
	s := &Schema{Columns: chosen, by: map[string][]int{}}
	var good []string
	for i, want := range chosen {
		col := c.all[names[from[i]]]
		if col == nil {
			col = column.New(names[from[i]], nil)
		}
		f, ferr := col.Field(want, c.Records)
		if ferr != nil {
			err = cmp.Or(err, ferr)
			continue
		}
		good = append(good, column.Query(column.Want{Name: want.From, From: want.From}))
		s.Fields, s.texts = append(s.Fields, f), append(s.texts, col.Count[column.Texts] > 0)
		s.by[want.From] = append(s.by[want.From], i)
	}
	if err != nil && len(good) > 0 {
		err = fmt.Errorf("%w; choose others, such as ?%s", err, strings.Join(good[:min(len(good), 4)], "&"))
	}
	return s, err
}

// Of returns the fields of a column.
func (s *Schema) Of(name []byte) []int { return s.by[string(name)] }

// Sink is the destination for the values of a record.
type Sink struct {
	Group *driver.Group
	// K is the index of the record in Group.
	K int
	// In is set instead of Group while records are read in order.
	In *driver.InOrder
	ID int64
	// Rec is the record.
	Rec *driver.Record
	// Place, if set, is called for bytes that can stay in the record. Its result becomes the value.
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

// keep returns b, or a copy of b if its memory is not valid long enough.
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

// Put makes the value of a field from v.
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
	case column.Other:
		return fmt.Errorf("it %s", v.Why)
	case column.Number, column.Flat, column.List:
		switch f.Kind {
		case driver.KindLabel, driver.KindInt, driver.KindFloat:
			return scalar(f, out, v)
		case driver.KindArray, driver.KindRagged, driver.KindTokens, driver.KindMultiLabel:
			return s.elements(to, field, v)
		}
		return fmt.Errorf("it has numbers, where %s was expected", f.Kind)
	case column.Pixels:
		if f.Kind != driver.KindImage {
			return fmt.Errorf("it is an image, where %s was expected", f.Kind)
		}
		out.Codec, out.Width, out.Height, out.Channels, out.Orientation = driver.CodecRaw, v.Width, v.Height, v.Channels, 1
		out.Bytes, err = to.keep(field, v, v.Bytes)
		return err
	case column.Missing:
		switch f.Kind {
		case driver.KindFloat:
			out.Float = math.NaN()
		case driver.KindText, driver.KindBytes, driver.KindRagged, driver.KindTokens, driver.KindMultiLabel:
		case driver.KindJSON:
			out.Bytes = column.Null
		default:
			return column.ErrMissing
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
		if s.texts[field] && v.Form == column.Bytes {
			list := appendTexts(nil, b)
			v = &Value{Form: column.Texts, Temp: true}
			b = list
		}
		if !json.Valid(b) {
			return fmt.Errorf("%.40q is not JSON", b)
		}
	default:
		return fmt.Errorf("it has bytes, where %s was expected", f.Kind)
	}
	if v.Form == column.Texts && f.Kind != driver.KindJSON {
		return fmt.Errorf("it has several strings, where %s was expected", f.Kind)
	}
	if err := fits(f, len(b)); err != nil {
		return err
	}
	out.Bytes, err = to.keep(field, v, b)
	return err
}

// fits returns an error for a value that is larger than the largest one at opening.
func fits(f *driver.Field, n int) error {
	if f.Kind != driver.KindArray && int64(n) > f.MaxBytes {
		return fmt.Errorf("%d bytes, where the largest had %d when it was opened", n, f.MaxBytes)
	}
	return nil
}

// scalar makes a number.
func scalar(f *driver.Field, out *driver.Value, v *Value) error {
	if v.Form != column.Number && len(v.Shape) > 0 {
		switch {
		case len(v.Shape) == 1 && v.Shape[0] == 0 && f.Kind == driver.KindFloat:
			out.Float = math.NaN()
			return nil
		case len(v.Shape) == 1 && v.Shape[0] == 0:
			return column.ErrMissing
		case len(v.Bytes) > v.DType.Size():
			return fmt.Errorf("it has the shape %v, one number was expected", v.Shape)
		}
	}
	if len(v.Bytes) < v.DType.Size() {
		return column.ErrMissing
	}
	return column.Put(f, out, v.DType.Type(), v.Bytes)
}

// elements makes an array or a list of numbers.
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
	if f.Kind == driver.KindArray || f.Kind == driver.KindRagged || !column.Whole(v.DType) {
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
		x := integer(v.DType, v.Bytes[i*have:])
		switch t {
		case driver.Uint16, driver.Uint32:
			if x < 0 || x>>(8*size) != 0 {
				return fmt.Errorf("element %d is %d, which is not a value of %s", i, x, t)
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

// shaped returns an error if the shape of a value does not fit the field.
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

// AppendTexts appends strings as a JSON list.
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

// textsSize returns the largest size of a string as a JSON list.
func textsSize(b []byte) int64 {
	n := int64(len(b) + len(`[""]`))
	for _, c := range b {
		switch {
		case c < ' ':
			n += 5
		case c == '"' || c == '\\':
			n++
		case c == 0xE2: // some of these characters are escaped
			n += 3
		}
	}
	return n
}

// Fingerprint returns the parts of the Schema for the fingerprint of its source.
func (s *Schema) Fingerprint() []string {
	var of []string
	for i := range s.Fields {
		of = append(of, s.Fields[i].Name, string(s.Fields[i].Kind), s.Columns[i].From)
	}
	return of
}
