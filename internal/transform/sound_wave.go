package transform

import (
	"fmt"
	"math"
	"sync"

	"github.com/stokerdata/stoker/internal/csound"
)

// waves refuses operations on samples behind a spectrogram.
func waves(s *soundShape, name string) error {
	if s.bands > 0 {
		return fmt.Errorf("%s works on samples; move it before the spectrogram", name)
	}
	return nil
}

// asIs is DecodeAudio: the samples as they are.
type asIs struct{}

func (asIs) plan(s *soundShape) error                         { return waves(s, "DecodeAudio") }
func (asIs) draw(*Rand, *soundShape) (d soundDraw, err error) { return d, nil }
func (asIs) pull(_ *soundDraw, before *puller, dst []float32, stride int, from, n int64) error {
	return before.get(dst, stride, from, n)
}

// mono is the mean of all channels.
type mono struct{}

func (mono) plan(s *soundShape) error {
	s.Channels, s.mono = 1, true
	return waves(s, "Mono")
}

func (mono) draw(_ *Rand, of *soundShape) (d soundDraw, err error) {
	of.Channels = 1
	return d, nil
}

func (mono) pull(_ *soundDraw, before *puller, dst []float32, stride int, from, n int64) error {
	channels := before.shape.Channels
	if channels == 1 {
		return before.get(dst, stride, from, n)
	}
	all, err := before.temp(from, n)
	if err != nil {
		return err
	}
	row, left, right := dst[:n], all[:n], all[n:2*n]
	if channels == 2 {
		for i := range row {
			row[i] = (left[i] + right[i]) / 2
		}
		return nil
	}
	copy(row, left)
	for c := 1; c < channels; c++ {
		for i, v := range all[int64(c)*n : int64(c+1)*n] {
			row[i] += v
		}
	}
	for i := range row {
		row[i] /= float32(channels)
	}
	return nil
}

// resample is torchaudio's Resample, from whatever rate a recording has.
type resample struct {
	rate int
	opt  csound.ResampleOptions

	mu   sync.Mutex
	made map[int]*csound.Resampler // by rate
}

// maxResamplers bounds how many rates are kept.
const maxResamplers = 64

func buildResample(a *Args) (Op, error) {
	op := &resample{rate: a.Int("rate", 0), made: map[int]*csound.Resampler{}}
	op.opt = csound.ResampleOptions{LowpassWidth: a.Int("lowpass_filter_width", 6), Rolloff: a.Float("rolloff", 0.99)}
	switch {
	case op.rate < 1 || op.rate > 10_000_000:
		a.fail("rate", "must be from 1 to 10000000 Hz, not %d", op.rate)
	case op.opt.LowpassWidth < 1 || op.opt.LowpassWidth > 1000:
		a.fail("lowpass_filter_width", "must be from 1 to 1000, not %d", op.opt.LowpassWidth)
	case !(op.opt.Rolloff > 0 && op.opt.Rolloff <= 1):
		a.fail("rolloff", "must be above 0 and at most 1, not %v", op.opt.Rolloff)
	}
	if a.Choice("resampling_method", "sinc_interp_hann", "sinc_interp_hann", "sinc_interp_kaiser") == "sinc_interp_kaiser" {
		if op.opt.Beta = a.Float("beta", 14.769656459379492); !(op.opt.Beta > 0 && op.opt.Beta < 500) {
			a.fail("beta", "must be above 0 and below 500, not %v", op.opt.Beta)
		}
	} else if a.Has("beta") {
		a.fail("beta", "goes with resampling_method=\"sinc_interp_kaiser\"")
	}
	return op, nil
}

