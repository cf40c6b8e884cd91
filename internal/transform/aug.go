package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// augmentSpecs lists the augmentations: operations on pixels. Each draws its
// parameters from the distributions of the class of torchvision.transforms.v2
// with its name, and takes the arguments of that class.
func augmentSpecs() []Spec {
	return []Spec{
		{"ColorJitter", []string{"brightness", "contrast", "saturation", "hue"}, grayOrRGB, buildColorJitter},
		{"RandomHSV", []string{"hgain", "sgain", "vgain"}, rgbBytes, buildRandomHSV},
		{"Grayscale", []string{"num_output_channels"}, grayOrRGB, buildGrayscale},
		{"RandomGrayscale", []string{"p"}, grayOrRGB, simpleOp("RandomGrayscale", 0.1, cdec.Pixmap.Grayscale)},
		{"RandomInvert", []string{"p"}, nil, simpleOp("RandomInvert", 0.5, cdec.Pixmap.Invert)},
		{"RandomAutocontrast", []string{"p"}, grayOrRGB, simpleOp("RandomAutocontrast", 0.5, cdec.Pixmap.AutoContrast)},
		{"RandomEqualize", []string{"p"}, nil, simpleOp("RandomEqualize", 0.5, cdec.Pixmap.Equalize)},
		{"RandomPosterize", []string{"bits", "p"}, nil, buildPosterize},
		{"RandomSolarize", []string{"threshold", "p"}, nil, buildSolarize},
		{"RandomAdjustSharpness", []string{"sharpness_factor", "p"}, grayOrRGB, buildSharpness},
		{"GaussianBlur", []string{"kernel_size", "sigma"}, nil, buildGaussianBlur},
		{"RandomRotation", []string{"degrees", "interpolation", "expand", "center", "fill"}, nil, buildRotation},
		{"RandomAffine", []string{"degrees", "translate", "scale", "shear", "interpolation", "fill", "center"}, nil, buildAffine},
		{"RandomPerspective", []string{"distortion_scale", "p", "interpolation", "fill"}, nil, buildPerspective},
		{"ElasticTransform", []string{"alpha", "sigma", "interpolation", "fill"}, nil, buildElastic},
		{"RandomErasing", []string{"p", "scale", "ratio", "value", "inplace"}, nil, buildErasing},
		{"AutoAugment", []string{"policy", "interpolation", "fill", "magnitudes"}, grayOrRGB, buildAutoAugment},
		{"RandAugment", []string{"num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill", "magnitudes"}, grayOrRGB, buildRandAugment},
		{"TrivialAugmentWide", []string{"num_magnitude_bins", "interpolation", "fill", "magnitudes"}, grayOrRGB, buildTrivialAugment},
		{"Compose", []string{"transforms", "pillow"}, nil, buildCompose},
		{"RandomApply", []string{"transforms", "p"}, nil, buildRandomApply},
		{"RandomChoice", []string{"transforms", "p"}, nil, buildRandomChoice},
		{"OneOf", []string{"transforms", "p"}, nil, buildRandomChoice},
		{"RandomOrder", []string{"transforms"}, nil, buildRandomOrder},
	}
}

// named gives an operation its name for messages.
type named string

func (n named) String() string { return string(n) }

// pixmap is img as the kernels want it.
func pixmap(img *Pixels) cdec.Pixmap {
	return cdec.Pixmap{Pix: img.Pix, W: img.W, H: img.H, C: int(img.Type.Channels), DType: img.Type.DType, Pillow: img.Pillow}
}

// replace runs an operation that cannot work in place: f writes an image of
// w x h pixels, which then becomes the current one.
func replace(img *Pixels, w, h int, f func(dst, src cdec.Pixmap) error) error {
	next, err := img.Next(w, h)
	if err != nil {
		return err
	}
	dst := pixmap(img)
	dst.Pix, dst.W, dst.H = next, w, h
	if err := f(dst, pixmap(img)); err != nil {
		return err
	}
	img.Swap(w, h)
	return nil
}

// retype changes the type of an image: f writes its pixels as those of dst.
func retype(img *Pixels, t item.PixelType, f func(dst, src cdec.Pixmap) error) error {
	src := pixmap(img)
	img.Type = t
	dst, err := img.Next(img.W, img.H)
	if err != nil {
		return err
	}
	out := pixmap(img)
	out.Pix = dst
	if err := f(out, src); err != nil {
		return err
	}
	img.Swap(img.W, img.H)
	return nil
}

// simple is an operation without parameters that happens with probability p.
type simple struct {
	named
	p  float64
	do func(cdec.Pixmap) error
}

