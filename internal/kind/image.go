package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Image is an encoded or raw image, decoded to pixels that have one size after
// its operations.
var Image = Kind{Name: driver.KindImage, Decoded: true, Plan: planImages}

// mapInput returns the input of a map of numbers: the stored shape without the axis of channels, if any.
func mapInput(w *Want, width, height int) (transform.Input, error) {
	in := transform.Input{W: width, H: height}
	var err error
	if in.DType, err = elementType(w); err != nil {
		return in, err
	}
	if len(w.F.Shape) > 0 {
		in.Channels = w.F.Shape[0]
	}
	return in, nil
}

// isFlow reports whether a field is optical flow: two numbers for each pixel, which change with the size of the image
// and with mirroring.
func isFlow(f *driver.Field) bool {
	return f.DType == driver.Float32 && len(f.Shape) == 1 && f.Shape[0] == 2
}

func planImages(p *Planner, wants []Want) ([]Maker, error) {
	for i := range wants {
		if w := &wants[i]; w.F.DType != "" && w.Out.Follow == "" && len(w.Out.Ops) > 0 {
			w.Out.Follow = firstImage(p)
		}
	}
	m, err := planPixels(p, wants, func(w *Want, width, height int) (transform.Input, error) {
		if w.F.DType != "" && w.Out.Mode == "" && w.Out.Depth == 0 && !w.Out.Mask {
			return mapInput(w, width, height)
		}
		return w.Out.Image(width, height)
	})
	if err != nil {
		return nil, err
	}
	for i := range m.outputs {
		if o, w := &m.outputs[i], &wants[i]; isFlow(w.F) && o.prog.NeedsScratch() {
			return nil, fmt.Errorf("output %q: field %q is optical flow, which follows crops without padding, flips and one resize", w.Out.Name, w.F.Name)
		}
	}
	m.planShared()
	return []Maker{m}, nil
}
