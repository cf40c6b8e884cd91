package imagecodec

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/imagecodec/ljpegtest"
)

func randomLossless(m ljpegtest.Image) *ljpegtest.Image {
	rng := rand.New(rand.NewPCG(uint64(m.Bits), uint64(m.Predictor)))
	for range m.Width * m.Height {
		v := uint16(rng.Uint32())
		if rng.IntN(3) == 0 { // runs, and differences of all sizes
			v >>= rng.IntN(16)
		}
		m.Samples = append(m.Samples, v&(1<<m.Bits-1)>>m.Shift<<m.Shift)
	}
	return &m
}

var losslessImages = []*ljpegtest.Image{
	randomLossless(ljpegtest.Image{Width: 17, Height: 11, Bits: 16, Predictor: 1}), randomLossless(ljpegtest.Image{Width: 17, Height: 11, Bits: 12, Predictor: 2}), randomLossless(ljpegtest.Image{Width: 5, Height: 9, Bits: 8, Predictor: 3, Long: true}),
	randomLossless(ljpegtest.Image{Width: 17, Height: 11, Bits: 16, Predictor: 4, Long: true}), randomLossless(ljpegtest.Image{Width: 3, Height: 30, Bits: 10, Predictor: 5, Interval: 2}), randomLossless(ljpegtest.Image{Width: 17, Height: 11, Bits: 16, Predictor: 6}),
	randomLossless(ljpegtest.Image{Width: 1, Height: 4, Bits: 2, Predictor: 7}), randomLossless(ljpegtest.Image{Width: 40, Height: 40, Bits: 14, Predictor: 7, Shift: 2, Interval: 1}),
}

func decodeLossless(out, data []byte, size int) (*Lossless, error) {
	d, err := OpenLossless(data)
	if err == nil {
		err = d.Decode(out, size)
	}
	return d, err
}

func TestLossless(t *testing.T) {
	for _, m := range losslessImages {
		data := ljpegtest.Encode(m)
		size := (m.Bits + 7) / 8
		for _, rows := range []int{m.Height, m.Height/2 + 1} {
			out := make([]byte, rows*m.Width*size)
			if h, err := decodeLossless(out, data, size); err != nil || h.Width != m.Width || h.Height != m.Height || h.Bits != m.Bits {
				t.Fatalf("%d bits, predictor %d: %v", m.Bits, m.Predictor, err)
			}
			for i := range rows * m.Width {
				got := uint16(out[i*size])
				if size == 2 {
					got |= uint16(out[2*i+1]) << 8
				}
				if got != m.Samples[i] {
					t.Fatalf("%d bits, predictor %d: sample %d of row %d is %d, not %d", m.Bits, m.Predictor, i%m.Width, i/m.Width, got, m.Samples[i])
				}
			}
		}
	}
}

// Truncated images and images in other formats are errors.
func TestDamagedLossless(t *testing.T) {
	for _, m := range losslessImages {
		data := ljpegtest.Encode(m)
		out := make([]byte, m.Width*m.Height*2)
		for n := range len(data) - 4 {
			_, err := decodeLossless(out, data[:n], 2)
			var e *LosslessError
			if !errors.As(err, &e) || e.At > n {
				t.Fatalf("%d of %d bytes: %v", n, len(data), err)
			}
		}
	}
	data := ljpegtest.Encode(losslessImages[0])
	for want, change := range map[string]func(b []byte){
		"does not begin as a JPEG": func(b []byte) { b[0] = 0 },
		"SOF0 and no lossless":     func(b []byte) { b[strings.Index(string(b), "\xFF\xC3")+1] = 0xC0 },
		"samples have 17 bits":     func(b []byte) { b[strings.Index(string(b), "\xFF\xC3")+4] = 17 },
		"it has 3 components":      func(b []byte) { b[strings.Index(string(b), "\xFF\xC3")+9] = 3 },
		"no Huffman table 3":       func(b []byte) { b[strings.Index(string(b), "\xFF\xDA")+6] = 0x30 },
		"it has the predictor 8":   func(b []byte) { b[strings.Index(string(b), "\xFF\xDA")+7] = 8 },
		"shifted by 15 bits": func(b []byte) {
			b[strings.Index(string(b), "\xFF\xDA")+9] = 15
			b[strings.Index(string(b), "\xFF\xC3")+4] = 12
		},
		"difference of 99 bits": func(b []byte) { b[strings.Index(string(b), "\xFF\xC4")+21] = 99 },
		"more codes of 1 bits": func(b []byte) {
			b[strings.Index(string(b), "\xFF\xC4")+5] = 3
			b[strings.Index(string(b), "\xFF\xC4")+9] = 14
		},
		"a segment of 65535 bytes":     func(b []byte) { copy(b[4:], "\xFF\xFF") },
		"0x03 where a marker begins":   func(b []byte) { copy(b[4:], "\x00\x04") },
		"frame makes no sense":         func(b []byte) { copy(b[strings.Index(string(b), "\xFF\xC3")+2:], "\x00\x04") },
		"samples come before its fram": func(b []byte) { b[strings.Index(string(b), "\xFF\xC3")+1] = 0xFE },
	} {
		b := append([]byte(nil), data...)
		change(b)
		if _, err := decodeLossless(make([]byte, 2*17*11), b, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := decodeLossless(make([]byte, 17*11), data, 1); err == nil {
		t.Error("16 bits fit a byte")
	}
}

func FuzzLossless(f *testing.F) {
	for _, m := range losslessImages {
		f.Add(ljpegtest.Encode(m))
	}
	out := make([]byte, 1<<12)
	f.Fuzz(func(t *testing.T, b []byte) {
		for size := 1; size <= 2; size++ {
			if h, err := decodeLossless(out, b, size); err == nil && (h.Width < 1 || h.Height < 1 || h.Bits > 16) {
				t.Errorf("%d x %d, %d bits", h.Width, h.Height, h.Bits)
			}
		}
	})
}
