package transform

import (
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
)

// warp is a drawn affine map: either a number of quarter turns or params, with
// its centre from the middle of the image.
type warp struct {
	turns      int // quarter turns anticlockwise; then the rest is unused
	params     cdec.AffineParams
	outW, outH int
	expand     bool // the size is that of the turned image
	rotates    bool // only that, by -params.Angle
}

func (d *warp) apply(img *Pixels, mode cdec.WarpMode) error {
	if d.turns == 4 {
		return nil
	}
	return replace(img, d.outW, d.outH, func(dst, src cdec.Pixmap) error {
		if d.turns > 0 {
			return cdec.Rotate90(dst, src, d.turns)
		}
		if src.Pillow {
			return cdec.PillowWarp(dst, src, d.pillow(src.W, src.H), mode)
		}
		return cdec.Warp(dst, src, d.params.Inverse(), mode)
	})
}

// pillow is the map of an image of w x h pixels as Pillow gets it.
func (d *warp) pillow(w, h int) cdec.PillowMap {
	if d.rotates {
		return cdec.PillowRotation(-d.params.Angle, d.params.CX+float64(w)/2, d.params.CY+float64(h)/2)
	}
	return cdec.PillowAffine(&d.params, w, h)
}

// rotation is torchvision's rotate: whole quarter turns are exact if the result keeps its shape or may grow.
func rotation(angle float64, w, h int, expand bool, center *[2]float64) warp {
	angle = math.Mod(angle, 360)
	if angle < 0 {
		angle += 360
	}
	d := warp{outW: w, outH: h, expand: expand, rotates: true}
	if center == nil && math.Mod(angle, 90) == 0 {
		turns := int(angle / 90)
		if turns%2 == 0 || expand || w == h {
			if turns == 0 {
				turns = 4
			}
			d.turns = turns
			if turns%2 == 1 {
				d.outW, d.outH = h, w
			}
			return d
		}
	}
	// The angle of affine turns the other way.
	d.params = cdec.AffineParams{Angle: -angle, Scale: 1}
	setCenter(&d.params, center, w, h)
	if expand {
		d.outW, d.outH = cdec.RotatedSize(d.params.Inverse(), w, h)
	}
	return d
}

func setCenter(p *cdec.AffineParams, center *[2]float64, w, h int) {
	if center != nil {
		p.CX, p.CY = center[0]-float64(w)/2, center[1]-float64(h)/2
	}
}

// randomRotation is torchvision's RandomRotation.
type randomRotation struct {
	named
	lo, hi float64
	expand bool
	center *[2]float64
	mode   cdec.WarpMode
}

var rotationSpec = Spec{
	Name: "RandomRotation", Doc: "Rotate by a random angle.",
	Params: []Param{
		{Name: "degrees", Type: Float, Required: true, Unit: "degrees", Single: true, Counts: []int{2}, Form: "(min, max)", Alone: between(0, 1e6), Range: between(-1e6, 1e6), Help: "anticlockwise angle: x is from -x to x"},
		interpolation("nearest", "nearest", "bilinear"),
		{Name: "expand", Type: Bool, Default: false, Help: "enlarge the image so that all of it is visible; then add a transform that fixes the size"},
		center, fill(0.0, true),
	},
	Kinds: moved, Returns: sameShape + " With `expand`, height and width differ per record.", Example: "T.RandomRotation(15)", image: buildRotation,
}

func buildRotation(a *Args) (Op, error) {
	op := &randomRotation{named: "RandomRotation"}
	v := a.Spread("degrees", 0)
	op.lo, op.hi = v[0], v[1]
	op.expand = a.Bool("expand")
	if op.expand && a.pillow {
		a.fail("expand", "is not done as Pillow does it")
	}
	op.center = centerArg(a)
	op.mode = warpArgs(a)
	return op, nil
}

func (op *randomRotation) draw(r *Rand, w, h int) warp {
	return rotation(r.Uniform(op.lo, op.hi), w, h, op.expand, op.center)
}

func (op *randomRotation) Apply(r *Rand, img *Pixels) error {
	d := op.draw(r, img.W, img.H)
	return d.apply(img, op.mode)
}

// ApplyMask makes it a MaskOp.
func (op *randomRotation) ApplyMask(r *Rand, img *Pixels) error { return op.Apply(r, img) }

// OutSize makes it a Sizer: with expand the size depends on the angle.
func (op *randomRotation) OutSize(w, h int) (int, int) {
	if !op.expand {
		return w, h
	}
	if op.lo != op.hi || w == 0 || h == 0 {
		return 0, 0
	}
	d := rotation(op.lo, w, h, true, op.center)
	return d.outW, d.outH
}

