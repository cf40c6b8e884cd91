package pack

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/stokerdata/stoker/source/driver"
)

// checkBoxes checks a field of boxes or key points in a manifest.
func (f *Field) checkBoxes() error {
	switch f.Kind {
	case driver.KindBoxes:
		if f.DType != driver.Float32 || !slices.Equal(f.Shape, []int{4}) {
			return fmt.Errorf("boxes of %q and shape %v: they are float32 and have four numbers each", f.DType, f.Shape)
		}
		if !slices.Contains(driver.BoxFormats, f.Format) {
			return fmt.Errorf("boxes of format %q: use a newer stoker", f.Format)
		}
	case driver.KindKeyPoints:
		if f.DType != driver.Float32 || len(f.Shape) != 2 || f.Shape[1] != 2 {
			return fmt.Errorf("key points of %q and shape %v: they are float32 of shape [k, 2]", f.DType, f.Shape)
		}
	}
	return nil
}

// belongs checks that the rows of a field belong to existing boxes.
func belongs(fields []Field, f *Field) error {
	if f.Boxes == "" {
		return nil
	}
	switch f.Kind {
	case driver.KindMultiLabel, driver.KindRagged, driver.KindTokens, driver.KindKeyPoints, driver.KindMasks:
	default:
		return fmt.Errorf("field %q is %s, whose rows cannot belong to boxes", f.Name, f.Kind)
	}
	if !slices.ContainsFunc(fields, func(o Field) bool { return o.Name == f.Boxes && o.Kind == driver.KindBoxes }) {
		return fmt.Errorf("field %q belongs to boxes %q, which are not there", f.Name, f.Boxes)
	}
	return nil
}

// scaleBoxes scales boxes and key points with the first image if that was resized.
func (in *sourceInput) scaleBoxes(j *job) {
	values := j.rec.values
	i := slices.IndexFunc(in.out, func(f Field) bool { return f.Kind == driver.KindImage })
	if i < 0 || values[i].fromW == 0 || values[i].fromW == values[i].Width && values[i].fromH == values[i].Height {
		return
	}
	of := &values[i]
	scale := [2]float32{float32(float64(of.Width) / float64(of.fromW)), float32(float64(of.Height) / float64(of.fromH))}
	for k := range in.out {
		f := &in.out[k]
		if f.Kind != driver.KindBoxes && f.Kind != driver.KindKeyPoints {
			continue
		}
		v, buf := &values[k], j.mem.value(k)
		*buf = append((*buf)[:0], v.Bytes...)
		for at := 0; at+4 <= len(*buf); at += 4 { // x and y in turns, or widths and heights
			b := (*buf)[at:]
			binary.LittleEndian.PutUint32(b, math.Float32bits(math.Float32frombits(binary.LittleEndian.Uint32(b))*scale[at/4%2]))
		}
		v.Bytes = *buf
		v.ints, v.floats = elementStats(f.DType, v.Bytes)
	}
}
