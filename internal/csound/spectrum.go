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

// Spectrum makes spectrograms: of bins, or of bands that are weighted sums of bins.
type Spectrum struct {
	c        C.ss_spectrum
	window   []float32
	twiddles []float32
	lo, hi   []int32
	weights  []float32
}

// maxFactor limits the prime factors of the size of a transform.
const maxFactor = 61

// NewSpectrum prepares transforms of len(window) samples every hop samples. Samples are multiplied by window.
// magnitude takes the root of the powers.
func NewSpectrum(window []float32, hop int, magnitude bool) (*Spectrum, error) {
	n := len(window)
	s := &Spectrum{window: window}
	s.c.n, s.c.bins, s.c.hop = C.int(n), C.int(n/2+1), C.int(hop)
	if magnitude {
		s.c.magnitude = 1
	}
	left := n
	for _, p := range []int{4, 2, 3, 5} {
		for left%p == 0 {
			s.factor(p)
			left /= p
		}
	}
	for p := 7; left > 1; p += 2 {
		for left%p == 0 {
			if p > maxFactor {
				return nil, fmt.Errorf("a transform of %d samples has the prime factor %d; choose a size whose prime factors are at most %d", n, p, maxFactor)
			}
			s.factor(p)
			left /= p
		}
		if p > maxFactor && left > 1 {
			return nil, fmt.Errorf("a transform of %d samples has a prime factor above %d; choose another size", n, maxFactor)
		}
	}
	left = n
	for i := range int(s.c.count) {
		p := int(s.c.factors[i])
		for j := range p {
			s.root(j, p)
		}
		for q := range left / p {
			for j := 1; j < p; j++ {
				s.root(q*j, left)
			}
		}
		left /= p
	}
	return s, nil
}

func (s *Spectrum) factor(p int) {
	s.c.factors[s.c.count] = C.int(p)
	s.c.count++
}

// root adds exp(-2*pi*i*k/n).
func (s *Spectrum) root(k, n int) {
	sin, cos := math.Sincos(-2 * math.Pi * float64(k%n) / float64(n))
	s.twiddles = append(s.twiddles, float32(cos), float32(sin))
}

// Bands makes sums of bins: band m has the weights of bins lo[m] to hi[m]. The weights of all bands are stored one
// after the other.
func (s *Spectrum) Bands(lo, hi []int32, weights []float32) {
	s.lo, s.hi, s.weights = lo, hi, weights
	s.c.mels = C.int(len(lo))
}

// Rows returns the number of values of a frame.
func (s *Spectrum) Rows() int {
	if s.c.mels > 0 {
		return int(s.c.mels)
	}
	return int(s.c.bins)
}

// Room returns the number of floats that Run needs as work space. They are 32-byte aligned.
func (s *Spectrum) Room() int { return (4*int(s.c.n) + 2*int(s.c.bins)) * C.SS_LANES }

// Run makes the frames of x, the first one at its beginning. Row m of out begins at
// m*stride and has the values of band m by time.
func (s *Spectrum) Run(x []float32, frames int, out []float32, stride int, room []float32) {
	if frames == 0 {
		return
	}
	_, _, _ = x[(frames-1)*int(s.c.hop)+int(s.c.n)-1], out[(s.Rows()-1)*stride+frames-1], room[s.Room()-1]
	var lo, hi *C.int32_t
	var weights *C.float
	if len(s.lo) > 0 {
		lo, hi = (*C.int32_t)(&s.lo[0]), (*C.int32_t)(&s.hi[0])
	}
	if len(s.weights) > 0 {
		weights = (*C.float)(&s.weights[0])
	}
	C.ss_spectra(C.int(cdec.SoundKernels()), &s.c, (*C.float)(&s.window[0]), (*C.float)(&s.twiddles[0]), lo, hi, weights, (*C.float)(&x[0]),
		C.int64_t(frames), (*C.float)(&out[0]), C.size_t(stride), (*C.float)(&room[0]))
}
