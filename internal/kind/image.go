package kind

import (
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Image is an encoded or raw image, decoded to pixels that have one size after
// its operations.
var Image = Kind{Name: driver.KindImage, Decoded: true, Plan: planImages}

func planImages(p *Planner, wants []Want) ([]Maker, error) {
	m, err := planPixels(p, wants, func(w *Want, width, height int) (transform.Input, error) { return w.Out.Image(width, height) })
	if err != nil {
		return nil, err
	}
	m.planShared()
	return []Maker{m}, nil
}
