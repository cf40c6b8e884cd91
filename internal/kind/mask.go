package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Mask is an image of class numbers: rows of shape [H, W], for which operations do not mix values.
var Mask = Kind{Name: driver.KindMask, Decoded: true, Plan: planMasks}

func planMasks(p *Planner, wants []Want) ([]Maker, error) {
	for i := range wants {
		out := &wants[i].Out
		out.Mask = true
		if out.Follow == "" {
			out.Follow = firstImage(p)
		}
	}
	m, err := planPixels(p, wants, func(w *Want, width, height int) (transform.Input, error) {
		dtype, err := elementType(w)
		if err == nil && dtype != item.U8 && dtype != item.U16 {
			err = fmt.Errorf("field %q: a mask of %s; masks are uint8 or uint16", w.F.Name, dtype)
		}
		return transform.Input{DType: dtype, W: width, H: height, Mask: true}, err
	})
	if err != nil {
		return nil, err
	}
	for i := range m.outputs {
		m.outputs[i].raw = m.outputs[i].prog.In.DType
	}
	m.planShared()
	return []Maker{m}, nil
}

// firstImage returns the array with which masks move by default: the first one from images, "" if there is none.
func firstImage(p *Planner) string {
	for i := range p.Wants {
		if w := &p.Wants[i]; w.F.Kind == driver.KindImage && w.F.DType == "" && !w.Out.Mask {
			return w.Out.Name
		}
	}
	return ""
}
