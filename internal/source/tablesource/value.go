package tablesource

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// value converts the cell of a field of record k.
func (s *source) value(g *driver.Group, k, field int, w *scratch) error {
	f := &s.info.Fields[field]
	v := &g.Records[k].Values[field]
	c := w.cells[s.from[field]]
	b := c.b
	if !c.direct() {
		w.buf = c.appendText(w.buf[:0])
		b = w.buf
	}
	// In a text column the words for missing values are ordinary text.
	missing := c.form == absent || c.form == written && isMissing(b)
	var err error
	switch f.Kind {
	case driver.KindText:
		if v.Bytes = b; !c.direct() {
			if v.Bytes, err = g.Take(k, field, int64(len(b))); err == nil {
				copy(v.Bytes, b)
			}
		}
		return s.fits(f, v, err)
	case driver.KindJSON:
		return s.json(g, k, field, c, b)
	case driver.KindFloat:
		if v.Float = nan; missing {
			return nil
		}
		if v.Float, err = parseFloat(b); err != nil {
			if n, ok := truthOf(b); ok {
				v.Float, err = float64(n), nil
			}
		}
		return err
	case driver.KindInt, driver.KindLabel:
		if f.Classes != nil {
			v.Int, err = class(f, b)
		} else if v.Int, err = parseInt(b); err == nil {
			return column.Label(f, v.Int)
		}
		switch n, ok := truthOf(b); {
		case err == nil: // a class may have the name "None"
		case missing:
			return column.ErrMissing
		case ok && (f.Classes == nil || slices.Equal(f.Classes, column.Truths)):
			v.Int, err = n, nil
		}
		return err
	}
	return s.elements(g, k, field, missing, b, w)
}

// json makes a JSON value. CSV text that is not JSON becomes a JSON string.
func (s *source) json(g *driver.Group, k, field int, c cell, b []byte) error {
	f := &s.info.Fields[field]
	v := &g.Records[k].Values[field]
	switch c.form {
	case absent:
		v.Bytes = column.Null
		return nil
	case number, truth, list, object:
		v.Bytes = b
		if !json.Valid(b) { // such as NaN
			return fmt.Errorf("%s is not valid JSON", c.short())
		}
		return s.fits(f, v, nil)
	case str, escaped:
		// It stands between quotes.
		p, err := g.Take(k, field, int64(len(c.b)+2))
		if err != nil {
			return err
		}
		p[0], p[len(p)-1] = '"', '"'
		copy(p[1:], c.b)
		v.Bytes = p
		return s.fits(f, v, nil)
	}
	if isMissing(b) {
		v.Bytes = column.Null
		return nil
	}
	if !json.Valid(b) {
		return fmt.Errorf("%s is not valid JSON", cell{b: b}.short())
	}
	p, err := g.Take(k, field, int64(len(b)))
	if err == nil {
		copy(p, b)
		v.Bytes = p
	}
	return s.fits(f, v, err)
}

// elements makes the elements of arrays and lists.
func (s *source) elements(g *driver.Group, k, field int, missing bool, b []byte, w *scratch) error {
	f := &s.info.Fields[field]
	v := &g.Records[k].Values[field]
	var out []byte
	switch {
	case missing && f.Kind == driver.KindArray:
		return column.ErrMissing
	case missing:
		v.Bytes = nil
		return nil
	case f.Kind == driver.KindArray && f.DType == driver.Bool:
		t, ok := truthOf(b)
		if !ok {
			return fmt.Errorf("%s is neither true nor false", cell{b: b}.short())
		}
		out = append(out, byte(t))
	case f.Kind == driver.KindArray && len(f.Shape) == 0:
		w.numbers.text = append(w.numbers.text[:0], b)
		var err error
		if out, err = w.numbers.appendTo(nil, f.DType); err != nil {
			return err
		}
	case f.Kind == driver.KindMultiLabel && f.Classes != nil:
		var bad error
		err := texts(b, func(name []byte) {
			n, err := class(f, name)
			if err != nil && bad == nil {
				bad = err
			}
			out = binary.LittleEndian.AppendUint64(out, uint64(n))
		})
		if err = errors.Join(err, bad); err != nil {
			return err
		}
	default:
		n := &w.numbers
		if err := n.read(b); err != nil {
			return err
		}
		t, shape := f.DType, f.Shape
		if f.Kind == driver.KindMultiLabel {
			t = driver.Int64
		}
		if f.Kind == driver.KindArray {
			if n.rows != shape[0] {
				return fmt.Errorf("the list has %d elements, the others have %d", n.rows, shape[0])
			}
			shape = shape[1:]
		}
		if n.rows > 0 && !slices.Equal(n.shape, shape) {
			return fmt.Errorf("its elements have the shape %v, the others have %v", n.shape, shape)
		}
		var err error
		if out, err = n.appendTo(nil, t); err != nil {
			return err
		}
	}
	p, err := g.Take(k, field, int64(len(out)))
	if err == nil {
		copy(p, out)
		v.Bytes = p
	}
	return s.fits(f, v, err)
}

// fits refuses values that are larger than the largest value at opening time.
func (s *source) fits(f *driver.Field, v *driver.Value, err error) error {
	if err == nil && f.Kind != driver.KindArray && int64(len(v.Bytes)) > f.MaxBytes {
		return fmt.Errorf("the value has %d bytes, and the largest had %d when the table was opened: open the table again", len(v.Bytes), f.MaxBytes)
	}
	return err
}

// truthOf returns 1 for true and 0 for false.
func truthOf(b []byte) (n int64, ok bool) {
	t, ok := isTruth(b)
	if t {
		n = 1
	}
	return n, ok
}

// class returns the number of a class.
func class(f *driver.Field, name []byte) (int64, error) {
	i, ok := slices.BinarySearchFunc(f.Classes, name, func(c string, name []byte) int { return bytes.Compare([]byte(c), name) })
	if !ok {
		return 0, fmt.Errorf("%s is not one of the %d classes", cell{b: name}.short(), len(f.Classes))
	}
	return int64(i), nil
}
