package cdec

/*
#cgo noescape sk_aug_sharpen
#cgo nocallback sk_aug_sharpen
#cgo noescape sk_aug_blur
#cgo nocallback sk_aug_blur
#cgo noescape sk_aug_warp
#cgo nocallback sk_aug_warp
#cgo noescape sk_aug_remap
#cgo nocallback sk_aug_remap
#cgo noescape sk_any_remap
#cgo nocallback sk_any_remap
#cgo noescape sk_pillow_sharpen
#cgo nocallback sk_pillow_sharpen
#cgo noescape sk_aug_rot90
#cgo nocallback sk_aug_rot90
#cgo noescape sk_aug_window
#cgo nocallback sk_aug_window
#cgo noescape sk_aug_mix_u8
#cgo nocallback sk_aug_mix_u8
#cgo noescape sk_aug_mix_f32
#cgo nocallback sk_aug_mix_f32
#cgo noescape sk_aug_mix_f16
#cgo nocallback sk_aug_mix_f16
#cgo noescape sk_aug_mix_bf16
#cgo nocallback sk_aug_mix_bf16
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

// checkPair checks the two images of an operation that does not work in place.
func checkPair(dst, src Pixmap) error {
	if err := src.check(); err != nil {
		return err
	}
	if err := dst.check(); err != nil {
		return err
	}
	if dst.C != src.C || dst.elem() != src.elem() {
		return &Error{ErrArgument, fmt.Sprintf("an image of %d channels of %s cannot become one of %d of %s", src.C, src.dtype(), dst.C, dst.dtype())}
	}
	return nil
}

func sameSize(dst, src Pixmap) error {
	if err := checkPair(dst, src); err != nil {
		return err
	}
	if dst.W != src.W || dst.H != src.H {
		return &Error{ErrArgument, fmt.Sprintf("an image of %dx%d pixels cannot become one of %dx%d here", src.W, src.H, dst.W, dst.H)}
	}
	return nil
}

// words returns n bytes of the scratch as 16-bit words.
func words(tmp []byte, n int) (unsafe.Pointer, error) {
	if len(tmp) < n {
		return nil, &Error{ErrArgument, fmt.Sprintf("%d bytes of scratch, %d are needed", len(tmp), n)}
	}
	p := unsafe.SliceData(tmp)
	return unsafe.Pointer(unsafe.SliceData(tmp[uintptr(unsafe.Pointer(p))&1:])), nil
}

// SharpnessTemp returns the scratch in bytes that AdjustSharpness needs for p.
func SharpnessTemp(p Pixmap) int { return p.tempElem()*p.W*p.C + 66 }

// tempElem returns the size of an element of intermediate rows.
func (p *Pixmap) tempElem() int {
	if p.bytes3() {
		return 2
	}
	return 4
}

// AdjustSharpness blends src with a smoothed copy of itself into dst: f = 0 is
// the copy, 1 the image, 2 twice as sharp. dst must not overlap src; tmp has
// SharpnessTemp bytes.
func AdjustSharpness(dst, src Pixmap, f float64, tmp []byte) error {
	if err := sameSize(dst, src); err != nil {
		return err
	}
	if err := factor("sharpness_factor", f); err != nil {
		return err
	}
	if err := src.checkColors(); err != nil {
		return err
	}
	if src.Pillow {
		C.sk_pillow_sharpen(dst.ptr(), src.ptr(), C.int(src.W), C.int(src.H), C.int(src.C), C.float(f))
		return nil
	}
	if !src.bytes3() {
		return anySharpness(dst, src, f, tmp)
	}
	t, err := words(tmp, SharpnessTemp(src))
	if err != nil {
		return err
	}
	C.sk_aug_sharpen(dst.ptr(), src.ptr(), C.int(src.W), C.int(src.H), C.int(src.C), C.float(1-f),
		(*C.uint16_t)(t))
	return nil
}

// MaxBlurKernel is the largest kernel of GaussianBlur.
const MaxBlurKernel = 2*C.SK_AUG_MAX_RADIUS + 1

// BlurTemp returns the scratch in bytes that GaussianBlur needs for p and a kernel of kw columns.
func BlurTemp(p Pixmap, kw int) int { return p.tempElem()*(p.W+kw)*p.C + 66 }

// blurWeights computes torchvision's kernel of k taps in 1/16384, from the centre outwards. Each rounding error is
// carried to the next tap and finally to the centre, so that the sum is exact.
func blurWeights(w *[MaxBlurKernel/2 + 1]C.int16_t, k int, sigma float64) {
	r := k / 2
	step := 1 / math.Sqrt2
	sum := 1.0
	for i := 1; i <= r; i++ {
		x := float64(i) * step / sigma
		sum += 2 * math.Exp(-x*x)
	}
	total, carry := 0, 0.0
	for i := r; i >= 1; i-- {
		x := float64(i) * step / sigma
		v := math.Exp(-x*x)/sum*16384 + carry
		q := math.Round(v)
		carry = v - q
		w[i] = C.int16_t(q)
		total += 2 * int(q)
	}
	w[0] = C.int16_t(16384 - total)
}

// GaussianBlur blurs src into dst with a kernel of kw x kh taps, odd numbers,
// at borders with the image reflected. dst must not overlap src; tmp has
// BlurTemp bytes.
func GaussianBlur(dst, src Pixmap, kw, kh int, sigmaX, sigmaY float64, tmp []byte) error {
	if err := sameSize(dst, src); err != nil {
		return err
	}
	for _, k := range [2]int{kw, kh} {
		if k < 1 || k%2 == 0 || k > MaxBlurKernel {
			return &Error{ErrArgument, fmt.Sprintf("kernel_size has %d, must be odd and from 1 to %d", k, MaxBlurKernel)}
		}
	}
	if !(sigmaX > 0 && sigmaY > 0) {
		return &Error{ErrArgument, fmt.Sprintf("sigma is (%v, %v), must be positive", sigmaX, sigmaY)}
	}
	if kw/2 >= src.W || kh/2 >= src.H {
		return &Error{ErrArgument, fmt.Sprintf("a kernel of %dx%d is too large for an image of %dx%d pixels", kw, kh, src.W, src.H)}
	}
	if !src.bytes3() {
		return anyBlur(dst, src, kw, kh, sigmaX, sigmaY, tmp)
	}
	t, err := words(tmp, BlurTemp(src, kw))
	if err != nil {
		return err
	}
	var kx, ky [MaxBlurKernel/2 + 1]C.int16_t
	blurWeights(&kx, kw, sigmaX)
	blurWeights(&ky, kh, sigmaY)
	C.sk_aug_blur(dst.ptr(), src.ptr(), C.int(src.W), C.int(src.H), C.int(src.C), &kx[0], C.int(kw/2), &ky[0], C.int(kh/2),
		(*C.int16_t)(t))
	return nil
}

// Affine is an affine map of the plane: x' = A[0]x + A[1]y + A[2],
// y' = A[3]x + A[4]y + A[5].
type Affine [6]float64

// Apply maps a point.
func (a *Affine) Apply(x, y float64) (float64, float64) {
	return a[0]*x + a[1]*y + a[2], a[3]*x + a[4]*y + a[5]
}

// AffineParams are the parameters of torchvision's affine: angle and shear in
// degrees, translation in pixels.
type AffineParams struct {
	Angle  float64
	TX, TY float64
	Scale  float64
	SX, SY float64
	// CX and CY are the fixed point, relative to the point that the matrix
	// has as its origin.
	CX, CY float64
}

// Matrix returns T * C * RotateScaleShear * C^-1, which maps points of the image to points of the result.
func (p *AffineParams) Matrix() Affine {
	a, b, c, d := p.linear()
	a, b, c, d = a*p.Scale, b*p.Scale, c*p.Scale, d*p.Scale
	m := Affine{a, b, 0, c, d, 0}
	m[2] = p.CX + p.TX - a*p.CX - b*p.CY
	m[5] = p.CY + p.TY - c*p.CX - d*p.CY
	return m
}

// Inverse returns the inverse of Matrix, which maps output pixels to their source.
func (p *AffineParams) Inverse() Affine {
	a, b, c, d := p.linear() // of determinant 1
	m := Affine{d / p.Scale, -b / p.Scale, 0, -c / p.Scale, a / p.Scale, 0}
	cx, cy := p.CX+p.TX, p.CY+p.TY
	m[2] = p.CX - m[0]*cx - m[1]*cy
	m[5] = p.CY - m[3]*cx - m[4]*cy
	return m
}

func (p *AffineParams) linear() (a, b, c, d float64) {
	rot, sx, sy := p.Angle*(math.Pi/180), p.SX*(math.Pi/180), p.SY*(math.Pi/180)
	a = math.Cos(rot-sy) / math.Cos(sy)
	b = -(a*math.Tan(sx) + math.Sin(rot))
	c = math.Sin(rot-sy) / math.Cos(sy)
	d = math.Cos(rot) - c*math.Tan(sx)
	return a, b, c, d
}

// WarpMode sets how Warp computes the value at a point between pixels.
type WarpMode struct {
	Bilinear bool
	// HasFill fills the outside with Fill. Without it the outside is black, and bilinear borders are blended with
	// black.
	HasFill bool
	Fill    [item.MaxChannels]float32
}

// Warp fills dst, of any size, with src transformed by inv, which maps pixels of dst to their source positions. Both
// images have their origin in their centre, y pointing down. dst must not overlap src.
func Warp(dst, src Pixmap, inv Affine, mode WarpMode) error {
	if err := checkPair(dst, src); err != nil {
		return err
	}
	for _, v := range inv {
		if !(math.Abs(v) <= 1e9) {
			return &Error{ErrArgument, fmt.Sprintf("the affine map has a coefficient of %v", v)}
		}
	}
	// From centred coordinates to pixel coordinates.
	var pixels [6]float64
	dx, dy := float64(dst.W-1)/2, float64(dst.H-1)/2
	for i, half := range [2]float64{float64(src.W-1) / 2, float64(src.H-1) / 2} {
		// torchvision has its matrix in float32.
		a, b, c := float64(float32(inv[3*i])), float64(float32(inv[3*i+1])), float64(float32(inv[3*i+2]))
		pixels[3*i], pixels[3*i+1] = a, b
		pixels[3*i+2] = c + half - a*dx - b*dy
	}
	if !src.bytes3() {
		anyWarp(dst, src, &pixels, &mode)
		return nil
	}
	m := bytesMap(&mode)
	for i, v := range pixels {
		m.m[i] = C.double(v)
	}
	C.sk_aug_warp(dst.ptr(), C.int(dst.W), C.int(dst.H), src.ptr(), C.int(src.W), C.int(src.H), C.int(src.C), &m)
	return nil
}

// bytesMap converts a mode for the kernels for u8.
func bytesMap(mode *WarpMode) (m C.sk_aug_map) {
	if mode.Bilinear {
		m.bilinear = 1
	}
	if mode.HasFill {
		m.has_fill = 1
		for c, v := range mode.Fill[:3] {
			m.fill[c] = C.float(max(0, min(255, v)))
		}
	}
	return m
}

// Remap fills dst with pixels of src at the points that row returns. row sets the source positions of the pixels of
// row y of dst, in pixels from the centre of the first one. dst must not overlap src.
func Remap(dst, src Pixmap, mode WarpMode, row func(y int, xs, ys []float32)) error {
	if err := checkPair(dst, src); err != nil {
		return err
	}
	points := make([]float32, 2*dst.W)
	xs, ys := points[:dst.W], points[dst.W:]
	bytes, any := bytesMap(&mode), src.anyMap(&mode)
	stride := dst.W * dst.C * dst.elemSize()
	for y := range dst.H {
		row(y, xs, ys)
		to := dst
		to.Pix, to.H = dst.Pix[y*stride:(y+1)*stride], 1
		if !src.bytes3() {
			C.sk_any_remap(src.elem(), to.any(), C.int(dst.W), src.any(), C.int(src.W), C.int(src.H), C.int(src.C), &any,
				(*C.float)(&xs[0]), (*C.float)(&ys[0]))
			continue
		}
		C.sk_aug_remap(to.ptr(), C.int(dst.W), src.ptr(), C.int(src.W), C.int(src.H), C.int(src.C), &bytes, (*C.float)(&xs[0]), (*C.float)(&ys[0]))
	}
	return nil
}

// RotatedSize returns the size that holds an image of w x h rotated by inv, as torchvision's rotate with expand
// computes it.
func RotatedSize(inv Affine, w, h int) (int, int) {
	hw, hh := float64(w)/2, float64(h)/2
	var lo, hi [2]float64
	for i, p := range [4][2]float64{{-hw, -hh}, {-hw, hh}, {hw, hh}, {hw, -hh}} {
		x, y := inv.Apply(p[0], p[1])
		for j, v := range [2]float64{x + hw, y + hh} {
			if i == 0 || v < lo[j] {
				lo[j] = v
			}
			if i == 0 || v > hi[j] {
				hi[j] = v
			}
		}
	}
	// Cut to 1e-4, so that noise does not become a pixel.
	size := func(j int) int {
		return int(math.Ceil(math.Trunc(hi[j]*1e4)/1e4) - math.Floor(math.Trunc(lo[j]*1e4)/1e4))
	}
	return size(0), size(1)
}

// Rotate90 turns src anticlockwise by turns quarter turns, 1 to 3, into dst.
func Rotate90(dst, src Pixmap, turns int) error {
	if err := checkPair(dst, src); err != nil {
		return err
	}
	w, h := src.W, src.H
	if turns%2 != 0 {
		w, h = h, w
	}
	if turns < 1 || turns > 3 || dst.W != w || dst.H != h {
		return &Error{ErrArgument, fmt.Sprintf("%d quarter turns do not take %dx%d pixels to %dx%d", turns, src.W, src.H, dst.W, dst.H)}
	}
	if !src.bytes3() {
		C.sk_any_rot90(C.int(src.C*src.elemSize()), dst.ptr(), src.ptr(), C.int(src.W), C.int(src.H), C.int(turns))
		return nil
	}
	C.sk_aug_rot90(dst.ptr(), src.ptr(), C.int(src.W), C.int(src.H), C.int(src.C), C.int(turns))
	return nil
}

// checkBytes checks p for an operation that supports only u8.
func (p *Pixmap) checkBytes() error {
	if err := p.check(); err != nil {
		return err
	}
	if !p.bytes3() {
		return &Error{ErrArgument, fmt.Sprintf("this is done to uint8 of 1 or 3 channels, not to %s of %d", p.dtype(), p.C)}
	}
	return nil
}

// PadMode sets how an image is extended beyond its borders.
type PadMode int

// The modes of torchvision's pad.
const (
	PadConstant  PadMode = C.SK_PAD_CONSTANT
	PadEdge      PadMode = C.SK_PAD_EDGE
	PadReflect   PadMode = C.SK_PAD_REFLECT
	PadSymmetric PadMode = C.SK_PAD_SYMMETRIC
)

// Window copies the box of src with the upper left corner (left, top) into dst. The box has the size of dst. It may
// extend outside of src, in the reflecting modes by less than the size of src.
func Window(dst, src Pixmap, left, top int, mode PadMode, fill []float32) error {
	if err := checkPair(dst, src); err != nil {
		return err
	}
	if mode < PadConstant || mode > PadSymmetric {
		return &Error{ErrArgument, fmt.Sprintf("padding mode %d", mode)}
	}
	for _, d := range [2][3]int{{left, dst.W, src.W}, {top, dst.H, src.H}} {
		before, behind, limit := -d[0], d[0]+d[1]-d[2], d[2]
		if mode == PadReflect {
			limit--
		}
		if mode >= PadReflect && (before > limit || behind > limit) {
			return &Error{ErrArgument, fmt.Sprintf("padding of %d pixels by reflection is too much for a side of %d", max(before, behind), d[2])}
		}
		if before > MaxSide || behind > 2*MaxSide || d[0] > 2*MaxSide {
			return &Error{ErrArgument, "padding of more pixels than an image may have"}
		}
	}
	value := src.pixel(fill)
	if !src.bytes3() {
		C.sk_any_window(C.int(src.C*src.elemSize()), dst.ptr(), C.int(dst.W), C.int(dst.H), src.ptr(), C.int(src.W),
			C.int(src.H), C.int(left), C.int(top), C.int(mode), (*C.uint8_t)(&value[0]))
		return nil
	}
	C.sk_aug_window(dst.ptr(), C.int(dst.W), C.int(dst.H), src.ptr(), C.int(src.W), C.int(src.H), C.int(src.C),
		C.int(left), C.int(top), C.int(mode), (*C.uint8_t)(&value[0]))
	return nil
}

// Mix writes a*lam + b*(1-lam) into dst, element by element. dst may be a or
// b. The slices have the same length.
func Mix(dtype item.DType, dst, a, b []byte, lam float64) error {
	size := dtype.Size()
	if size == 0 || len(a) != len(dst) || len(b) != len(dst) || len(dst)%size != 0 {
		return &Error{ErrArgument, fmt.Sprintf("cannot mix %d and %d bytes of %s into %d", len(a), len(b), dtype, len(dst))}
	}
	if !(lam >= 0 && lam <= 1) {
		return &Error{ErrArgument, fmt.Sprintf("lambda is %v, must be between 0 and 1", lam)}
	}
	d, x, y := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	n, l := C.size_t(len(dst)/size), C.float(lam)
	switch dtype {
	case item.U8:
		C.sk_aug_mix_u8((*C.uint8_t)(d), (*C.uint8_t)(x), (*C.uint8_t)(y), n, l)
	case item.F16:
		C.sk_aug_mix_f16(d, x, y, n, l)
	case item.BF16:
		C.sk_aug_mix_bf16(d, x, y, n, l)
	case item.F32:
		C.sk_aug_mix_f32(d, x, y, n, l)
	default:
		return &Error{ErrArgument, fmt.Sprintf("cannot mix elements of %s", dtype)}
	}
	return nil
}
