package transform

import (
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
)

// randomPerspective is torchvision's RandomPerspective.
type randomPerspective struct {
	named
	scale, p float64
	mode     cdec.WarpMode
}

var perspectiveSpec = Spec{
	Name: "RandomPerspective", Doc: "Change the perspective at random: each corner moves inwards.",
	Params: []Param{
		{Name: "distortion_scale", Type: Float, Default: 0.5, Range: between(0, 1), Help: "largest move of a corner, as a fraction of half the width and height"},
		probability(0.5), interpolation("bilinear", "nearest", "bilinear"), fill(0.0, true),
	},
	Kinds: moved, Returns: sameShape, Example: "T.RandomPerspective(0.2)", image: buildPerspective,
}

func buildPerspective(a *Args) (Op, error) {
	op := &randomPerspective{named: "RandomPerspective"}
	op.scale, op.p, op.mode = a.Float("distortion_scale"), a.Float("p"), warpArgs(a)
	return op, nil
}

// draw returns the map from pixels of the image after to their sources: x = (c0 x + c1 y + c2) / d, with d = c6 x + c7
// y + 1, and y likewise. ok is false if the image stays unchanged.
func (op *randomPerspective) draw(r *Rand, w, h int) (c [8]float64, ok bool) {
	if !r.Bool(op.p) {
		return c, false
	}
	bw, bh := int(op.scale*float64(w/2))+1, int(op.scale*float64(h/2))+1
	var to [4][2]float64 // where the corners go: upper left, upper right, lower right, lower left
	for i, right := range [4]bool{false, true, true, false} {
		x, y := r.IntN(bw), r.IntN(bh)
		if right {
			x += w - bw
		}
		if i >= 2 {
			y += h - bh
		}
		to[i] = [2]float64{float64(x), float64(y)}
	}
	from := [4][2]float64{{0, 0}, {float64(w - 1), 0}, {float64(w - 1), float64(h - 1)}, {0, float64(h - 1)}}
	return perspective(to, from)
}

// perspective returns the map that takes four points to four others. ok is false if there is none because three of them
// are on a line.
func perspective(from, to [4][2]float64) (c [8]float64, ok bool) {
	var m [8][9]float64
	for i := range from {
		x, y, u, v := from[i][0], from[i][1], to[i][0], to[i][1]
		m[2*i] = [9]float64{x, y, 1, 0, 0, 0, -u * x, -u * y, u}
		m[2*i+1] = [9]float64{0, 0, 0, x, y, 1, -v * x, -v * y, v}
	}
	for k := range 8 { // Gauss, with the largest pivot
		best := k
		for i := k + 1; i < 8; i++ {
			if math.Abs(m[i][k]) > math.Abs(m[best][k]) {
				best = i
			}
		}
		if math.Abs(m[best][k]) < 1e-9 {
			return c, false
		}
		m[k], m[best] = m[best], m[k]
		for i := range 8 {
			if i == k {
				continue
			}
			f := m[i][k] / m[k][k]
			for j := k; j < 9; j++ {
				m[i][j] -= f * m[k][j]
			}
		}
	}
	for k := range c {
		c[k] = m[k][8] / m[k][k]
	}
	return c, true
}

func (op *randomPerspective) Apply(r *Rand, img *Pixels) error {
	c, ok := op.draw(r, img.W, img.H)
	if !ok {
		return nil
	}
	return replace(img, img.W, img.H, func(dst, src cdec.Pixmap) error {
		if src.Pillow {
			var m cdec.PillowMap
			for i, v := range c { // as torchvision rounds them
				m[i] = float64(float32(v))
			}
			return cdec.PillowWarp(dst, src, m, op.mode)
		}
		return cdec.Remap(dst, src, op.mode, func(row int, xs, ys []float32) {
			y := float64(row) + 0.5
			for i := range xs {
				x := float64(i) + 0.5
				d := c[6]*x + c[7]*y + 1
				xs[i] = point((c[0]*x+c[1]*y+c[2])/d - 0.5)
				ys[i] = point((c[3]*x+c[4]*y+c[5])/d - 0.5)
			}
		})
	})
}

// point returns a coordinate for kernels. A coordinate far outside stays outside, and NaN is outside.
func point(v float64) float32 {
	if !(math.Abs(v) < 1e6) {
		return -1e6
	}
	return float32(v)
}

// ApplyMask makes it a MaskOp.
func (op *randomPerspective) ApplyMask(r *Rand, img *Pixels) error { return op.Apply(r, img) }

// Move makes it a Mover.
func (op *randomPerspective) Move(r *Rand, m *Moves) error {
	c, ok := op.draw(r, m.W, m.H)
	if !ok {
		return nil
	}
	d := still(m.W, m.H)
	det := c[0]*c[4] - c[1]*c[3]
	d.Forward = cdec.Affine{
		(c[4] - c[5]*c[7]) / det, (-c[1] + c[2]*c[7]) / det, (c[1]*c[5] - c[2]*c[4]) / det,
		(-c[3] + c[5]*c[6]) / det, (c[0] - c[2]*c[6]) / det, (-c[0]*c[5] + c[2]*c[3]) / det,
	}
	d.Persp = [2]float64{(-c[4]*c[6] + c[3]*c[7]) / det, (-c[0]*c[7] + c[1]*c[6]) / det}
	d.Cuts = true
	m.add(d)
	return nil
}
