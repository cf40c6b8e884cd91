package decode

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// convert returns the box of a picture as a new picture with another pixel type.
func (d *Decoder) convert(p *picture, want item.PixelType, mask bool) (*picture, error) {
	out := &picture{w: p.box.W, h: p.box.H, t: want, mirrored: p.mirrored}
	out.box = out.whole()
	var err error
	if out.pix, err = d.converted.Bytes(int(out.h) * out.stride()); err != nil {
		return nil, err
	}
	size := p.t.Size()
	for y := range int(out.h) {
		src := p.pix[(int(p.box.Y)+y)*p.stride()+int(p.box.X)*size:][:int(out.w)*size]
		dst := out.pix[y*out.stride():][:out.stride()]
		switch {
		case mask:
			if err := classRow(dst, src, want.DType, p, y); err != nil {
				return nil, err
			}
		case p.t.DType == item.F32 || want.DType == item.F32:
			convertFloats(dst, src, want, p.t)
		default:
			convertRow(dst, src, want, p.t)
		}
	}
	return out, nil
}

// pixel is a pixel of integers: the values of its type, gray in all colours,
// and its alpha.
type pixel struct{ r, g, b, a uint32 }

// load reads pixel x of a row.
func load(src []byte, t item.PixelType, x int) (p pixel) {
	ch := int(t.Channels)
	at := func(c int) uint32 {
		if t.DType == item.U16 {
			return uint32(binary.LittleEndian.Uint16(src[2*(x*ch+c):]))
		}
		return uint32(src[x*ch+c])
	}
	p.r = at(0)
	if ch < 3 {
		p.g, p.b = p.r, p.r
	} else {
		p.g, p.b = at(1), at(2)
	}
	p.a = 255
	if t.DType == item.U16 {
		p.a = 65535
	}
	if ch%2 == 0 {
		p.a = at(ch - 1)
	}
	return p
}

// luma returns Pillow's convert("L"), also for 16 bits.
func (p *pixel) luma() uint32 {
	return (p.r*19595 + p.g*38470 + p.b*7471 + 0x8000) >> 16
}

// narrow converts 16 bits to 8. It keeps the upper bits, except for 16-bit gray, a separate mode in Pillow, which is
// clipped at 255.
func (p *pixel) narrow(gray bool) {
	p.a >>= 8
	if gray {
		p.r = min(p.r, 255)
		p.g, p.b = p.r, p.r
		return
	}
	p.r, p.g, p.b = p.r>>8, p.g>>8, p.b>>8
}

// convertRow converts integers: 8 bits become 16 by v*257, so that white stays
// white. Without alpha a picture is opaque.
func convertRow(dst, src []byte, want, have item.PixelType) {
	ch := int(want.Channels)
	scale := uint32(1)
	if have.DType == item.U8 {
		scale = 257
	}
	for x := range len(src) / have.Size() {
		p := load(src, have, x)
		if want.DType == item.U8 && have.DType == item.U16 {
			p.narrow(have.Channels == 1)
		}
		v := [item.MaxChannels]uint32{p.r, p.g, p.b, p.a}
		if ch < 3 {
			v[0], v[1] = p.luma(), p.a
		}
		for c, v := range v[:ch] {
			if i := x*ch + c; want.DType == item.U8 {
				dst[i] = byte(v)
			} else {
				binary.LittleEndian.PutUint16(dst[2*i:], uint16(v*scale))
			}
		}
	}
}

// convertFloats converts from or to floats as Pillow's convert does: values are clipped to the range of integers, and
// fractions are dropped. Without alpha a picture is opaque.
func convertFloats(dst, src []byte, want, have item.PixelType) {
	ch, n := int(have.Channels), int(want.Channels)
	white := map[item.DType]float32{item.U8: 255, item.U16: 65535, item.F32: 1}
	opaque := white[have.DType]
	if have.DType == item.F32 {
		opaque = white[want.DType]
	}
	for x := range len(src) / have.Size() {
		var v [item.MaxChannels]float32
		for c := range ch {
			v[c] = sample(src, have.DType, x*ch+c)
		}
		alpha := opaque
		if ch%2 == 0 {
			alpha = v[ch-1]
		}
		if ch < 3 {
			v[1], v[2] = v[0], v[0]
		} else if n < 3 {
			v[0] = (299*v[0] + 587*v[1] + 114*v[2]) / 1000
		}
		if n%2 == 0 {
			v[n-1] = alpha
		}
		for c, v := range v[:n] {
			switch i := x*n + c; want.DType {
			case item.U8:
				dst[i] = byte(cutOff(v, 255))
			case item.U16:
				binary.LittleEndian.PutUint16(dst[2*i:], uint16(cutOff(v, 65535)))
			default:
				binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
			}
		}
	}
}

// sample is a value of a row as a float.
func sample(src []byte, t item.DType, i int) float32 {
	switch t {
	case item.U8:
		return float32(src[i])
	case item.U16:
		return float32(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
}

// cutOff limits a number to 0 to top; NaN becomes 0.
func cutOff(v, top float32) float32 {
	if !(v > 0) {
		return 0
	}
	return min(v, top)
}

// classRow reads class numbers unchanged. It fails for colours and for numbers that the type cannot represent.
func classRow(dst, src []byte, want item.DType, from *picture, y int) error {
	for x := range len(src) / from.t.Size() {
		p, err := loadClass(src, from, x, y)
		if err != nil {
			return err
		}
		v := p.r
		if from.bilevel {
			v &= 1
		}
		switch {
		case p.g != p.r || p.b != p.r:
			return &cdec.Error{Kind: cdec.ErrUnsupported, Msg: fmt.Sprintf("the mask has a colour, (%d, %d, %d), in column %d of row %d; class numbers are gray or indices of a palette", p.r, p.g, p.b, int(from.box.X)+x, int(from.box.Y)+y)}
		case want == item.U16:
			binary.LittleEndian.PutUint16(dst[2*x:], uint16(v))
		case v > 255:
			return &cdec.Error{Kind: cdec.ErrUnsupported, Msg: fmt.Sprintf("the mask has class number %d in column %d of row %d, more than uint8 holds; ask for 16 bits (depth=16)", v, int(from.box.X)+x, int(from.box.Y)+y)}
		default:
			dst[x] = byte(v)
		}
	}
	return nil
}

// loadClass reads pixel x of a row of class numbers. Floats and integers of more than 16 bits must fit a uint16.
func loadClass(src []byte, from *picture, x, y int) (pixel, error) {
	if from.t.DType != item.F32 {
		return load(src, from.t, x), nil
	}
	var c [3]uint32
	for i := range c {
		v := sample(src, item.F32, x*int(from.t.Channels)+i%int(from.t.Channels))
		if !(v >= 0 && v <= 65535) || v != float32(uint32(v)) {
			return pixel{}, &cdec.Error{Kind: cdec.ErrUnsupported, Msg: fmt.Sprintf("the mask has %v in column %d of row %d; class numbers are whole numbers from 0 to 65535", v, int(from.box.X)+x, int(from.box.Y)+y)}
		}
		if c[i] = uint32(v); from.t.Channels < 3 {
			return pixel{r: c[0], g: c[0], b: c[0]}, nil
		}
	}
	return pixel{r: c[0], g: c[1], b: c[2]}, nil
}
