package transform

import (
	"math"
)

// This file has the operations that move voxels.

// volumeSizes reads a size along z, y and x: one number for all, or three. What is below
// 1 stands for all of a volume.
func volumeSizes(a *Args, key string) (s [3]int) {
	if !a.Has(key) {
		a.fail(key, "is missing; it is a number, or three: z, y, x")
		return s
	}
	v := a.Floats(key, nil)
	if len(v) == 1 {
		v = []float64{v[0], v[0], v[0]}
	}
	if len(v) != 3 {
		a.fail(key, "must be a number, or three: z, y, x, not %s", clip(string(a.vals[key])))
		return s
	}
	for i, x := range v {
		if x != math.Trunc(x) || x < -1 || x > maxSide {
			a.fail(key, "must be whole numbers from -1 (all) to %d, not %s", maxSide, clip(string(a.vals[key])))
			return s
		}
		s[i] = int(x)
	}
	return s
}

// fallBack is a size within a volume: all of it where it says so.
func fallBack(size, side int) int {
	if size < 1 || size > side {
		return side
	}
	return size
}

// cropVolume is RandSpatialCrop and CenterSpatialCrop.
type cropVolume struct {
	size, most [3]int
	center     bool
	anySize    bool // from size to most
}

func buildRandSpatialCrop(a *Args) (Op, error) {
	op := &cropVolume{size: volumeSizes(a, "roi_size"), center: !a.Bool("random_center", true), anySize: a.Bool("random_size", false)}
	if a.Has("max_roi_size") {
		op.most = volumeSizes(a, "max_roi_size")
		for i := range op.most {
			if op.most[i] > 0 && op.most[i] < op.size[i] {
				a.fail("max_roi_size", "must not be smaller than roi_size")
			}
		}
	}
	return op, nil
}

func buildCenterSpatialCrop(a *Args) (Op, error) {
	return &cropVolume{size: volumeSizes(a, "roi_size"), center: true}, nil
}

func (c *cropVolume) sides(least, most *[3]int) {
	for i := range 3 {
		least[i] = fallBack(c.size[i], least[i])
		if c.anySize {
			most[i] = fallBack(c.most[i], most[i])
		} else {
			most[i] = fallBack(c.size[i], most[i])
		}
	}
}

func (c *cropVolume) part(r *Rand, sides [3]int) (at, size [3]int) {
	for i, side := range sides {
		if size[i] = fallBack(c.size[i], side); c.anySize {
			size[i] += r.IntN(fallBack(c.most[i], side) - size[i] + 1)
		}
	}
	for i, side := range sides {
		if c.center {
			at[i] = side/2 - size[i]/2
		} else {
			at[i] = r.IntN(side - size[i] + 1)
		}
	}
	return at, size
}

func (c *cropVolume) move(r *Rand, v *volumeView) {
	at, size := c.part(r, v.size)
	for i := range 3 {
		v.crop(i, at[i], size[i])
	}
}

// padVolume is SpatialPad, and with crop ResizeWithPadOrCrop.
type padVolume struct {
	size   [3]int
	end    bool
	value  float32
	center *cropVolume
}

func buildSpatialPad(a *Args) (Op, error) {
	op := &padVolume{size: volumeSizes(a, "spatial_size"), value: float32(a.Float("value", 0))}
	op.end = a.Choice("method", "symmetric", "symmetric", "end") == "end"
	a.Choice("mode", "constant", "constant")
	if a.mask {
		op.value = float32(math.Trunc(float64(op.value)))
	}
	return op, nil
}

func buildResizeWithPadOrCrop(a *Args) (Op, error) {
	op, err := buildSpatialPad(a)
	if err != nil {
		return nil, err
	}
	p := op.(*padVolume)
	p.center = &cropVolume{size: p.size, center: true}
	return p, nil
}

func (p *padVolume) sides(least, most *[3]int) {
	if p.center != nil {
		p.center.sides(least, most)
	}
	for i := range 3 {
		least[i], most[i] = max(least[i], p.size[i]), max(most[i], p.size[i])
	}
}

// prepare makes the values when there is a padding already, or what is padded with has
// to be left alone by what was done before.
func (p *padVolume) prepare(w *volumeWork) error {
	if w.view.padded() && w.view.fill != p.value {
		return w.settle()
	}
	return nil
}

func (p *padVolume) move(r *Rand, v *volumeView) {
	if p.center != nil {
		p.center.move(r, v)
	}
	for i := range 3 {
		if more := p.size[i] - v.size[i]; more > 0 {
			before := more / 2
			if p.end {
				before = 0
			}
			v.pad(i, before, more)
			v.fill = p.value
		}
	}
}

// flipVolume is RandFlip.
type flipVolume struct {
	prob float64
	axes [3]bool
}

// axis reads one of three axes, of which negative ones count from the end.
func volumeAxis(a *Args, key string, x float64) int {
	if x != math.Trunc(x) || x < -3 || x > 2 {
		a.fail(key, "must be 0, 1 or 2 (z, y, x), not %s", clip(string(a.vals[key])))
		return 0
	}
	return (int(x) + 3) % 3
}

func buildRandFlip(a *Args) (Op, error) {
	op := &flipVolume{prob: a.Prob("prob", 0.1)}
	for _, x := range a.Floats("spatial_axis", []float64{0, 1, 2}) {
		op.axes[volumeAxis(a, "spatial_axis", x)] = true
	}
	return op, nil
}

func (f *flipVolume) sides(_, _ *[3]int) {}

func (f *flipVolume) move(r *Rand, v *volumeView) {
	if !r.Bool(f.prob) {
		return
	}
	for i, flip := range f.axes {
		if flip {
			v.flip(i)
		}
	}
}

// turnVolume is RandRotate90.
type turnVolume struct {
	prob float64
	most int
	axes [2]int
}

func buildRandRotate90(a *Args) (Op, error) {
	op := &turnVolume{prob: a.Prob("prob", 0.1), most: a.Int("max_k", 3)}
	if op.most < 1 || op.most > 1<<20 {
		a.fail("max_k", "must be 1 or more, not %d", op.most)
	}
	axes := a.Floats("spatial_axes", []float64{0, 1})
	if len(axes) != 2 {
		a.fail("spatial_axes", "must be two axes, not %s", clip(string(a.vals["spatial_axes"])))
		return op, nil
	}
	for i, x := range axes {
		op.axes[i] = volumeAxis(a, "spatial_axes", x)
	}
	if op.axes[0] == op.axes[1] {
		a.fail("spatial_axes", "must be two axes, not %s", clip(string(a.vals["spatial_axes"])))
	}
	return op, nil
}

func (t *turnVolume) sides(least, most *[3]int) {
	a, b := t.axes[0], t.axes[1]
	lo, hi := min(least[a], least[b]), max(most[a], most[b])
	least[a], least[b], most[a], most[b] = lo, lo, hi, hi
}

func (t *turnVolume) move(r *Rand, v *volumeView) {
	if !r.Bool(t.prob) {
		return
	}
	for range (r.IntN(t.most) + 1) % 4 {
		// A quarter from the first axis towards the second, as numpy.rot90.
		v.flip(t.axes[1])
		v.swap(t.axes[0], t.axes[1])
	}
}
