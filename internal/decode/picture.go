package decode

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/source/driver"
)

// picture is an image or a part of one in memory, before it becomes a row. It is loaded in the codec's format, then
// converted, then rotated.
type picture struct {
	pix  []byte
	w, h int32
	t    item.PixelType
	// box is the part that the request needs.
	box item.Rect
	// mirrored reports that the mirroring of the orientation was already applied.
	mirrored bool
	// bilevel reports that the values 0 and 255 represent the bits 0 and 1.
	bilevel bool
}

func (p *picture) whole() item.Rect { return item.Rect{W: p.w, H: p.h} }

// stride is the size of a row in bytes.
func (p *picture) stride() int { return int(p.w) * p.t.Size() }

// simple reports whether the C decoders produce the requested pixels: RGB of u8 or its luma, not stored as u16.
func (r *Request) simple(codec driver.Codec) bool {
	t := r.Pixels.OrRGB()
	if t.DType != item.U8 || t.Channels%2 == 0 || r.Store.DType == item.U16 {
		return false
	}
	switch codec {
	case driver.CodecJPEG, driver.CodecDCT:
		return true
	case driver.CodecRaw:
		return r.Raw <= item.U8 && r.Value.Channels != 2 && !(r.Mask && r.Value.Channels != 1)
	}
	return !r.Mask
}

// runPicture does a request by way of a picture in scratch memory.
func (d *Decoder) runPicture(r *Request, codec driver.Codec, orientation int32) error {
	want := r.Pixels.OrRGB()
	switch {
	case want.Channels < 1 || want.Channels > item.MaxChannels || want.DType != item.U8 && want.DType != item.U16 && want.DType != item.F32:
		return &cdec.Error{Kind: cdec.ErrArgument, Msg: fmt.Sprintf("images are not decoded to %s", want)}
	case r.Mask && (want.Channels != 1 || want.DType == item.F32):
		return &cdec.Error{Kind: cdec.ErrArgument, Msg: fmt.Sprintf("masks are not decoded to %s", want)}
	}
	defer d.trim(d.keep())
	p, err := d.load(r, codec, orientation)
	if err != nil {
		return err
	}
	if b := p.box; b.X < 0 || b.Y < 0 || b.W < 1 || b.H < 1 || b.X > p.w-b.W || b.Y > p.h-b.H {
		return &cdec.Error{Kind: cdec.ErrArgument, Msg: "the box is not inside the image"}
	}
	if r.simple(codec) && !r.Mask {
		want = item.RGB // of which the store makes luma
	}
	if p.t != want || r.Mask && p.bilevel {
		if p, err = d.convert(p, want, r.Mask); err != nil {
			return err
		}
	}
	if orientation > 1 {
		if p, err = d.turn(p, orientation); err != nil {
			return err
		}
	}
	job := p.job()
	if r.Store.DType == item.U16 {
		job.Format = cdec.FormatPixels
	}
	job.Geom, job.Store, job.Dst = r.Geom, r.Store, r.Dst
	job.Geom.Box = p.box
	if codec == driver.CodecFlo {
		moveFlow(p.pix, &job.Geom)
	}
	return d.runOne(job)
}

// job is one that reads the picture.
func (p *picture) job() cdec.Job {
	job := cdec.Job{Format: cdec.FormatPixels, Pixels: p.t, Src: p.pix, Width: p.w, Height: p.h}
	if p.t == item.RGB { // which has kernels of its own
		job.Format = cdec.FormatRGB
	}
	return job
}

// load reads the image of a request: all of it, or only the box.
func (d *Decoder) load(r *Request, codec driver.Codec, orientation int32) (*picture, error) {
	v := &r.Value
	more := r.pictureMemory(codec, orientation)
	switch codec {
	case driver.CodecJPEG, driver.CodecDCT:
		if err := d.admit(r, more); err != nil {
			return nil, err
		}
		return d.loadBox(r, codec, orientation)
	case driver.CodecRaw:
		if err := d.admit(r, more); err != nil {
			return nil, err
		}
		p := &picture{pix: v.Bytes, w: v.Width, h: v.Height, t: item.PixelType{DType: max(r.Raw, item.U8), Channels: v.Channels}}
		if v.Channels < 1 || v.Channels > item.MaxChannels || p.t.DType != item.U8 && p.t.DType != item.U16 && p.t.DType != item.F32 {
			return nil, &cdec.Error{Kind: cdec.ErrUnsupported, Msg: fmt.Sprintf("a raw image of %s; uint8, uint16 and float32 with 1 to %d channels are supported", p.t, item.MaxChannels)}
		}
		if want := r.Pixels.OrRGB(); p.t != want && p.t.DType == item.F32 {
			return nil, &cdec.Error{Kind: cdec.ErrUnsupported, Msg: fmt.Sprintf("a raw image of %s is not decoded to %s", p.t, want)}
		}
		if err := d.checkPixels(p.w, p.h); err != nil {
			return nil, err
		}
		if n := int64(p.w) * int64(p.h) * int64(p.t.Size()); p.w < 1 || p.h < 1 || int64(len(v.Bytes)) < n {
			return nil, &cdec.Error{Kind: cdec.ErrCorrupt, Msg: fmt.Sprintf("a raw image of %dx%d pixels of %s needs %d bytes, not %d", p.w, p.h, p.t, n, len(v.Bytes))}
		}
		p.box = storedBox(r.Geom.Box, p.w, p.h, orientation)
		return p, nil
	}
	if codec == driver.CodecRuns {
		if err := d.admit(r, more); err != nil {
			return nil, err
		}
		return d.loadRuns(r, orientation)
	}
	p, err := d.loadFile(r, more)
	if err != nil {
		return nil, err
	}
	p.box = storedBox(r.Geom.Box, p.w, p.h, orientation)
	return p, nil
}

