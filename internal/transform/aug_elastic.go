package transform

import (
	"math"
	"sync"

	"github.com/stokerdata/stoker/internal/cdec"
)

// elasticTransform is torchvision's ElasticTransform: every pixel is moved by noise
// that a Gaussian has smoothed.
type elasticTransform struct {
	named
	alpha, sigma [2]float64
	mode         cdec.WarpMode
	spare        sync.Pool // of fields
}

var elasticSpec = Spec{
	Name: "ElasticTransform", Doc: "Move every pixel by smoothed noise.", More: "Boxes and key points move by the opposite of the displacement at their position, as in torchvision.",
	Params: []Param{
		{Name: "alpha", Type: Float, Default: 50.0, Unit: "pixels", Single: true, Counts: []int{1, 2}, Form: "(x, y)", Range: between(-1e5, 1e5), Help: "strength of the noise"},
		{Name: "sigma", Type: Float, Default: 5.0, Unit: "pixels", Single: true, Counts: []int{1, 2}, Form: "(x, y)", Range: between(0, cdec.MaxBlurKernel/8), Help: "smoothness of the noise"},
		interpolation("bilinear", "nearest", "bilinear"), fill(0.0, true),
	},
	Kinds: moved, Returns: sameShape, Example: "T.ElasticTransform()", image: buildElastic,
}

func buildElastic(a *Args) (Op, error) {
	op := &elasticTransform{named: "ElasticTransform"}
	op.alpha[0], op.alpha[1] = a.Pair("alpha")
	op.sigma[0], op.sigma[1] = a.Pair("sigma")
	op.mode = warpArgs(a)
	return op, nil
}

// elasticKernel is the number of taps that smooth noise of a sigma: 1 for none.
func elasticKernel(sigma float64) int {
	if sigma <= 0 {
		return 1
	}
	return int(8*sigma+1) | 1
}

// bend is the displacement of the pixels of an image, in pixels. The noise under it is a function of the position, so
// that a single point takes no more than its neighbourhood.
type bend struct {
	w, h  int
	keys  [2]uint64
	scale [2]float64
	taps  [2][2][]float64 // by axis of the displacement, then by axis of the image
}

func (op *elasticTransform) draw(r *Rand, w, h int) (*bend, error) {
	b := &bend{w: w, h: h}
	for axis := range b.keys {
		b.keys[axis] = r.Uint64()
		// In the coordinates of grid_sample the sides are 2; alpha is divided by them.
		b.scale[axis] = op.alpha[axis] / 2
		k := elasticKernel(op.sigma[axis])
		if k/2 >= w || k/2 >= h {
			return nil, &cdec.Error{Kind: cdec.ErrArgument, Msg: "ElasticTransform: sigma is too large for so small an image"}
		}
		if op.sigma[axis] <= 0 {
			b.taps[axis] = [2][]float64{{1}, {1}}
			continue
		}
		for side := range 2 {
			b.taps[axis][side] = gaussTaps(k, op.sigma[side])
		}
	}
	return b, nil
}

// gaussTaps are the weights of torchvision's gaussian_blur, from the first to the last.
func gaussTaps(k int, sigma float64) []float64 {
	taps, sum := make([]float64, k), 0.0
	for i := range taps {
		x := float64(i - k/2)
		if sigma > 0 {
			x *= math.Sqrt2 / 2 / sigma
			taps[i] = math.Exp(-x * x)
		} else if x == 0 {
			taps[i] = 1
		}
		sum += taps[i]
	}
	for i := range taps {
		taps[i] /= sum
	}
	return taps
}

// noise is uniform in [-1, 1), by place.
func (b *bend) noise(axis, x, y int) float64 {
	v := mix64(b.keys[axis] + uint64(y*b.w+x+1)*golden)
	return float64(v>>40)*(2.0/(1<<24)) - 1
}

// reflected is a place beyond the borders, mirrored at the outermost pixels.
func reflected(i, n int) int {
	if i < 0 {
		i = -i
	}
	if i >= n {
		i = 2*(n-1) - i
	}
	return i
}

