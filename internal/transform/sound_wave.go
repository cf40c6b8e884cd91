package transform

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/stokerdata/stoker/internal/csound"
)

// waves refuses operations on samples after a spectrogram.
func waves(s *soundShape, name string) error {
	if s.bands > 0 {
		return fmt.Errorf("%s works on samples; move it before the spectrogram", name)
	}
	return nil
}

// asIs is DecodeAudio: the samples without changes.
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

// maxResamplers bounds the number of rates with a kept resampler.
const maxResamplers = 64

var resampleSpec = Spec{
	Name: "audio.Resample", Doc: "Change the sampling rate, as torchaudio.transforms.Resample does.",
	Params: []Param{
		{Name: "rate", Type: Int, Required: true, Range: between(1, 1e7), Unit: "Hz", Help: "new sampling rate"},
		{Name: "lowpass_filter_width", Type: Int, Default: 6, Range: between(1, 1000), Help: "sharpness of the filter"},
		{Name: "rolloff", Type: Float, Default: 0.99, Range: aboveUpTo(0, 1), Help: "cut-off of the filter, as a fraction of the Nyquist frequency"},
		{Name: "resampling_method", Type: Choice, Default: "sinc_interp_hann", Choices: []string{"sinc_interp_hann", "sinc_interp_kaiser"}, Help: "window of the filter"},
		{Name: "beta", Type: Float, Optional: true, Range: within(0, 500), Help: "parameter of the Kaiser window; None is 14.77"},
	},
	Kinds: sounds, Returns: "The number of samples changes with the rate; float32.", Example: "audio.Resample(16000)", sound: buildResample,
}

var monoSpec = Spec{
	Name: "audio.Mono", Doc: "Average all channels.", More: "It is cheapest before audio.Resample.", Kinds: sounds, Returns: "[1, samples], or Ragged of [samples]; float32.", Example: "audio.Mono()",
	sound: func(*Args) (Op, error) { return mono{}, nil },
}

func buildResample(a *Args) (Op, error) {
	op := &resample{rate: a.Int("rate"), made: map[int]*csound.Resampler{}}
	op.opt = csound.ResampleOptions{LowpassWidth: a.Int("lowpass_filter_width"), Rolloff: a.Float("rolloff")}
	switch kaiser := a.Word("resampling_method") == "sinc_interp_kaiser"; {
	case kaiser && a.Has("beta"):
		op.opt.Beta = a.Float("beta")
	case kaiser:
		op.opt.Beta = 14.769656459379492
	case a.Has("beta"):
		a.fail("beta", "needs resampling_method=\"sinc_interp_kaiser\"")
	}
	return op, nil
}

// of returns the resampler from a rate, nil if the rate needs no change.
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
			return fmt.Errorf("audio.Resample makes lengths of what was cut to one length, as rates differ; put it before the crop")
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
	return waves(s, "audio.Resample")
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

// cropPlace is the position at which a piece is cut out.
type cropPlace int

const (
	cropRandom cropPlace = iota
	cropCenter           // as much on both sides is left out or filled in
	cropFront            // the beginning, filled up behind
)

var (
	pieceParams = []Param{
		{Name: "samples", Type: Int, Optional: true, Range: between(1, maxSamples), Unit: "samples", Help: "length of the piece"},
		{Name: "seconds", Type: Float, Optional: true, Range: within(0, 1e6), Unit: "seconds", Help: "the same as a time; give one of the two"},
	}
	soundRandomCropSpec = Spec{
		Name: "audio.RandomCrop", Doc: "Cut a piece out at a random position.", More: "If the format allows it, only the piece is decoded.",
		Params: append(slices.Clone(pieceParams), Param{Name: "pad_if_needed", Type: Bool, Default: false, Help: "append zeros to shorter recordings; otherwise they are errors"}),
		Kinds:  sounds, Returns: piece, Example: "audio.RandomCrop(seconds=1)", sound: func(a *Args) (Op, error) { return buildSoundCrop(a, cropRandom) },
	}
	soundCenterCropSpec = Spec{
		Name: "audio.CenterCrop", Doc: "Cut out the middle.", More: "Shorter recordings get zeros at both ends.", Params: pieceParams,
		Kinds: sounds, Returns: piece, Example: "audio.CenterCrop(seconds=1)", sound: func(a *Args) (Op, error) { return buildSoundCrop(a, cropCenter) },
	}
	padOrTrimSpec = Spec{
		Name: "audio.PadOrTrim", Doc: "Keep the beginning.", More: "Shorter recordings get zeros at the end.", Params: pieceParams,
		Kinds: sounds, Returns: piece, Example: "audio.PadOrTrim(seconds=10)", sound: func(a *Args) (Op, error) { return buildSoundCrop(a, cropFront) },
	}
)

