package decode

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/bmpimage"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/floatmap"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/netpbm"
	"github.com/stokerdata/stoker/internal/tiffimage"
	"github.com/stokerdata/stoker/source/driver"
)

// ownReader returns the function that loads images that no Go library reads, nil for others. The function returns the
// pixel type of the file, which is converted afterwards.
func ownReader(info *imagefile.Info) func(d *Decoder, r *Request, info *imagefile.Info) (*picture, error) {
	switch {
	case info.Codec == driver.CodecPNM:
		return (*Decoder).loadPNM
	case info.Codec == driver.CodecPFM || info.Codec == driver.CodecFlo:
		return (*Decoder).loadFloats
	case info.Codec == driver.CodecWebP && info.Animated:
		return (*Decoder).loadAnimation
	case info.Codec == driver.CodecBMP:
		return (*Decoder).loadBMP
	case info.Codec == driver.CodecTIFF:
		return (*Decoder).loadTIFF
	case info.Codec == driver.CodecJXL || info.Codec == driver.CodecAVIF:
		return (*Decoder).loadForeign
	}
	return nil
}

// loadPNM loads a Netpbm image. Values are scaled to the range of 8 or 16 bits as in Pillow, except for masks. Colours
// of 16 bits are rounded if 8 bits are requested.
func (d *Decoder) loadPNM(r *Request, info *imagefile.Info) (*picture, error) {
	h, err := netpbm.Parse(r.Value.Bytes)
	if err != nil {
		return nil, libraryError(err)
	}
	pix, err := h.Values(r.Value.Bytes)
	if err != nil {
		return nil, libraryError(err)
	}
	p := &picture{pix: pix, w: info.Width, h: info.Height, t: item.PixelType{DType: item.U8, Channels: h.Channels}}
	if h.Wide() {
		p.t.DType = item.U16
	}
	if r.Mask {
		return p, nil
	}
	top := 255
	if h.Wide() && (h.Channels < 3 || r.Pixels.OrRGB().DType != item.U8) {
		top = 65535
	}
	scale := h.Scale(top)
	switch {
	case scale == nil:
	case !h.Wide():
		if p.pix, err = d.pixels.Bytes(len(pix)); err != nil {
			return nil, err
		}
		for i, v := range pix {
			p.pix[i] = byte(scale[v])
		}
	case top == 255: // in place, in memory of Values
		for i := range len(pix) / 2 {
			pix[i] = byte(scale[binary.LittleEndian.Uint16(pix[2*i:])])
		}
		p.pix, p.t.DType = pix[:len(pix)/2], item.U8
	default:
		for i := 0; i < len(pix); i += 2 {
			binary.LittleEndian.PutUint16(pix[i:], scale[binary.LittleEndian.Uint16(pix[i:])])
		}
	}
	return p, nil
}

// loadFloats loads a float map, or optical flow.
func (d *Decoder) loadFloats(r *Request, info *imagefile.Info) (*picture, error) {
	p := &picture{w: info.Width, h: info.Height, t: item.PixelType{DType: item.F32, Channels: info.Channels}}
	if want := r.Pixels.OrRGB(); info.Codec == driver.CodecFlo && want != p.t {
		return nil, &cdec.Error{Kind: cdec.ErrUnsupported, Msg: fmt.Sprintf("optical flow is %s, and is not decoded to %s", p.t, want)}
	}
	m, err := floatmap.Parse(imagefile.FloatFormat(info.Codec), r.Value.Bytes, int64(len(r.Value.Bytes)))
	if err != nil {
		return nil, &cdec.Error{Kind: cdec.ErrCorrupt, Msg: err.Error()}
	}
	if p.pix, err = d.pixels.Bytes(int(p.h) * p.stride()); err != nil {
		return nil, err
	}
	m.Pixels(p.pix, r.Value.Bytes)
	return p, nil
}

// loadTIFF loads a TIFF file.
func (d *Decoder) loadTIFF(r *Request, info *imagefile.Info) (*picture, error) {
	l, err := imagefile.ReadTIFFLayout(r.Value.Bytes)
	if err != nil {
		return nil, libraryError(err)
	}
	narrow := !r.Mask && r.Pixels.OrRGB().DType == item.U8 && r.Store.DType != item.U16
	opt := tiffimage.Options{Mask: r.Mask, Narrow: narrow, JPEG: d.c}
	t, channels := tiffimage.Type(l, opt)
	p := &picture{w: info.Width, h: info.Height, t: item.PixelType{DType: t, Channels: int32(channels)}}
	if p.pix, err = d.pixels.Bytes(int(p.h) * p.stride()); err != nil {
		return nil, err
	}
	if err := tiffimage.Read(r.Value.Bytes, l, opt, p.pix); err != nil {
		return nil, libraryError(err)
	}
	return p, nil
}

// loadAnimation loads the first frame of an animated WebP. Pixels outside of it are black,
// and transparent if the picture has alpha.
func (d *Decoder) loadAnimation(r *Request, info *imagefile.Info) (*picture, error) {
	frame, err := imagefile.FirstWebPFrame(r.Value.Bytes)
	if err != nil {
		return nil, libraryError(err)
	}
	one := *r
	one.Value = driver.Value{Bytes: frame.File, Codec: info.Codec}
	head, err := probe(frame.File)
	if err != nil {
		return nil, err
	}
	p, err := d.loadLibrary(&one, &head, 0)
	if err != nil || p.w == info.Width && p.h == info.Height {
		return p, err
	}
	if int(p.w) != frame.Width || int(p.h) != frame.Height {
		return nil, &cdec.Error{Kind: cdec.ErrCorrupt, Msg: "the first frame has another size than its header says"}
	}
	out := &picture{w: info.Width, h: info.Height, t: p.t}
	out.pix = make([]byte, int(out.h)*out.stride())
	size := p.t.Size()
	if size == 4 && !frame.Alpha {
		for i := 3; i < len(out.pix); i += 4 {
			out.pix[i] = 255
		}
	}
	for y := range frame.Height {
		copy(out.pix[(frame.Y+y)*out.stride()+frame.X*size:], p.pix[y*p.stride():(y+1)*p.stride()])
	}
	return out, nil
}

// loadBMP loads a BMP file.
func (d *Decoder) loadBMP(r *Request, info *imagefile.Info) (*picture, error) {
	l, err := imagefile.ReadBMPLayout(r.Value.Bytes)
	if err != nil {
		return nil, libraryError(err)
	}
	channels := bmpimage.Channels(l, r.Mask)
	p := &picture{w: info.Width, h: info.Height, t: item.PixelType{DType: item.U8, Channels: int32(channels)}}
	if p.pix, err = d.pixels.Bytes(int(p.h) * p.stride()); err != nil {
		return nil, err
	}
	return p, libraryError(bmpimage.Read(r.Value.Bytes, l, r.Mask, p.pix))
}

// moveFlow applies a geometry to the vectors of optical flow: scaling multiplies them, and mirroring reverses their
// sign.
func moveFlow(pix []byte, g *item.Geometry) {
	scale := [2]float32{float32(g.ResizeW) / float32(g.Box.W), float32(g.ResizeH) / float32(g.Box.H)}
	if g.FlipH {
		scale[0] = -scale[0]
	}
	if g.FlipV {
		scale[1] = -scale[1]
	}
	if scale == [2]float32{1, 1} {
		return
	}
	for i := 0; i+4 <= len(pix); i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(pix[i:]))
		binary.LittleEndian.PutUint32(pix[i:], math.Float32bits(v*scale[i/4%2]))
	}
}
