package cdec

/*
#cgo noescape sk_aug_scale_bias
#cgo nocallback sk_aug_scale_bias
#cgo noescape sk_aug_luma_sum
#cgo nocallback sk_aug_luma_sum
#cgo noescape sk_aug_byte_sum
#cgo nocallback sk_aug_byte_sum
#cgo noescape sk_aug_gray3
#cgo nocallback sk_aug_gray3
#cgo noescape sk_aug_gray1
#cgo nocallback sk_aug_gray1
#cgo noescape sk_aug_saturate
#cgo nocallback sk_aug_saturate
#cgo noescape sk_aug_hue
#cgo nocallback sk_aug_hue
#cgo noescape sk_aug_hsv
#cgo nocallback sk_aug_hsv
#cgo noescape sk_aug_invert
#cgo nocallback sk_aug_invert
#cgo noescape sk_aug_and
#cgo nocallback sk_aug_and
#cgo noescape sk_aug_solarize
#cgo nocallback sk_aug_solarize
#cgo noescape sk_aug_lut
#cgo nocallback sk_aug_lut
#cgo noescape sk_aug_hist
#cgo nocallback sk_aug_hist
#cgo noescape sk_aug_minmax
#cgo nocallback sk_aug_minmax
#include "aug.h"
#include "aug_any.h"
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/stokerdata/stoker/internal/item"
)

// Pixmap is an image for the augmentations: H rows of W pixels of C interleaved channels of DType (zero: item.U8),
// without padding. Its methods and the functions in this package behave like the kernels of torchvision.transforms.v2
// for tensors of that type. Results of integer types differ by at most one level.
type Pixmap struct {
	Pix     []byte
	W, H, C int
	DType   item.DType
	// Pillow makes the kernels compute as Pillow does with an image of the same
	// pixels. Only u8 of 1 or 3 channels has it.
	Pillow bool
}

func (p Pixmap) check() error {
	known := p.dtype() == item.U8 || p.DType == item.U16 || p.DType == item.F32
	if !known || p.C < 1 || p.C > item.MaxChannels || p.W < 1 || p.H < 1 || p.W > MaxSide || p.H > MaxSide ||
		len(p.Pix) < p.W*p.H*p.C*p.elemSize() {
		return &Error{ErrArgument, fmt.Sprintf("%d bytes are not an image of %dx%d pixels of %d channels of %s", len(p.Pix), p.W, p.H, p.C, p.dtype())}
	}
	return nil
}

func (p Pixmap) ptr() *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(p.Pix)) }
func (p Pixmap) bytes() C.size_t { return C.size_t(p.W * p.H * p.C) }
func (p Pixmap) count() C.size_t { return C.size_t(p.W * p.H) }

// factor checks a factor that must not be negative.
func factor(name string, f float64) error {
	if !(f >= 0 && f <= 1e6) {
		return &Error{ErrArgument, fmt.Sprintf("%s is %v, must be between 0 and 1e6", name, f)}
	}
	return nil
}

// AdjustBrightness multiplies the pixels by f.
func (p Pixmap) AdjustBrightness(f float64) error {
	if err := p.checkColors(); err != nil {
		return err
	}
	if err := factor("brightness_factor", f); err != nil {
		return err
	}
	if p.Pillow {
		p.blend(0, f)
		return nil
	}
	if !p.bytes3() {
		C.sk_any_scale_bias(p.elem(), p.any(), p.elements(), C.float(f), 0)
		return nil
	}
	C.sk_aug_scale_bias(p.ptr(), p.bytes(), C.float(f), 0)
	return nil
}

// AdjustContrast moves the pixels away from the mean luma of the image (f > 1)
// or towards it.
func (p Pixmap) AdjustContrast(f float64) error {
	if err := p.checkColors(); err != nil {
		return err
	}
	if err := factor("contrast_factor", f); err != nil {
		return err
	}
	if p.Pillow {
		p.blend(p.pillowMean(), f)
		return nil
	}
	if !p.bytes3() {
		p.anyContrast(f)
		return nil
	}
	var sum C.uint64_t
	if p.C == 3 {
		sum = C.sk_aug_luma_sum(p.ptr(), p.count())
	} else {
		sum = C.sk_aug_byte_sum(p.ptr(), p.bytes())
	}
	mean := float32(float64(sum) / float64(p.W*p.H))
	C.sk_aug_scale_bias(p.ptr(), p.bytes(), C.float(f), C.float(mean*float32(1-f)))
	return nil
}

// AdjustSaturation moves the pixels away from their luma (f > 1) or towards it.
func (p Pixmap) AdjustSaturation(f float64) error {
	if err := p.checkColors(); err != nil {
		return err
	}
	if err := factor("saturation_factor", f); err != nil {
		return err
	}
	if p.C == 3 && p.Pillow {
		C.sk_pillow_saturate(p.ptr(), p.count(), C.float(f))
		return nil
	}
	if p.C == 3 && !p.bytes3() {
		C.sk_any_saturate(p.elem(), p.any(), p.count(), C.float(f))
		return nil
	}
	if p.C == 3 {
		C.sk_aug_saturate(p.ptr(), p.count(), C.float(f), C.float(1-f))
	}
	return nil
}

// AdjustHue turns the hue by f of a full turn, -0.5 <= f <= 0.5.
func (p Pixmap) AdjustHue(f float64) error {
	if err := p.checkColors(); err != nil {
		return err
	}
	if !(f >= -0.5 && f <= 0.5) {
		return &Error{ErrArgument, fmt.Sprintf("hue_factor is %v, must be between -0.5 and 0.5", f)}
	}
	if p.C == 3 && p.Pillow {
		C.sk_pillow_hue(p.ptr(), p.count(), C.uint8_t(uint8(int(f*255))))
		return nil
	}
	if p.C == 3 && !p.bytes3() {
		C.sk_any_hue(p.elem(), p.any(), p.count(), C.float(f))
		return nil
	}
	if p.C == 3 {
		C.sk_aug_hue(p.ptr(), p.count(), C.float(f))
	}
	return nil
}

// Grayscale replaces all channels by the luma.
func (p Pixmap) Grayscale() error {
	if err := p.checkColors(); err != nil {
		return err
	}
	if p.C == 3 && p.Pillow {
		C.sk_pillow_gray3(p.ptr(), p.count())
		return nil
	}
	if p.C == 3 && !p.bytes3() {
		C.sk_any_gray(p.elem(), p.any(), p.any(), p.count(), 3)
		return nil
	}
	if p.C == 3 {
		C.sk_aug_gray3(p.ptr(), p.count())
	}
	return nil
}

// GrayscaleTo writes the luma of p into dst, one element per pixel; dst may be
// p.Pix.
func (p Pixmap) GrayscaleTo(dst []byte) error {
	if err := p.checkColors(); err != nil {
		return err
	}
	n := p.W * p.H * p.elemSize()
	if len(dst) < n {
		return &Error{ErrArgument, fmt.Sprintf("%d bytes have no room for %dx%d pixels", len(dst), p.W, p.H)}
	}
	if p.C == 1 {
		copy(dst, p.Pix[:n])
		return nil
	}
	if !p.bytes3() {
		C.sk_any_gray(p.elem(), unsafe.Pointer(unsafe.SliceData(dst)), p.any(), p.count(), 1)
		return nil
	}
	C.sk_aug_gray1((*C.uint8_t)(unsafe.SliceData(dst)), p.ptr(), p.count())
	return nil
}

// HSV maps hue, saturation and value with tables, in the 8-bit HSV of OpenCV: hues from 0 to 179, saturations and
// values from 0 to 255. It supports only RGB of u8.
func (p Pixmap) HSV(hues *[180]byte, saturations, values *[256]byte) error {
	if err := p.checkBytes(); err != nil {
		return err
	}
	if p.C != 3 {
		return &Error{ErrArgument, "hue, saturation and value are of RGB"}
	}
	for h, to := range hues {
		if to >= 180 {
			return &Error{ErrArgument, fmt.Sprintf("hue %d becomes %d, must be below 180", h, to)}
		}
	}
	C.sk_aug_hsv(p.ptr(), p.count(), (*C.uint8_t)(&hues[0]), (*C.uint8_t)(&saturations[0]), (*C.uint8_t)(&values[0]))
	return nil
}

// Invert replaces x by the largest value minus x.
func (p Pixmap) Invert() error {
	if err := p.check(); err != nil {
		return err
	}
	if !p.bytes3() {
		C.sk_any_invert(p.elem(), p.any(), p.elements())
		return nil
	}
	C.sk_aug_invert(p.ptr(), p.bytes())
	return nil
}

// Posterize keeps the upper bits of each value, 0 to 8.
func (p Pixmap) Posterize(bits int) error {
	if err := p.check(); err != nil {
		return err
	}
	if bits < 0 || bits > 8 {
		return &Error{ErrArgument, fmt.Sprintf("bits is %d, must be between 0 and 8", bits)}
	}
	if !p.bytes3() {
		C.sk_any_posterize(p.elem(), p.any(), p.elements(), C.int(bits))
		return nil
	}
	C.sk_aug_and(p.ptr(), p.bytes(), C.uint8_t(0xff<<(8-bits)&0xff))
	return nil
}

// Solarize inverts the values at or above the threshold.
func (p Pixmap) Solarize(threshold float64) error {
	if err := p.check(); err != nil {
		return err
	}
	if !(threshold <= p.maxValue()) {
		return &Error{ErrArgument, fmt.Sprintf("threshold is %v, must be at most %v", threshold, p.maxValue())}
	}
	if !p.bytes3() {
		C.sk_any_solarize(p.elem(), p.any(), p.elements(), C.float(threshold))
		return nil
	}
	C.sk_aug_solarize(p.ptr(), p.bytes(), C.int(math.Ceil(max(threshold, 0))))
	return nil
}

func (p Pixmap) applyTable(lut *[3 * 256]byte) {
	C.sk_aug_lut(p.ptr(), p.count(), C.int(p.C), (*C.uint8_t)(&lut[0]))
}

// AutoContrast stretches each channel to its whole range.
func (p Pixmap) AutoContrast() error {
	if err := p.checkColors(); err != nil {
		return err
	}
	if !p.bytes3() {
		C.sk_any_autocontrast(p.elem(), p.any(), p.count(), C.int(p.C))
		return nil
	}
	var lo, hi [3]byte
	C.sk_aug_minmax(p.ptr(), p.count(), C.int(p.C), (*C.uint8_t)(&lo[0]), (*C.uint8_t)(&hi[0]))
	var lut [3 * 256]byte
	if p.Pillow {
		p.pillowStretch(&lut, lo, hi)
		return nil
	}
	for c := range p.C {
		from, scale := float32(lo[c]), (float32(hi[c])-float32(lo[c]))*float32(1.0/255)
		if lo[c] == hi[c] {
			from, scale = 0, 1
		}
		for v := range 256 {
			lut[256*c+v] = byte(max(0, min(255, (float32(v)-from)/scale)))
		}
	}
	p.applyTable(&lut)
	return nil
}

// Equalize spreads the values of each channel evenly, by Pillow's rule.
func (p Pixmap) Equalize() error {
	if err := p.check(); err != nil {
		return err
	}
	if !p.bytes3() {
		C.sk_any_equalize(p.elem(), p.any(), p.count(), C.int(p.C))
		return nil
	}
	var hist [3 * 256]uint32
	C.sk_aug_hist(p.ptr(), p.count(), C.int(p.C), (*C.uint32_t)(&hist[0]))
	var lut [3 * 256]byte
	for c := range p.C {
		h := hist[256*c : 256*c+256]
		last := 255
		for last > 0 && h[last] == 0 {
			last--
		}
		step := (uint32(p.W*p.H) - h[last]) / 255
		cum := step / 2
		for v := range 256 {
			if step == 0 {
				lut[256*c+v] = byte(v)
				continue
			}
			lut[256*c+v] = byte(min(255, cum/step))
			cum += h[v]
		}
	}
	p.applyTable(&lut)
	return nil
}
