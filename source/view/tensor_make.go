package view

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/source/driver"
)

// make writes the elements of a record to out.
func (t *tensor) make(values []driver.Value, out []byte) error {
	for i := range t.parts {
		p := &t.parts[i]
		v := &values[p.source]
		if p.convert != nil {
			converted := *v
			if err := p.convert(&converted); err != nil {
				return fmt.Errorf("column %q: %w", p.Field, err)
			}
			v = &converted
		}
		if err := p.holds(v); err != nil {
			return fmt.Errorf("column %q: %w", p.Field, err)
		}
		switch p.As {
		case driver.AsCode, driver.AsOneHot:
			t.category(p, p.code(v), out)
		default:
			if err := t.numbers(p, v, out); err != nil {
				return fmt.Errorf("column %q: %w", p.Field, err)
			}
		}
	}
	return nil
}

func (t *tensor) category(p *part, code int64, out []byte) {
	if p.As == driver.AsCode {
		t.put(out, p.At, float64(code))
	} else {
		clear(out[p.At*t.dtype.Size() : (p.At+p.values)*t.dtype.Size()]) // all bits of 0 are clear
		if code > 0 {
			t.put(out, p.At+int(code)-1, 1)
		}
	}
	if p.Flag {
		t.put(out, p.At+p.values, truth(code == 0))
	}
}

func (t *tensor) numbers(p *part, v *driver.Value, out []byte) error {
	for k := range p.values {
		x := p.read(v, k)
		missing := math.IsNaN(x)
		if p.Flag {
			t.put(out, p.At+p.values+k, truth(missing))
		}
		if t.whole { // a float64 could lose digits
			n := p.wholeNumber(v, k)
			if t.dtype == driver.Int32 && int64(int32(n)) != n {
				return fmt.Errorf("%d does not fit into int32: make the tensor int64", n)
			}
			t.putInt(out, p.At+k, n)
			continue
		}
		if missing && p.Fill != nil {
			x = p.Fill[k]
		}
		if p.Mean != nil {
			x = (x - p.Mean[k]) / p.Std[k]
		}
		t.put(out, p.At+k, x)
	}
	return nil
}

// wholeNumber returns element k of a value.
func (p *part) wholeNumber(v *driver.Value, k int) int64 {
	if p.of.Kind == driver.KindArray {
		return p.of.DType.Type().Int(v.Bytes[k*p.of.DType.Size():])
	}
	return v.Int
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// put writes element i.
func (t *tensor) put(out []byte, i int, x float64) {
	switch t.dtype {
	case driver.Float32:
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(x)))
	case driver.Float64:
		binary.LittleEndian.PutUint64(out[8*i:], math.Float64bits(x))
	default:
		t.putInt(out, i, int64(x))
	}
}

func (t *tensor) putInt(out []byte, i int, n int64) {
	if t.dtype == driver.Int32 {
		binary.LittleEndian.PutUint32(out[4*i:], uint32(n))
	} else {
		binary.LittleEndian.PutUint64(out[8*i:], uint64(n))
	}
}
