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

func buildRandIntensity(a *Args, key string) (Op, error) {
	op := &randIntensity{prob: a.Prob("prob", 0.1), shift: key == "offsets"}
	a.Bool("safe", false) // floats are
	v := a.Floats(key, nil)
	switch {
	case len(v) == 1:
		op.lo, op.hi = -math.Abs(v[0]), math.Abs(v[0])
	case len(v) == 2:
		op.lo, op.hi = min(v[0], v[1]), max(v[0], v[1])
	default:
		a.fail(key, "must be a number or two, from and to, not %s", clip(string(a.vals[key])))
	}
	if !finite32(op.lo) || !finite32(op.hi) {
		a.fail(key, "must be finite")
	}
	return op, nil
}

func finite32(v float64) bool { return math.Abs(v) <= math.MaxFloat32 }

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

func buildScaleRange(a *Args) (Op, error) {
	for _, key := range []string{"a_min", "a_max"} {
		if !a.Has(key) {
			a.fail(key, "is missing; it is a number")
		}
	}
	from, to := a.Float("a_min", 0), a.Float("a_max", 1)
	op := &scaleRange{clip: a.Bool("clip", false)}
	if from == to || !finite32(from) || !finite32(to) {
		a.fail("a_max", "must be another number than a_min")
		return op, nil
	}
	lo, hi, bounded := a.Float("b_min", 0), a.Float("b_max", 1), a.Has("b_min") && a.Has("b_max")
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

func buildScaleIntensity(a *Args) (Op, error) {
	op := &scaleIntensity{lo: a.Float("minv", 0), hi: a.Float("maxv", 1), factor: a.Float("factor", 0)}
	op.fixed = a.Has("factor")
	if !finite32(op.lo) || !finite32(op.hi) || !finite32(op.factor) {
		a.fail("minv", "must be finite")
	}
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

// normalizeIntensity is NormalizeIntensity: the mean is subtracted, and what is left
// divided by the standard deviation.
type normalizeIntensity struct {
	subtrahend, divisor  []float64
	nonzero, channelWise bool
}

func buildNormalizeIntensity(a *Args) (Op, error) {
	op := &normalizeIntensity{
		subtrahend: a.Floats("subtrahend", nil), divisor: a.Floats("divisor", nil),
		nonzero: a.Bool("nonzero", false), channelWise: a.Bool("channel_wise", false),
	}
	for key, v := range map[string][]float64{"subtrahend": op.subtrahend, "divisor": op.divisor} {
		want := 1
		if op.channelWise {
			want = int(a.pixels.Channels)
		}
		if len(v) > 0 && len(v) != want {
			a.fail(key, "must be %d numbers, not %s", want, clip(string(a.vals[key])))
		}
		for _, x := range v {
			if !finite32(x) {
				a.fail(key, "must be finite")
			}
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

// meanAndDeviation are the mean and the standard deviation of values, or of those that are not
// 0; some says that there are any.
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