// of returns what resamples from a rate, nil for the rate that is wanted.
func (op *resample) of(rate int) (*csound.Resampler, error) {
	if rate == op.rate {
		return nil, nil
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	if r := op.made[rate]; r != nil {
		return r, nil
	}
	r, err := csound.NewResampler(rate, op.rate, &op.opt)
	if err != nil {
		return nil, err
	}
	if len(op.made) == maxResamplers {
		clear(op.made)
	}
	op.made[rate] = r
	return r, nil
}

func (op *resample) plan(s *soundShape) error {
	if s.length > 0 {
		if s.Rate == 0 {
			return fmt.Errorf("Resample makes lengths of what was cut to one length, as rates differ; put it before the crop")
		}
		r, err := op.of(s.Rate)
		if err != nil {
			return err
		}
		if r != nil {
			s.length = r.Len(s.length)
		}
	}
	s.Rate = op.rate
	return waves(s, "Resample")
}

func (op *resample) draw(_ *Rand, of *soundShape) (d soundDraw, err error) {
	if d.resamp, err = op.of(of.Rate); d.resamp != nil {
		of.length = d.resamp.Len(of.length)
	}
	of.Rate = op.rate
	return d, err
}

func (op *resample) pull(d *soundDraw, before *puller, dst []float32, stride int, from, n int64) error {
	if d.resamp == nil {
		return before.get(dst, stride, from, n)
	}
	lo, hi := d.resamp.Span(from, n)
	x, err := before.temp(lo, hi-lo)
	if err != nil {
		return err
	}
	for c := range before.shape.Channels {
		d.resamp.Run(dst[c*stride:int64(c*stride)+n], x[int64(c)*(hi-lo):int64(c+1)*(hi-lo)], lo, from)
	}
	return nil
}

// soundCrop cuts a piece of one length out.
type soundCrop struct {
	name    string
	where   cropPlace
	samples int64
	seconds float64 // instead of samples
	pad     bool
}

// cropPlace says where a piece is cut out.
type cropPlace int

const (
	cropRandom cropPlace = iota
	cropCenter           // as much on both sides is left out or filled in
	cropFront            // the beginning, filled up behind
)

func buildSoundCrop(a *Args, where cropPlace) (Op, error) {
	op := &soundCrop{name: a.op, where: where, pad: where != cropRandom || a.Bool("pad_if_needed", false)}
	samples, seconds := a.Has("samples"), a.Has("seconds")
	op.samples, op.seconds = int64(a.Int("samples", 0)), a.Float("seconds", 0)
	switch {
	case samples == seconds:
		a.fail("samples", "or seconds says how long the piece is: give one of the two")
	case samples && (op.samples < 1 || op.samples > maxSamples):
		a.fail("samples", "must be from 1 to %d, not %d", maxSamples, op.samples)
	case seconds && !(op.seconds > 0 && op.seconds < 1e6):
		a.fail("seconds", "must be above 0 and below 1e6, not %v", op.seconds)
	}
	return op, nil
}

func (op *soundCrop) length(rate int) int64 {
	if op.samples > 0 {
		return op.samples
	}
	return max(int64(math.RoundToEven(op.seconds*float64(rate))), 1)
}

func (op *soundCrop) plan(s *soundShape) error {
	if op.samples == 0 && s.Rate == 0 {
		return fmt.Errorf("%s(seconds=%v): the rate is not the same for all recordings, or not known; put stoker.audio.Resample before it or give samples", op.name, op.seconds)
	}
	s.length = op.length(s.Rate)
	return waves(s, op.name)
}

func (op *soundCrop) draw(r *Rand, of *soundShape) (d soundDraw, err error) {
	have, n := of.length, op.length(of.Rate)
	u := r.Float64() // whatever the length is
	switch {
	case have < n && !op.pad:
		return d, fmt.Errorf("%s: the recording has %d samples, less than the %d of a piece; pad_if_needed=True fills it up", op.name, have, n)
	case op.where == cropCenter && have < n:
		d.start = -((n - have) / 2)
	case op.where == cropCenter:
		d.start = (have - n) / 2
	case op.where == cropRandom && have > n:
		d.start = min(int64(u*float64(have-n+1)), have-n)
	}
	of.length = n
	return d, nil
}

func (op *soundCrop) pull(d *soundDraw, before *puller, dst []float32, stride int, from, n int64) error {
	return before.get(dst, stride, from+d.start, n)
}

// padSound fills up behind the end to a multiple.
type padSound struct{ multiple int64 }

func buildPadSound(a *Args) (Op, error) {
	op := &padSound{int64(a.Int("multiple", 0))}
	if op.multiple < 1 || op.multiple > maxSamples {
		a.fail("multiple", "must be from 1 to %d, not %d", maxSamples, op.multiple)
	}
	return op, nil
}

func (op *padSound) to(n int64) int64 { return (n + op.multiple - 1) / op.multiple * op.multiple }

func (op *padSound) plan(s *soundShape) error {
	s.length = op.to(s.length)
	return waves(s, "PadAudio")
}

func (op *padSound) draw(_ *Rand, of *soundShape) (d soundDraw, err error) {
	of.length = op.to(of.length)
	return d, nil
}

func (op *padSound) pull(_ *soundDraw, before *puller, dst []float32, stride int, from, n int64) error {
	return before.get(dst, stride, from, n)
}

// gain is torchaudio's Vol, and RandomGain.
type gain struct {
	name     string
	factor   float32 // Vol
	clamp    bool
	min, max float64 // RandomGain, in dB
	p        float64
}

func buildVol(a *Args) (Op, error) {
	v := a.Float("gain", math.NaN())
	op := &gain{name: "Vol", clamp: true}
	switch a.Choice("gain_type", "amplitude", "amplitude", "power", "db") {
	case "amplitude":
		op.factor = float32(v)
	case "power":
		op.factor = float32(math.Pow(10, 10*math.Log10(v)/20))
	case "db":
		op.factor = float32(math.Pow(10, v/20))
	}
	if !(op.factor >= 0 && op.factor <= 1e6) {
		a.fail("gain", "must be a factor or, with gain_type=\"db\", decibels, and not lead out of range, which %v does", v)
	}
	return op, nil
}

func buildRandomGain(a *Args) (Op, error) {
	op := &gain{name: "RandomGain", min: a.Float("min_db", -6), max: a.Float("max_db", 6), p: a.Prob("p", 1)}
	if !(op.min <= op.max && op.min >= -120 && op.max <= 120) {
		a.fail("min_db", "and max_db must be decibels from -120 to 120, the smaller one first, not %v and %v", op.min, op.max)
	}
	return op, nil
}

func (op *gain) plan(s *soundShape) error { return waves(s, op.name) }

func (op *gain) draw(r *Rand, _ *soundShape) (d soundDraw, err error) {
	d.gain = op.factor
	if op.name != "Vol" {
		d.gain = 1
		db := r.Uniform(op.min, op.max)
		if r.Bool(op.p) {
			d.gain = float32(math.Pow(10, db/20))
		}
	}
	return d, nil
}

func (op *gain) pull(d *soundDraw, before *puller, dst []float32, stride int, from, n int64) error {
	if err := before.get(dst, stride, from, n); err != nil {
		return err
	}
	for c := range before.shape.Channels {
		row := dst[c*stride : int64(c*stride)+n]
		for i, v := range row {
			row[i] = v * d.gain
		}
		if op.clamp {
			for i, v := range row {
				row[i] = max(-1, min(v, 1))
			}
		}
	}
	return nil
}

// normalizeSound makes a recording as loud as others, all channels alike.
type normalizeSound struct{ mode string }

func buildNormalizeSound(a *Args) (Op, error) {
	return &normalizeSound{a.Choice("mode", "peak", "peak", "std")}, nil
}

func (op *normalizeSound) plan(s *soundShape) error { return waves(s, "NormalizeAudio") }

func (op *normalizeSound) apply(_ *Rand, x *signal, _ SoundMemory) error {
	if x.length == 0 {
		return nil
	}
	mean, scale := 0.0, 0.0
	n := float64(x.planes()) * float64(x.length)
	for p := range x.planes() {
		row := x.plane(p)
		if op.mode == "peak" {
			peak := float32(0)
			for _, v := range row {
				peak = max(peak, max(v, -v))
			}
			scale = max(scale, float64(peak))
			continue
		}
		for _, v := range row {
			mean += float64(v)
		}
	}
	if op.mode == "std" {
		mean /= n
		sum := 0.0
		for p := range x.planes() {
			for _, v := range x.plane(p) {
				sum += (float64(v) - mean) * (float64(v) - mean)
			}
		}
		scale = math.Sqrt(sum/n + 1e-7)
	}
	if scale == 0 {
		return nil // silence
	}
	m, s := float32(mean), float32(1/scale)
	for p := range x.planes() {
		row := x.plane(p)
		for i, v := range row {
			row[i] = (v - m) * s
		}
	}
	return nil
}

// normalizeValues is Normalize of sound: of samples or of the values of a
// spectrogram.
type normalizeValues struct{ mean, std float32 }

func buildNormalizeValues(a *Args) (Op, error) {
	a.Bool("inplace", false)
	var v [2]float64
	for i, key := range []string{"mean", "std"} {
		one := a.Floats(key, nil)
		if len(one) != 1 {
			a.fail(key, "must be one number for sound")
			return asIs{}, nil
		}
		v[i] = one[0]
	}
	if !(math.Abs(v[0]) < math.MaxFloat32) || !(math.Abs(v[1]) < math.MaxFloat32) || float32(v[1]) == 0 {
		a.fail("std", "must be finite and not zero, and mean finite")
	}
	return &normalizeValues{float32(v[0]), float32(v[1])}, nil
}

func (op *normalizeValues) plan(*soundShape) error { return nil }

func (op *normalizeValues) apply(_ *Rand, x *signal, _ SoundMemory) error {
	for p := range x.planes() {
		row := x.plane(p)
		for i, v := range row {
			row[i] = (v - op.mean) / op.std
		}
	}
	return nil
}
