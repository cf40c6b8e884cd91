// Package decode turns the images of records into rows of a batch. JPEG, dct and raw pixels are decoded in C, a group
// of records per call. Go libraries decode PNG, BMP, GIF, WebP and TIFF into scratch memory, from which the same C code
// resizes and stores them. Pixels equal those of Pillow's convert("RGB").
package decode

import (
	"errors"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// Options of a Decoder. The zero value matches torchvision.
type Options struct {
	// ApplyOrientation rotates images according to their EXIF orientation. Sizes and geometries then refer to the
	// rotated image.
	ApplyOrientation bool
	// MaxPixels is the largest image that is decoded; 0 means cdec.MaxPixels.
	MaxPixels int64
}

// Request is one image to decode: Value is decoded to Pixels, cropped, resized and flipped by Geom, and written to Dst
// in the format of Store. Err is the result.
type Request struct {
	Value driver.Value
	// Pixels is the pixel type of the decoded image; the zero value is RGB of u8. Store.Channels equals its channels,
	// or is 1 for the luma of RGB.
	Pixels item.PixelType
	// Raw is the element type of a value of driver.CodecRaw; 0 means u8.
	Raw item.DType
	// Mask reports that pixels are class numbers. They are decoded unchanged (indices of a palette, 16-bit gray) or
	// refused. Pixels has one channel of u8 or u16, Geom.Filter is item.Nearest.
	Mask  bool
	Geom  item.Geometry
	Store item.Store
	Dst   []byte
	Err   error
}

// keepBytes is the scratch memory that a Decoder keeps between runs, unless SetMemory sets less.
const keepBytes = 32 << 20

// Decoder decodes images. It belongs to one goroutine, as cdec.Decoder does.
type Decoder struct {
	opt   Options
	c     *cdec.Decoder
	jobs  []cdec.Job
	index []int // request of each job

	memory int64 // the limit for an image; 0 for none

	// Pictures on their way to a row (picture.go).
	pixels, converted, mirrored, turned cdec.Buffer
}

// New returns a decoder, to be closed after use.
func New(opt Options) (*Decoder, error) {
	if opt.MaxPixels <= 0 || opt.MaxPixels > cdec.MaxPixels {
		opt.MaxPixels = cdec.MaxPixels
	}
	c, err := cdec.NewDecoder()
	if err != nil {
		return nil, err
	}
	c.SetMaxPixels(opt.MaxPixels)
	return &Decoder{opt: opt, c: c}, nil
}

// Close frees the decoder. It may be called again.
func (d *Decoder) Close() {
	d.c.Close()
	d.trim(0)
}

// Info describes an image as Run sees it: after orientation, if that is
// applied.
type Info struct {
	Width, Height int32
	// Orientation is the orientation that Run applies: 1 for none, else 2 to 8.
	Orientation int32
}

// Info returns the size of an image from the source's data or from its header.
func (d *Decoder) Info(v driver.Value) (Info, error) {
	info := Info{Width: v.Width, Height: v.Height, Orientation: 1}
	known := v.Width > 0 && v.Height > 0
	if !known || (d.opt.ApplyOrientation && v.Orientation == 0) {
		if headless(v.Codec) {
			if !known {
				return info, &cdec.Error{Kind: cdec.ErrArgument, Msg: "the source does not say how large the image is"}
			}
		} else {
			p, err := probe(v.Bytes)
			if err != nil {
				return info, err
			}
			info.Width, info.Height = p.Width, p.Height
			if v.Orientation == 0 {
				v.Orientation = int32(p.Orientation)
			}
		}
	} else if err := cdec.CheckSize(int64(info.Width), int64(info.Height)); err != nil {
		return info, err
	}
	if d.opt.ApplyOrientation && v.Orientation > 1 && v.Orientation <= 8 {
		info.Orientation = v.Orientation
		if v.Orientation >= 5 {
			info.Width, info.Height = info.Height, info.Width
		}
	}
	return info, nil
}

// probe reads the header of an image and holds its size against the limits.
func probe(src []byte) (imagefile.Info, error) {
	info, err := imagefile.Probe(src)
	if err != nil {
		kind := cdec.ErrCorrupt
		if errors.Is(err, imagefile.ErrNotImage) {
			kind = cdec.ErrUnsupported
		}
		return info, &cdec.Error{Kind: kind, Msg: err.Error()}
	}
	return info, cdec.CheckSize(int64(info.Width), int64(info.Height))
}

// Run processes the requests and sets the Err of each. A failed one leaves its Dst in an undefined state and does not
// affect the others.
func (d *Decoder) Run(reqs []Request) {
	d.jobs, d.index = d.jobs[:0], d.index[:0]
	for i := range reqs {
		r := &reqs[i]
		codec := r.Value.Codec
		if codec == driver.CodecUnknown {
			codec = imagefile.Detect(r.Value.Bytes)
		}
		r.Err = nil
		o := d.orientation(&r.Value)
		job := cdec.Job{Src: r.Value.Bytes, Width: r.Value.Width, Height: r.Value.Height, Geom: r.Geom, Store: r.Store, Dst: r.Dst}
		switch codec {
		case driver.CodecJPEG:
			job.Format = cdec.FormatJPEG
		case driver.CodecDCT:
			job.Format = cdec.FormatDCT
		case driver.CodecRaw:
			switch r.Value.Channels {
			case 3:
				job.Format = cdec.FormatRGB
			case 1:
				job.Format = cdec.FormatGray
			case 4:
				job.Format = cdec.FormatRGBX
			}
		}
		if job.Format == 0 || o > 1 || !r.simple(codec) {
			r.Err = d.tooLarge(r, d.runPicture(r, codec, o))
			continue
		}
		if r.Err = d.admit(r, 0); r.Err != nil {
			continue
		}
		d.jobs, d.index = append(d.jobs, job), append(d.index, i)
	}
	d.c.Run(d.jobs)
	for i := range d.jobs {
		if r := &reqs[d.index[i]]; d.jobs[i].Err == nil {
			r.Err = nil
		} else {
			r.Err = d.tooLarge(r, d.jobs[i].Err)
		}
	}
	clear(d.jobs) // so that no record's bytes stay alive
}

// runOne runs a single job.
func (d *Decoder) runOne(job cdec.Job) error {
	jobs := [1]cdec.Job{job}
	d.c.Run(jobs[:])
	return jobs[0].Err
}

// RGB decodes an image with the geometry geom to u8 RGB, HWC, in dst. dst needs OutW*OutH*3 bytes.
func (d *Decoder) RGB(v driver.Value, geom item.Geometry, dst []byte) error {
	reqs := [1]Request{{Value: v, Geom: geom, Store: PlainRGB, Dst: dst}}
	d.Run(reqs[:])
	return reqs[0].Err
}

// Try decodes a whole image of w x h pixels, to check that this works. dst needs TryBytes bytes.
func (d *Decoder) Try(v driver.Value, dst []byte) error {
	t := tryType(&v)
	whole := item.Rect{W: v.Width, H: v.Height}
	geom := item.Geometry{Box: whole, ResizeW: v.Width, ResizeH: v.Height, Window: whole, Filter: item.Bilinear}
	reqs := [1]Request{{Value: v, Pixels: t, Geom: geom, Store: t.Plain(), Dst: dst}}
	d.Run(reqs[:])
	return reqs[0].Err
}

// TryBytes returns the size of the memory that Try needs.
func TryBytes(v *driver.Value) int64 {
	return int64(v.Width) * int64(v.Height) * int64(tryType(v).Size())
}

// tryType returns RGB, except for optical flow, which has no colours.
func tryType(v *driver.Value) item.PixelType {
	if v.Codec == driver.CodecFlo {
		return item.PixelType{DType: item.F32, Channels: 2}
	}
	return item.RGB
}

// PlainRGB stores pixels unchanged: u8 RGB, HWC.
var PlainRGB = item.RGB.Plain()

// StorePixels writes u8 RGB pixels (HWC) to dst in the format st, after augmentations.
func (d *Decoder) StorePixels(rgb []byte, width, height int, st item.Store, dst []byte) error {
	return d.c.StorePixels(rgb, width, height, st, dst)
}
