package arrowsource

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/source/driver"
)

// memoryError is the failure of Alloc, which is not the record's.
type memoryError struct{ err error }

func (e *memoryError) Error() string { return e.err.Error() }

var errMissing = errors.New("it has no value")

// value makes the value of a field of record k from its bytes.
func (s *source) value(g *driver.Group, k, field int, p *part, row int64, valid bool, raw []byte) error {
	f, c := &s.info.Fields[field], s.columns[field]
	v := &g.Records[k].Values[field]
	switch f.Kind {
	case driver.KindText, driver.KindBytes:
		v.Bytes = raw // nothing for a missing one
		return fits(f, len(raw))
	case driver.KindJSON:
		if v.Bytes = raw; !valid {
			v.Bytes = wordNull
		} else if !json.Valid(raw) {
			return fmt.Errorf("%.40q is no JSON", raw)
		}
		return fits(f, len(v.Bytes))
	case driver.KindImage, driver.KindMask, driver.KindAudio:
		if !valid {
			return errMissing
		}
		if len(raw) == 0 {
			return errors.New("it has no bytes")
		}
		v.Bytes = raw
		return nil
	case driver.KindFloat:
		if v.Float = nan; valid {
			return float(v, c.elem.dtype.Type(), raw)
		}
		return nil
	case driver.KindRagged, driver.KindTokens, driver.KindMultiLabel:
		if !valid {
			v.Bytes = nil
			return nil
		}
		return s.elements(g, k, field, p, row, raw)
	}
	if !valid {
		return errMissing
	}
	switch f.Kind {
	case driver.KindInt, driver.KindLabel:
		n, err := whole(c.elem.dtype.Type(), raw)
		if err != nil {
			return err
		}
		v.Int = n
		switch {
		case f.Kind == driver.KindInt || f.Classes == nil && n >= 0:
		case n == -1:
			return errors.New("its class is -1, which stands for none: choose the column as numbers, such as ?label:int")
		case n < 0 || n >= int64(len(f.Classes)):
			return fmt.Errorf("class %d of %d", n, len(f.Classes))
		}
		return nil
	case driver.KindArray:
		if c.elem.class == boolean {
			out, err := take(g, k, field, 1)
			if err != nil {
				return err
			}
			out[0] = raw[0] >> (row & 7) & 1
			v.Bytes = out
			return nil
		}
		return s.elements(g, k, field, p, row, raw)
	}
	return fmt.Errorf("a value of the kind %q", f.Kind)
}

// whole reads a whole number.
func whole(t dtype.Type, raw []byte) (int64, error) {
	if t == dtype.U64 && t.Bits(raw) > math.MaxInt64 {
		return 0, fmt.Errorf("%d does not fit 64 bits with a sign", t.Bits(raw))
	}
	return t.Int(raw), nil
}

// float reads a number as one with a point, which has to be the same one.
func float(v *driver.Value, t dtype.Type, raw []byte) error {
	v.Float = t.Float(raw)
	const exact = 1 << 53
	if t.Size() == 8 && !t.Floating() && (v.Float < -exact || v.Float > exact) {
		return fmt.Errorf("%.0f is too large for a number with a point", v.Float)
	}
	return nil
}

// elements makes the elements of an array or a list.
func (s *source) elements(g *driver.Group, k, field int, p *part, row int64, raw []byte) error {
	f, c := &s.info.Fields[field], s.columns[field]
	v := &g.Records[k].Values[field]
	t := c.elem.dtype.Type()
	n := int64(len(raw)) / int64(t.Size())
	missing := int64(-1)
	if p.elems != nil && n > 0 {
		first := p.first + p.at(row)*(s.units[field]/int64(t.Size()))
		for i := range n {
			if !bit(p.elems, first+i) {
				missing = i
				break
			}
		}
		if missing >= 0 && !strings.HasPrefix(string(f.DType), "float") {
			return fmt.Errorf("element %d has no value", missing)
		}
	}
	if s.direct(field) && missing < 0 {
		v.Bytes = raw
		return s.fitsElements(f, len(raw))
	}
	to := f.DType.Type()
	if f.Kind == driver.KindMultiLabel {
		to = dtype.I64
	}
	out, err := take(g, k, field, int(n)*to.Size())
	if err != nil {
		return err
	}
	v.Bytes = out
	if t == to {
		copy(out, raw)
		if missing >= 0 {
			first := p.first + p.at(row)*(s.units[field]/int64(t.Size()))
			for i := range n {
				if !bit(p.elems, first+i) {
					to.Append(out[i*int64(t.Size()):i*int64(t.Size())], nan)
				}
			}
		}
		return s.fitsElements(f, len(out))
	}
	for i := range int(n) {
		x, err := whole(t, raw[i*t.Size():])
		if err != nil {
			return err
		}
		at := out[i*to.Size():]
		switch to {
		case dtype.I64:
			binary.LittleEndian.PutUint64(at, uint64(x))
		case dtype.U32:
			if x < 0 || x > math.MaxUint32 {
				return fmt.Errorf("element %d is %d, which is no token", i, x)
			}
			binary.LittleEndian.PutUint32(at, uint32(x))
		case dtype.U16:
			binary.LittleEndian.PutUint16(at, uint16(x)) // of uint8
		}
	}
	return s.fitsElements(f, len(out))
}

func (s *source) fitsElements(f *driver.Field, n int) error {
	if f.Kind == driver.KindArray {
		if want, _ := driver.ArrayBytes(f.DType, f.Shape); want != int64(n) {
			return fmt.Errorf("%d bytes, an array has %d", n, want)
		}
		return nil
	}
	return fits(f, n)
}

func take(g *driver.Group, k, field, n int) ([]byte, error) {
	p, err := g.Take(k, field, int64(n))
	if err != nil {
		return nil, &memoryError{err}
	}
	return p, nil
}
