package imagefile

import (
	"encoding/binary"
	"fmt"
)

// Compressions of BMP.
const (
	bmpRLE8      = 1
	bmpRLE4      = 2
	bmpMasks     = 3
	bmpJPEG      = 4
	bmpPNG       = 5
	bmpMoreMasks = 6 // with one for alpha
)

const (
	bmpFileHeader = 14
	bmpOS2Header  = 12 // of OS/2 1.x
	bmpOS2Header2 = 64 // of OS/2 2.x
	bmpInfoHeader = 40
	// bmpMasksHeader is the smallest header that has masks, and bmpAlphaHeader the smallest
	// that has one for alpha.
	bmpMasksHeader = 52
	bmpAlphaHeader = 56
	maxBMPHeader   = 1 << 10
	// bmpMostColors is the size of the largest palette that Pillow reads.
	bmpMostColors = 1 << 16
)

// BMPLayout describes the position and format of the picture in a BMP file.
type BMPLayout struct {
	Width, Height int
	Bits          int
	TopDown       bool
	// RLE reports whether the pixels are stored as runs of indices.
	RLE bool
	// Pixels is the offset of the pixels.
	Pixels int
	// Palette has colours of Step bytes: blue, green, red.
	Palette []byte
	Step    int
	// Masks are the bits of red, green, blue and alpha in pixels of 16 and 32 bits.
	Masks [4]uint32
}

// bmpHeader returns the offset of a BMP's header: after the file header, which a DIB does not have.
func bmpHeader(b []byte) int {
	if len(b) > 1 && b[0] == 'B' && b[1] == 'M' {
		return bmpFileHeader
	}
	return 0
}

// isDIB reports whether b begins like a BMP without the header of a file.
func isDIB(b []byte) bool {
	if len(b) < bmpInfoHeader || b[1]|b[2]|b[3] != 0 {
		return false
	}
	le := binary.LittleEndian
	planes, bits := le.Uint16(b[12:]), le.Uint16(b[14:])
	switch b[0] {
	case bmpOS2Header:
		planes, bits = le.Uint16(b[8:]), le.Uint16(b[10:])
	case bmpInfoHeader, bmpMasksHeader, bmpAlphaHeader, bmpOS2Header2, 108, 124:
	default:
		return false
	}
	switch bits {
	case 1, 4, 8, 16, 24, 32:
		return planes == 1
	}
	return false
}

// size reads the size of the picture and its bits.
func (l *BMPLayout) size(b []byte) error {
	le, at := binary.LittleEndian, bmpHeader(b)
	if len(b) < at+bmpOS2Header {
		return truncated(b, "in the header")
	}
	switch size := le.Uint32(b[at:]); {
	case size == bmpOS2Header:
		l.Width, l.Height, l.Bits = int(le.Uint16(b[at+4:])), int(le.Uint16(b[at+6:])), int(le.Uint16(b[at+10:]))
		return nil
	case size < 16 || size > maxBMPHeader:
		return broken("a BMP header of %d bytes", size)
	case len(b) < at+16:
		return truncated(b, "in the header")
	}
	h := int64(int32(le.Uint32(b[at+8:])))
	l.TopDown = h < 0
	l.Width, l.Height, l.Bits = int(side(le.Uint32(b[at+4:]))), int(side(uint32(max(h, -h)))), int(le.Uint16(b[at+14:]))
	return nil
}

func probeBMP(b []byte, info *Info) error {
	var l BMPLayout
	if err := l.size(b); err != nil {
		return err
	}
	info.Width, info.Height = int32(l.Width), int32(l.Height)
	switch l.Bits {
	case 1, 2, 4, 8:
		info.Channels, info.Color, info.Precision = 1, Palette, int32(l.Bits)
	case 16, 24:
		info.Channels, info.Color, info.Precision = 3, RGB, 8
	case 32:
		info.Channels, info.Color, info.Precision = 4, RGBA, 8
	default:
		return broken("%d bits per pixel", l.Bits)
	}
	return nil
}

// ReadBMPLayout reads the layout of the picture in a BMP file or a DIB. Its error is ErrUnsupported if the file uses a
// feature that is not supported.
func ReadBMPLayout(b []byte) (*BMPLayout, error) {
	var info Info
	if err := probeBMP(b, &info); err != nil {
		return nil, err
	}
	l := new(BMPLayout)
	if err := l.size(b); err != nil {
		return nil, err
	}
	le, at := binary.LittleEndian, bmpHeader(b)
	size := int(le.Uint32(b[at:]))
	if len(b) < at+size {
		return nil, truncated(b, "in the header")
	}
	if l.Width < 1 || l.Height < 1 || l.Width > maxSide || l.Height > maxSide {
		return nil, broken("%d x %d pixels", l.Width, l.Height)
	}
	// Fields that a short header does not have are 0.
	field := func(offset int) int64 {
		if size < offset+4 {
			return 0
		}
		return int64(le.Uint32(b[at+offset:]))
	}
	compression, end := field(16), at+size
	if err := l.compression(compression, size); err != nil {
		return nil, err
	}
	more, err := l.masks(b, end, size, compression, field)
	if err != nil {
		return nil, err
	}
	return l, l.palette(b, end+more, size, field(32))
}

