package kind

import "github.com/stokerdata/stoker/source/driver"

// Image is an encoded or raw image, decoded to pixels that have one size after
// its operations.
var Image = Kind{Name: driver.KindImage, Decoded: true, Plan: func(p *Planner, wants []Want) (Maker, error) { return planPixels(p, wants) }}
