package transform

import (
	"math"
)

// This file has the operations on values.

// randIntensity is RandScaleIntensity and RandShiftIntensity.
type randIntensity struct {
	prob   float64
	lo, hi float64
	shift  bool
}

// spread is a range to draw from.
func spread(name, help string) Param {
	return Param{Name: name, Type: Float, Required: true, Single: true, Counts: []int{2}, Form: "(from, to)", Range: between(-unlimited, unlimited), Help: help}
}

var (
	randScaleIntensitySpec = Spec{
		Name: "volume.RandScaleIntensity", Doc: "Multiply values by 1 + factor, at random.", Params: []Param{spread("factors", "the range of the factor: x is from -x to x"), prob},
		Kinds: solids, Returns: "Same shape; float32.", Example: "volume.RandScaleIntensity(0.1, prob=0.5)", volume: func(a *Args) (Op, error) { return buildRandIntensity(a, "factors") },
	}
	randShiftIntensitySpec = Spec{
		Name: "volume.RandShiftIntensity", Doc: "Add a random number to values.",
		Params: []Param{spread("offsets", "the range of the number: x is from -x to x"), {Name: "safe", Type: Bool, Default: false, Help: "has no effect; accepted because MONAI has it"}, prob},
		Kinds:  solids, Returns: "Same shape; float32.", Example: "volume.RandShiftIntensity(0.1, prob=0.5)", volume: func(a *Args) (Op, error) { return buildRandIntensity(a, "offsets") },
	}
)

func buildRandIntensity(a *Args, key string) (Op, error) {
	op := &randIntensity{prob: a.Float("prob"), shift: key == "offsets"}
	v := a.Floats(key)
	if len(v) == 1 {
		v = []float64{-v[0], v[0]}
	}
	op.lo, op.hi = min(v[0], v[1]), max(v[0], v[1])
	return op, nil
}

func (o *randIntensity) change(r *Rand, w *volumeWork) error {
	if !r.Bool(o.prob) {
		return nil
	}
	v := float32(r.Uniform(o.lo, o.hi))
	if o.shift {
		return w.linear(1, v)
	}
	return w.linear(1+v, 0)
}

// scaleRange is ScaleIntensityRange: a_min to a_max become b_min to b_max.
type scaleRange struct {
	a, b   float32
	lo, hi float32
	clip   bool
}

// level is a value of a voxel.
func level(name, help string) Param {
	return Param{Name: name, Type: Float, Range: between(-unlimited, unlimited), Help: help}
}

var scaleRangeSpec = Spec{
	Name: "volume.ScaleIntensityRange", Doc: "Map the range `a_min` to `a_max` to the range `b_min` to `b_max`.", More: "An example is Hounsfield units to 0 to 1.",
	Params: []Param{
		required(level("a_min", "lower end")), required(level("a_max", "upper end")),
		optional(level("b_min", "result for a_min; None, as b_max, maps to 0 to 1")), optional(level("b_max", "result for a_max")),
		{Name: "clip", Type: Bool, Default: false, Help: "limit results to b_min and b_max"},
	},
	Kinds: solids, Returns: "Same shape; float32.", Example: "volume.ScaleIntensityRange(-1000, 400, 0, 1, clip=True)", volume: buildScaleRange,
}

func buildScaleRange(a *Args) (Op, error) {
	from, to := a.Float("a_min"), a.Float("a_max")
	op := &scaleRange{clip: a.Bool("clip")}
	if from == to {
		a.fail("a_max", "must be another number than a_min")
		return op, nil
	}
	lo, hi, bounded := a.Float("b_min"), a.Float("b_max"), a.Has("b_min") && a.Has("b_max")
	k := 1 / (to - from)
	shift := -from * k
	if bounded {
		k, shift = k*(hi-lo), shift*(hi-lo)+lo
	}
	op.a, op.b = float32(k), float32(shift)
	op.lo, op.hi = float32(math.Inf(-1)), float32(math.Inf(1))
	if a.Has("b_min") {
		op.lo = float32(lo)
	}
	if a.Has("b_max") {
		op.hi = float32(hi)
	}
	return op, nil
}

func (o *scaleRange) change(_ *Rand, w *volumeWork) error {
	if err := w.linear(o.a, o.b); err != nil || !o.clip {
		return err
	}
	return w.limit(o.lo, o.hi)
}

// scaleIntensity is ScaleIntensity: the smallest and the largest value become minv and
// maxv, or all are multiplied by 1 + factor.
type scaleIntensity struct {
	lo, hi float64
	factor float64
	fixed  bool
}

