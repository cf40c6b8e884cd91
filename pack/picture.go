package pack

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/source/driver"
)

// picture is the storage of the images or masks of a field, and the changes made to their pixels during packing.
type picture struct {
	how    string // one of the Images constants
	resize Resize
	crop   Resize // of the middle; only with both sides
	gray   bool
	// quality is the quality for encoding images as JPEG, 0 for none.
	quality int
	filter  item.Filter
}

// The filters of Options.Interpolation.
const (
	Bilinear = "bilinear"
	Bicubic  = "bicubic"
)

var filters = map[string]item.Filter{"": item.Bilinear, Bilinear: item.Bilinear, Bicubic: item.Bicubic}

// pictureOf returns the picture options of a field, at one of the resolutions.
func (o *Options) pictureOf(field string, resize Resize) picture {
	return picture{how: o.images.of(field), resize: resize, crop: o.Crop, gray: o.Grayscale, quality: o.Quality, filter: filters[o.Interpolation]}
}

// changes reports whether the stored pixels differ from those of the source.
func (o *Options) changes() bool {
	return o.Resize != (Resize{}) || len(o.Resolutions) > 0 || o.Crop != (Resize{}) || o.Grayscale
}

// checkPictures checks the options about pixels and returns the problem.
func (o *Options) checkPictures() error {
	if _, ok := filters[o.Interpolation]; !ok {
		return fmt.Errorf("--interpolation %s: it is bilinear or bicubic", o.Interpolation)
	}
	if o.Interpolation == Bilinear {
		o.Interpolation = ""
	}
	if o.Quality < 0 || o.Quality > 100 {
		return fmt.Errorf("--reencode-quality %d: it is 1 to 100", o.Quality)
	}
	if o.changes() && !o.images.any(ImagesRaw) && o.Quality == 0 {
		what := "--resize"
		switch {
		case o.Crop != (Resize{}):
			what = "--crop"
		case o.Grayscale:
			what = "--grayscale"
		}
		return fmt.Errorf("%s changes pixels and needs --images raw, or --reencode-quality 90 to make JPEGs of them again", what)
	}
	if o.Crop.Short > 0 {
		o.Crop = Resize{Width: o.Crop.Short, Height: o.Crop.Short}
	}
	if len(o.Resolutions) == 1 {
		o.Resize, o.Resolutions = o.Resolutions[0], nil
	}
	seen := map[Resize]bool{}
	for _, r := range o.Resolutions {
		if r == (Resize{}) || seen[r] {
			return fmt.Errorf("--resize %s: give each resolution once", o.resizes())
		}
		seen[r] = true
	}
	switch {
	case len(o.Resolutions) > maxResolutions:
		return fmt.Errorf("--resize %s: %d resolutions are more than the limit of %d", o.resizes(), len(o.Resolutions), maxResolutions)
	case len(o.Resolutions) > 0 && o.Crop != (Resize{}):
		return fmt.Errorf("--crop is of one size: with several resolutions, give each as width x height, such as --resize 128x128,256x256")
	}
	return nil
}

// maxResolutions limits the number of resolutions of an image in a pack.
const maxResolutions = 16

// resizes returns Resize or Resolutions as text.
func (o *Options) resizes() string {
	if len(o.Resolutions) == 0 {
		return o.Resize.String()
	}
	var all []string
	for _, r := range o.Resolutions {
		all = append(all, r.String())
	}
	return strings.Join(all, ",")
}

