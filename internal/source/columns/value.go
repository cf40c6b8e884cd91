package columns

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

var nan = math.NaN()

// Stored is a value as a file stores it.
type Stored struct {
	Raw   []byte
	Valid bool
	// Bit is the position of a truth value in the first byte of Raw.
	Bit uint
	// Elems has a bit for each element, 0 if the element is missing. Nil means that no element is
	// missing. Bit First is for the first element of Raw.
	Elems []byte
	First int64
}

// Bit returns bit i of b, true if b is nil.
func Bit(b []byte, i int64) bool { return b == nil || b[i>>3]>>(i&7)&1 != 0 }

// Make makes the value of a field of record k from a stored value of c.
func (c *Column) Make(g *driver.Group, k, field int, f *driver.Field, s *Stored) error {
	v := &g.Records[k].Values[field]
	switch f.Kind {
	case driver.KindText, driver.KindBytes:
		v.Bytes = s.Raw // empty if the value is missing
		return fits(f, len(s.Raw))
	case driver.KindJSON:
		if v.Bytes = s.Raw; !s.Valid {
			v.Bytes = column.Null
		} else if !json.Valid(s.Raw) {
			return fmt.Errorf("%.40q is not JSON", s.Raw)
		}
		return fits(f, len(v.Bytes))
	case driver.KindImage, driver.KindMask, driver.KindAudio:
		if !s.Valid {
			return column.ErrMissing
		}
		if len(s.Raw) == 0 {
			return errors.New("it has no bytes")
		}
		v.Bytes = s.Raw
		return nil
	case driver.KindFloat:
		if v.Float = nan; s.Valid {
			return c.number(f, v, s)
		}
		return nil
	case driver.KindRagged, driver.KindTokens, driver.KindMultiLabel:
		if !s.Valid {
			v.Bytes = nil
			return nil
		}
		return c.elements(g, k, field, f, s)
	}
	if !s.Valid {
		return column.ErrMissing
	}
	switch f.Kind {
	case driver.KindInt, driver.KindLabel:
		return c.number(f, v, s)
	case driver.KindArray:
		if c.Elem.Class == Boolean {
			out, err := g.Take(k, field, 1)
			if err != nil {
				return err
			}
			out[0] = s.Raw[0] >> s.Bit & 1
			v.Bytes = out
			return nil
		}
		return c.elements(g, k, field, f, s)
	}
	return fmt.Errorf("a value of the kind %q", f.Kind)
}

// Plain reports whether the values of a field are numbers that need no checks, except for missing
// values. Numbers makes such values.
func (c *Column) Plain(f *driver.Field) bool {
	if c.Elem == nil || c.Elem.Class != Number {
		return false
	}
	whole8 := c.typ.Size() == 8 && !c.typ.Floating()
	return f.Kind == driver.KindInt && c.typ != dtype.U64 || f.Kind == driver.KindFloat && !whole8
}

// Numbers makes the values of a field of all records of a group that have no error. held has the
// numbers of all records, valid their validity bits.
func (c *Column) Numbers(g *driver.Group, field int, f *driver.Field, held, valid []byte, wrong func(id int64, err error) error) {
	w := int64(c.typ.Size())
	float := f.Kind == driver.KindFloat
	if valid == nil && c.common(g, field, float, held) {
		return
	}
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		v := &rec.Values[field]
		switch raw := held[id*w : (id+1)*w]; {
		case valid != nil && !Bit(valid, id) && float:
			v.Float = nan
		case valid != nil && !Bit(valid, id):
			rec.Err = wrong(id, column.ErrMissing)
		case float:
			v.Float = c.typ.Float(raw)
		default:
			v.Int = c.typ.Int(raw)
		}
	}
}