// at returns the displacement of a pixel.
func (b *bend) at(axis, x, y int) float64 {
	tx, ty := b.taps[axis][0], b.taps[axis][1]
	sum := 0.0
	for j, wy := range ty {
		line, yy := 0.0, reflected(y+j-len(ty)/2, b.h)
		for i, wx := range tx {
			line += wx * b.noise(axis, reflected(x+i-len(tx)/2, b.w), yy)
		}
		sum += wy * line
	}
	return sum * b.scale[axis]
}

// fields are at of all pixels, for both axes, and room to work in.
type fields struct {
	of         [2][]float32
	rows, sums []float32
	line       []float64
}

// room returns a slice of n elements, that of s if it is long enough.
func room[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func (f *fields) make(b *bend, axis int) {
	tx, ty := b.taps[axis][0], b.taps[axis][1]
	f.rows, f.of[axis] = room(f.rows, b.w*b.h), room(f.of[axis], b.w*b.h)
	f.line, f.sums = room(f.line, b.w), room(f.sums, b.w)
	rows, line, out, sums := f.rows, f.line, f.of[axis], f.sums
	for y := range b.h {
		for x := range line {
			line[x] = b.noise(axis, x, y)
		}
		for x := range b.w {
			sum := 0.0
			if lo := x - len(tx)/2; lo >= 0 && lo+len(tx) <= b.w {
				for i, wx := range tx {
					sum += wx * line[lo+i]
				}
			} else {
				for i, wx := range tx {
					sum += wx * line[reflected(lo+i, b.w)]
				}
			}
			rows[y*b.w+x] = float32(sum)
		}
	}
	for y := range b.h {
		clear(sums)
		for j, wy := range ty {
			w := float32(wy)
			for x, v := range rows[reflected(y+j-len(ty)/2, b.h)*b.w:][:b.w] {
				sums[x] += w * v
			}
		}
		scale := float32(b.scale[axis])
		for x, v := range sums {
			out[y*b.w+x] = v * scale
		}
	}
}

func (op *elasticTransform) Apply(r *Rand, img *Pixels) error {
	b, err := op.draw(r, img.W, img.H)
	if err != nil {
		return err
	}
	f, _ := op.spare.Get().(*fields)
	if f == nil {
		f = &fields{}
	}
	defer op.spare.Put(f)
	f.make(b, 0)
	f.make(b, 1)
	dx, dy := f.of[0], f.of[1]
	return replace(img, img.W, img.H, func(dst, src cdec.Pixmap) error {
		return cdec.Remap(dst, src, op.mode, func(y int, xs, ys []float32) {
			for x := range xs {
				xs[x] = float32(x) + dx[y*b.w+x]
				ys[x] = float32(y) + dy[y*b.w+x]
			}
		})
	})
}

// ApplyMask makes it a MaskOp.
func (op *elasticTransform) ApplyMask(r *Rand, img *Pixels) error { return op.Apply(r, img) }

// Move makes it a Mover.
func (op *elasticTransform) Move(r *Rand, m *Moves) error {
	b, err := op.draw(r, m.W, m.H)
	if err != nil {
		return err
	}
	d := still(m.W, m.H)
	d.Cuts, d.bend = true, b
	m.add(d)
	return nil
}

// corner moves the corner of a box, and point moves a key point. Like torchvision, corner takes the displacement and
// the position of the next pixel, point those of the pixel that contains the point.
func (b *bend) corner(x, y float64) (float64, float64) { return b.pixel(math.Ceil(x), math.Ceil(y)) }

func (b *bend) point(x, y float64) (float64, float64) { return b.pixel(math.Trunc(x), math.Trunc(y)) }

func (b *bend) pixel(x, y float64) (float64, float64) {
	i, j := int(min(max(x, 0), float64(b.w-1))), int(min(max(y, 0), float64(b.h-1)))
	return float64(i) - b.at(0, i, j), float64(j) - b.at(1, i, j)
}