// randomAffine is torchvision's RandomAffine.
type randomAffine struct {
	named
	lo, hi           float64
	translate, scale []float64
	shear            []float64
	center           *[2]float64
	mode             cdec.WarpMode
}

var affineSpec = Spec{
	Name: "RandomAffine", Doc: "Rotate, move, scale and shear at random.",
	Params: []Param{
		{Name: "degrees", Type: Float, Required: true, Unit: "degrees", Single: true, Counts: []int{2}, Form: "(min, max)", Alone: between(0, 1e6), Range: between(-1e6, 1e6), Help: "clockwise angle: x is from -x to x, and 0 does not rotate"},
		{Name: "translate", Type: Float, Optional: true, Counts: []int{2}, Form: "(a, b)", Range: between(0, 1), Help: "largest shift, as fractions of width and height"},
		{Name: "scale", Type: Float, Optional: true, Counts: []int{2}, Form: "(min, max)", Range: within(1e-6, 1e6), Help: "factor"},
		{Name: "shear", Type: Float, Optional: true, Unit: "degrees", Single: true, Counts: []int{2, 4}, Form: "(min, max), or (min x, max x, min y, max y)", Alone: belowFrom(0, 90), Range: within(-90, 90),
			Help: "angle: x is from -x to x along the x axis"},
		interpolation("nearest", "nearest", "bilinear"), fill(0.0, true), center,
	},
	Kinds: moved, Returns: sameShape, Example: "T.RandomAffine(10, translate=(0.1, 0.1))", image: buildAffine,
}

func buildAffine(a *Args) (Op, error) {
	op := &randomAffine{named: "RandomAffine"}
	v := a.Spread("degrees", 0)
	op.lo, op.hi = v[0], v[1]
	op.translate, op.scale = a.Floats("translate"), a.Floats("scale")
	if a.Has("shear") {
		op.shear = a.Spread("shear", 0)
	}
	op.center = centerArg(a)
	op.mode = warpArgs(a)
	return op, nil
}

func (op *randomAffine) draw(r *Rand, w, h int) warp {
	d := warp{outW: w, outH: h, params: cdec.AffineParams{Scale: 1}}
	p := &d.params
	p.Angle = r.Uniform(op.lo, op.hi)
	if op.translate != nil {
		dx, dy := op.translate[0]*float64(w), op.translate[1]*float64(h)
		p.TX = math.RoundToEven(r.Uniform(-dx, dx))
		p.TY = math.RoundToEven(r.Uniform(-dy, dy))
	}
	if op.scale != nil {
		p.Scale = r.Uniform(op.scale[0], op.scale[1])
	}
	if op.shear != nil {
		p.SX = r.Uniform(op.shear[0], op.shear[1])
		if len(op.shear) == 4 {
			p.SY = r.Uniform(op.shear[2], op.shear[3])
		}
	}
	setCenter(p, op.center, w, h)
	return d
}

func (op *randomAffine) Apply(r *Rand, img *Pixels) error {
	d := op.draw(r, img.W, img.H)
	return d.apply(img, op.mode)
}

// ApplyMask makes it a MaskOp.
func (op *randomAffine) ApplyMask(r *Rand, img *Pixels) error { return op.Apply(r, img) }

// paddedCrop is RandomCrop with a padding that shows the image: unlike a
// constant one it cannot be fused.
type paddedCrop struct {
	named
	crop *randomCrop
	mode cdec.PadMode
}

var padModes = map[string]cdec.PadMode{
	"constant": cdec.PadConstant, "edge": cdec.PadEdge, "reflect": cdec.PadReflect, "symmetric": cdec.PadSymmetric,
}

func (op *paddedCrop) Apply(r *Rand, img *Pixels) error {
	s := op.crop.Draw(r, img.W, img.H)
	if s.Err != nil {
		return s.Err
	}
	return replace(img, s.W, s.H, func(dst, src cdec.Pixmap) error {
		return cdec.Window(dst, src, s.X, s.Y, op.mode, s.Fill[:])
	})
}

// ApplyMask makes it a MaskOp.
func (op *paddedCrop) ApplyMask(r *Rand, img *Pixels) error { return op.Apply(r, img) }

// OutSize makes it a Sizer.
func (op *paddedCrop) OutSize(w, h int) (int, int) { return op.crop.OutSize(w, h) }