var scaleIntensitySpec = Spec{
	Name: "volume.ScaleIntensity", Doc: "Map the smallest value of a volume to `minv` and the largest to `maxv`.",
	Params: []Param{
		{Name: "minv", Type: Float, Default: 0.0, Range: between(-unlimited, unlimited), Help: "new smallest value"},
		{Name: "maxv", Type: Float, Default: 1.0, Range: between(-unlimited, unlimited), Help: "new largest value"},
		optional(level("factor", "multiply by 1 + factor instead")),
	},
	Kinds: solids, Returns: "Same shape; float32.", Example: "volume.ScaleIntensity()", volume: buildScaleIntensity,
}

func buildScaleIntensity(a *Args) (Op, error) {
	op := &scaleIntensity{lo: a.Float("minv"), hi: a.Float("maxv"), factor: a.Float("factor")}
	op.fixed = a.Has("factor")
	return op, nil
}

func (o *scaleIntensity) change(_ *Rand, w *volumeWork) error {
	if o.fixed {
		return w.linear(float32(1+o.factor), 0)
	}
	f, err := w.flush()
	if err != nil || len(f) == 0 {
		return err
	}
	lo, hi := f[0], f[0]
	for _, x := range f {
		lo, hi = min(lo, x), max(hi, x)
	}
	if lo == hi {
		return w.linear(float32(o.lo), 0)
	}
	k := (o.hi - o.lo) / (float64(hi) - float64(lo))
	return w.linear(float32(k), float32(o.lo-float64(lo)*k))
}

// normalizeIntensity is NormalizeIntensity: the mean is subtracted, and the result divided by the standard deviation.
type normalizeIntensity struct {
	subtrahend, divisor  []float64
	nonzero, channelWise bool
}

// channelNumbers is a number, or one for each channel.
func channelNumbers(name, help string) Param {
	return Param{Name: name, Type: Float, Optional: true, Single: true, Most: 64, Form: "one for each channel", Range: between(-unlimited, unlimited), Help: help}
}

var normalizeIntensitySpec = Spec{
	Name: "volume.NormalizeIntensity", Doc: "Subtract the mean of a volume and divide by its standard deviation.",
	Params: []Param{
		channelNumbers("subtrahend", "number to subtract in place of the mean"), channelNumbers("divisor", "number to divide by in place of the standard deviation"),
		{Name: "nonzero", Type: Bool, Default: false, Help: "use and change only values that are not 0"},
		{Name: "channel_wise", Type: Bool, Default: false, Help: "handle each channel on its own"},
	},
	Kinds: solids, Returns: "Same shape; float32.", Example: "volume.NormalizeIntensity(nonzero=True)", volume: buildNormalizeIntensity,
}

func buildNormalizeIntensity(a *Args) (Op, error) {
	op := &normalizeIntensity{
		subtrahend: a.Floats("subtrahend"), divisor: a.Floats("divisor"),
		nonzero: a.Bool("nonzero"), channelWise: a.Bool("channel_wise"),
	}
	for key, v := range map[string][]float64{"subtrahend": op.subtrahend, "divisor": op.divisor} {
		want := 1
		if op.channelWise {
			want = int(a.pixels.Channels)
		}
		if len(v) > 0 && len(v) != want {
			a.fail(key, "must be %d numbers, not %s", want, clip(string(a.vals[key])))
		}
	}
	return op, nil
}

func (o *normalizeIntensity) change(_ *Rand, w *volumeWork) error {
	if !o.nonzero && !o.channelWise && o.subtrahend != nil && o.divisor != nil {
		mean, std := o.subtrahend[0], o.divisor[0]
		if std == 0 {
			std = 1
		}
		return w.linear(float32(1/std), float32(-mean/std))
	}
	f, err := w.flush()
	if err != nil {
		return err
	}
	n, parts := len(f), 1
	if o.channelWise {
		parts = w.view.channels
		n /= parts
	}
	for c := range parts {
		part := f[c*n : (c+1)*n]
		mean, std, some := meanAndDeviation(part, o.nonzero)
		if !some {
			continue
		}
		if o.subtrahend != nil {
			mean = o.subtrahend[c]
		}
		if o.divisor != nil {
			std = o.divisor[c]
		}
		if std == 0 {
			std = 1
		}
		m, s := float32(mean), float32(std)
		for i, x := range part {
			if x != 0 || !o.nonzero {
				part[i] = (x - m) / s
			}
		}
	}
	return nil
}

// meanAndDeviation returns the mean and the standard deviation of values, or of those that are not 0. some reports
// whether there are any.
func meanAndDeviation(f []float32, nonzero bool) (mean, std float64, some bool) {
	n, sum := 0, 0.0
	for _, x := range f {
		if x != 0 || !nonzero {
			n++
			sum += float64(x)
		}
	}
	if n == 0 {
		return 0, 0, false
	}
	mean, sum = sum/float64(n), 0
	for _, x := range f {
		if x != 0 || !nonzero {
			d := float64(x) - mean
			sum += d * d
		}
	}
	return mean, math.Sqrt(sum / float64(n)), true
}
