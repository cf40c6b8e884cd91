package decode

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"io"

	"golang.org/x/image/webp"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/source/driver"
)

// loadFile decodes the image of a file as a whole and rotates it as its format requires (Info.Turn). The size is
// checked before memory is allocated; more is the later memory for the picture.
func (d *Decoder) loadFile(r *Request, more int64) (*picture, error) {
	info, err := probe(r.Value.Bytes)
	if err != nil {
		return nil, err
	}
	turn := int32(info.Turn)
	info.Width, info.Height = orient.Size(orient.Inverse(turn), info.Width, info.Height)
	p, err := d.loadLibrary(r, &info, more)
	if err != nil || turn < 2 {
		return p, err
	}
	out := *p
	if out.pix, err = d.turned.Bytes(int(p.h) * p.stride()); err != nil {
		return nil, err
	}
	orient.Pixels(out.pix, p.pix, int(p.w), int(p.h), p.t.Size(), turn)
	out.w, out.h = orient.Size(turn, p.w, p.h)
	return &out, nil
}

// loadLibrary decodes an image in a format of Go's libraries to RGB of u8. If the request needs another type, it
// decodes to the closest type to the file. A panic of a library on damaged input becomes an error.
func (d *Decoder) loadLibrary(r *Request, info *imagefile.Info, more int64) (p *picture, err error) {
	src := imagefile.NormalGIF(r.Value.Bytes)
	if err := d.checkPixels(info.Width, info.Height); err != nil {
		return nil, err
	}
	pixel := int64(item.RGB.Size())
	if !r.simple(info.Codec) {
		switch pixel = item.MaxChannels; {
		case info.Precision > 16:
			pixel *= 4
		case info.Precision > 8:
			pixel *= 2
		}
	}
	if err := d.allow(fileMemory(info, len(src), pixel)+more, true); err != nil {
		return nil, err
	}
	defer func() {
		if v := recover(); v != nil {
			err = &cdec.Error{Kind: cdec.ErrCorrupt, Msg: fmt.Sprintf("the decoder gave up: %v", v)}
		}
	}()
	if read := ownReader(info); read != nil {
		return read(d, r, info)
	}
	img, err := decodeImage(info.Codec, src)
	if err != nil && info.Codec == driver.CodecPNG {
		img, err = d.repaired(src, err)
	}
	if err != nil {
		return nil, libraryError(err)
	}
	w, h := int(info.Width), int(info.Height)
	frame := img.Bounds()
	if info.Codec == driver.CodecGIF {
		if _, palette := img.(*image.Paletted); !palette {
			return nil, libraryError(errors.New("gif: the frame has no palette"))
		}
		if !frame.In(image.Rect(0, 0, w, h)) {
			return nil, libraryError(errors.New("gif: the first frame lies outside of the image"))
		}
	} else if frame.Dx() != w || frame.Dy() != h {
		return nil, &cdec.Error{Kind: cdec.ErrCorrupt, Msg: fmt.Sprintf("the image is %v pixels, its header says %dx%d", frame.Size(), w, h)}
	}
	p = &picture{w: info.Width, h: info.Height, t: item.RGB}
	native := !r.simple(info.Codec)
	if native {
		p.t = nativeType(img, r.Mask)
		p.bilevel = info.Precision == 1 && info.Color == imagefile.Gray
	}
	if p.pix, err = d.pixels.Bytes(h * p.stride()); err != nil {
		return nil, err
	}
	switch {
	case info.Codec == driver.CodecGIF:
		gifFrame(p, img.(*image.Paletted), src)
	case native:
		nativePixels(p, img)
	default:
		toRGB(p.pix, img)
	}
	return p, nil
}

// maxRepaired is the size of the largest PNG, in bytes of pixels, that is repaired.
const maxRepaired = 64 << 20

// repaired decodes a PNG that a strict decoder refused with err, if Pillow would not.
func (d *Decoder) repaired(src []byte, err error) (image.Image, error) {
	most := int64(maxRepaired)
	if d.memory > 0 {
		most = min(most, d.memory/8)
	}
	if fixed := imagefile.RepairPNG(src, most); fixed != nil {
		return png.Decode(bytes.NewReader(fixed))
	}
	return nil, err
}

func decodeImage(codec driver.Codec, src []byte) (image.Image, error) {
	in := bytes.NewReader(src)
	switch codec {
	case driver.CodecPNG:
		return png.Decode(in)
	case driver.CodecGIF:
		return gif.Decode(in)
	case driver.CodecWebP:
		return webp.Decode(in)
	}
	return nil, &cdec.Error{Kind: cdec.ErrUnsupported, Msg: "not an image of a known format"}
}

func (d *Decoder) checkPixels(width, height int32) error {
	if int64(width)*int64(height) <= d.opt.MaxPixels {
		return nil
	}
	return &cdec.Error{Kind: cdec.ErrLimit, Msg: fmt.Sprintf("the image is %d x %d pixels; the limit is %d in all", width, height, d.opt.MaxPixels)}
}

func libraryError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, imagefile.ErrUnsupported) {
		return &cdec.Error{Kind: cdec.ErrUnsupported, Msg: err.Error()}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &cdec.Error{Kind: cdec.ErrCorrupt, Msg: "the image is truncated: its data ends before the image does"}
	}
	var known *cdec.Error
	if errors.As(err, &known) {
		return err
	}
	kind := cdec.ErrCorrupt
	var pngKind png.UnsupportedError
	if errors.As(err, &pngKind) {
		kind = cdec.ErrUnsupported
	}
	return &cdec.Error{Kind: kind, Msg: err.Error()}
}

