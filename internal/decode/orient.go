package decode

import (
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/source/driver"
)

// orientation returns the EXIF orientation to apply to an image, 1 for none.
func (d *Decoder) orientation(v *driver.Value) int32 {
	if !d.opt.ApplyOrientation {
		return 1
	}
	return Orientation(v)
}

// Orientation returns the EXIF orientation of an image, 1 for none. It uses the source's value or, without one, the
// image's bytes. Damage is reported by the decoder.
func Orientation(v *driver.Value) int32 {
	o := v.Orientation
	if o == 0 && !headless(v.Codec) {
		if info, err := probe(v.Bytes); err == nil {
			o = int32(info.Orientation)
		}
	}
	if o < 1 || o > 8 {
		return 1
	}
	return o
}

// storedBox maps a box of the turned image to the stored one, of w x h pixels.
func storedBox(b item.Rect, w, h, orientation int32) item.Rect {
	if orient.Swaps(orientation) {
		b.X, b.Y, b.W, b.H = b.Y, b.X, b.H, b.W
	}
	flipH, flipV := orient.Mirrored(orientation)
	if flipH {
		b.X = w - b.X - b.W
	}
	if flipV {
		b.Y = h - b.Y - b.H
	}
	return b
}
