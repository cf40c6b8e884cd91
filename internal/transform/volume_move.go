package transform

import (
	"math"
)

// This file has the operations that move voxels.

// volumeSizes reads a size along z, y and x: one number for all, or three. A size below 1 stands for all of a volume.
func volumeSizes(a *Args, key string) (s [3]int) {
	v := a.Floats(key)
	for i := range s {
		s[i] = int(v[i%len(v)])
	}
	return s
}

// fallBack returns a size within a volume, and side for a size below 1.
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

// voxels is a size of a volume.
func voxels(name, help string) Param {
	return Param{Name: name, Type: Int, Required: true, Unit: "voxels", Single: true, Counts: []int{3}, Form: "(z, y, x)", Range: between(-1, maxSide), Help: help}
}

var randSpatialCropSpec = Spec{
	Name: "volume.RandSpatialCrop", Doc: "Cut a part out at a random position.", More: "An axis that is shorter stays as it is. If the crop is first in the list and the format allows it, only the part is read.",
	Params: []Param{
		voxels("roi_size", "size of the part; -1 is all of an axis"),
		optional(voxels("max_roi_size", "largest size, with random_size; None is the volume")),
		{Name: "random_center", Type: Bool, Default: true, Help: "draw the position; otherwise cut out the middle"},
		{Name: "random_size", Type: Bool, Default: false, Help: "draw the size; then add SpatialPad or ResizeWithPadOrCrop"},
	},
	Kinds: solids, Returns: "The axes have `roi_size`; same dtype.", Example: "volume.RandSpatialCrop(96)", volume: buildRandSpatialCrop,
}

func buildRandSpatialCrop(a *Args) (Op, error) {
	op := &cropVolume{size: volumeSizes(a, "roi_size"), center: !a.Bool("random_center"), anySize: a.Bool("random_size")}
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

var centerSpatialCropSpec = Spec{
	Name: "volume.CenterSpatialCrop", Doc: "Cut out the middle.", Params: []Param{voxels("roi_size", "size of the part; -1 is all of an axis")},
	Kinds: solids, Returns: "The axes have `roi_size`; same dtype.", Example: "volume.CenterSpatialCrop((64, 96, 96))", volume: buildCenterSpatialCrop,
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

var (
	padVolumeParams = []Param{
		voxels("spatial_size", "the size; -1 leaves an axis as it is"),
		{Name: "method", Type: Choice, Default: "symmetric", Choices: []string{"symmetric", "end"}, Help: "pad at both ends, or at the end"},
		{Name: "mode", Type: Choice, Default: "constant", Choices: []string{"constant"}, Help: "content of the border"},
		{Name: "value", Type: Float, Default: 0.0, Help: "value of the border"},
	}
	spatialPadSpec = Spec{
		Name: "volume.SpatialPad", Doc: "Pad to at least a size.", Params: padVolumeParams,
		Kinds: solids, Returns: "The axes have at least `spatial_size`; same dtype.", Example: "volume.SpatialPad(96)", volume: buildSpatialPad,
	}
	resizeWithPadOrCropSpec = Spec{
		Name: "volume.ResizeWithPadOrCrop", Doc: "Cut out the middle, or pad, to exactly a size.", Params: padVolumeParams,
		Kinds: solids, Returns: "The axes have `spatial_size`; same dtype.", Example: "volume.ResizeWithPadOrCrop(96)", volume: buildResizeWithPadOrCrop,
	}
)

// prob is MONAI's name for a probability.
var prob = Param{Name: "prob", Type: Float, Default: 0.1, Range: between(0, 1), Help: "probability"}

func buildSpatialPad(a *Args) (Op, error) {
	op := &padVolume{size: volumeSizes(a, "spatial_size"), value: float32(a.Float("value"))}
	op.end = a.Word("method") == "end"
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

// prepare computes the values if there is a padding already, or if earlier operations must not change the padding
// value.
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

// volumeAxis reads one of three axes. Negative ones count from the end.
func volumeAxis(x float64) int { return (int(x) + 3) % 3 }

var randFlipSpec = Spec{
	Name: "volume.RandFlip", Doc: "Reverse axes, at random.",
	Params: []Param{prob, {Name: "spatial_axis", Type: Int, Optional: true, Single: true, Counts: []int{1, 2, 3}, Form: "a list of axes", Range: between(-3, 2), Help: "the axes; None is all"}},
	Kinds:  solids, Returns: sameShape, Example: "volume.RandFlip(0.5, 0)", volume: buildRandFlip,
}

func buildRandFlip(a *Args) (Op, error) {
	op := &flipVolume{prob: a.Float("prob")}
	for _, x := range a.Floats("spatial_axis") {
		op.axes[volumeAxis(x)] = true
	}
	if !a.Has("spatial_axis") {
		op.axes = [3]bool{true, true, true}
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

var randRotate90Spec = Spec{
	Name: "volume.RandRotate90", Doc: "Rotate by 90, 180 or 270 degrees, at random.",
	Params: []Param{
		prob,
		{Name: "max_k", Type: Int, Default: 3, Range: between(1, 1<<20), Help: "the number of quarter turns is from 1 to this"},
		{Name: "spatial_axes", Type: Int, Default: []float64{0, 1}, Counts: []int{2}, Form: "two axes", Range: between(-3, 2), Help: "the plane, from its first axis towards its second"},
	},
	Kinds: solids, Returns: "The two axes may change places; same dtype.", Example: "volume.RandRotate90(0.5, spatial_axes=(1, 2))", volume: buildRandRotate90,
}

func buildRandRotate90(a *Args) (Op, error) {
	op := &turnVolume{prob: a.Float("prob"), most: a.Int("max_k")}
	for i, x := range a.Floats("spatial_axes") {
		op.axes[i] = volumeAxis(x)
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