func simpleOp(name string, p float64, do func(cdec.Pixmap) error) func(*Args) (Op, error) {
	return func(a *Args) (Op, error) { return &simple{named(name), a.Prob("p", p), do}, nil }
}

func (op *simple) Apply(r *Rand, img *Pixels) error {
	if !r.Bool(op.p) {
		return nil
	}
	return op.do(pixmap(img))
}

// require refuses an operation that lacks an argument without default.
func require(a *Args, key, what string) bool {
	if a.Has(key) {
		return true
	}
	a.fail(key, "is missing; it is %s", what)
	return false
}

// isList says whether an argument is a list rather than a number.
func isList(a *Args, key string) bool {
	return bytes.HasPrefix(bytes.TrimSpace(a.Raw(key)), []byte("["))
}

// fillArg returns a fill of one number or one for each channel; has is false when
// there is none (null), which torchvision treats differently from 0 at borders. A
// mask takes a single number only.
func fillArg(a *Args, key string, has bool) cdec.WarpMode {
	m := cdec.WarpMode{HasFill: has}
	if raw, ok := a.vals[key]; ok && bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		m.HasFill = false
		return m
	}
	if !a.Has(key) {
		return m
	}
	m.HasFill = true
	m.Fill = a.color(key, a.Floats(key, nil))
	return m
}

// warpArgs returns interpolation and fill of an operation that warps.
func warpArgs(a *Args, hasFill bool) cdec.WarpMode {
	m := fillArg(a, "fill", hasFill)
	m.Bilinear = a.Choice("interpolation", "nearest", "nearest", "bilinear") == "bilinear" && !a.mask
	return m
}

// angles returns a range of degrees: a number x gives [-x, x].
func angles(a *Args, key string, sizes ...int) []float64 {
	v := a.Floats(key, nil)
	if len(v) == 1 && !isList(a, key) {
		if v[0] < 0 {
			a.fail(key, "must not be negative when it is a single number, it is %v", v[0])
		}
		v = []float64{-v[0], v[0]}
	}
	for _, n := range sizes {
		if len(v) == n {
			for _, x := range v {
				if math.Abs(x) > 1e6 {
					a.fail(key, "is %v, must be between -1e6 and 1e6", x)
				}
			}
			return v
		}
	}
	a.fail(key, "must be a number or a list of %s numbers", sizesText(sizes))
	return make([]float64, sizes[0])
}

func sizesText(sizes []int) string {
	s := fmt.Sprint(sizes[0])
	for _, n := range sizes[1:] {
		s += fmt.Sprintf(" or %d", n)
	}
	return s
}

// centerArg returns the point (x, y) of an optional centre.
func centerArg(a *Args) *[2]float64 {
	if !a.Has("center") {
		return nil
	}
	v := a.Floats("center", nil)
	if len(v) != 2 || math.Abs(v[0]) > 1e6 || math.Abs(v[1]) > 1e6 {
		a.fail("center", "must be two numbers, [x, y]")
		return nil
	}
	return &[2]float64{v[0], v[1]}
}

// parts reads the operations inside a composite one.
func parts(a *Args) ([]Op, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(a.Raw("transforms"), &raw); err != nil || len(raw) == 0 {
		a.fail("transforms", "must be a list of at least one operation")
		return nil, nil
	}
	if len(raw) > maxOps {
		a.fail("transforms", "has %d operations, the limit is %d", len(raw), maxOps)
		return nil, nil
	}
	ops := make([]Op, len(raw))
	for i, r := range raw {
		op, err := a.ParseOp(r)
		if err != nil {
			return nil, err
		}
		if _, ok := op.(storeOp); ok {
			return nil, fmt.Errorf("%s cannot stand inside %s: the type of a batch is the same for all records", opWord(r), a.op)
		}
		if _, ok := op.(Guided); ok {
			return nil, fmt.Errorf("%s cannot stand inside %s", opWord(r), a.op)
		}
		if _, ok := op.(BoxOp); ok {
			return nil, fmt.Errorf("%s cannot stand inside %s: it is done to all records", opWord(r), a.op)
		}
		if t, ok := op.(Retyper); ok && t.OutPixels(a.pixels) != a.pixels {
			return nil, fmt.Errorf("%s to %s cannot stand inside %s: the shape of a batch is the same for all records", opWord(r), t.OutPixels(a.pixels), a.op)
		}
		ops[i] = op
	}
	return ops, nil
}

// opWord is the name in the JSON of an operation.
func opWord(raw json.RawMessage) string {
	var o struct {
		Op string `json:"op"`
	}
	_ = json.Unmarshal(raw, &o) // it was parsed before
	return o.Op
}
