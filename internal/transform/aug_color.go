package transform

import (
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// jitterRange is the range of one factor of ColorJitter. on is false if nothing is to be changed.
type jitterRange struct {
	lo, hi float64
	on     bool
}

// jitter reads brightness, contrast, saturation or hue. A number x means [center-x, center+x], cut at 0 if cut is set.
func jitter(a *Args, key string, center float64, cut bool) jitterRange {
	if !a.Has(key) {
		return jitterRange{}
	}
	v := a.Spread(key, center)
	r := jitterRange{lo: v[0], hi: v[1]}
	if cut {
		r.lo = max(r.lo, 0)
	}
	r.on = r.lo != center || r.hi != center
	return r
}

// colorJitter is torchvision's ColorJitter.
type colorJitter struct {
	named
	factors [4]jitterRange
}

var colorJitterSpec = Spec{
	Name: "ColorJitter", Doc: "Change brightness, contrast, saturation and hue, in a random order.", More: "None and 0 change nothing.",
	Params: []Param{
		factor("brightness"), factor("contrast"), factor("saturation"),
		{Name: "hue", Type: Float, Optional: true, Single: true, Counts: []int{2}, Form: "(min, max)", Alone: between(0, 0.5), Range: between(-0.5, 0.5), Ordered: true,
			Help: "shift as a fraction of a full turn: x is from -x to x"},
	},
	Kinds: painted, Returns: sameShape, Example: "T.ColorJitter(0.4, 0.4, 0.4, 0.1)", takes: grayOrRGB, image: buildColorJitter,
}

func factor(name string) Param {
	return Param{Name: name, Type: Float, Optional: true, Single: true, Counts: []int{2}, Form: "(min, max)", Range: between(0, 1e6), Ordered: true,
		Help: "factor: x is from max(0, 1 - x) to 1 + x"}
}

func buildColorJitter(a *Args) (Op, error) {
	return &colorJitter{"ColorJitter", [4]jitterRange{
		jitter(a, "brightness", 1, true),
		jitter(a, "contrast", 1, true),
		jitter(a, "saturation", 1, true),
		jitter(a, "hue", 0, false),
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

var grayscaleSpec = Spec{
	Name: "Grayscale", Doc: "Convert to gray.",
	Params: []Param{{Name: "num_output_channels", Type: Int, Default: 1, Range: between(1, 3), Help: "1, or 3 equal channels"}},
	Kinds:  painted, Returns: "Channels are `num_output_channels`; same dtype.", Example: "T.Grayscale(3)", takes: grayOrRGB, image: buildGrayscale,
}

func buildGrayscale(a *Args) (Op, error) {
	n := a.Int("num_output_channels")
	if n == 2 {
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

var posterizeSpec = Spec{
	Name: "RandomPosterize", Doc: "Keep only the upper bits of each channel, at random.",
	Params: []Param{{Name: "bits", Type: Int, Required: true, Range: between(0, 8), Help: "number of bits to keep"}, probability(0.5)},
	Kinds:  painted, Returns: sameShape, Example: "T.RandomPosterize(4)", image: buildPosterize,
}

func buildPosterize(a *Args) (Op, error) {
	bits := a.Int("bits")
	return &simple{"RandomPosterize", a.Float("p"), func(p cdec.Pixmap) error { return p.Posterize(bits) }}, nil
}

var solarizeSpec = Spec{
	Name: "RandomSolarize", Doc: "Invert the values from a threshold on, at random.",
	Params: []Param{{Name: "threshold", Type: Float, Required: true, Range: atMost(65535), Help: "threshold in units of the pixels, such as 128 of 255"}, probability(0.5)},
	Kinds:  painted, Returns: sameShape, Example: "T.RandomSolarize(128)", image: buildSolarize,
}

func buildSolarize(a *Args) (Op, error) {
	limit := maxValue(a.pixels.DType)
	threshold := a.Float("threshold")
	if !(threshold <= limit) && !a.mask {
		a.fail("threshold", "must be at most %v, not %v", limit, threshold)
	}
	return &simple{"RandomSolarize", a.Float("p"), func(p cdec.Pixmap) error { return p.Solarize(threshold) }}, nil
}

// randomSharpness is torchvision's RandomAdjustSharpness.
type randomSharpness struct {
	named
	factor, p float64
}

var sharpnessSpec = Spec{
	Name: "RandomAdjustSharpness", Doc: "Sharpen or soften, at random.",
	Params: []Param{{Name: "sharpness_factor", Type: Float, Required: true, Range: between(0, 1e6), Help: "0 is smooth, 1 is the image, 2 is twice as sharp"}, probability(0.5)},
	Kinds:  painted, Returns: sameShape, Example: "T.RandomAdjustSharpness(2)", takes: grayOrRGB, image: buildSharpness,
}

func buildSharpness(a *Args) (Op, error) {
	return &randomSharpness{"RandomAdjustSharpness", a.Float("sharpness_factor"), a.Float("p")}, nil
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

var gaussianBlurSpec = Spec{
	Name: "GaussianBlur", Doc: "Blur with a Gaussian of random width.",
	Params: []Param{
		{Name: "kernel_size", Type: Int, Required: true, Unit: "pixels", Single: true, Counts: []int{1, 2}, Form: "(columns, rows)", Range: between(1, cdec.MaxBlurKernel), Odd: true, Help: "size of the kernel"},
		{Name: "sigma", Type: Float, Default: []float64{0.1, 2}, Unit: "pixels", Single: true, Counts: []int{1, 2}, Form: "(min, max)", Range: aboveUpTo(0, 1e6), Ordered: true, Help: "standard deviation, or the range to draw it from"},
	},
	Kinds: painted, Returns: sameShape, Example: "T.GaussianBlur(23)", image: buildGaussianBlur,
}

func buildGaussianBlur(a *Args) (Op, error) {
	op := &gaussianBlur{named: "GaussianBlur"}
	columns, rows := a.Pair("kernel_size")
	op.kw, op.kh = int(columns), int(rows)
	op.lo, op.hi = a.Pair("sigma")
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