// common is Numbers for the most common types without missing values. It does not branch for each
// value. It returns false for other types.
func (c *Column) common(g *driver.Group, field int, float bool, held []byte) bool {
	le := binary.LittleEndian
	switch {
	case float && c.typ == dtype.F32:
		for k, id := range g.IDs {
			if rec := &g.Records[k]; rec.Err == nil {
				rec.Values[field].Float = float64(math.Float32frombits(le.Uint32(held[4*id:])))
			}
		}
	case float && c.typ == dtype.F64:
		for k, id := range g.IDs {
			if rec := &g.Records[k]; rec.Err == nil {
				rec.Values[field].Float = math.Float64frombits(le.Uint64(held[8*id:]))
			}
		}
	case !float && c.typ == dtype.I64:
		for k, id := range g.IDs {
			if rec := &g.Records[k]; rec.Err == nil {
				rec.Values[field].Int = int64(le.Uint64(held[8*id:]))
			}
		}
	default:
		return false
	}
	return true
}

// Direct reports whether the stored bytes are the values of the field.
func (c *Column) Direct(f *driver.Field) bool {
	switch f.Kind {
	case driver.KindText, driver.KindBytes, driver.KindJSON:
		return true
	case driver.KindArray, driver.KindRagged, driver.KindTokens:
		return c.Elem.Class == Number && c.Elem.DType == f.DType
	case driver.KindMultiLabel:
		return c.Elem.DType == driver.Int64
	}
	return false
}

// fits returns an error if a value is larger than the largest one at opening. This happens only if
// a file changes.
func fits(f *driver.Field, n int) error {
	if int64(n) > f.MaxBytes {
		return fmt.Errorf("%d bytes, where the largest had %d when the table was opened", n, f.MaxBytes)
	}
	return nil
}

// number makes a single number.
func (c *Column) number(f *driver.Field, v *driver.Value, s *Stored) error {
	if c.Elem.Class == Boolean {
		return column.Put(f, v, dtype.Bool, []byte{s.Raw[0] >> s.Bit & 1})
	}
	return column.Put(f, v, c.typ, s.Raw)
}

// elements makes an array or a list.
func (c *Column) elements(g *driver.Group, k, field int, f *driver.Field, s *Stored) error {
	v := &g.Records[k].Values[field]
	t := c.typ
	n := int64(len(s.Raw)) / int64(t.Size())
	missing := int64(-1)
	if s.Elems != nil && n > 0 {
		for i := range n {
			if !Bit(s.Elems, s.First+i) {
				missing = i
				break
			}
		}
		if missing >= 0 && !strings.HasPrefix(string(f.DType), "float") {
			return fmt.Errorf("element %d has no value", missing)
		}
	}
	if c.Direct(f) && missing < 0 {
		v.Bytes = s.Raw
		return fitsElements(f, len(s.Raw))
	}
	to := f.DType.Type()
	if f.Kind == driver.KindMultiLabel {
		to = dtype.I64
	}
	out, err := g.Take(k, field, int64(int(n)*to.Size()))
	if err != nil {
		return err
	}
	v.Bytes = out
	if t == to {
		copy(out, s.Raw)
		if missing >= 0 {
			for i := range n {
				if !Bit(s.Elems, s.First+i) {
					to.Append(out[i*int64(t.Size()):i*int64(t.Size())], nan)
				}
			}
		}
		return fitsElements(f, len(out))
	}
	for i := range int(n) {
		x := t.Int(s.Raw[i*t.Size():])
		at := out[i*to.Size():]
		switch to {
		case dtype.I64:
			binary.LittleEndian.PutUint64(at, uint64(x))
		case dtype.U32:
			if x < 0 || x > math.MaxUint32 {
				return fmt.Errorf("element %d is %d, which is not a token", i, x)
			}
			binary.LittleEndian.PutUint32(at, uint32(x))
		case dtype.U16:
			binary.LittleEndian.PutUint16(at, uint16(x)) // from uint8
		}
	}
	return fitsElements(f, len(out))
}

func fitsElements(f *driver.Field, n int) error {
	if f.Kind == driver.KindArray {
		if want, _ := driver.ArrayBytes(f.DType, f.Shape); want != int64(n) {
			return fmt.Errorf("%d bytes, an array has %d", n, want)
		}
		return nil
	}
	return fits(f, n)
}
