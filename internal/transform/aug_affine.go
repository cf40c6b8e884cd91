package transform

import (
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Moved is where an operation that warps takes things: what a record's masks
// and boxes need to follow its image. An operation draws it from the size and
// its random numbers alone, so an output that draws the same numbers moves
// alike.
type Moved struct {
	// W and H are the size of the image before, OutW and OutH after.
	W, H, OutW, OutH int
	// Forward maps pixel corners of the image before to the image after, both
	// from the upper left corner.
	Forward cdec.Affine
}

// Box moves a box (x0, y0, x1, y1) as torchvision does: the box around its
// moved corners, cut at the borders of the image.
func (m *Moved) Box(box [4]float64) [4]float64 {
	out := [4]float64{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
	for _, p := range [4][2]float64{{box[0], box[1]}, {box[2], box[1]}, {box[2], box[3]}, {box[0], box[3]}} {
		x, y := m.Forward.Apply(p[0], p[1])
		out[0], out[1] = min(out[0], x), min(out[1], y)
		out[2], out[3] = max(out[2], x), max(out[3], y)
	}
	for i := range out {
		limit := float64(m.OutW)
		if i%2 == 1 {
			limit = float64(m.OutH)
		}
		out[i] = min(max(out[i], 0), limit)
	}
	return out
}

// Mover is implemented by the operations that warp. Move draws what Apply
// would draw for an image of w x h pixels and says where that takes a point.
type Mover interface {
	Move(r *Rand, w, h int) Moved
}

// warp is a drawn affine map: either a number of quarter turns or params, with
// its centre from the middle of the image.
type warp struct {
	turns      int // quarter turns anticlockwise; then the rest is unused
	params     cdec.AffineParams
	outW, outH int
}

func (d *warp) apply(img *Pixels, mode cdec.WarpMode) error {
	if d.turns == 4 {
		return nil
	}
	return replace(img, d.outW, d.outH, func(dst, src cdec.Pixmap) error {
		if d.turns > 0 {
			return cdec.Rotate90(dst, src, d.turns)
		}
		return cdec.Warp(dst, src, d.params.Inverse(), mode)
	})
}

func (d *warp) moved(w, h int) Moved {
	m := Moved{W: w, H: h, OutW: d.outW, OutH: d.outH}
	f := d.params.Matrix()
	if d.turns > 0 {
		turn := cdec.AffineParams{Angle: -90 * float64(d.turns), Scale: 1}
		f = turn.Matrix()
	}
	// From centred coordinates to those of corners.
	cx, cy := float64(w)/2, float64(h)/2
	f[2] += float64(d.outW)/2 - f[0]*cx - f[1]*cy
	f[5] += float64(d.outH)/2 - f[3]*cx - f[4]*cy
	m.Forward = f
	return m
}

// rotation is torchvision's rotate: whole quarter turns are exact where the
// result keeps its shape or may grow.
func rotation(angle float64, w, h int, expand bool, center *[2]float64) warp {
	angle = math.Mod(angle, 360)
	if angle < 0 {
		angle += 360
	}
	d := warp{outW: w, outH: h}
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

func buildRotation(a *Args) (Op, error) {
	op := &randomRotation{named: "RandomRotation"}
	if !require(a, "degrees", "a number x for [-x, x], or [min, max]") {
		return op, nil
	}
	v := angles(a, "degrees", 2)
	op.lo, op.hi = v[0], v[1]
	op.expand = a.Bool("expand", false)
	op.center = centerArg(a)
	op.mode = warpArgs(a, true)
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

// Move makes it a Mover.
func (op *randomRotation) Move(r *Rand, w, h int) Moved {
	d := op.draw(r, w, h)
	return d.moved(w, h)
}

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

func buildAffine(a *Args) (Op, error) {
	op := &randomAffine{named: "RandomAffine"}
	if !require(a, "degrees", "a number x for [-x, x], or [min, max]; 0 does not rotate") {
		return op, nil
	}
	v := angles(a, "degrees", 2)
	op.lo, op.hi = v[0], v[1]
	if a.Has("translate") {
		op.translate = a.Floats("translate", nil)
		if len(op.translate) != 2 {
			a.fail("translate", "must be two numbers")
			return op, nil
		}
		for _, t := range op.translate {
			if !(t >= 0 && t <= 1) {
				a.fail("translate", "must be between 0 and 1, not %v", t)
			}
		}
	}
	if a.Has("scale") {
		op.scale = a.Floats("scale", nil)
		if len(op.scale) != 2 {
			a.fail("scale", "must be two numbers")
			return op, nil
		}
		for _, s := range op.scale {
			if !(s > 1e-6 && s < 1e6) {
				a.fail("scale", "must be positive, it is %v", s)
			}
		}
	}
	if a.Has("shear") {
		op.shear = angles(a, "shear", 2, 4)
		for _, s := range op.shear {
			if math.Abs(s) >= 90 {
				a.fail("shear", "must be between -90 and 90 degrees, it is %v", s)
			}
		}
	}
	op.center = centerArg(a)
	op.mode = warpArgs(a, true)
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

// Move makes it a Mover.
func (op *randomAffine) Move(r *Rand, w, h int) Moved {
	d := op.draw(r, w, h)
	return d.moved(w, h)
}

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
		return cdec.Window(dst, src, s.X, s.Y, op.mode, s.Fill)
	})
}

// ApplyMask makes it a MaskOp.
func (op *paddedCrop) ApplyMask(r *Rand, img *Pixels) error { return op.Apply(r, img) }

// OutSize makes it a Sizer.
func (op *paddedCrop) OutSize(w, h int) (int, int) { return op.crop.OutSize(w, h) }

// Move makes it a Mover.
func (op *paddedCrop) Move(r *Rand, w, h int) Moved {
	s := op.crop.Draw(r, w, h)
	return s.moved(w, h)
}

// moved is where a geometric step takes things.
func (s *Step) moved(w, h int) Moved {
	m := Moved{W: w, H: h, OutW: w, OutH: h, Forward: cdec.Affine{1, 0, 0, 0, 1, 0}}
	f := &m.Forward
	if s.HasCrop {
		f[2], f[5] = -float64(s.X), -float64(s.Y)
		m.OutW, m.OutH = s.W, s.H
	}
	if s.HasResize {
		kx, ky := float64(s.RW)/float64(m.OutW), float64(s.RH)/float64(m.OutH)
		f[0], f[2], f[4], f[5] = f[0]*kx, f[2]*kx, f[4]*ky, f[5]*ky
		m.OutW, m.OutH = s.RW, s.RH
	}
	if s.FlipH {
		f[0], f[2] = -f[0], float64(m.OutW)-f[2]
	}
	if s.FlipV {
		f[4], f[5] = -f[4], float64(m.OutH)-f[5]
	}
	return m
}