// ParseResizes reads sizes with commas between them, each as ParseResize has it.
func ParseResizes(s string) ([]Resize, error) {
	var all []Resize
	for part := range strings.SplitSeq(s, ",") {
		r, err := ParseResize(part)
		if err == nil && part == "" && s != "" {
			err = fmt.Errorf("--resize %q: there is a comma too many", s)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if s == "" {
		return nil, nil
	}
	return all, nil
}

// geometry returns the pixels of a w x h picture that are stored.
func (p *picture) geometry(w, h int32) (item.Geometry, error) {
	tw, th := p.resize.target(w, h)
	g := whole(w, h, tw, th)
	g.Filter = p.filter
	if p.crop != (Resize{}) {
		cw, ch := int32(p.crop.Width), int32(p.crop.Height)
		if cw > tw || ch > th {
			return g, &BadInput{Reason: fmt.Sprintf("%d x %d pixels are fewer than the %d x %d of --crop: --resize makes them larger first", tw, th, cw, ch)}
		}
		// As torchvision's CenterCrop rounds.
		at := func(n, c int32) int32 { return int32(math.RoundToEven(float64(n-c) / 2)) }
		g.Window = item.Rect{X: at(tw, cw), Y: at(th, ch), W: cw, H: ch}
	}
	return g, nil
}

// plain reports whether pixels are stored unchanged.
func (p *picture) plain() bool { return p.resize == (Resize{}) && p.crop == (Resize{}) && !p.gray }

// recodes reports whether images are encoded as JPEG again.
func (p *picture) recodes() bool { return p.quality > 0 && p.how != ImagesRaw }

// recode makes a JPEG of the pixels of src and stores that. v has the known properties of src.
func (e *encoder) recode(src driver.Value, p *picture, v *value, buf *[]byte) error {
	one := *p
	one.gray = p.gray || v.Channels == 1
	var pixels value
	if err := e.storePixels(src, &one, &pixels, &e.pixels); err != nil {
		return err
	}
	opts := cdec.EncodeOptions{Quality: p.quality, HSamp: 2, VSamp: 2, Optimize: true}
	if pixels.Channels == 1 {
		opts.HSamp, opts.VSamp = 1, 1
	}
	if p.how == ImagesKeep { // of dct, they are in columns of their own
		if opts.ICC = v.icc; len(v.exif) > 0 {
			opts.EXIF = append([]byte("Exif\x00\x00"), v.exif...)
		}
	}
	jpeg, err := cdec.EncodeJPEG(pixels.Bytes, int(pixels.Width), int(pixels.Height), int(pixels.Channels), opts)
	if err != nil {
		return bad("%v", err)
	}
	info, err := imagefile.Check(jpeg)
	if err != nil {
		return fmt.Errorf("internal error: a JPEG that was just made: %w", err)
	}
	v.Width, v.Height, v.Channels, v.depth, v.Codec = info.Width, info.Height, info.Channels, 8, driver.CodecJPEG
	v.fromW, v.fromH = pixels.fromW, pixels.fromH
	if p.how != ImagesKeep {
		if done, err := e.dct(jpeg, &imagefile.Info{Width: info.Width, Height: info.Height, Codec: info.Codec}, v, buf); done || err != nil {
			return err
		}
	}
	*buf = append((*buf)[:0], jpeg...)
	v.Bytes = *buf
	return nil
}

// changed returns the stored form of a mask: the nearest pixels.
func (e *encoder) changed(m *mask.Mask, p *picture) (*mask.Mask, error) {
	one := *p
	one.gray = false
	if one.plain() {
		return m, nil
	}
	g, err := one.geometry(int32(m.Width), int32(m.Height))
	if err != nil {
		return nil, err
	}
	g.Filter = item.Nearest
	t := item.PixelType{DType: item.U8, Channels: 1}
	if m.Size == 2 {
		t.DType = item.U16
	}
	out := &mask.Mask{Width: int(g.OutW()), Height: int(g.OutH()), Size: m.Size}
	if int64(out.Width)*int64(out.Height) > mask.MaxPixels {
		return nil, &BadInput{Reason: fmt.Sprintf("%d x %d pixels are more than the limit of %d", out.Width, out.Height, mask.MaxPixels)}
	}
	out.Pix = make([]byte, out.Width*out.Height*out.Size)
	src := driver.Value{Bytes: m.Pix, Codec: driver.CodecRaw, Width: int32(m.Width), Height: int32(m.Height), Channels: 1}
	reqs := [1]decode.Request{{Value: src, Pixels: t, Geom: g, Store: t.Plain(), Dst: out.Pix}}
	if e.dec.Run(reqs[:]); reqs[0].Err != nil {
		return nil, bad("%v", reqs[0].Err)
	}
	return out, nil
}

// A field of images or masks at one of several resolutions is called after it and the
// resolution: image@192. Loaders have one of them, under the name of the field
// (source/view).

// expand makes the fields of the pack from those of the source: one for each resolution of images and masks.
func (in *sourceInput) expand(fields []Field) error {
	for i, f := range fields {
		sizes := []Resize{in.opt.Resize}
		if len(in.opt.Resolutions) > 0 && f.picture() {
			sizes = in.opt.Resolutions
		}
		if f.Kind == driver.KindImage && f.DType != "" && in.opt.changes() {
			return fmt.Errorf("%s has maps of numbers in field %q, which stay unchanged: --resize, --crop and --grayscale would have them no longer fit their images; leave the field out, or change sizes when loading", in.info.URL, f.Name)
		}
		if f.Kind == driver.KindMasks && in.opt.changes() {
			return fmt.Errorf("%s has the masks of objects in field %q, which stay unchanged: --resize, --crop and --grayscale would have them no longer fit their images; leave the field out, or change sizes when loading", in.info.URL, f.Name)
		}
		if f.Kind == driver.KindBoxes || f.Kind == driver.KindKeyPoints {
			if len(in.opt.Resolutions) > 0 || in.opt.Crop != (Resize{}) {
				return fmt.Errorf("%s has %s in field %q: --crop and several resolutions are for images and masks alone; --resize with one size has them follow, and so do crops when loading", in.info.URL, f.Kind, f.Name)
			}
		}
		for _, r := range sizes {
			out := f
			if len(sizes) > 1 {
				out.Name = f.Name + "@" + r.String()
			}
			in.out = append(in.out, out)
			in.from = append(in.from, i)
			in.pictures = append(in.pictures, in.opt.pictureOf(f.Name, r))
		}
	}
	if len(in.opt.Resolutions) > 0 && !slices.ContainsFunc(fields, func(f Field) bool { return f.picture() }) {
		return fmt.Errorf("%s holds no images: --resize is about images", in.info.URL)
	}
	return nil
}

// pixels returns the flags for the changes to the pixels of images.
func (s *Settings) pixels() (args []string) {
	if s.Resize != "" {
		args = append(args, "--resize", s.Resize)
	}
	if s.Crop != "" {
		args = append(args, "--crop", s.Crop)
	}
	if s.Grayscale {
		args = append(args, "--grayscale")
	}
	if s.Interpolation != "" {
		args = append(args, "--interpolation", s.Interpolation)
	}
	if s.Quality > 0 {
		args = append(args, "--reencode-quality", fmt.Sprint(s.Quality))
	}
	return args
}

// Pixels returns the flags for the changes to the pixels of images, as text.
func (s *Settings) Pixels() string { return strings.Join(s.pixels(), " ") }
