package volumesource

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/source/driver"
)

// fields sets the fields of the source.
func (s *source) fields(o *Options) error {
	for i := range s.columns {
		c := &s.columns[i]
		c.field = i
		one := &c.volumes[0]
		f := driver.Field{Name: "volume", Kind: driver.KindVolume}
		if len(o.Fields) > 0 {
			f.Name, f.Mask = o.Fields[i].Name, isMask(&o.Fields[i])
		}
		same, alike := true, true
		least, most := slices.Clone(one.shape), slices.Clone(one.shape)
		for k := range c.volumes {
			v := &c.volumes[k]
			same = same && v.dtype == one.dtype && !v.scaled
			alike = alike && slices.Equal(v.shape, one.shape)
			s.gz = s.gz || v.gz
			if v.err == nil {
				s.useful += v.bytes()
			}
			n := len(one.shape) - 3
			if len(v.shape) != len(one.shape) || !slices.Equal(v.shape[:n], one.shape[:n]) {
				return fmt.Errorf("%s has %s voxels and %s %s: what comes before the last three axes has to be the same", c.names[k], sides(v.shape), c.names[0], sides(one.shape))
			}
			for a := range least {
				least[a], most[a] = min(least[a], v.shape[a]), max(most[a], v.shape[a])
			}
		}
		f.DType = one.dtype
		if !same {
			f.DType = driver.Float32 // the type of the values of scanners and models
		}
		switch {
		case o.Patch != [3]int{}:
			f.Shape = slices.Concat(one.shape[:len(one.shape)-3], o.Patch[:])
		case alike:
			f.Shape = one.shape
		default:
			f.Least, f.Most = least, most
		}
		for _, shape := range [][]int{f.Shape, f.Most} {
			if len(shape) > 0 {
				if f.MaxBytes = shapeBytes(f.DType, shape); f.MaxBytes > driver.MaxArrayBytes && o.Patch != [3]int{} {
					return fmt.Errorf("patch=%s: %d bytes are more than the limit of %d", sides(o.Patch[:]), f.MaxBytes, driver.MaxArrayBytes)
				}
			}
		}
		s.info.Fields = append(s.info.Fields, f)
	}
	for n := range s.columns[0].volumes {
		if s.affineOf(n) != nil {
			s.affine = s.add("affine", driver.Float32, 4, 4)
			break
		}
	}
	if o.Patch != [3]int{} {
		s.origin = s.add("origin", driver.Int64, 3)
	}
	return nil
}

// isMask reports whether the voxels of a field are class numbers.
func isMask(f *pairsource.Field) bool {
	if f.Kind != "" {
		return f.Kind == driver.KindMask
	}
	for _, part := range []string{"mask", "segm", "label"} {
		if strings.Contains(strings.ToLower(f.Name), part) {
			return true
		}
	}
	return false
}

func (s *source) add(name string, t driver.DType, shape ...int) int {
	s.info.Fields = append(s.info.Fields, driver.Field{Name: name, Kind: driver.KindArray, DType: t, Shape: shape})
	return len(s.info.Fields) - 1
}

// affineOf returns the affine of record n, from the first column that has one.
func (s *source) affineOf(n int) []byte {
	for i := range s.columns {
		if a := s.columns[i].volumes[n].affine; a != nil {
			return a
		}
	}
	return nil
}

// noAffine is for volumes without an affine if other volumes have one.
var noAffine = affineBytes(&[16]float64{0: 1, 5: 1, 10: 1, 15: 1})

func shapeBytes(t driver.DType, shape []int) int64 {
	n := int64(t.Size())
	for _, side := range shape {
		n *= int64(side)
	}
	return n
}
