package cdec

/*
#cgo noescape sk_pillow_gray_sum
#cgo nocallback sk_pillow_gray_sum
#cgo noescape sk_pillow_gray3
#cgo nocallback sk_pillow_gray3
#cgo noescape sk_pillow_saturate
#cgo nocallback sk_pillow_saturate
#cgo noescape sk_pillow_hue
#cgo nocallback sk_pillow_hue
#cgo noescape sk_pillow_warp
#cgo nocallback sk_pillow_warp
#include "aug.h"
*/
import "C"

import (
	"fmt"
	"math"
)

// blend sets each value x to from + f*(x - from), as PIL.ImageEnhance does.
func (p *Pixmap) blend(from, f float64) {
	var lut [3 * 256]byte
	for v := range 256 {
		// The conversion keeps compilers from fusing the sum, which Pillow rounds twice.
		x := float32(from) + float32(float32(f)*(float32(v)-float32(from)))
		lut[v] = byte(max(0, min(255, x)))
	}
	p.applyToAll(&lut)
}

// applyToAll applies the table of the first channel to all channels.
func (p *Pixmap) applyToAll(lut *[3 * 256]byte) {
	copy(lut[256:], lut[:256])
	copy(lut[512:], lut[:256])
	p.applyTable(lut)
}

// pillowMean returns the mean gray value, rounded.
func (p *Pixmap) pillowMean() float64 {
	var sum C.uint64_t
	if p.C == 3 {
		sum = C.sk_pillow_gray_sum(p.ptr(), p.count())
	} else {
		sum = C.sk_aug_byte_sum(p.ptr(), p.bytes())
	}
	return math.Floor(float64(sum)/float64(p.W*p.H) + 0.5)
}

// pillowStretch sets lut to the tables of PIL.ImageOps.autocontrast for the range of each channel.
func (p *Pixmap) pillowStretch(lut *[3 * 256]byte, lo, hi [3]byte) {
	for c := range p.C {
		scale, offset := 1.0, 0.0
		if lo[c] < hi[c] {
			scale = 255 / float64(int(hi[c])-int(lo[c]))
			offset = -float64(lo[c]) * scale
		}
		for v := range 256 {
			lut[256*c+v] = byte(max(0, min(255, float64(float64(v)*scale)+offset)))
		}
	}
	p.applyTable(lut)
}

// PillowMap maps the pixels of a new image to their source positions: x' = (M[0]x + M[1]y + M[2]) / d, y' = (M[3]x +
// M[4]y + M[5]) / d, d = M[6]x + M[7]y + 1. The upper left corner of both images is (0, 0).
type PillowMap [8]float64

// PillowAffine returns the matrix that torchvision passes to Pillow for an affine map. CX and CY of the parameters
// are relative to the middle of an image of w x h pixels.
func PillowAffine(p *AffineParams, w, h int) PillowMap {
	rot, sx, sy := p.Angle*(math.Pi/180), p.SX*(math.Pi/180), p.SY*(math.Pi/180)
	cx, cy := p.CX+float64(w)*0.5, p.CY+float64(h)*0.5
	a := math.Cos(rot-sy) / math.Cos(sy)
	b := -math.Cos(rot-sy)*math.Tan(sx)/math.Cos(sy) - math.Sin(rot)
	c := math.Sin(rot-sy) / math.Cos(sy)
	d := -math.Sin(rot-sy)*math.Tan(sx)/math.Cos(sy) + math.Cos(rot)
	m := PillowMap{d / p.Scale, -b / p.Scale, 0, -c / p.Scale, a / p.Scale}
	m[2] = m[0]*(-cx-p.TX) + m[1]*(-cy-p.TY) + cx
	m[5] = m[3]*(-cx-p.TX) + m[4]*(-cy-p.TY) + cy
	return m
}

// PillowRotation returns the matrix of PIL.Image.rotate, whose angles are anticlockwise; cx and cy are from the upper
// left corner.
func PillowRotation(angle, cx, cy float64) PillowMap {
	round := func(v float64) float64 { return math.RoundToEven(v*1e15) / 1e15 }
	r := -angle * (math.Pi / 180)
	m := PillowMap{round(math.Cos(r)), round(math.Sin(r)), 0, round(-math.Sin(r)), round(math.Cos(r))}
	m[2] = m[0]*-cx + m[1]*-cy + cx
	m[5] = m[3]*-cx + m[4]*-cy + cy
	return m
}

// PillowWarp implements PIL.Image.transform. Points outside of the image get the fill of mode. dst must not overlap
// src.
func PillowWarp(dst, src Pixmap, m PillowMap, mode WarpMode) error {
	if err := checkPair(dst, src); err != nil {
		return err
	}
	if err := src.checkBytes(); err != nil {
		return err
	}
	var c C.sk_pillow_map
	for i, v := range m {
		if !(math.Abs(v) <= 1e9) {
			return &Error{ErrArgument, fmt.Sprintf("the map has a coefficient of %v", v)}
		}
		c.m[i] = C.double(v)
	}
	if mode.Bilinear {
		c.bilinear = 1
	}
	for i, v := range mode.Fill[:3] {
		c.fill[i] = C.uint8_t(max(0, min(255, v)))
	}
	C.sk_pillow_warp(dst.ptr(), C.int(dst.W), C.int(dst.H), src.ptr(), C.int(src.W), C.int(src.H), C.int(src.C), &c)
	return nil
}
