package transform

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Moved describes how an operation moves the pixels of an image, so that boxes and points of a record can follow it.
// (Masks follow by running the same operations, see MaskOp.) It depends only on the size and the random numbers, so it
// is known without the pixels.
type Moved struct {
	// W and H are the size of the image before, OutW and OutH after.
	W, H, OutW, OutH int
	// Forward maps points of the image before to the image after, both
	// measured from the upper left corner, pixels having area.
	Forward cdec.Affine
	// Persp is the lower row of a perspective map: the result of Forward is divided by Persp[0]*x + Persp[1]*y + 1.
	Persp [2]float64
	// bend, if set, replaces Forward: each pixel has its own displacement.
	bend *bend
	// Cuts reports whether boxes are cut at the borders of the image after.
	Cuts bool
	// ShiftX and ShiftY are added to key points: torchvision mirrors them at the centres of pixels, and not at their
	// borders.
	ShiftX, ShiftY float64
}

// still returns the move of an image of w x h pixels that does not move.
func still(w, h int) Moved {
	return Moved{W: w, H: h, OutW: w, OutH: h, Forward: cdec.Affine{1, 0, 0, 0, 1, 0}}
}

// Point returns the new position of a point.
func (m *Moved) Point(x, y float64) (float64, float64) {
	if m.bend != nil {
		return m.bend.point(x, y)
	}
	u, v := m.Forward.Apply(x, y)
	if m.Persp != [2]float64{} {
		d := m.Persp[0]*x + m.Persp[1]*y + 1
		u, v = u/d, v/d
	}
	return u, v
}

// corner returns the new position of a box's corner.
func (m *Moved) corner(x, y float64) (float64, float64) {
	if m.bend != nil {
		return m.bend.corner(x, y)
	}
	return m.Point(x, y)
}

// Box moves a box (x0, y0, x1, y1) as torchvision does: the result is the box around its moved corners, cut at the
// borders of the image if the operation does that.
func (m *Moved) Box(box [4]float64) [4]float64 {
	var out [4]float64
	for i, p := range [4][2]float64{{box[0], box[1]}, {box[2], box[1]}, {box[2], box[3]}, {box[0], box[3]}} {
		x, y := m.corner(p[0], p[1])
		if i == 0 {
			out = [4]float64{x, y, x, y}
		}
		out[0], out[1] = min(out[0], x), min(out[1], y)
		out[2], out[3] = max(out[2], x), max(out[3], y)
	}
	if !m.Cuts {
		return out
	}
	return cutBox(out, m.OutW, m.OutH)
}

// cutBox cuts a box at the borders of an image.
func cutBox(box [4]float64, w, h int) [4]float64 {
	for i := range box {
		limit := float64(w)
		if i%2 == 1 {
			limit = float64(h)
		}
		box[i] = min(max(box[i], 0), limit)
	}
	return box
}

// Moves are the moves of the operations of a list, in order.
type Moves struct {
	Steps []Moved
	// W and H are the size of the image after the steps so far.
	W, H int
}

// begin forgets the steps: the image has w x h pixels.
func (m *Moves) begin(w, h int) { m.Steps, m.W, m.H = m.Steps[:0], w, h }

// add appends a step, unless it does nothing.
func (m *Moves) add(s Moved) {
	m.W, m.H = s.OutW, s.OutH
	if s != still(s.W, s.H) {
		m.Steps = append(m.Steps, s)
	}
}

// Point returns the position of a point after all steps.
func (m *Moves) Point(x, y float64) (float64, float64) {
	for i := range m.Steps {
		x, y = m.Steps[i].Point(x, y)
	}
	return x, y
}

// Mover is implemented by every PixelOp that moves pixels. Move draws the same numbers as Apply for an image of the
// size of m, and adds the move.
type Mover interface {
	Move(r *Rand, m *Moves) error
}

// moveOp adds the move of an operation of any kind.
func moveOp(op Op, r *Rand, m *Moves) error {
	switch op := op.(type) {
	case GeometryOp:
		s := op.Draw(r, m.W, m.H)
		s.moved(m)
		return s.Err
	case Mover:
		return op.Move(r, m)
	}
	return nil
}

// Move computes the moves of a program's operations for record id, an image of w x h pixels.
func (p *Program) Move(m *Moves, seed uint64, epoch, id int64, w, h int) error {
	return p.follow(m, nil, recordKey(seed, epoch, id, p.key), w, h)
}

// follow computes the moves of a record. If places is not nil, it moves them and runs the operations on boxes.
func (p *Program) follow(m *Moves, places *Places, base uint64, w, h int) error {
	return p.followOps(p.ops, m, places, base, w, h)
}

// followOps is follow for the first operations of the program.
func (p *Program) followOps(ops []Op, m *Moves, places *Places, base uint64, w, h int) error {
	if w < 1 || h < 1 || w > maxSide || h > maxSide {
		return fmt.Errorf("image of %dx%d pixels", w, h)
	}
	m.begin(w, h)
	done := 0
	for i, op := range ops {
		if op == nil {
			continue
		}
		if g, ok := op.(Guided); ok && places != nil {
			places.move(m.Steps[done:])
			done = len(m.Steps)
			r := opRand(base, i)
			s, inside := g.DrawAround(&r, m.W, m.H, places.Boxes)
			s.moved(m)
			places.move(m.Steps[done:])
			done = len(m.Steps)
			for k, in := range inside {
				if !in {
					places.Boxes[k] = [4]float32{}
				}
			}
			continue
		}
		if b, ok := op.(BoxOp); ok {
			if places != nil {
				places.move(m.Steps[done:])
				places.w, places.h = m.W, m.H
				done = len(m.Steps)
				b.ApplyBoxes(places)
			}
			continue
		}
		r := opRand(base, i)
		if err := moveOp(op, &r, m); err != nil {
			return err
		}
	}
	if places != nil {
		places.move(m.Steps[done:])
		places.w, places.h = m.W, m.H
	}
	return nil
}

