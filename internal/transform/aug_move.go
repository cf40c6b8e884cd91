package transform

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Moved is where an operation takes the pixels of an image: what boxes and
// points of a record need to follow it. (Masks follow by running the same
// operations, see MaskOp.) It is drawn from the size and the random numbers
// alone, so it is known without the pixels.
type Moved struct {
	// W and H are the size of the image before, OutW and OutH after.
	W, H, OutW, OutH int
	// Forward maps points of the image before to the image after, both
	// measured from the upper left corner, pixels having area.
	Forward cdec.Affine
}

// still is an image of w x h pixels that stays where it is.
func still(w, h int) Moved {
	return Moved{W: w, H: h, OutW: w, OutH: h, Forward: cdec.Affine{1, 0, 0, 0, 1, 0}}
}

// then is m followed by n.
func (m Moved) then(n Moved) Moved {
	a, b := m.Forward, n.Forward
	x, y := b.Apply(a[2], a[5])
	return Moved{W: m.W, H: m.H, OutW: n.OutW, OutH: n.OutH, Forward: cdec.Affine{
		b[0]*a[0] + b[1]*a[3], b[0]*a[1] + b[1]*a[4], x,
		b[3]*a[0] + b[4]*a[3], b[3]*a[1] + b[4]*a[4], y,
	}}
}

// Box moves a box (x0, y0, x1, y1) as torchvision does: the box around its
// moved corners, cut at the borders of the image.
func (m *Moved) Box(box [4]float64) [4]float64 {
	var out [4]float64
	for i, p := range [4][2]float64{{box[0], box[1]}, {box[2], box[1]}, {box[2], box[3]}, {box[0], box[3]}} {
		x, y := m.Forward.Apply(p[0], p[1])
		if i == 0 {
			out = [4]float64{x, y, x, y}
		}
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

// Mover is implemented by every PixelOp that moves pixels. Move draws what
// Apply would draw for an image of w x h pixels.
type Mover interface {
	Move(r *Rand, w, h int) (Moved, error)
}

// moveOp is what an operation of any kind does to the place of things.
func moveOp(op Op, r *Rand, w, h int) (Moved, error) {
	switch op := op.(type) {
	case GeometryOp:
		s := op.Draw(r, w, h)
		return s.moved(w, h), s.Err
	case Mover:
		return op.Move(r, w, h)
	}
	return still(w, h), nil
}

// Move says where the operations of a program take the pixels of record id, an
// image of w x h pixels.
func (p *Program) Move(seed uint64, epoch, id int64, w, h int) (Moved, error) {
	if w < 1 || h < 1 || w > maxSide || h > maxSide {
		return Moved{}, fmt.Errorf("image of %dx%d pixels", w, h)
	}
	base := recordKey(seed, epoch, id, p.key)
	all := still(w, h)
	for i, op := range p.ops {
		if op == nil {
			continue
		}
		r := opRand(base, i)
		m, err := moveOp(op, &r, all.OutW, all.OutH)
		if err != nil {
			return Moved{}, err
		}
		all = all.then(m)
	}
	return all, nil
}

// moved is where a geometric step takes things.
func (s *Step) moved(w, h int) Moved {
	m := still(w, h)
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

// moved is where a warp takes things in an image of w x h pixels.
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

// Move makes it a Mover.
func (op *randomRotation) Move(r *Rand, w, h int) (Moved, error) {
	d := op.draw(r, w, h)
	return d.moved(w, h), nil
}

// Move makes it a Mover.
func (op *randomAffine) Move(r *Rand, w, h int) (Moved, error) {
	d := op.draw(r, w, h)
	return d.moved(w, h), nil
}

// Move makes it a Mover.
func (op *paddedCrop) Move(r *Rand, w, h int) (Moved, error) {
	s := op.crop.Draw(r, w, h)
	return s.moved(w, h), s.Err
}

// movePart is moveOp of part i.
func movePart(op Op, i int, r *Rand, w, h int) (m Moved, err error) {
	err = withPart(r, i, func() error {
		m, err = moveOp(op, r, w, h)
		return err
	})
	return m, err
}

// Move makes it a Mover.
func (op *compose) Move(r *Rand, w, h int) (Moved, error) {
	all := still(w, h)
	if !r.Bool(op.p) {
		return all, nil
	}
	for i, part := range op.parts {
		m, err := movePart(part, i, r, all.OutW, all.OutH)
		if err != nil {
			return all, err
		}
		all = all.then(m)
	}
	return all, nil
}

// Move makes it a Mover.
func (op *randomChoice) Move(r *Rand, w, h int) (Moved, error) {
	i := pick(op.upto, r.Float64())
	return movePart(op.parts[i], i, r, w, h)
}

// Move makes it a Mover.
func (op *randomOrder) Move(r *Rand, w, h int) (Moved, error) {
	all := still(w, h)
	order := make([]int, len(op.parts))
	r.Perm(order)
	for _, i := range order {
		m, err := movePart(op.parts[i], i, r, all.OutW, all.OutH)
		if err != nil {
			return all, err
		}
		all = all.then(m)
	}
	return all, nil
}

// Move makes it a Mover.
func (op *randAugment) Move(r *Rand, w, h int) (Moved, error) {
	all := still(w, h)
	for range op.n {
		which := r.IntN(polInvert)
		m, signed := autoSpace.magnitude(which, op.bins, op.magnitude, w, h)
		all = all.then(policyMoved(which, drawSign(r, m, signed), w, h))
	}
	return all, nil
}

// Move makes it a Mover.
func (op *trivialAugment) Move(r *Rand, w, h int) (Moved, error) {
	which, step := r.IntN(polInvert), r.IntN(op.bins)
	m, signed := wideSpace.magnitude(which, op.bins, step, w, h)
	return policyMoved(which, drawSign(r, m, signed), w, h), nil
}

// Move makes it a Mover.
func (op *autoAugment) Move(r *Rand, w, h int) (Moved, error) {
	all := still(w, h)
	for _, e := range op.policies[r.IntN(len(op.policies))] {
		if !r.Bool(e.p) {
			continue
		}
		m, signed := autoSpace.magnitude(e.op, autoBins, e.magnitude, w, h)
		all = all.then(policyMoved(e.op, drawSign(r, m, signed), w, h))
	}
	return all, nil
}

func policyMoved(op int, m float64, w, h int) Moved {
	if d, moves := policyWarp(op, m, w, h); moves {
		return d.moved(w, h)
	}
	return still(w, h)
}
