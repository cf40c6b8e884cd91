package decode

import (
	"github.com/stokerdata/stoker/internal/cdec"
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
	case o == 0 && codec != driver.CodecRaw && codec != driver.CodecDCT:
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

// runTurned decodes an image whose orientation is applied: the box is looked up
// in the stored image, decoded as it lies there, turned, and then resized as
// an image of its own.
func (d *Decoder) runTurned(r *Request, job cdec.Job, orientation int32) error {
	width, height := job.Width, job.Height
	if job.Format == cdec.FormatJPEG {
		info, err := probe(r.Value.Bytes)
		if err != nil {
			return err
		}
		width, height = info.Width, info.Height
	}
	if err := d.checkPixels(width, height); err != nil {
		return err
	}
	stored := storedBox(r.Geom.Box, width, height, orientation)
	if stored.W < 1 || stored.H < 1 || stored.W > width || stored.H > height {
		return &cdec.Error{Kind: cdec.ErrArgument, Msg: "the box is not inside the image"}
	}
	n := int64(stored.W) * int64(stored.H) * 3
	pix, err := d.pixels.Bytes(int(n))
	if err != nil {
		return err
	}
	flipH, flipV := mirrored(orientation)
	job.Dst, job.Store = pix, PlainRGB
	job.Geom = item.Geometry{
		Box: stored, ResizeW: stored.W, ResizeH: stored.H,
		Window: item.Rect{W: stored.W, H: stored.H}, Filter: item.Bilinear,
		// Mirroring is the decoder's; what is left is to swap the axes.
		FlipH: flipH, FlipV: flipV,
	}
	if err := d.runOne(job); err != nil {
		return err
	}
	w, h := stored.W, stored.H
	if orientation >= 5 {
		turned, err := d.turned.Bytes(int(n))
		if err != nil {
			return err
		}
		transpose(turned, pix, int(w), int(h))
		pix, w, h = turned, h, w
	}
	return d.runPixels(r, pix, w, h, item.Rect{W: w, H: h})
}

// runPixels resizes and stores from u8 RGB pixels; box is the request's box in
// them.
func (d *Decoder) runPixels(r *Request, pix []byte, w, h int32, box item.Rect) error {
	geom := r.Geom
	geom.Box = box
	return d.runOne(cdec.Job{Format: cdec.FormatRGB, Src: pix, Width: w, Height: h, Geom: geom, Store: r.Store, Dst: r.Dst})
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

// transpose swaps the axes of w x h pixels of 3 bytes.
func transpose(dst, src []byte, w, h int) {
	for y := range h {
		row := src[y*w*3 : (y+1)*w*3]
		for x := range w {
			copy(dst[(x*h+y)*3:(x*h+y)*3+3], row[x*3:x*3+3])
		}
	}
}
