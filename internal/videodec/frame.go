package videodec

// #include "videodec.h"
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/stokerdata/stoker/internal/video"
)

// Frame is a decoded frame, as long as its decoder is not called again.
type Frame struct {
	Width, Height int
	PTS           int64

	p       C.sv_planes
	matrix  video.Matrix
	colours video.Range
}

// Upright returns the size of the frame after the rotation of the stream.
func (f *Frame) Upright(s *video.Stream) (width, height int) {
	if s.Rotation%180 != 0 {
		return f.Height, f.Width
	}
	return f.Width, f.Height
}

// planes sets the layout of the pixels, by the name of their format.
func (f *Frame) planes(from *C.sv_frame) error {
	name := C.GoString(&from.format[0])
	f.p = C.sv_planes{planes: from.planes, stride: from.stride, bytes: 1, step: 1}
	if f.Width < 1 || f.Height < 1 || f.Width > video.MaxSide || f.Height > video.MaxSide {
		return fmt.Errorf("a frame of %d x %d pixels", f.Width, f.Height)
	}
	kind := strings.TrimSuffix(name, "le")
	for suffix, shift := range map[string]C.int{"10": 2, "12": 4, "14": 6, "16": 8} {
		if base, ok := strings.CutSuffix(kind, suffix); ok && (strings.HasSuffix(base, "p") || base == "gray") {
			kind, f.p.bytes, f.p.shift = base, 2, shift
		}
	}
	if base, ok := strings.CutPrefix(kind, "yuva"); ok {
		kind = "yuv" + base
	}
	if base, ok := strings.CutPrefix(kind, "yuvj"); ok {
		kind, f.colours = "yuv"+base, video.RangeFull
	}
	switch kind {
	case "yuv420p":
		f.p.cw, f.p.ch = 1, 1
	case "yuv422p":
		f.p.cw = 1
	case "yuv440p":
		f.p.ch = 1
	case "yuv411p":
		f.p.cw = 2
	case "yuv444p":
	case "nv12":
		f.p.cw, f.p.ch, f.p.step = 1, 1, 2
	case "gray":
		f.p.gray = 1
	case "gbrp", "gbrap":
		f.p.rgb = 1
	case "rgb24", "bgr24", "rgba", "bgra", "rgb0", "bgr0", "argb", "abgr", "0rgb", "0bgr":
		f.packed(name)
	default:
		return fmt.Errorf("its pixels are %q, which are not read; ffmpeg -i IN -pix_fmt yuv420p OUT.mp4 converts them", name)
	}
	return nil
}

// packed sets the planes of pixels with interleaved colours, in the order of their name.
func (f *Frame) packed(name string) {
	colours := strings.TrimSuffix(name, "24")
	f.p.rgb, f.p.step = 1, C.int(len(colours))
	base := f.p.planes[0]
	for i, c := range "gbr" {
		at := strings.IndexRune(colours, c)
		f.p.planes[i] = (*C.uint8_t)(unsafe.Add(unsafe.Pointer(base), at))
		f.p.stride[i] = f.p.stride[0]
	}
}

// inverse has libswscale's factors for colours, with 16 fraction bits, by H.273's number of the matrix: V to red, U
// to blue, U and V to green.
var inverse = map[video.Matrix][4]int64{
	1: {117489, 138438, 13975, 34925},
	4: {104448, 132798, 24759, 53109},
	5: {104597, 132201, 25675, 53279},
	6: {104597, 132201, 25675, 53279},
	7: {117579, 136230, 16907, 35559},
	9: {110013, 140363, 12277, 42626}, 10: {110013, 140363, 12277, 42626},
}

// factors returns the factors of the conversion to RGB, rounded like in libswscale.
func factors(m video.Matrix, full bool) C.sv_colours {
	inv, ok := inverse[m]
	if !ok {
		inv = inverse[6]
	}
	y, offset := int64(1<<16), int64(0)
	if full {
		for i := range inv {
			inv[i] = inv[i] * 224 / 255
		}
	} else {
		y, offset = y*255/219, 16<<16
	}
	round := func(v int64) C.int16_t { return C.int16_t(max(min((v+1<<15)>>16, 1<<15-1), -1<<15)) }
	return C.sv_colours{
		y: round(y << 13), y_offset: round(offset << 3),
		vr: round(inv[0] << 13), ub: round(inv[1] << 13), ug: round(-inv[2] << 13), vg: round(-inv[3] << 13),
	}
}

// RGB converts a box of the frame, after the rotation of the stream, to RGB of 8 bits, row by row, in dst. Colour
// properties that the codec's stream does not specify come from the container. The default is BT.601 of limited
// range.
func (f *Frame) RGB(s *video.Stream, x, y, w, h int, dst []byte) {
	// The destination of the first stored pixel of the box, and the distances to the next pixel of its row and of its
	// column.
	at, px, row := 0, 3, 3*w
	if s.Mirror {
		width, _ := f.Upright(s)
		x = width - x - w
	}
	bx, by, bw, bh := x, y, w, h
	switch s.Rotation {
	case 90:
		bx, by, bw, bh = y, f.Height-x-w, h, w
		at, px, row = 3*(w-1), 3*w, -3
	case 180:
		bx, by = f.Width-x-w, f.Height-y-h
		at, px, row = 3*(w*h-1), -3, -3*w
	case 270:
		bx, by, bw, bh = f.Width-y-h, x, h, w
		at, px, row = 3*w*(h-1), -3*w, 3
	}
	if s.Mirror && w > 0 {
		at += 3 * (w - 1 - 2*(at/3%w))
		if s.Rotation%180 == 0 {
			px = -px
		} else {
			row = -row
		}
	}
	if w < 1 || h < 1 || bx < 0 || by < 0 || bx > f.Width-bw || by > f.Height-bh || len(dst) < 3*w*h {
		panic(fmt.Sprintf("a box of %d x %d at %d, %d of a frame of %d x %d", w, h, x, y, f.Width, f.Height))
	}
	m, r := f.matrix, f.colours
	if m == video.MatrixUnknown {
		m = s.Matrix
	}
	if r == video.RangeUnknown {
		r = s.Range
	}
	c := factors(m, r == video.RangeFull)
	first := (*C.uint8_t)(unsafe.Pointer(&dst[at]))
	C.sv_rgb(&f.p, &c, C.int(bx), C.int(by), C.int(bw), C.int(bh), first, C.ptrdiff_t(px), C.ptrdiff_t(row))
}
