package column

import (
	"errors"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/source/driver"
)

// ErrMissing is the error of a record that has no value.
var ErrMissing = errors.New("it has no value")

// Put makes a number of a type, which raw begins with, the value of a field of single numbers.
func Put(f *driver.Field, v *driver.Value, t dtype.Type, raw []byte) error {
	if t == dtype.Bool {
		t = dtype.U8
	}
	if f.Kind == driver.KindFloat {
		v.Float = t.Float(raw)
		if t.Size() == 8 && !t.Floating() && (v.Float < -exact || v.Float > exact) {
			return fmt.Errorf("%.0f is too large for a float64", v.Float)
		}
		return nil
	}
	switch {
	case t.Floating():
		return errors.New("it is a number with a fraction, a whole number was expected")
	case t == dtype.U64 && t.Bits(raw) > math.MaxInt64:
		return fmt.Errorf("%d does not fit 64 bits with a sign", t.Bits(raw))
	}
	v.Int = t.Int(raw)
	return Label(f, v.Int)
}

// Label returns an error if n is not a value of a field of labels.
func Label(f *driver.Field, n int64) error {
	switch {
	case f.Kind != driver.KindLabel || n >= 0 && (f.Classes == nil || n < int64(len(f.Classes))):
		return nil
	case n < 0:
		return fmt.Errorf("class %d: class numbers begin at 0; write ?%s:int to read the column as numbers", n, f.Name)
	}
	return fmt.Errorf("class %d of %d", n, len(f.Classes))
}

// Single makes a field of arrays without axes a field of single numbers, if it is not of
// truth values, and returns the type of the numbers for Put. It returns 0 for other fields.
func Single(f *driver.Field) dtype.Type {
	t := f.DType
	if f.Kind != driver.KindArray || len(f.Shape) > 0 || t == driver.Bool {
		return 0
	}
	f.Kind, f.DType, f.Shape, f.MaxBytes = Scalar(t), "", nil, 0
	return t.Type()
}
