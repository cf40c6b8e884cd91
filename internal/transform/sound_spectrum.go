package transform

import (
	"fmt"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/csound"
)

// spectrogram is torchaudio's Spectrogram and MelSpectrogram.
type spectrogram struct {
	name                    string
	nfft, window, hop, pad  int
	hamming, magnitude      bool
	normalized              string // "window", "frame_length" or ""
	center                  bool
	padMode                 string
	mels                    int // 0: none
	rate                    int // 0: that of the recordings
	fMin, fMax              float64
	slaneyNorm, slaneyScale bool

	spectrum *csound.Spectrum // made by plan
	planned  int              // for this rate
}

// maxFFT is the largest size of a transform.
const maxFFT = 1 << 16

var (
	fftParam     = Param{Name: "n_fft", Type: Int, Default: 400, Range: between(2, maxFFT), Unit: "samples", Help: "size of the Fourier transform; its prime factors are at most 61"}
	windowParams = []Param{
		{Name: "win_length", Type: Int, Optional: true, Range: between(1, maxFFT), Unit: "samples", Help: "size of the window; None is n_fft"},
		{Name: "hop_length", Type: Int, Optional: true, Range: between(1, maxSamples), Unit: "samples", Help: "distance between windows; None is half a window"},
	}
	padParam     = Param{Name: "pad", Type: Int, Default: 0, Range: between(0, maxSamples/4), Unit: "samples", Help: "number of zeros to add at both ends"}
	spectrumRest = []Param{
		{Name: "window", Type: Choice, Default: "hann", Choices: []string{"hann", "hamming"}, Help: "the window"},
		{Name: "power", Type: Float, Default: 2.0, Range: between(1, 2), Help: "2 for powers, 1 for magnitudes"},
		{Name: "normalized", Type: Bool, Default: false, Choices: []string{"window", "frame_length"}, Help: "True and \"window\" divide by the norm of the window, \"frame_length\" by the root of n_fft"},
		{Name: "center", Type: Bool, Default: true, Help: "centre the first window on the first sample"},
		{Name: "pad_mode", Type: Choice, Default: "reflect", Choices: []string{"reflect", "constant", "replicate"}, Help: "values beyond the ends"},
	}
	spectrogramSpec = Spec{
		Name: "audio.Spectrogram", Doc: "Compute power or magnitude by frequency and time, as torchaudio.transforms.Spectrogram does.",
		Params: slices.Concat([]Param{fftParam}, windowParams, []Param{padParam}, spectrumRest),
		Kinds:  sounds, Returns: "[channels, n_fft // 2 + 1, frames]; float32.", Example: "audio.Spectrogram(n_fft=512)", sound: func(a *Args) (Op, error) { return buildSpectrogram(a, false) },
	}
	melSpectrogramSpec = Spec{
		Name: "audio.MelSpectrogram", Doc: "Compute power or magnitude by mel band and time, as torchaudio.transforms.MelSpectrogram does.",
		Params: slices.Concat([]Param{{Name: "sample_rate", Type: Int, Optional: true, Range: atLeast(1), Unit: "Hz", Help: "rate that recordings must have; None is the rate that they have"}, fftParam}, windowParams,
			[]Param{
				{Name: "f_min", Type: Float, Default: 0.0, Range: between(0, 1e7), Unit: "Hz", Help: "lowest frequency"},
				{Name: "f_max", Type: Float, Optional: true, Range: aboveUpTo(0, 1e7), Unit: "Hz", Help: "highest frequency; None is half the rate"},
				padParam,
				{Name: "n_mels", Type: Int, Default: 128, Range: between(1, maxFFT), Help: "number of bands"},
			}, spectrumRest,
			[]Param{
				{Name: "norm", Type: Choice, Optional: true, Choices: []string{"slaney"}, Help: "\"slaney\" divides bands by their width"},
				{Name: "mel_scale", Type: Choice, Default: "htk", Choices: []string{"htk", "slaney"}, Help: "the scale"},
			}),
		Kinds: sounds, Returns: "[channels, n_mels, frames]; float32.", Example: "audio.MelSpectrogram(n_mels=64)", sound: func(a *Args) (Op, error) { return buildSpectrogram(a, true) },
	}
)