// moved adds the move of a geometric step.
func (s *Step) moved(m *Moves) {
	if s.HasCrop {
		d := still(m.W, m.H)
		d.Forward[2], d.Forward[5] = -float64(s.X), -float64(s.Y)
		d.OutW, d.OutH, d.Cuts = s.W, s.H, true
		m.add(d)
	}
	if s.HasResize {
		d := still(m.W, m.H)
		d.Forward[0], d.Forward[4] = float64(s.RW)/float64(m.W), float64(s.RH)/float64(m.H)
		if s.Scale > 0 {
			d.Forward[0], d.Forward[4] = s.Scale, s.Scale
		}
		d.OutW, d.OutH = s.RW, s.RH
		m.add(d)
	}
	if s.HasPad {
		d := still(m.W, m.H)
		d.Forward[2], d.Forward[5] = float64(s.PadX), float64(s.PadY)
		d.OutW, d.OutH = s.PadW, s.PadH
		m.add(d)
	}
	if s.FlipH || s.FlipV {
		d := still(m.W, m.H)
		if s.FlipH {
			d.Forward[0], d.Forward[2], d.ShiftX = -1, float64(m.W), -1
		}
		if s.FlipV {
			d.Forward[4], d.Forward[5], d.ShiftY = -1, float64(m.H), -1
		}
		m.add(d)
	}
}

// moved returns the move of a warp in an image of w x h pixels.
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
	m.Forward, m.Cuts = f, true
	if d.expand {
		// torchvision has the turned image begin at its outermost corner, and
		// not in the middle of the pixels that it is rounded up to.
		lo := [2]float64{math.Inf(1), math.Inf(1)}
		for _, p := range [4][2]float64{{0, 0}, {float64(w), 0}, {float64(w), float64(h)}, {0, float64(h)}} {
			x, y := f.Apply(p[0], p[1])
			lo[0], lo[1] = min(lo[0], x), min(lo[1], y)
		}
		m.Forward[2] -= lo[0]
		m.Forward[5] -= lo[1]
	}
	return m
}

// Move makes it a Mover.
func (op *randomRotation) Move(r *Rand, m *Moves) error {
	d := op.draw(r, m.W, m.H)
	m.add(d.moved(m.W, m.H))
	return nil
}

// Move makes it a Mover.
func (op *randomAffine) Move(r *Rand, m *Moves) error {
	d := op.draw(r, m.W, m.H)
	m.add(d.moved(m.W, m.H))
	return nil
}

// Move makes it a Mover.
func (op *paddedCrop) Move(r *Rand, m *Moves) error {
	s := op.crop.Draw(r, m.W, m.H)
	s.moved(m)
	return s.Err
}

// movePart is moveOp of part i.
func movePart(op Op, i int, r *Rand, m *Moves) error {
	return withPart(r, i, func() error { return moveOp(op, r, m) })
}

// Move makes it a Mover.
func (op *compose) Move(r *Rand, m *Moves) error {
	if !r.Bool(op.p) {
		return nil
	}
	for i, part := range op.parts {
		if err := movePart(part, i, r, m); err != nil {
			return err
		}
	}
	return nil
}

// Move makes it a Mover.
func (op *randomChoice) Move(r *Rand, m *Moves) error {
	i := pick(op.upto, r.Float64())
	return movePart(op.parts[i], i, r, m)
}

// Move makes it a Mover.
func (op *randomOrder) Move(r *Rand, m *Moves) error {
	order := make([]int, len(op.parts))
	r.Perm(order)
	for _, i := range order {
		if err := movePart(op.parts[i], i, r, m); err != nil {
			return err
		}
	}
	return nil
}

// Move makes it a Mover.
func (op *randAugment) Move(r *Rand, m *Moves) error {
	for range op.n {
		which := r.IntN(polInvert)
		v, signed := autoSpace.magnitude(which, op.bins, op.magnitude, m.W, m.H)
		policyMoved(which, drawSign(r, v, signed), m)
	}
	return nil
}

// Move makes it a Mover.
func (op *trivialAugment) Move(r *Rand, m *Moves) error {
	which, step := r.IntN(polInvert), r.IntN(op.bins)
	v, signed := wideSpace.magnitude(which, op.bins, step, m.W, m.H)
	policyMoved(which, drawSign(r, v, signed), m)
	return nil
}

// Move makes it a Mover.
func (op *autoAugment) Move(r *Rand, m *Moves) error {
	for _, e := range op.policies[r.IntN(len(op.policies))] {
		if !r.Bool(e.p) {
			continue
		}
		v, signed := autoSpace.magnitude(e.op, autoBins, e.magnitude, m.W, m.H)
		policyMoved(e.op, drawSign(r, v, signed), m)
	}
	return nil
}

func policyMoved(op int, v float64, m *Moves) {
	if d, moves := policyWarp(op, v, m.W, m.H); moves {
		m.add(d.moved(m.W, m.H))
	}
}
