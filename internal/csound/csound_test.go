package csound

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stokerdata/stoker/internal/cdec"
)

// room returns n floats with the alignment of the engine's.
func room(n int) []float32 {
	f := make([]float32, n+16)
	at := 0
	for uintptr(unsafe.Pointer(&f[at]))%64 != 0 {
		at++
	}
	return f[at : at+n]
}

func noise(n int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(2*r.Float64() - 1)
	}
	return x
}

// Each set of kernels gives the same floats.
func kernels(t *testing.T, f func() []float32) []float32 {
	t.Helper()
	was := cdec.Kernels()
	defer func() {
		if err := cdec.SetKernels(was); err != nil {
			t.Error(err)
		}
	}()
	var first []float32
	for _, set := range []string{"scalar", "avx2", "avx512"} {
		if cdec.SetKernels(set) != nil {
			continue // not of this processor
		}
		got := f()
		if first == nil {
			first = got
			continue
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(first[i]) {
				t.Fatalf("kernels %s: value %d is %v, and %v with scalar ones", set, i, got[i], first[i])
			}
		}
	}
	return first
}

// Spectra equal the sum that defines them.
func TestSpectra(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 49, 61, 77, 200, 240, 256, 400} {
		for _, frames := range []int{1, 3, 8, 9, 16, 37} {
			hop := n/3 + 1
			x := noise((frames-1)*hop + n)
			window := noise(n)
			s, err := NewSpectrum(window, hop, n%2 == 1)
			if err != nil {
				t.Fatal(err)
			}
			got := kernels(t, func() []float32 {
				out := make([]float32, s.Rows()*frames)
				s.Run(x, frames, out, frames, room(s.Room()))
				return out
			})
			for f := range frames {
				for k := range n/2 + 1 {
					re, im := 0.0, 0.0
					for i := range n {
						v := float64(x[f*hop+i]) * float64(window[i])
						sin, cos := math.Sincos(2 * math.Pi * float64(k*i%n) / float64(n))
						re, im = re+v*cos, im-v*sin
					}
					want := re*re + im*im
					if n%2 == 1 {
						want = math.Sqrt(want)
					}
					if v := float64(got[k*frames+f]); math.Abs(v-want) > 1e-5*float64(n) {
						t.Fatalf("%d samples, frame %d of %d, bin %d: %v, want %v", n, f, frames, k, v, want)
					}
				}
			}
		}
	}
	for _, n := range []int{67, 134, 67 * 67} {
		if _, err := NewSpectrum(make([]float32, n), 1, false); err == nil {
			t.Errorf("%d samples are taken", n)
		}
	}
}

// Bands are sums of bins.
func TestBands(t *testing.T) {
	const n, frames = 64, 21
	x, window := noise(n+(frames-1)*5), noise(n)
	s, _ := NewSpectrum(window, 5, false)
	bins := make([]float32, 33*frames)
	s.Run(x, frames, bins, frames, room(s.Room()))
	s.Bands([]int32{0, 3, 10}, []int32{2, 3, 33}, append([]float32{1, 2}, noise(23)...))
	got := kernels(t, func() []float32 {
		out := make([]float32, 3*frames)
		s.Run(x, frames, out, frames, room(s.Room()))
		return out
	})
	for f := range frames {
		want := [3]float64{float64(bins[f]) + 2*float64(bins[frames+f])}
		for i, w := range noise(23) {
			want[2] += float64(w) * float64(bins[(10+i)*frames+f])
		}
		for m := range want {
			if v := float64(got[m*frames+f]); math.Abs(v-want[m]) > 1e-4*(1+math.Abs(want[m])) {
				t.Fatalf("band %d of frame %d is %v, want %v", m, f, v, want[m])
			}
		}
	}
}

