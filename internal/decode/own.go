package decode

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagecodec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// ownReader returns the function that loads images that no Go library reads, nil for others. The function returns the
// pixel type of the file, which is converted afterwards.
func ownReader(info *imagefile.Info) func(d *Decoder, r *Request, info *imagefile.Info) (*picture, error) {
	switch {
	case imagecodec.Decodes(info.Codec):
		return (*Decoder).loadOwn
	case info.Codec == driver.CodecWebP && info.Animated:
		return (*Decoder).loadAnimation
	case info.Codec == driver.CodecJXL || info.Codec == driver.CodecAVIF:
		return (*Decoder).loadForeign
	}
	return nil
}

// loadOwn loads an image of a format of package imagecodec.
func (d *Decoder) loadOwn(r *Request, info *imagefile.Info) (*picture, error) {
	want := r.Pixels.OrRGB()
	opt := imagecodec.Options{Mask: r.Mask, JPEG: d.c}
	// Pixels of a TIFF file that are stored as uint16 are narrowed later.
	opt.Narrow = !r.Mask && want.DType == item.U8 && (r.Store.DType != item.U16 || info.Codec != driver.CodecTIFF)
	src, err := imagecodec.Open(info.Codec, r.Value.Bytes, opt)
	if err != nil {
		return nil, libraryError(err)
	}
	p := &picture{w: int32(src.Width), h: int32(src.Height), t: item.PixelType{DType: src.DType, Channels: int32(src.Channels)}}
	if info.Codec == driver.CodecFlo && want != p.t {
		return nil, &cdec.Error{Kind: cdec.ErrUnsupported, Msg: fmt.Sprintf("optical flow is %s, and is not decoded to %s", p.t, want)}
	}
	p.pix, err = src.Decode(d.pixels.Bytes)
	return p, libraryError(err)
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
