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

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// runLibrary decodes an image of the formats that Go libraries know, whole,
// into scratch memory, and resizes it from there.
func (d *Decoder) runLibrary(r *Request) error {
	pix, w, h, err := d.decodeLibrary(r.Value.Bytes)
	if err != nil {
		return err
	}
	if d.opt.ApplyOrientation {
		pix, w, h, err = d.turn(pix, w, h, d.orientation(&r.Value, driver.CodecUnknown))
		if err != nil {
			return err
		}
	}
	err = d.runPixels(r, pix, int32(w), int32(h), r.Geom.Box)
	d.trim(keepBytes)
	return err
}

// turn applies an EXIF orientation to whole pixels.
func (d *Decoder) turn(pix []byte, w, h int, orientation int32) ([]byte, int, int, error) {
	if orientation <= 1 {
		return pix, w, h, nil
	}
	turned, err := d.turned.Bytes(len(pix))
	if err != nil {
		return nil, 0, 0, err
	}
	whole := item.Rect{W: int32(w), H: int32(h)}
	flipH, flipV := mirrored(orientation)
	geom := item.Geometry{
		Box: whole, ResizeW: whole.W, ResizeH: whole.H, Window: whole, Filter: item.Bilinear,
		FlipH: flipH, FlipV: flipV,
	}
	err = d.runOne(cdec.Job{Format: cdec.FormatRGB, Src: pix, Width: whole.W, Height: whole.H, Geom: geom, Store: PlainRGB, Dst: turned})
	if err != nil || orientation < 5 {
		return turned, w, h, err
	}
	transpose(pix, turned, w, h)
	return pix, h, w, nil
}

// decodeLibrary decodes a whole image to u8 RGB. The size is checked before
// memory is taken, and a panic of a library on damaged input becomes an error.
func (d *Decoder) decodeLibrary(src []byte) (pix []byte, w, h int, err error) {
	info, err := probe(src)
	if err != nil {
		return nil, 0, 0, err
	}
	if err := d.checkPixels(info.Width, info.Height); err != nil {
		return nil, 0, 0, err
	}
	need := fileMemory(&info, len(src), 3)
	if d.opt.ApplyOrientation {
		need += 3 * int64(info.Width) * int64(info.Height)
	}
	if err := d.allow(need); err != nil {
		return nil, 0, 0, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = &cdec.Error{Kind: cdec.ErrCorrupt, Msg: fmt.Sprintf("the decoder gave up: %v", p)}
		}
	}()
	w, h = int(info.Width), int(info.Height)
	pix, err = d.pixels.Bytes(w * h * 3)
	if err != nil {
		return nil, 0, 0, err
	}
	var img image.Image
	switch info.Codec {
	case driver.CodecPNG:
		img, err = png.Decode(bytes.NewReader(src))
	case driver.CodecBMP:
		img, err = bmp.Decode(bytes.NewReader(src))
	case driver.CodecGIF:
		return pix, w, h, libraryError(decodeGIF(pix, w, h, src))
	case driver.CodecWebP:
		img, err = webp.Decode(bytes.NewReader(src))
	case driver.CodecTIFF:
		img, err = tiff.Decode(bytes.NewReader(src))
	default:
		return nil, 0, 0, &cdec.Error{Kind: cdec.ErrUnsupported, Msg: "not an image of a known format"}
	}
	if err != nil {
		return nil, 0, 0, libraryError(err)
	}
	if b := img.Bounds(); b.Dx() != w || b.Dy() != h {
		return nil, 0, 0, &cdec.Error{Kind: cdec.ErrCorrupt, Msg: fmt.Sprintf("the image is %v pixels, its header says %dx%d", b.Size(), w, h)}
	}
	toRGB(pix, img)
	return pix, w, h, nil
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
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &cdec.Error{Kind: cdec.ErrCorrupt, Msg: "the image is truncated: its data ends before the image does"}
	}
	kind := cdec.ErrCorrupt
	var pngKind png.UnsupportedError
	var tiffKind tiff.UnsupportedError
	if errors.As(err, &pngKind) || errors.As(err, &tiffKind) || errors.Is(err, bmp.ErrUnsupported) {
		kind = cdec.ErrUnsupported
	}
	return &cdec.Error{Kind: kind, Msg: err.Error()}
}

// toRGB converts as Pillow's convert("RGB") does: alpha is dropped, a palette
// looked up, of 16 bits the upper 8 are kept; 16-bit gray, which Pillow holds
// as a mode of its own, is cut off at 255.
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

// premultipliedRow divides by alpha as Pillow does for associated alpha; with
// alpha 255, which is what opaque formats decode to, nothing changes.
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
	for i, c := range p[:min(len(p), 256)] {
		n, ok := c.(color.NRGBA) // a colour of alpha 0 keeps its RGB only here
		if !ok {
			n = color.NRGBAModel.Convert(c).(color.NRGBA)
		}
		table[i] = [3]byte{n.R, n.G, n.B}
	}
	return table
}

// decodeGIF decodes the first frame onto the canvas. The library blackens the
// transparent colour in its palette, so colours are read from the file.
func decodeGIF(dst []byte, w, h int, src []byte) error {
	frame, err := gif.Decode(bytes.NewReader(src))
	if err != nil {
		return err
	}
	m, ok := frame.(*image.Paletted)
	if !ok {
		return errors.New("gif: the frame has no palette")
	}
	table, background := imagefile.GIFColors(src)
	b := m.Bounds()
	if b.Min.X < 0 || b.Min.Y < 0 || b.Max.X > w || b.Max.Y > h {
		return errors.New("gif: the first frame lies outside of the image")
	}
	if b.Dx() != w || b.Dy() != h {
		for i := 0; i < len(dst); i += 3 {
			copy(dst[i:i+3], table[background][:])
		}
	}
	for y := range b.Dy() {
		at := ((b.Min.Y+y)*w + b.Min.X) * 3
		paletteRow(dst[at:at+b.Dx()*3], m.Pix[y*m.Stride:], &table)
	}
	return nil
}
