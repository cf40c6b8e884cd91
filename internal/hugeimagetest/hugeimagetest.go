// Package hugeimagetest makes images for tests of memory: of every format, of any
// size, in one colour, so that a file of a few kilobytes unfolds to as much as
// the format allows.
package hugeimagetest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Formats names what Make makes.
var Formats = []string{
	"jpeg", "jpeg-gray", "jpeg-progressive", "jpeg-progressive-420", "jpeg-progressive-cmyk",
	"png", "png-alpha", "png-16", "png-palette", "png-interlaced", "bmp", "bmp-palette", "gif",
	"webp", "webp-lossless", "webp-palette", "tiff", "tiff-16", "tiff-deflate", "ppm", "ppm-16",
}

// Folder writes into dir what takes the most memory: an image of 10 megapixels in
// each format, a small one, a file whose header claims 176 megapixels, and n images
// of 81 megapixels in the format huge, called huge-0.jpeg and so on.
func Folder(dir, huge string, n int) error {
	put := func(name string, b []byte, err error) error {
		if err != nil || b == nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), b, 0o600)
	}
	for _, format := range Formats {
		ext, _, _ := strings.Cut(format, "-")
		width, height := 3200, 3000
		if format == "bmp" || format == "bmp-palette" || format == "tiff" || ext == "ppm" { // stored as they are
			width, height = 1600, 1500
		}
		b, err := Make(format, width, height)
		if err := put(format+"."+ext, b, err); err != nil {
			return err
		}
		b, err = Claim(format, 16_000, 11_000)
		if err := put(format+"-claim."+ext, b, err); err != nil {
			return err
		}
		if format == "webp" { // whose data end before the picture does
			continue
		}
		b, err = Make(format, 60, 50)
		if err := put(format+"-good."+ext, b, err); err != nil {
			return err
		}
	}
	b, err := Make(huge, 9000, 9000)
	for i := range n {
		if err := put(fmt.Sprintf("huge-%d.jpeg", i), b, err); err != nil {
			return err
		}
	}
	return nil
}

// Make returns a file of a format with an image of width x height pixels.
func Make(format string, width, height int) ([]byte, error) {
	box := image.Rect(0, 0, width, height)
	var out bytes.Buffer
	var err error
	switch format {
	case "jpeg":
		return cdec.EncodeJPEG(make([]byte, width*height*3), width, height, 3, cdec.EncodeOptions{HSamp: 2, VSamp: 2})
	case "jpeg-gray":
		return cdec.EncodeJPEG(make([]byte, width*height), width, height, 1, cdec.EncodeOptions{})
	case "jpeg-progressive":
		return cdec.EncodeJPEG(make([]byte, width*height*3), width, height, 3, cdec.EncodeOptions{Progressive: true})
	case "jpeg-progressive-420":
		return cdec.EncodeJPEG(make([]byte, width*height*3), width, height, 3, cdec.EncodeOptions{Progressive: true, HSamp: 2, VSamp: 2})
	case "jpeg-progressive-cmyk":
		return cdec.EncodeJPEG(make([]byte, width*height*4), width, height, 4, cdec.EncodeOptions{Progressive: true})
	case "png":
		err = fast.Encode(&out, opaque(box))
	case "png-alpha":
		err = fast.Encode(&out, image.NewNRGBA(box))
	case "png-16":
		err = fast.Encode(&out, image.NewNRGBA64(box))
	case "png-palette":
		err = fast.Encode(&out, paletted(box))
	case "png-interlaced":
		return interlaced(width, height)
	case "bmp":
		err = bmp.Encode(&out, opaque(box))
	case "bmp-palette":
		err = bmp.Encode(&out, paletted(box))
	case "gif":
		err = gif.Encode(&out, paletted(box), nil)
	case "webp":
		return webp("VP8 ", vp8(width, height)), nil
	case "webp-lossless":
		return webp("VP8L", vp8l(width, height, false)), nil
	case "webp-palette":
		return webp("VP8L", vp8l(width, height, true)), nil
	case "tiff":
		err = tiff.Encode(&out, image.NewRGBA(box), nil)
	case "tiff-16":
		err = tiff.Encode(&out, image.NewNRGBA64(box), &tiff.Options{Compression: tiff.Deflate})
	case "tiff-deflate":
		err = tiff.Encode(&out, image.NewRGBA(box), &tiff.Options{Compression: tiff.Deflate, Predictor: true})
	case "ppm", "ppm-16":
		top, size := 255, 3
		if format == "ppm-16" {
			top, size = 1023, 6
		}
		fmt.Fprintf(&out, "P6 %d %d %d\n", width, height, top)
		out.Write(make([]byte, size*width*height))
	default:
		return nil, fmt.Errorf("format %q is not known", format)
	}
	return out.Bytes(), err
}

var fast = png.Encoder{CompressionLevel: png.BestSpeed}

func paletted(box image.Rectangle) image.Image {
	return image.NewPaletted(box, color.Palette{color.Black, color.White})
}

// opaque is a white image.
func opaque(box image.Rectangle) image.Image {
	m := image.NewRGBA(box)
	for i := range m.Pix {
		m.Pix[i] = 255
	}
	return m
}