func buildSpectrogram(a *Args, mel bool) (Op, error) {
	op := &spectrogram{name: a.spec.Name, nfft: a.Int("n_fft"), pad: a.Int("pad"), center: a.Bool("center"), hamming: a.Word("window") == "hamming", padMode: a.Word("pad_mode")}
	if op.window = a.Int("win_length"); op.window == 0 {
		op.window = op.nfft
	}
	if op.hop = a.Int("hop_length"); op.hop == 0 {
		op.hop = max(op.window/2, 1)
	}
	if op.window > op.nfft {
		a.fail("win_length", "must be at most n_fft = %d, not %d", op.nfft, op.window)
	}
	power := a.Float("power")
	if op.magnitude = power == 1; power != 1 && power != 2 {
		a.fail("power", "must be 1 (magnitudes) or 2 (powers), not %v", power)
	}
	if op.normalized = a.Word("normalized"); a.Bool("normalized") {
		op.normalized = "window"
	}
	if !mel {
		return op, nil
	}
	op.mels, op.rate = a.Int("n_mels"), a.Int("sample_rate")
	op.fMin, op.fMax = a.Float("f_min"), a.Float("f_max")
	op.slaneyNorm, op.slaneyScale = a.Word("norm") == "slaney", a.Word("mel_scale") == "slaney"
	if a.Has("f_max") && op.fMax <= op.fMin {
		a.fail("f_max", "must be above f_min = %v, not %v", op.fMin, op.fMax)
	}
	return op, nil
}

// frames returns the number of frames of n samples.
func (op *spectrogram) frames(n int64) int64 {
	n += 2 * int64(op.pad)
	if op.center {
		n += 2 * int64(op.nfft/2)
	}
	if n < int64(op.nfft) {
		return 0
	}
	return 1 + (n-int64(op.nfft))/int64(op.hop)
}

func (op *spectrogram) plan(s *soundShape) error {
	if s.bands > 0 {
		return fmt.Errorf("%s works on samples, and not on a spectrogram", op.name)
	}
	if op.mels > 0 {
		switch {
		case s.Rate == 0 && op.rate == 0:
			return fmt.Errorf("%s: the rate is not the same for all recordings, or not known; put stoker.audio.Resample before it", op.name)
		case s.Rate == 0:
			return fmt.Errorf("%s: sample_rate is %d, but the rate is not the same for all recordings, or not known; put stoker.audio.Resample(%d) before it", op.name, op.rate, op.rate)
		case op.rate > 0 && s.Rate != op.rate:
			return fmt.Errorf("%s: sample_rate is %d, but the sound has %d Hz; put stoker.audio.Resample(%d) before it", op.name, op.rate, s.Rate, op.rate)
		}
	}
	if op.spectrum == nil || op.mels > 0 && op.planned != s.Rate {
		if err := op.make(s.Rate); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
	}
	s.bands = op.spectrum.Rows()
	if s.length > 0 {
		if err := op.enough(s.length); err != nil {
			return err
		}
		s.length = op.frames(s.length)
	}
	return nil
}

// enough refuses recordings that are shorter than a window.
func (op *spectrogram) enough(n int64) error {
	switch {
	case op.center && op.padMode == "reflect" && n+2*int64(op.pad) <= int64(op.nfft/2):
		return fmt.Errorf("%s: %d samples are too few to be reflected at their ends for windows of %d; use PadOrTrim or RandomAudioCrop(pad_if_needed=True) before it", op.name, n, op.nfft)
	case op.frames(n) == 0 || n == 0:
		return fmt.Errorf("%s: %d samples are less than a window of %d", op.name, n, op.nfft)
	}
	return nil
}