// loadBox decodes the box of a JPEG or of coefficients in the orientation of the stored image, but mirrored if the
// orientation requires it.
func (d *Decoder) loadBox(r *Request, codec driver.Codec, orientation int32) (*picture, error) {
	job := cdec.Job{Format: cdec.FormatDCT, Src: r.Value.Bytes, Width: r.Value.Width, Height: r.Value.Height}
	width, height := job.Width, job.Height
	if codec == driver.CodecJPEG {
		job.Format = cdec.FormatJPEG
		info, err := probe(r.Value.Bytes)
		if err != nil {
			return nil, err
		}
		width, height = info.Width, info.Height
	}
	if err := d.checkPixels(width, height); err != nil {
		return nil, err
	}
	b := storedBox(r.Geom.Box, width, height, orientation)
	if b.X < 0 || b.Y < 0 || b.W < 1 || b.H < 1 || b.X > width-b.W || b.Y > height-b.H {
		return nil, &cdec.Error{Kind: cdec.ErrArgument, Msg: "the box is not inside the image"}
	}
	p := &picture{w: b.W, h: b.H, t: item.RGB, mirrored: true}
	if r.Pixels.Channels == 1 && !r.simple(codec) {
		p.t.Channels = 1
	}
	p.box = p.whole()
	var err error
	if p.pix, err = d.pixels.Bytes(int(b.H) * p.stride()); err != nil {
		return nil, err
	}
	job.Dst, job.Store = p.pix, p.t.Plain()
	job.Geom = item.Geometry{Box: b, ResizeW: b.W, ResizeH: b.H, Window: p.whole(), Filter: item.Bilinear}
	job.Geom.FlipH, job.Geom.FlipV = orient.Mirrored(orientation)
	return p, d.runOne(job)
}

// headless reports whether values of a codec are not files, so that only the source knows their format.
func headless(codec driver.Codec) bool {
	return codec == driver.CodecRaw || codec == driver.CodecDCT || codec == driver.CodecRuns
}

// loadRuns decodes the box of a mask that is stored as runs.
func (d *Decoder) loadRuns(r *Request, orientation int32) (*picture, error) {
	if !r.Mask {
		return nil, &cdec.Error{Kind: cdec.ErrUnsupported, Msg: "runs of class numbers are a mask and no image"}
	}
	b := storedBox(r.Geom.Box, r.Value.Width, r.Value.Height, orientation)
	p := &picture{w: b.W, h: b.H, t: r.Pixels}
	p.box = p.whole()
	if err := d.checkPixels(r.Value.Width, r.Value.Height); err != nil {
		return nil, err
	}
	if b.W < 1 || b.H < 1 || int64(b.W)*int64(b.H) > d.opt.MaxPixels {
		return nil, &cdec.Error{Kind: cdec.ErrArgument, Msg: "the box is not inside the image"}
	}
	var err error
	if p.pix, err = d.pixels.Bytes(int(b.H) * p.stride()); err != nil {
		return nil, err
	}
	if err := mask.Box(p.pix, p.t.DType.Size(), &r.Value, b); err != nil {
		return nil, &cdec.Error{Kind: cdec.ErrCorrupt, Msg: err.Error()}
	}
	return p, nil
}

// turn applies an EXIF orientation to the box of a picture.
func (d *Decoder) turn(p *picture, orientation int32) (*picture, error) {
	flipH, flipV := orient.Mirrored(orientation)
	out := &picture{w: p.box.W, h: p.box.H, t: p.t}
	out.box = out.whole()
	if p.mirrored {
		out.pix = p.pix
	} else {
		var err error
		if out.pix, err = d.mirrored.Bytes(int(out.h) * out.stride()); err != nil {
			return nil, err
		}
		job := p.job()
		job.Store, job.Dst = p.t.Plain(), out.pix
		job.Geom = item.Geometry{
			Box: p.box, ResizeW: out.w, ResizeH: out.h, Window: out.whole(), Filter: item.Bilinear, FlipH: flipH, FlipV: flipV,
		}
		if err := d.runOne(job); err != nil {
			return nil, err
		}
	}
	if orientation < 5 {
		return out, nil
	}
	pix, err := d.turned.Bytes(len(out.pix))
	if err != nil {
		return nil, err
	}
	orient.Pixels(pix, out.pix, int(out.w), int(out.h), p.t.Size(), 5)
	out.pix, out.w, out.h = pix, out.h, out.w
	out.box = out.whole()
	return out, nil
}
