package cdec

/*
#cgo noescape sk_any_scale_bias
#cgo nocallback sk_any_scale_bias
#cgo noescape sk_any_sum
#cgo nocallback sk_any_sum
#cgo noescape sk_any_luma_sum
#cgo nocallback sk_any_luma_sum
#cgo noescape sk_any_gray
#cgo nocallback sk_any_gray
#cgo noescape sk_any_saturate
#cgo nocallback sk_any_saturate
#cgo noescape sk_any_hue
#cgo nocallback sk_any_hue
#cgo noescape sk_any_invert
#cgo nocallback sk_any_invert
#cgo noescape sk_any_posterize
#cgo nocallback sk_any_posterize
#cgo noescape sk_any_solarize
#cgo nocallback sk_any_solarize
#cgo noescape sk_any_autocontrast
#cgo nocallback sk_any_autocontrast
#cgo noescape sk_any_equalize
#cgo nocallback sk_any_equalize
#cgo noescape sk_any_sharpen
#cgo nocallback sk_any_sharpen
#cgo noescape sk_any_blur
#cgo nocallback sk_any_blur
#cgo noescape sk_any_warp
#cgo nocallback sk_any_warp
#cgo noescape sk_any_rot90
#cgo nocallback sk_any_rot90
#cgo noescape sk_any_window
#cgo nocallback sk_any_window
#include "aug_any.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/stokerdata/stoker/internal/item"
)

// The kernels of pixels that are not u8 of 1 or 3 channels: aug_any.h. Callers
// have checked their images and arguments.

// bytes3 reports whether aug.h has the kernels for p: u8 of 1 or 3 channels.
func (p *Pixmap) bytes3() bool {
	return p.dtype() == item.U8 && (p.C == 1 || p.C == 3)
}

// maxValue returns the value of white.
func (p *Pixmap) maxValue() float64 {
	switch p.DType {
	case item.F32:
		return 1
	case item.U16:
		return 65535
	}
	return 255
}

// dtype returns the type of the elements.
func (p *Pixmap) dtype() item.DType { return max(p.DType, item.U8) }

func (p *Pixmap) elemSize() int { return p.dtype().Size() }

func (p *Pixmap) elem() C.int { return C.int(p.dtype()) }

func (p *Pixmap) any() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p.Pix)) }

// elements counts them.
func (p *Pixmap) elements() C.size_t { return C.size_t(p.W * p.H * p.C) }

// checkColors checks p for an operation on colours or gray.
func (p *Pixmap) checkColors() error {
	if err := p.check(); err != nil {
		return err
	}
	if p.C != 1 && p.C != 3 {
		return &Error{ErrArgument, fmt.Sprintf("an operation on 1 or 3 channels cannot work on %d", p.C)}
	}
	return nil
}

func (p *Pixmap) anyContrast(f float64) {
	var sum C.double
	if p.C == 3 {
		sum = C.sk_any_luma_sum(p.elem(), p.any(), p.count())
	} else {
		sum = C.sk_any_sum(p.elem(), p.any(), p.elements())
	}
	mean := float32(float64(sum) / float64(p.W*p.H))
	C.sk_any_scale_bias(p.elem(), p.any(), p.elements(), C.float(f), C.float(mean*float32(1-f)))
}

// floats returns n bytes of the scratch as floats.
func floats(tmp []byte, n int) (*C.float, error) {
	if len(tmp) < n {
		return nil, &Error{ErrArgument, fmt.Sprintf("%d bytes of scratch, %d are needed", len(tmp), n)}
	}
	at := -uintptr(unsafe.Pointer(unsafe.SliceData(tmp))) & 3
	return (*C.float)(unsafe.Pointer(unsafe.SliceData(tmp[at:]))), nil
}

func anySharpness(dst, src Pixmap, f float64, tmp []byte) error {
	t, err := floats(tmp, SharpnessTemp(src))
	if err != nil {
		return err
	}
	C.sk_any_sharpen(src.elem(), dst.any(), src.any(), C.int(src.W), C.int(src.H), C.int(src.C), C.float(1-f), t)
	return nil
}

// floatWeights computes torchvision's kernel of k taps from the centre outwards.
func floatWeights(w *[MaxBlurKernel/2 + 1]C.float, k int, sigma float64) {
	step, sum := 1/math.Sqrt2, 1.0
	tap := func(i int) float64 {
		x := float64(i) * step / sigma
		return math.Exp(-x * x)
	}
	for i := 1; i <= k/2; i++ {
		sum += 2 * tap(i)
	}
	for i := 0; i <= k/2; i++ {
		w[i] = C.float(tap(i) / sum)
	}
}

func anyBlur(dst, src Pixmap, kw, kh int, sigmaX, sigmaY float64, tmp []byte) error {
	t, err := floats(tmp, BlurTemp(src, kw))
	if err != nil {
		return err
	}
	var kx, ky [MaxBlurKernel/2 + 1]C.float
	floatWeights(&kx, kw, sigmaX)
	floatWeights(&ky, kh, sigmaY)
	C.sk_any_blur(src.elem(), dst.any(), src.any(), C.int(src.W), C.int(src.H), C.int(src.C), &kx[0], C.int(kw/2),
		&ky[0], C.int(kh/2), t)
	return nil
}

// anyWarp takes the map of pixels of sk_aug_map.
func anyWarp(dst, src Pixmap, pixels *[6]float64, mode *WarpMode) {
	m := src.anyMap(mode)
	for i, v := range pixels {
		m.m[i] = C.double(v)
	}
	C.sk_any_warp(src.elem(), dst.any(), C.int(dst.W), C.int(dst.H), src.any(), C.int(src.W), C.int(src.H),
		C.int(src.C), &m)
}

// anyMap converts a mode for the kernels.
func (p *Pixmap) anyMap(mode *WarpMode) (m C.sk_any_map) {
	if mode.Bilinear {
		m.bilinear = 1
	}
	if mode.HasFill {
		m.has_fill = 1
		for c, v := range mode.Fill {
			m.fill[c] = C.float(p.limit(v))
		}
	}
	return m
}

// limit cuts a value off at the range of integers.
func (p *Pixmap) limit(v float32) float32 {
	if p.DType == item.F32 {
		return v
	}
	return max(0, min(float32(p.maxValue()), v))
}

// pixel returns one pixel of p in the given colour.
func (p *Pixmap) pixel(color []float32) (b [4 * item.MaxChannels]byte) {
	for c, v := range color[:min(p.C, len(color))] {
		switch v = p.limit(v); p.DType {
		case item.F32:
			binary.LittleEndian.PutUint32(b[4*c:], math.Float32bits(v))
		case item.U16:
			binary.LittleEndian.PutUint16(b[2*c:], uint16(v))
		default:
			b[c] = byte(v)
		}
	}
	return b
}
