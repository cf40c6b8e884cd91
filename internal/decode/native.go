package decode

import (
	"encoding/binary"
	"image"
	"image/color"

	"github.com/stokerdata/stoker/internal/item"
)

// Lossless pixels of images that Go libraries decode: gray or RGB with alpha, u8 or u16, and the indices of a palette
// for masks.

func nativeType(img image.Image, mask bool) item.PixelType {
	t := item.PixelType{DType: item.U8, Channels: 4}
	switch img.(type) {
	case *image.Gray:
		t.Channels = 1
	case *image.Gray16:
		t = item.PixelType{DType: item.U16, Channels: 1}
	case *image.NRGBA64, *image.RGBA64:
		t.DType = item.U16
	case *image.Paletted:
		if mask {
			t.Channels = 1
		}
	}
	return t
}

// nativePixels fills a picture of the native type of an image.
func nativePixels(p *picture, img image.Image) {
	w, h, row := int(p.w), int(p.h), p.stride()
	b := img.Bounds()
	switch m := img.(type) {
	case *image.Gray:
		for y := range h {
			copy(p.pix[y*row:(y+1)*row], m.Pix[y*m.Stride:])
		}
	case *image.NRGBA:
		for y := range h {
			copy(p.pix[y*row:(y+1)*row], m.Pix[y*m.Stride:])
		}
	case *image.Gray16:
		for y := range h {
			swapRow(p.pix[y*row:(y+1)*row], m.Pix[y*m.Stride:])
		}
	case *image.NRGBA64:
		for y := range h {
			swapRow(p.pix[y*row:(y+1)*row], m.Pix[y*m.Stride:])
		}
	case *image.RGBA64:
		for y := range h {
			out := p.pix[y*row : (y+1)*row]
			swapRow(out, m.Pix[y*m.Stride:])
			divideRow16(out)
		}
	case *image.RGBA:
		for y := range h {
			divideRow(p.pix[y*row:(y+1)*row], m.Pix[y*m.Stride:])
		}
	case *image.Paletted:
		table := rgbaTable(m.Palette)
		for y := range h {
			in, out := m.Pix[y*m.Stride:][:w], p.pix[y*row:]
			if p.t.Channels == 1 {
				copy(out, in)
				continue
			}
			for x, v := range in {
				copy(out[4*x:4*x+4], table[v][:])
			}
		}
	case *image.YCbCr:
		opaque(p, m, nil, 0)
	case *image.NYCbCrA:
		opaque(p, &m.YCbCr, m.A, m.AStride)
	default:
		for y := range h {
			for x := range w {
				c := color.NRGBAModel.Convert(img.At(b.Min.X+x, b.Min.Y+y)).(color.NRGBA)
				copy(p.pix[y*row+4*x:], []byte{c.R, c.G, c.B, c.A})
			}
		}
	}
}

// swapRow converts big-endian u16 to little-endian.
func swapRow(out, in []byte) {
	for i := 0; i+1 < len(out); i += 2 {
		out[i], out[i+1] = in[i+1], in[i]
	}
}

// divideRow divides colours by alpha as Pillow does for associated alpha.
func divideRow(out, in []byte) {
	for x := 0; x < len(out); x += 4 {
		a := int(in[x+3])
		out[x+3] = in[x+3]
		for c := range 3 {
			v := int(in[x+c])
			if a != 0 && a != 255 {
				v = min(v*255/a, 255)
			}
			out[x+c] = byte(v)
		}
	}
}

func divideRow16(p []byte) {
	for x := 0; x < len(p); x += 8 {
		a := uint32(binary.LittleEndian.Uint16(p[x+6:]))
		if a == 0 || a == 65535 {
			continue
		}
		for c := x; c < x+6; c += 2 {
			v := uint32(binary.LittleEndian.Uint16(p[c:]))
			binary.LittleEndian.PutUint16(p[c:], uint16(min(v*65535/a, 65535)))
		}
	}
}

// opaque converts a lossy WebP, with its alpha if it has one.
func opaque(p *picture, m *image.YCbCr, alpha []byte, stride int) {
	w, n := int(p.w), int(p.w)*int(p.h)
	rgb := p.pix[n : 4*n] // spread from the front, which never overtakes
	webpToRGB(rgb, m)
	for i := range n {
		a := byte(255)
		if alpha != nil {
			a = alpha[i/w*stride+i%w]
		}
		r, g, b := rgb[3*i], rgb[3*i+1], rgb[3*i+2]
		p.pix[4*i], p.pix[4*i+1], p.pix[4*i+2], p.pix[4*i+3] = r, g, b, a
	}
}