// A part of the resampled sound equals that part of the whole, which is the sum in torchaudio's documentation.
func TestResample(t *testing.T) {
	x := noise(3000)
	for _, rates := range [][2]int{{44100, 16000}, {16000, 44100}, {8000, 16000}, {48000, 8000}, {3, 2}, {22050, 22051}, {5, 1}} {
		opt := &ResampleOptions{LowpassWidth: 6, Rolloff: 0.99}
		r, err := NewResampler(rates[0], rates[1], opt)
		if err != nil {
			t.Fatal(err)
		}
		n := r.Len(int64(len(x)))
		at := func(from, n int64) []float32 {
			lo, hi := r.Span(from, n)
			in := make([]float32, hi-lo)
			for i := range in {
				if k := lo + int64(i); k >= 0 && k < int64(len(x)) {
					in[i] = x[k]
				}
			}
			out := make([]float32, n)
			r.Run(out, in, lo, from)
			return out
		}
		whole := kernels(t, func() []float32 { return at(0, n) })
		for from := int64(0); from < n; from += n/7 + 1 {
			for i, v := range at(from, min(101, n-from)) {
				if v != whole[from+int64(i)] {
					t.Fatalf("%v: output %d is %v alone and %v in the whole", rates, from+int64(i), v, whole[from+int64(i)])
				}
			}
		}
		ratio := min(1, float64(rates[1])/float64(rates[0])) * opt.Rolloff
		for o := int64(0); o < n; o += n/50 + 1 {
			center, want := float64(o)*float64(rates[0])/float64(rates[1]), 0.0
			for i, v := range x {
				d := (float64(i) - center) * ratio
				if math.Abs(d) >= 6 {
					continue
				}
				c, w := math.Cos(d*math.Pi/12), ratio
				if d != 0 {
					w *= math.Sin(math.Pi*d) / (math.Pi * d)
				}
				want += float64(v) * w * c * c
			}
			if math.Abs(float64(whole[o])-want) > 2e-6 {
				t.Fatalf("%v: output %d is %v, want %v", rates, o, whole[o], want)
			}
		}
	}
	if _, err := NewResampler(999_983, 999_979, &ResampleOptions{LowpassWidth: 64, Rolloff: 0.99}); err == nil {
		t.Error("a gigabyte of coefficients is made")
	}
}

func TestLog(t *testing.T) {
	x := []float32{1e-30, 1e-10, 0.1, 0.5, 0.70710677, 0.7071068, 0.99999994, 1, 1.0000001, 1.4142135, 1.4142137, 2, 3, 1e10, 3e38}
	got := kernels(t, func() []float32 {
		out := append([]float32(nil), x...)
		Log(out, 0, 0, 1)
		return out
	})
	for i, v := range x {
		if want := math.Log(float64(v)); math.Abs(float64(got[i])-want) > 3e-7*max(1, math.Abs(want)) {
			t.Errorf("log(%v) is %v, want %v", v, got[i], want)
		}
	}
	v := []float32{0, -1, float32(math.NaN())}
	Log(v, 1e-10, 0, 10/math.Ln10)
	if math.Abs(float64(v[0])+100) > 1e-4 || v[0] != v[1] {
		t.Errorf("below the floor: %v", v)
	}
}

func BenchmarkMel(b *testing.B) {
	const frames = 1000
	x := noise(frames*160 + 400)
	s, _ := NewSpectrum(noise(400), 160, false)
	out, r := make([]float32, 201*frames), room(s.Room())
	for b.Loop() {
		s.Run(x, frames, out, frames, r)
	}
	b.ReportMetric(float64(b.N)*frames/100/b.Elapsed().Seconds(), "s-of-sound/s")
}

func BenchmarkResample(b *testing.B) {
	x := noise(441000)
	r, _ := NewResampler(44100, 16000, &ResampleOptions{LowpassWidth: 6, Rolloff: 0.99})
	lo, hi := r.Span(0, 150000)
	in, out := make([]float32, hi-lo), make([]float32, 150000)
	copy(in[-lo:], x)
	for b.Loop() {
		r.Run(out, in, lo, 0)
	}
	b.ReportMetric(float64(b.N)*150000/16000/b.Elapsed().Seconds(), "s-of-sound/s")
}