// toRGB converts like Pillow's convert("RGB"): it drops alpha, looks up palettes and keeps the upper 8 of 16 bits.
// 16-bit gray, which is a separate mode in Pillow, is clipped at 255.
func toRGB(dst []byte, img image.Image) {
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	switch m := img.(type) {
	case *image.Gray:
		for y := range h {
			grayRow(dst[y*w*3:], m.Pix[y*m.Stride:y*m.Stride+w])
		}
	case *image.Gray16:
		for y := range h {
			out, in := dst[y*w*3:], m.Pix[y*m.Stride:]
			for x := range w {
				v := in[2*x+1]
				if in[2*x] != 0 {
					v = 255
				}
				out[3*x], out[3*x+1], out[3*x+2] = v, v, v
			}
		}
	case *image.NRGBA:
		for y := range h {
			rgbaRow(dst[y*w*3:(y+1)*w*3], m.Pix[y*m.Stride:])
		}
	case *image.RGBA:
		for y := range h {
			premultipliedRow(dst[y*w*3:(y+1)*w*3], m.Pix[y*m.Stride:])
		}
	case *image.NRGBA64:
		for y := range h {
			rgba64Row(dst[y*w*3:(y+1)*w*3], m.Pix[y*m.Stride:])
		}
	case *image.RGBA64:
		for y := range h {
			rgba64Row(dst[y*w*3:(y+1)*w*3], m.Pix[y*m.Stride:])
		}
	case *image.Paletted:
		table := rgbTable(m.Palette)
		for y := range h {
			paletteRow(dst[y*w*3:(y+1)*w*3], m.Pix[y*m.Stride:], &table)
		}
	case *image.YCbCr:
		webpToRGB(dst, m)
	case *image.NYCbCrA:
		webpToRGB(dst, &m.YCbCr)
	default:
		for y := range h {
			for x := range w {
				c := color.NRGBAModel.Convert(img.At(b.Min.X+x, b.Min.Y+y)).(color.NRGBA)
				at := (y*w + x) * 3
				dst[at], dst[at+1], dst[at+2] = c.R, c.G, c.B
			}
		}
	}
}

func grayRow(out, in []byte) {
	for x, v := range in {
		out[3*x], out[3*x+1], out[3*x+2] = v, v, v
	}
}

func rgbaRow(out, in []byte) {
	for x := 0; x < len(out)/3; x++ {
		copy(out[3*x:3*x+3], in[4*x:4*x+3])
	}
}

// premultipliedRow divides by alpha as Pillow does for associated alpha. With alpha 255, as in opaque formats, nothing
// changes.
func premultipliedRow(out, in []byte) {
	for x := 0; x < len(out)/3; x++ {
		p, a := in[4*x:4*x+4], int(in[4*x+3])
		for c := range 3 {
			v := p[c]
			if a != 0 && a != 255 {
				v = byte(min(int(v)*255/a, 255))
			}
			out[3*x+c] = v
		}
	}
}

func rgba64Row(out, in []byte) {
	for x := 0; x < len(out)/3; x++ {
		out[3*x], out[3*x+1], out[3*x+2] = in[8*x], in[8*x+2], in[8*x+4]
	}
}

func paletteRow(out, in []byte, table *[256][3]byte) {
	for x := 0; x < len(out)/3; x++ {
		copy(out[3*x:3*x+3], table[in[x]][:])
	}
}

// rgbTable returns the colours of a palette without their alpha; indices
// beyond it are black, as in Pillow.
func rgbTable(p color.Palette) (table [256][3]byte) {
	for i, c := range rgbaTable(p) {
		table[i] = [3]byte(c[:3])
	}
	return table
}

// rgbaTable returns the colours of a palette; indices beyond it are black.
func rgbaTable(p color.Palette) (table [256][4]byte) {
	for i := range table {
		table[i][3] = 255
	}
	for i, c := range p[:min(len(p), 256)] {
		n, ok := c.(color.NRGBA) // only here a colour with alpha 0 has its RGB values
		if !ok {
			n = color.NRGBAModel.Convert(c).(color.NRGBA)
		}
		table[i] = [4]byte{n.R, n.G, n.B, n.A}
	}
	return table
}

// gifFrame writes the first frame onto the canvas. The library blackens the
// transparent colour in its palette, so colours are read from the file.
func gifFrame(p *picture, m *image.Paletted, src []byte) {
	table, transparent := imagefile.GIFColors(src)
	put := func(at int, index byte) {
		switch p.t.Channels {
		case 1: // a mask
			p.pix[at] = index
		case 3:
			copy(p.pix[at:at+3], table[index][:])
		default:
			copy(p.pix[at:at+3], table[index][:])
			p.pix[at+3] = 255
			if int(index) == transparent {
				p.pix[at+3] = 0
			}
		}
	}
	size, b := p.t.Size(), m.Bounds()
	if b.Dx() != int(p.w) || b.Dy() != int(p.h) {
		for at := 0; at < len(p.pix); at += size {
			put(at, byte(max(transparent, 0)))
		}
	}
	for y := range b.Dy() {
		at := (b.Min.Y+y)*p.stride() + b.Min.X*size
		for x, index := range m.Pix[y*m.Stride:][:b.Dx()] {
			put(at+x*size, index)
		}
	}
}