const piece = "[channels, samples] of the given length; float32."

func buildSoundCrop(a *Args, where cropPlace) (Op, error) {
	op := &soundCrop{name: a.spec.Name, where: where, pad: where != cropRandom || a.Bool("pad_if_needed")}
	samples, seconds := a.Has("samples"), a.Has("seconds")
	op.samples, op.seconds = int64(a.Int("samples")), a.Float("seconds")
	if samples == seconds {
		a.fail("samples", "or seconds is the length of the piece: give one of the two")
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

// padSound appends zeros up to a multiple.
type padSound struct{ multiple int64 }

var soundPadSpec = Spec{
	Name: "audio.Pad", Doc: "Append zeros up to a multiple of a number of samples.",
	Params: []Param{{Name: "multiple", Type: Int, Required: true, Range: between(1, maxSamples), Unit: "samples", Help: "the number"}},
	Kinds:  sounds, Returns: "The number of samples is a multiple of `multiple`; float32.", Example: "audio.Pad(320)", sound: buildPadSound,
}

func buildPadSound(a *Args) (Op, error) {
	return &padSound{int64(a.Int("multiple"))}, nil
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

var volSpec = Spec{
	Name: "audio.Vol", Doc: "Multiply by a gain and clip to -1 and 1, as torchaudio.transforms.Vol does.",
	Params: []Param{
		{Name: "gain", Type: Float, Required: true, Help: "a factor, or decibels"},
		{Name: "gain_type", Type: Choice, Default: "amplitude", Choices: []string{"amplitude", "power", "db"}, Help: "unit of gain"},
	},
	Kinds: sounds, Returns: sameShape, Example: `audio.Vol(-6, "db")`, sound: buildVol,
}

func buildVol(a *Args) (Op, error) {
	v := a.Float("gain")
	op := &gain{name: a.spec.Name, clamp: true}
	switch a.Word("gain_type") {
	case "amplitude":
		op.factor = float32(v)
	case "power":
		op.factor = float32(math.Pow(10, 10*math.Log10(v)/20))
	case "db":
		op.factor = float32(math.Pow(10, v/20))
	}
	if !(op.factor >= 0 && op.factor <= 1e6) {
		a.fail("gain", "must be a factor from 0 to 1000000, or decibels with gain_type=\"db\", not %v", v)
	}
	return op, nil
}

var randomGainSpec = Spec{
	Name: "audio.RandomGain", Doc: "Multiply by a random gain.",
	Params: []Param{
		{Name: "min_db", Type: Float, Default: -6.0, Range: between(-120, 120), Unit: "dB", Help: "smallest gain"},
		{Name: "max_db", Type: Float, Default: 6.0, Range: between(-120, 120), Unit: "dB", Help: "largest gain"},
		probability(1),
	},
	Kinds: sounds, Returns: sameShape, Example: "audio.RandomGain(-6, 6)", sound: buildRandomGain,
}

func buildRandomGain(a *Args) (Op, error) {
	op := &gain{name: a.spec.Name, min: a.Float("min_db"), max: a.Float("max_db"), p: a.Float("p")}
	if op.min > op.max {
		a.fail("min_db", "must be at most max_db = %v, not %v", op.max, op.min)
	}
	return op, nil
}

func (op *gain) plan(s *soundShape) error { return waves(s, op.name) }

func (op *gain) draw(r *Rand, _ *soundShape) (d soundDraw, err error) {
	d.gain = op.factor
	if !op.clamp {
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

var soundNormalizeSpec = Spec{
	Name: "audio.Normalize", Doc: "Make recordings equally loud.",
	Params: []Param{{Name: "mode", Type: Choice, Default: "peak", Choices: []string{"peak", "std"}, Help: "divide by the largest absolute value, or make mean 0 and standard deviation 1"}},
	Kinds:  sounds, Returns: sameShape, Example: `audio.Normalize("std")`, sound: buildNormalizeSound,
}

func buildNormalizeSound(a *Args) (Op, error) {
	return &normalizeSound{a.Word("mode")}, nil
}

func (op *normalizeSound) plan(s *soundShape) error { return waves(s, "audio.Normalize") }

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
	var v [2]float64
	for i, key := range []string{"mean", "std"} {
		one := a.Floats(key)
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