// make prepares the transform for a rate.
func (op *spectrogram) make(rate int) error {
	window, sum := make([]float32, op.nfft), 0.0
	left := (op.nfft - op.window) / 2
	for i := range op.window {
		c := math.Cos(2 * math.Pi * float64(i) / float64(op.window))
		v := 0.5 - 0.5*c
		if op.hamming {
			v = 0.54 - 0.46*c
		}
		window[left+i] = float32(v)
		sum += v * v
	}
	scale := 1.0
	switch op.normalized {
	case "window":
		scale = 1 / math.Sqrt(sum)
	case "frame_length":
		scale = 1 / math.Sqrt(float64(op.nfft))
	}
	for i := range window {
		window[i] = float32(float64(window[i]) * scale)
	}
	var err error
	if op.spectrum, err = csound.NewSpectrum(window, op.hop, op.magnitude); err != nil {
		return err
	}
	op.planned = rate
	if op.mels > 0 {
		fMax := op.fMax
		if fMax == 0 {
			fMax = float64(rate / 2)
		}
		if op.fMin >= fMax {
			return fmt.Errorf("f_min is %v, not below f_max = %v", op.fMin, fMax)
		}
		op.spectrum.Bands(melBands(op.nfft/2+1, op.fMin, fMax, op.mels, rate, op.slaneyNorm, op.slaneyScale))
	}
	return nil
}

// melBands are the triangles of torchaudio's melscale_fbanks, without their zeros.
func melBands(bins int, fMin, fMax float64, mels, rate int, slaneyNorm, slaneyScale bool) (lo, hi []int32, weights []float32) {
	points := make([]float64, mels+2)
	a, b := toMel(fMin, slaneyScale), toMel(fMax, slaneyScale)
	for i := range points {
		points[i] = fromMel(a+(b-a)*float64(i)/float64(mels+1), slaneyScale)
	}
	top := float64(rate / 2)
	for m := range mels {
		l, c, r := points[m], points[m+1], points[m+2]
		norm := 1.0
		if slaneyNorm {
			norm = 2 / (r - l)
		}
		first, last := bins, 0
		begin := len(weights)
		for k := range bins {
			f := top * float64(k) / float64(max(bins-1, 1))
			w := math.Min((f-l)/(c-l), (r-f)/(r-c))
			if w > 0 {
				first, last = min(first, k), k+1
				weights = append(weights, float32(w*norm))
			}
		}
		if begin == len(weights) {
			first = 0
		}
		lo, hi = append(lo, int32(first)), append(hi, int32(last))
	}
	return lo, hi, weights
}

// Slaney's scale is linear up to 1000 Hz.
const (
	slaneyStep  = 200.0 / 3
	slaneyFrom  = 1000.0
	slaneyRatio = 6.4 // in 27 steps
)

func toMel(f float64, slaney bool) float64 {
	switch {
	case !slaney:
		return 2595 * math.Log10(1+f/700)
	case f >= slaneyFrom:
		return slaneyFrom/slaneyStep + math.Log(f/slaneyFrom)*27/math.Log(slaneyRatio)
	}
	return f / slaneyStep
}

func fromMel(m float64, slaney bool) float64 {
	switch from := slaneyFrom / slaneyStep; {
	case !slaney:
		return 700 * (math.Pow(10, m/2595) - 1)
	case m >= from:
		return slaneyFrom * math.Exp(math.Log(slaneyRatio)/27*(m-from))
	}
	return m * slaneyStep
}

func (op *spectrogram) apply(_ *Rand, x *signal, m SoundMemory) error {
	if err := op.enough(x.length); err != nil {
		return err
	}
	frames, rows := op.frames(x.length), int64(op.spectrum.Rows())
	side := int64(op.pad)
	if op.center {
		side += int64(op.nfft / 2)
	}
	padded, err := m.Floats(x.length + 2*side)
	if err != nil {
		return err
	}
	out, err := m.Floats(rows * frames * int64(x.Channels))
	if err != nil {
		return err
	}
	room, err := m.Floats(int64(op.spectrum.Room()))
	if err != nil {
		return err
	}
	for c := range x.Channels {
		op.fill(padded, x.plane(c))
		op.spectrum.Run(padded, int(frames), out[int64(c)*rows*frames:], int(frames), room)
	}
	x.data, x.stride, x.length, x.bands = out, frames, frames, int(rows)
	return nil
}

// fill writes samples with padding on both sides of them: zeros of pad, and then the padding of center by padMode.
func (op *spectrogram) fill(to, x []float32) {
	side := 0
	if op.center {
		side = op.nfft / 2
	}
	body := to[side : len(to)-side]
	clear(body[:op.pad])
	copy(body[op.pad:], x)
	clear(body[op.pad+len(x):])
	n := len(body)
	for i := range side {
		front, back := &to[side-1-i], &to[side+n+i]
		switch op.padMode {
		case "reflect":
			*front, *back = body[i+1], body[n-2-i]
		case "replicate":
			*front, *back = body[0], body[n-1]
		default:
			*front, *back = 0, 0
		}
	}
}