// interlaced is a PNG of seven passes, which the standard library does not write.
func interlaced(width, height int) ([]byte, error) {
	out := bytes.NewBufferString("\x89PNG\r\n\x1a\n")
	chunk := func(kind string, body []byte) {
		_ = binary.Write(out, binary.BigEndian, uint32(len(body)))
		body = append([]byte(kind), body...)
		out.Write(body)
		_ = binary.Write(out, binary.BigEndian, crc32.ChecksumIEEE(body))
	}
	header := binary.BigEndian.AppendUint32(nil, uint32(width))
	header = binary.BigEndian.AppendUint32(header, uint32(height))
	chunk("IHDR", append(header, 8, 6, 0, 0, 1)) // RGBA
	var data bytes.Buffer
	z, err := zlib.NewWriterLevel(&data, zlib.BestSpeed)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, 1+4*width)
	for _, p := range [...]struct{ x, y, dx, dy int }{
		{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2},
	} {
		columns, rows := (width-p.x+p.dx-1)/p.dx, (height-p.y+p.dy-1)/p.dy
		for range rows {
			if _, err := z.Write(zeros[:1+4*columns]); err != nil {
				return nil, err
			}
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	chunk("IDAT", data.Bytes())
	chunk("IEND", nil)
	return out.Bytes(), nil
}

func webp(kind string, body []byte) []byte {
	if len(body)%2 == 1 {
		body = append(body, 0)
	}
	out := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(12+len(body)))
	out = append(out, "WEBP"+kind...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(body)))
	return append(out, body...)
}

// vp8 is a key frame whose data are zeros as far as they go: decoders take all of
// their memory before they see that it ends.
func vp8(width, height int) []byte {
	const first = 4096
	tag := uint32(first)<<5 | 1<<4 // a key frame that is shown
	out := []byte{byte(tag), byte(tag >> 8), byte(tag >> 16), 0x9d, 0x01, 0x2a}
	out = binary.LittleEndian.AppendUint16(out, uint16(width))
	out = binary.LittleEndian.AppendUint16(out, uint16(height))
	return append(out, make([]byte, first+4096)...)
}

// vp8l is an image whose Huffman codes have one symbol each, so that pixels take
// no bits at all; with a palette it is unfolded a second time.
func vp8l(width, height int, palette bool) []byte {
	var w bitWriter
	w.put(0x2f, 8)
	w.put(uint64(width-1), 14)
	w.put(uint64(height-1), 14)
	w.put(0, 1+3) // no alpha, version
	codes := func() {
		for range 5 {
			w.put(0b0001, 4) // a simple code of one symbol, of one bit, which is 0
		}
	}
	if palette {
		w.put(1, 1)
		w.put(3, 2)  // colour indexing
		w.put(31, 8) // 32 colours: an index takes a byte
		w.put(0, 1)  // no colour cache
		codes()
	}
	w.put(0, 1) // no more transforms
	w.put(0, 1) // no colour cache
	w.put(0, 1) // one group of codes
	codes()
	w.put(0, 64)
	return w.out
}

// bitWriter writes bits from the lowest one up.
type bitWriter struct {
	out []byte
	n   int
}

func (w *bitWriter) put(v uint64, bits int) {
	for i := range bits {
		if w.n%8 == 0 {
			w.out = append(w.out, 0)
		}
		w.out[w.n/8] |= byte(v>>i&1) << (w.n % 8)
		w.n++
	}
}

// Claim returns a small file of a format whose header says that it is an image of
// width x height pixels, or nil for formats of which Make's files are small
// anyway. Nothing of the picture is there but a few bytes.
func Claim(format string, width, height int) ([]byte, error) {
	src, err := Make(format, 64, 64)
	if err != nil {
		return nil, err
	}
	be, le := binary.BigEndian, binary.LittleEndian
	switch {
	case strings.HasPrefix(format, "jpeg"):
		for _, frame := range []byte{0xC0, 0xC2} {
			if at := bytes.Index(src, []byte{0xFF, frame, 0}); at > 0 {
				be.PutUint16(src[at+5:], uint16(height))
				be.PutUint16(src[at+7:], uint16(width))
			}
		}
	case strings.HasPrefix(format, "png"):
		be.PutUint32(src[16:], uint32(width))
		be.PutUint32(src[20:], uint32(height))
		be.PutUint32(src[29:], crc32.ChecksumIEEE(src[12:29]))
	case strings.HasPrefix(format, "bmp"):
		le.PutUint32(src[18:], uint32(width))
		le.PutUint32(src[22:], uint32(height))
	case format == "gif":
		at := bytes.IndexByte(src[13:], 0x2C) + 13 // the first frame
		for _, p := range []int{6, at + 5} {
			le.PutUint16(src[p:], uint16(width))
			le.PutUint16(src[p+2:], uint16(height))
		}
	case strings.HasPrefix(format, "tiff"):
		at := int(le.Uint32(src[4:]))
		for i := range int(le.Uint16(src[at:])) {
			e := src[at+2+12*i:]
			switch tag := le.Uint16(e); tag {
			case 256, 257, 278: // width, height, rows of a strip
				le.PutUint16(e[2:], 4)
				le.PutUint32(e[8:], uint32(map[uint16]int{256: width, 257: height, 278: height}[tag]))
			}
		}
	default:
		return nil, nil
	}
	return src, nil
}
