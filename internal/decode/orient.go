package decode

import (
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// orientation returns the EXIF orientation to apply to an image, 1 for none:
// what the source knows of it or, failing that, what the image's bytes say.
func (d *Decoder) orientation(v *driver.Value, codec driver.Codec) int32 {
	o := v.Orientation
	switch {
	case !d.opt.ApplyOrientation:
		return 1
	case o == 0 && !headless(codec):
		info, err := probe(v.Bytes)
		if err != nil {
			return 1 // damage is reported by the decoder
		}
		o = int32(info.Orientation)
	}
	if o < 1 || o > 8 {
		return 1
	}
	return o
}

// mirrored says which axes of the stored image an orientation mirrors, before
// those of 5 and more swap them.
func mirrored(orientation int32) (horizontal, vertical bool) {
	switch orientation {
	case 2, 8:
		return true, false
	case 3, 7:
		return true, true
	case 4, 6:
		return false, true
	}
	return false, false
}

// storedBox maps a box of the turned image to the stored one, of w x h pixels.
func storedBox(b item.Rect, w, h, orientation int32) item.Rect {
	if orientation >= 5 {
		b.X, b.Y, b.W, b.H = b.Y, b.X, b.H, b.W
	}
	flipH, flipV := mirrored(orientation)
	if flipH {
		b.X = w - b.X - b.W
	}
	if flipV {
		b.Y = h - b.Y - b.H
	}
	return b
}

// transpose swaps the axes of w x h pixels of size bytes.
func transpose(dst, src []byte, w, h, size int) {
	for y := range h {
		row := src[y*w*size : (y+1)*w*size]
		for x := range w {
			copy(dst[(x*h+y)*size:][:size], row[x*size:])
		}
	}
}