// toDB is torchaudio's AmplitudeToDB.
type toDB struct {
	scale float32
	top   float64 // 0: none
}

var toDBSpec = Spec{
	Name: "audio.AmplitudeToDB", Doc: "Convert to decibels, as torchaudio.transforms.AmplitudeToDB does.",
	Params: []Param{
		{Name: "stype", Type: Choice, Default: "power", Choices: []string{"power", "magnitude"}, Help: "what the values are"},
		{Name: "top_db", Type: Float, Optional: true, Range: within(0, 1e6), Unit: "dB", Help: "largest distance of a value from the largest value of the record"},
	},
	Kinds: sounds, Returns: sameShape, Example: "audio.AmplitudeToDB(top_db=80)", sound: buildToDB,
}

func buildToDB(a *Args) (Op, error) {
	op := &toDB{scale: 10 / math.Ln10, top: a.Float("top_db")}
	if a.Word("stype") == "magnitude" {
		op.scale = 20 / math.Ln10
	}
	return op, nil
}

func (op *toDB) plan(*soundShape) error { return nil }

func (op *toDB) apply(_ *Rand, x *signal, _ SoundMemory) error {
	top := float32(math.Inf(-1))
	for p := range x.planes() {
		row := x.plane(p)
		csound.Log(row, 1e-10, 0, op.scale)
		if op.top > 0 {
			for _, v := range row {
				top = max(top, v)
			}
		}
	}
	if op.top > 0 {
		least := top - float32(op.top)
		for p := range x.planes() {
			row := x.plane(p)
			for i, v := range row {
				row[i] = max(v, least)
			}
		}
	}
	return nil
}

// logarithm is ln(x + offset).
type logarithm struct{ offset float32 }

var logSpec = Spec{
	Name: "audio.Log", Doc: "Compute the natural logarithm of value + offset.", Params: []Param{{Name: "offset", Type: Float, Default: 1e-6, Range: between(1e-30, 1e6), Help: "number to add first"}},
	Kinds: sounds, Returns: sameShape, Example: "audio.Log()", sound: buildLog,
}

func buildLog(a *Args) (Op, error) {
	return &logarithm{float32(a.Float("offset"))}, nil
}

func (op *logarithm) plan(*soundShape) error { return nil }

func (op *logarithm) apply(_ *Rand, x *signal, _ SoundMemory) error {
	for p := range x.planes() {
		csound.Log(x.plane(p), 0, op.offset, 1)
	}
	return nil
}

// masking is one kind of masks of SpecAugment: count masks over time or bands, each
// up to param long, and p of the axis.
type masking struct {
	name  string
	time  bool
	param int
	count int
	iid   bool // each channel has its own
	p     float64
}

var (
	iidMasks             = Param{Name: "iid_masks", Type: Bool, Default: false, Help: "draw a mask for each channel"}
	frequencyMaskingSpec = Spec{
		Name: "audio.FrequencyMasking", Doc: "Set adjacent random bands to 0, as torchaudio.transforms.FrequencyMasking does.",
		Params: []Param{{Name: "freq_mask_param", Type: Int, Required: true, Range: between(0, maxFFT), Unit: "bands", Help: "the number of bands is less than this"}, iidMasks},
		Kinds:  sounds, Returns: sameShape, Example: "audio.FrequencyMasking(24)", sound: func(a *Args) (Op, error) { return buildMasking(a, false) },
	}
	timeMaskingSpec = Spec{
		Name: "audio.TimeMasking", Doc: "Set adjacent random frames to 0, as torchaudio.transforms.TimeMasking does.",
		Params: []Param{
			{Name: "time_mask_param", Type: Int, Required: true, Range: between(0, maxSamples), Unit: "frames", Help: "the number of frames is less than this"}, iidMasks,
			{Name: "p", Type: Float, Default: 1.0, Range: between(0, 1), Help: "largest fraction of the frames to mask"},
		},
		Kinds: sounds, Returns: sameShape, Example: "audio.TimeMasking(80)", sound: func(a *Args) (Op, error) { return buildMasking(a, true) },
	}
)

