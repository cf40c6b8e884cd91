package transform

import (
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// jitterRange is the range of one factor of ColorJitter; off when nothing is to
// be changed.
type jitterRange struct {
	lo, hi float64
	on     bool
}

// jitter reads brightness, contrast, saturation or hue: a number x stands for
// [center-x, center+x], cut at lo when cut is set.
func jitter(a *Args, key string, center, lo, hi float64, cut bool) jitterRange {
	if !a.Has(key) {
		return jitterRange{}
	}
	v := a.Floats(key, nil)
	var r jitterRange
	switch {
	case len(v) == 1 && !isList(a, key):
		if v[0] < 0 {
			a.fail(key, "must not be negative when it is a single number, it is %v", v[0])
			return r
		}
		r.lo, r.hi = center-v[0], center+v[0]
		if cut {
			r.lo = max(r.lo, 0)
		}
	case len(v) == 2:
		r.lo, r.hi = v[0], v[1]
	default:
		a.fail(key, "must be a number or a list of two")
		return r
	}
	if !(lo <= r.lo && r.lo <= r.hi && r.hi <= hi) {
		a.fail(key, "must lie between %v and %v and be increasing, it is [%v, %v]", lo, hi, r.lo, r.hi)
		return r
	}
	r.on = r.lo != center || r.hi != center
	return r
}

// colorJitter is torchvision's ColorJitter.
type colorJitter struct {
	named
	factors [4]jitterRange
}

func buildColorJitter(a *Args) (Op, error) {
	return &colorJitter{"ColorJitter", [4]jitterRange{
		jitter(a, "brightness", 1, 0, 1e6, true),
		jitter(a, "contrast", 1, 0, 1e6, true),
		jitter(a, "saturation", 1, 0, 1e6, true),
		jitter(a, "hue", 0, -0.5, 0.5, false),
	}}, nil
}

var jitterKernels = [4]func(cdec.Pixmap, float64) error{
	cdec.Pixmap.AdjustBrightness, cdec.Pixmap.AdjustContrast, cdec.Pixmap.AdjustSaturation, cdec.Pixmap.AdjustHue,
}

func (op *colorJitter) Apply(r *Rand, img *Pixels) error {
	var order [4]int
	r.Perm(order[:])
	var f [4]float64
	for i, j := range op.factors {
		if j.on {
			f[i] = r.Uniform(j.lo, j.hi)
		}
	}
	for _, i := range order {
		if !op.factors[i].on {
			continue
		}
		if err := jitterKernels[i](pixmap(img), f[i]); err != nil {
			return err
		}
	}
	return nil
}

// grayscale is torchvision's Grayscale.
type grayscale struct {
	named
	channels int
}

func buildGrayscale(a *Args) (Op, error) {
	n := a.Int("num_output_channels", 1)
	if n != 1 && n != 3 {
		a.fail("num_output_channels", "must be 1 or 3, not %d", n)
	}
	return &grayscale{"Grayscale", n}, nil
}

// OutPixels makes it a Retyper.
func (op *grayscale) OutPixels(t item.PixelType) item.PixelType {
	t.Channels = int32(op.channels)
	return t
}

func (op *grayscale) Apply(_ *Rand, img *Pixels) error {
	switch {
	case int(img.Type.Channels) == op.channels:
		return pixmap(img).Grayscale()
	case op.channels == 3:
		return retype(img, op.OutPixels(img.Type), cdec.Convert)
	}
	if err := pixmap(img).GrayscaleTo(img.Pix); err != nil {
		return err
	}
	img.Type.Channels = 1
	img.Pix = img.Pix[:img.bytes(img.W, img.H)]
	return nil
}

func buildPosterize(a *Args) (Op, error) {
	require(a, "bits", "the number of bits to keep, 0 to 8")
	bits := a.Int("bits", 8)
	if bits < 0 || bits > 8 {
		a.fail("bits", "must be from 0 to 8, not %d", bits)
	}
	return &simple{"RandomPosterize", a.Prob("p", 0.5), func(p cdec.Pixmap) error { return p.Posterize(bits) }}, nil
}

func buildSolarize(a *Args) (Op, error) {
	require(a, "threshold", "the value from which on pixels are inverted")
	limit := maxValue(a.pixels.DType)
	threshold := a.Float("threshold", limit)
	if !(threshold <= limit) && !a.mask {
		a.fail("threshold", "must be at most %v, not %v", limit, threshold)
	}
	return &simple{"RandomSolarize", a.Prob("p", 0.5), func(p cdec.Pixmap) error { return p.Solarize(threshold) }}, nil
}

// randomSharpness is torchvision's RandomAdjustSharpness.
type randomSharpness struct {
	named
	factor, p float64
}

func buildSharpness(a *Args) (Op, error) {
	require(a, "sharpness_factor", "a number: 0 blurs, 1 changes nothing, 2 sharpens")
	op := &randomSharpness{"RandomAdjustSharpness", a.Float("sharpness_factor", 1), a.Prob("p", 0.5)}
	if !(op.factor >= 0 && op.factor <= 1e6) {
		a.fail("sharpness_factor", "must be between 0 and 1e6, not %v", op.factor)
	}
	return op, nil
}

func (op *randomSharpness) Apply(r *Rand, img *Pixels) error {
	if !r.Bool(op.p) {
		return nil
	}
	return sharpen(img, op.factor)
}

func sharpen(img *Pixels, factor float64) error {
	tmp, err := img.Temp(cdec.SharpnessTemp(pixmap(img)))
	if err != nil {
		return err
	}
	return replace(img, img.W, img.H, func(dst, src cdec.Pixmap) error {
		return cdec.AdjustSharpness(dst, src, factor, tmp)
	})
}

// gaussianBlur is torchvision's GaussianBlur.
type gaussianBlur struct {
	named
	kw, kh int
	lo, hi float64
}

func buildGaussianBlur(a *Args) (Op, error) {
	op := &gaussianBlur{named: "GaussianBlur", kw: 1, kh: 1}
	require(a, "kernel_size", "an odd number, or two: [columns, rows]")
	// A single number, or [n], stands for both sides.
	k := a.Floats("kernel_size", []float64{1})
	if len(k) == 1 {
		k = []float64{k[0], k[0]}
	}
	if len(k) != 2 {
		a.fail("kernel_size", "must be one number or two")
		return op, nil
	}
	for _, x := range k {
		if x != math.Trunc(x) || x < 1 || math.Mod(x, 2) == 0 || x > cdec.MaxBlurKernel {
			a.fail("kernel_size", "must be odd and from 1 to %d, not %v", cdec.MaxBlurKernel, x)
			return op, nil
		}
	}
	op.kw, op.kh = int(k[0]), int(k[1])
	s := a.Floats("sigma", []float64{0.1, 2})
	if len(s) == 1 {
		s = []float64{s[0], s[0]}
	}
	if len(s) != 2 || !(0 < s[0] && s[0] <= s[1] && s[1] <= 1e6) {
		a.fail("sigma", "must be a positive number or two, the smaller one first")
		return op, nil
	}
	op.lo, op.hi = s[0], s[1]
	return op, nil
}

func (op *gaussianBlur) Apply(r *Rand, img *Pixels) error {
	sigma := r.Uniform(op.lo, op.hi)
	tmp, err := img.Temp(cdec.BlurTemp(pixmap(img), op.kw))
	if err != nil {
		return err
	}
	return replace(img, img.W, img.H, func(dst, src cdec.Pixmap) error {
		return cdec.GaussianBlur(dst, src, op.kw, op.kh, sigma, sigma, tmp)
	})
}