// compression reports which compression cannot be read.
func (l *BMPLayout) compression(c int64, size int) error {
	no := func(what string) error {
		return fmt.Errorf("%w: a BMP file with %s; save it as BMP without compression, or as PNG", ErrUnsupported, what)
	}
	switch {
	case size == bmpOS2Header2 && c == 3 && l.Bits == 1:
		return no("Huffman coding, of OS/2")
	case size == bmpOS2Header2 && c == 4:
		return no("runs of 24 bits, of OS/2")
	case c == 0, c == bmpMasks && l.Bits >= 16, c == bmpMoreMasks && l.Bits >= 16:
	case c == bmpRLE8 && l.Bits == 8, c == bmpRLE4 && l.Bits == 4:
		l.RLE = true
	case c == bmpJPEG:
		return no("a JPEG inside")
	case c == bmpPNG:
		return no("a PNG inside")
	default:
		return no(fmt.Sprintf("compression %d of %d bits per pixel", c, l.Bits))
	}
	return nil
}

// masks reads the colour masks. It returns the number of their bytes after the header.
func (l *BMPLayout) masks(b []byte, end, size int, compression int64, field func(int) int64) (more int, err error) {
	switch l.Bits {
	case 16:
		l.Masks = [4]uint32{0x7c00, 0x3e0, 0x1f, 0}
	case 24, 32:
		l.Masks = [4]uint32{0xff0000, 0xff00, 0xff, 0}
	}
	if compression != bmpMasks && compression != bmpMoreMasks {
		return 0, nil
	}
	if size < bmpMasksHeader {
		n := 3
		if compression == bmpMoreMasks {
			n = 4
		}
		if len(b) < end+4*n {
			return 0, truncated(b, "in the masks of its colours")
		}
		for i := range n {
			l.Masks[i] = binary.LittleEndian.Uint32(b[end+4*i:])
		}
		more = 4 * n
	} else {
		for i := range l.Masks {
			l.Masks[i] = uint32(field(40 + 4*i))
		}
	}
	if size >= bmpAlphaHeader && l.Bits == 32 && l.Masks == [4]uint32{} { // as Pillow has it
		l.Masks = [4]uint32{0xff0000, 0xff00, 0xff, 0xff000000}
	}
	if l.Masks[0] == 0 || l.Masks[1] == 0 || l.Masks[2] == 0 {
		return 0, fmt.Errorf("%w: a BMP file with the colour masks %#x; save it with 24 bits per pixel, or as PNG",
			ErrUnsupported, l.Masks[:3])
	}
	if l.Bits == 16 || size < bmpAlphaHeader && compression == bmpMasks {
		l.Masks[3] = 0
	}
	return more, nil
}

// palette finds the palette, and the pixels.
func (l *BMPLayout) palette(b []byte, at, size int, colors int64) error {
	l.Step = 4
	if size == bmpOS2Header {
		l.Step = 3
	}
	if colors == 0 && l.Bits <= 8 {
		colors = 1 << l.Bits
	}
	if l.Bits <= 8 && colors > bmpMostColors {
		return fmt.Errorf("%w: a BMP file with %d colours; save it as PNG", ErrUnsupported, colors)
	}
	n := int(min(colors*int64(l.Step), int64(len(b)-at)))
	if header := bmpHeader(b); header > 0 {
		l.Pixels = int(binary.LittleEndian.Uint32(b[10:]))
		if l.Pixels == header+size && l.Bits <= 8 {
			l.Pixels += n // as Pillow does: the offset leaves out the palette
		}
		if l.Bits <= 8 && l.Pixels > at {
			n = min(n, l.Pixels-at)
		}
	}
	if l.Pixels == 0 {
		l.Pixels = at + n
	}
	if l.Bits <= 8 {
		l.Palette = b[at : at+min(n, l.Step<<l.Bits)]
	}
	if need := l.bytes(); int64(l.Pixels)+need > int64(len(b)) {
		return truncated(b, fmt.Sprintf("%d bytes of pixels are missing", int64(l.Pixels)+need-int64(len(b))))
	}
	return nil
}

// Stride is the size of a row, which is not compressed.
func (l *BMPLayout) Stride() int { return (l.Width*l.Bits + 31) / 32 * 4 }

// bytes is the minimum number of bytes of pixels. The last row need not be padded.
func (l *BMPLayout) bytes() int64 {
	if l.RLE {
		return 2
	}
	return int64(l.Stride())*int64(l.Height-1) + (int64(l.Width)*int64(l.Bits)+7)/8
}