func buildMasking(a *Args, time bool) (Op, error) {
	key := "freq_mask_param"
	if time {
		key = "time_mask_param"
	}
	op := &masking{name: a.spec.Name, time: time, param: a.Int(key), count: 1, iid: a.Bool("iid_masks"), p: 1}
	if time {
		op.p = a.Float("p")
	}
	return op, nil
}

func (op *masking) plan(s *soundShape) error {
	if s.bands == 0 {
		return fmt.Errorf("%s works on a spectrogram; put stoker.audio.Spectrogram or stoker.audio.MelSpectrogram before it", op.name)
	}
	return nil
}

func (op *masking) apply(r *Rand, x *signal, _ SoundMemory) error {
	op.mask(r, x, 0)
	return nil
}

// mask draws in torchaudio's order: first the length of a mask, then its start.
func (op *masking) mask(r *Rand, x *signal, value float32) {
	size := int64(x.bands)
	if op.time {
		size = x.length
	}
	param := int64(op.param)
	if op.p < 1 {
		param = min(param, int64(float64(size)*op.p))
	}
	for range op.count {
		var from, to int64
		for c := range x.Channels {
			if c == 0 || op.iid {
				long := r.Float64() * float64(param)
				at := r.Float64() * (float64(size) - long)
				from = max(int64(at), 0)
				to = min(from+int64(long), size)
			}
			for b := range x.bands {
				row := x.plane(c*x.bands + b)
				if op.time {
					row = row[from:max(to, from)]
				} else if int64(b) < from || int64(b) >= to {
					continue
				}
				for i := range row {
					row[i] = value
				}
			}
		}
	}
}

// specAugment is torchaudio's SpecAugment.
type specAugment struct {
	time, bands masking
	zero        bool
}

var specAugmentSpec = Spec{
	Name: "audio.SpecAugment", Doc: "Mask several ranges of frames and bands, as torchaudio.transforms.SpecAugment does.",
	Params: []Param{
		{Name: "n_time_masks", Type: Int, Required: true, Range: between(0, maxFFT), Help: "number of masks over frames"},
		{Name: "time_mask_param", Type: Int, Required: true, Range: between(0, maxFFT), Unit: "frames", Help: "each is shorter than this"},
		{Name: "n_freq_masks", Type: Int, Required: true, Range: between(0, maxFFT), Help: "number of masks over bands"},
		{Name: "freq_mask_param", Type: Int, Required: true, Range: between(0, maxFFT), Unit: "bands", Help: "each has fewer bands than this"},
		{Name: "iid_masks", Type: Bool, Default: true, Help: "draw the masks for each channel"},
		{Name: "p", Type: Float, Default: 1.0, Range: between(0, 1), Help: "largest fraction of the frames, or bands, that a mask covers"},
		{Name: "zero_masking", Type: Bool, Default: false, Help: "fill masks with 0; otherwise with the mean of the spectrogram"},
	},
	Kinds: sounds, Returns: sameShape, Example: "audio.SpecAugment(2, 80, 2, 27)", sound: buildSpecAugment,
}

func buildSpecAugment(a *Args) (Op, error) {
	op := &specAugment{zero: a.Bool("zero_masking")}
	iid, p := a.Bool("iid_masks"), a.Float("p")
	op.time = masking{name: a.spec.Name, time: true, count: a.Int("n_time_masks"), param: a.Int("time_mask_param"), iid: iid, p: p}
	op.bands = masking{name: a.spec.Name, count: a.Int("n_freq_masks"), param: a.Int("freq_mask_param"), iid: iid, p: p}
	return op, nil
}

func (op *specAugment) plan(s *soundShape) error { return op.time.plan(s) }

func (op *specAugment) apply(r *Rand, x *signal, _ SoundMemory) error {
	value := 0.0
	if !op.zero {
		for p := range x.planes() {
			for _, v := range x.plane(p) {
				value += float64(v)
			}
		}
		value /= math.Max(float64(x.planes())*float64(x.length), 1)
	}
	op.time.mask(r, x, float32(value))
	op.bands.mask(r, x, float32(value))
	return nil
}
