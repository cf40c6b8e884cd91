package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Array is an array of one type and shape in all records. With operations it is
// taken for pixels: [H, W] or [H, W, C].
var Array = Kind{Name: driver.KindArray, Plan: planArrays}

func planArrays(p *Planner, wants []Want) (makers []Maker, err error) {
	var plain, worked []Want
	for _, w := range wants {
		if len(w.Out.Ops) > 0 {
			worked = append(worked, w)
		} else {
			plain = append(plain, w)
		}
	}
	if len(plain) > 0 {
		if makers, err = planFixed(p, plain); err != nil {
			return nil, err
		}
	}
	if len(worked) > 0 {
		m, err := planPixelArrays(p, worked)
		if err != nil {
			return nil, err
		}
		makers = append(makers, m)
	}
	return makers, nil
}

// planPixelArrays plans arrays with operations.
func planPixelArrays(p *Planner, wants []Want) (*pixels, error) {
	m, err := planPixels(p, wants, func(w *Want, _, _ int) (in transform.Input, err error) {
		if in.DType, err = elementType(w); err != nil {
			return in, err
		}
		switch s := w.F.Shape; {
		case len(s) == 2:
			in.H, in.W = s[0], s[1]
		case len(s) == 3 && s[2] <= item.MaxChannels:
			in.H, in.W, in.Channels = s[0], s[1], s[2]
		default:
			return in, fmt.Errorf("output %q: field %q has shape %v; operations work on arrays of shape [H, W] or [H, W, C] with up to %d channels",
				w.Out.Name, w.F.Name, s, item.MaxChannels)
		}
		return in, nil
	})
	if err != nil {
		return nil, err
	}
	for i := range m.outputs {
		o, f := &m.outputs[i], wants[i].F
		size, err := driver.ArrayBytes(f.DType, f.Shape)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", f.Name, err)
		}
		o.raw, o.bytes = o.prog.In.DType, int(size)
		o.all = driver.Value{Codec: driver.CodecRaw, Height: int32(f.Shape[0]), Width: int32(f.Shape[1]), Channels: o.prog.In.Channels, Orientation: 1}
	}
	return m, nil
}
