package csound

/*
#include "csound.h"
*/
import "C"

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Resampler changes the rate of sound like torchaudio.transforms.Resample: by windowed sincs, whose coefficients
// repeat. Output o is the sum of Taps samples from (o/phases)*step + start[o%phases] on, times the coefficients of
// that phase.
type Resampler struct {
	phases, step, taps int
	start              []int32
	coefs              []float32
}

// ResampleOptions are the parameters of torchaudio; LowpassWidth and Rolloff are
// above 0. Beta 0 is a Hann window, else it is a Kaiser window of that beta.
type ResampleOptions struct {
	LowpassWidth  int
	Rolloff, Beta float64
}

// maxCoefs limits the number of coefficients.
const maxCoefs = 1 << 24

// NewResampler makes the coefficients.
func NewResampler(from, to int, o *ResampleOptions) (*Resampler, error) {
	a, b := from, to
	for b != 0 {
		a, b = b, a%b
	}
	step, phases := from/a, to/a
	base := float64(min(step, phases)) * o.Rolloff
	width := int(math.Ceil(float64(o.LowpassWidth) * float64(step) / base))
	full := 2*width + step
	// Behind lowpass_filter_width zero crossings the window is 0.
	reach := float64(o.LowpassWidth) / base * float64(step)
	taps := (int(2*reach) + 2 + C.SS_LANES) / C.SS_LANES * C.SS_LANES
	if int64(taps)*int64(phases) > maxCoefs {
		return nil, fmt.Errorf("resampling from %d to %d Hz takes %d coefficients, more than the limit of %d; choose rates with a larger common divisor",
			from, to, int64(taps)*int64(phases), maxCoefs)
	}
	r := &Resampler{phases: phases, step: step, taps: taps, start: make([]int32, phases), coefs: make([]float32, taps*phases)}
	scale := base / float64(step)
	window := func(t float64) float64 {
		if o.Beta > 0 {
			x := t / float64(o.LowpassWidth)
			return bessel(o.Beta*math.Sqrt(max(0, 1-x*x))) / bessel(o.Beta)
		}
		c := math.Cos(t * math.Pi / float64(o.LowpassWidth) / 2)
		return c * c
	}
	for i := range phases {
		// The kernel of torchaudio has full coefficients for samples -width, ...; all
		// but taps of them are 0.
		center := float64(i)/float64(phases)*float64(step) + float64(width)
		k0 := max(0, min(int(math.Ceil(center-reach)), full-taps))
		r.start[i] = int32(k0 - width)
		for k := range taps {
			if k0+k >= full {
				break // torchaudio's kernel also ends here
			}
			t := (float64(-i)/float64(phases) + float64(k0+k-width)/float64(step)) * base
			t = max(-float64(o.LowpassWidth), min(t, float64(o.LowpassWidth)))
			w := window(t)
			if t *= math.Pi; t != 0 {
				w *= math.Sin(t) / t
			}
			r.coefs[i*taps+k] = float32(w * scale)
		}
	}
	return r, nil
}

// bessel returns the modified Bessel function of order 0.
func bessel(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1.0; term > sum*1e-17; k++ {
		term *= (x / 2 / k) * (x / 2 / k)
		sum += term
	}
	return sum
}

// Len returns the number of output samples for n input samples.
func (r *Resampler) Len(n int64) int64 {
	return (n*int64(r.phases) + int64(r.step) - 1) / int64(r.step)
}

// Span returns the samples [lo, hi) from which outputs [from, from+n) are computed. The range may extend past both
// ends of the sound, where samples are 0.
func (r *Resampler) Span(from, n int64) (lo, hi int64) {
	if n <= 0 {
		return 0, 0
	}
	p := int64(r.phases)
	// Within a turn starts do not fall, but the first ones of the next are ahead.
	at := func(o int64) int64 { return o/p*int64(r.step) + int64(r.start[o%p]) }
	return at(from), at(from+n-1) + int64(r.taps)
}

// Run computes outputs [from, from+len(out)) from x, whose first element is sample first. x must contain all of Span.
func (r *Resampler) Run(out, x []float32, first, from int64) {
	if len(out) == 0 {
		return
	}
	lo, hi := r.Span(from, int64(len(out)))
	_, _ = x[lo-first], x[hi-first-1]
	C.ss_resample(C.int(cdec.SoundKernels()), (*C.float)(&r.coefs[0]), (*C.int32_t)(&r.start[0]), C.int(r.phases), C.int(r.step), C.int(r.taps),
		(*C.float)(&x[0]), C.int64_t(first), C.int64_t(from), C.int64_t(len(out)), (*C.float)(&out[0]))
}
