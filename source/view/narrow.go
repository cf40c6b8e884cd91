package view

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/source/driver"
)

// Instead of a kind, uint8 and uint16 set only the type of the elements. This is for class numbers
// stored in wider types than they need. Numbers never change. A number that does not fit is an
// error of its record, and the error has the number.

// narrowTypes are the types that can be set instead of a kind, with the largest number of each.
var narrowTypes = map[driver.Kind]int64{driver.Kind(driver.Uint8): math.MaxUint8, driver.Kind(driver.Uint16): math.MaxUint16}

// narrow sets another element type for a field, and returns the conversion of a value.
func narrow(f *driver.Field, to driver.Kind) (func(v *driver.Value) error, error) {
	most, t := narrowTypes[to], driver.DType(to)
	switch f.Kind {
	case driver.KindMask: // the decoder checks the numbers
		f.DType = t
		return nil, nil
	case driver.KindLabel:
		f.DType = t
		return func(v *driver.Value) error { return fits(v.Int, most, t, -1) }, nil
	case driver.KindInt:
		f.Kind, f.DType, f.Shape, f.Stats = driver.KindArray, t, []int{}, nil
		return func(v *driver.Value) error {
			if err := fits(v.Int, most, t, -1); err != nil {
				return err
			}
			*v = driver.Value{Bytes: appendUint(nil, v.Int, t)}
			return nil
		}, nil
	case driver.KindArray, driver.KindVolume, driver.KindRagged:
	default:
		return nil, fmt.Errorf("values of kind %s cannot have elements of type %s: use it for masks, labels, whole numbers, arrays and volumes", f.Kind, t)
	}
	from := f.DType.Type()
	if from.Size() == 0 {
		return nil, fmt.Errorf("it has elements of the unknown type %q", f.DType)
	}
	f.DType, f.Stats = t, nil
	f.MaxBytes = f.MaxBytes / int64(from.Size()) * int64(t.Size())
	return func(v *driver.Value) error {
		n := len(v.Bytes) / from.Size()
		out := make([]byte, 0, n*t.Size()+64) // decoders read up to 64 bytes after a value
		for i := range n {
			x := int64(0)
			if b := v.Bytes[i*from.Size():]; from.Floating() {
				f := from.Float(b)
				if f != math.Trunc(f) || !(f >= 0 && f <= float64(most)) {
					return fmt.Errorf("element %d is %g, which does not fit into %s: use whole numbers from 0 to %d", i, f, t, most)
				}
				x = int64(f)
			} else if x = from.Int(b); x < 0 || x > most {
				return fits(x, most, t, i)
			}
			out = appendUint(out, x, t)
		}
		v.Bytes = out
		return nil
	}, nil
}

func appendUint(b []byte, x int64, t driver.DType) []byte {
	if t == driver.Uint8 {
		return append(b, byte(x))
	}
	return binary.LittleEndian.AppendUint16(b, uint16(x))
}

// fits returns an error for a number that a type cannot represent.
func fits(x, most int64, t driver.DType, element int) error {
	switch {
	case x >= 0 && x <= most:
		return nil
	case element < 0:
		return fmt.Errorf("%d does not fit into %s: use whole numbers from 0 to %d", x, t, most)
	}
	return fmt.Errorf("element %d is %d, which does not fit into %s: use whole numbers from 0 to %d", element, x, t, most)
}
