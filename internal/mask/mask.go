// Package mask turns masks (images of class numbers) into bytes of a pack and
// back, without loss: an image file, plain numbers, or runs of equal numbers.
//
// Packs store masks as runs by default. Runs are decoded at some gigabytes per second, a crop reads only its own
// rows, and a decoder for them takes about twenty lines (docs/reference/pack-format.md, "The runs codec").
package mask

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/source/driver"
)

// MaxPixels is the size of the largest mask, equal to that of the largest image.
const MaxPixels = 178_956_970

// Mask is a decoded mask: class numbers of Size bytes each (1 or 2,
// little-endian), rows from the top, without padding.
type Mask struct {
	Width, Height int
	Size          int
	Pix           []byte
	// Orientation is the EXIF orientation of the file, which is not applied; 0 or 1 for none.
	Orientation int32
}

// ErrLossy is the error of a JPEG, whose pixels differ from the original ones.
var ErrLossy = errors.New("a JPEG cannot be a mask: it changes class numbers; save masks as PNG")

// FromFile decodes an image file whose pixels are class numbers: gray, of 1 to 16 bits, or with a palette, whose
// indices are the numbers. A colour image in which red, green and blue are equal everywhere counts as gray.
func FromFile(b []byte) (*Mask, error) {
	if imagefile.Detect(b) == driver.CodecJPEG {
		return nil, ErrLossy
	}
	info, err := imagefile.Probe(b)
	if err != nil {
		return nil, err
	}
	if int64(info.Width)*int64(info.Height) > MaxPixels {
		return nil, fmt.Errorf("%d x %d pixels are more than the limit of %d", info.Width, info.Height, MaxPixels)
	}
	out, err := fromOwn(b, &info)
	if out == nil && err == nil {
		out, err = fromLibrary(b, &info)
	}
	if err != nil {
		return nil, err
	}
	if info.Turn > 1 {
		out = out.Turned(int32(info.Turn))
	}
	out.Orientation = int32(info.Orientation)
	return out, nil
}

// Turned returns the mask as an orientation turns it.
func (m *Mask) Turned(o int32) *Mask {
	out := &Mask{Width: m.Width, Height: m.Height, Size: m.Size, Pix: make([]byte, len(m.Pix))}
	if orient.Swaps(o) {
		out.Width, out.Height = m.Height, m.Width
	}
	orient.Pixels(out.Pix, m.Pix, m.Width, m.Height, m.Size, o)
	return out
}

func fromLibrary(b []byte, info *imagefile.Info) (*Mask, error) {
	frame := &imagefile.WebPFrame{}
	if info.Animated {
		var err error
		if frame, err = imagefile.FirstWebPFrame(b); err != nil {
			return nil, err
		}
		b = frame.File
	}
	m, _, err := image.Decode(bytes.NewReader(imagefile.NormalGIF(b)))
	if err != nil && info.Codec == driver.CodecPNG {
		if fixed := imagefile.RepairPNG(b, maxRepaired); fixed != nil {
			m, _, err = image.Decode(bytes.NewReader(fixed))
		}
	}
	if err != nil {
		return nil, err
	}
	scale := uint8(1)
	if info.Codec == driver.CodecPNG && info.Color == imagefile.Gray {
		// Gray of fewer than 8 bits comes spread over all 256 levels.
		scale = map[int32]uint8{1: 255, 2: 85, 4: 17}[info.Precision]
	}
	out, err := fromImage(m, max(scale, 1))
	if err != nil || out.Width == int(info.Width) && out.Height == int(info.Height) {
		return out, err
	}
	at, around := image.Pt(frame.X, frame.Y), 0
	if info.Codec == driver.CodecGIF {
		_, transparent := imagefile.GIFColors(b)
		at, around = m.Bounds().Min, max(transparent, 0)
	}
	return out.placed(at, int(info.Width), int(info.Height), byte(around))
}

// maxRepaired is the size of the largest PNG, in bytes of pixels, that is repaired.
const maxRepaired = 64 << 20

// placed returns a larger mask, with m at a point of it and one number around it.
func (m *Mask) placed(at image.Point, width, height int, around byte) (*Mask, error) {
	if m.Size != 1 || !image.Rect(at.X, at.Y, at.X+m.Width, at.Y+m.Height).In(image.Rect(0, 0, width, height)) {
		return nil, fmt.Errorf("a first frame of %d x %d at %v in a picture of %d x %d", m.Width, m.Height, at, width, height)
	}
	out := &Mask{Width: width, Height: height, Size: 1, Pix: bytes.Repeat([]byte{around}, width*height)}
	for y := range m.Height {
		copy(out.Pix[(at.Y+y)*width+at.X:], m.Pix[y*m.Width:(y+1)*m.Width])
	}
	return out, nil
}

func fromImage(m image.Image, scale uint8) (*Mask, error) {
	w, h := m.Bounds().Dx(), m.Bounds().Dy()
	out := &Mask{Width: w, Height: h, Size: 1}
	rows := func(pix []uint8, stride int) {
		out.Pix = make([]byte, w*h)
		for y := range h {
			copy(out.Pix[y*w:(y+1)*w], pix[y*stride:])
		}
	}
	switch m := m.(type) {
	case *image.Gray:
		rows(m.Pix, m.Stride)
		if scale > 1 {
			for i := range out.Pix {
				out.Pix[i] /= scale
			}
		}
		return out, nil
	case *image.Paletted:
		rows(m.Pix, m.Stride)
		return out, nil
	case *image.Gray16:
		out.Size, out.Pix = 2, make([]byte, 2*w*h)
		for y := range h {
			for x := range w {
				binary.LittleEndian.PutUint16(out.Pix[2*(y*w+x):], binary.BigEndian.Uint16(m.Pix[y*m.Stride+2*x:]))
			}
		}
		return out, nil
	}
	out.Pix = make([]byte, w*h)
	for y := range h {
		for x := range w {
			r, g, b, a := m.At(m.Bounds().Min.X+x, m.Bounds().Min.Y+y).RGBA()
			if r != g || g != b || a != 0xFFFF || r%257 != 0 {
				return nil, fmt.Errorf("it has colours (at %d, %d) and not class numbers: save it as gray or with a palette", x, y)
			}
			out.Pix[y*w+x] = byte(r >> 8)
		}
	}
	return out, nil
}

// Open decodes the whole mask v, in any codec. For a file, the width and height need not be known.
func Open(v *driver.Value) (*Mask, error) {
	switch v.Codec {
	case driver.CodecRaw, driver.CodecRuns:
		size := 1
		if v.Codec == driver.CodecRuns {
			_, _, n, err := RunsInfo(v.Bytes)
			if err != nil {
				return nil, err
			}
			size = n
		} else if int64(len(v.Bytes)) == 2*int64(v.Width)*int64(v.Height) {
			size = 2
		}
		m := &Mask{Width: int(v.Width), Height: int(v.Height), Size: size}
		if m.Width < 1 || m.Height < 1 || int64(m.Width)*int64(m.Height) > MaxPixels {
			return nil, fmt.Errorf("a mask of %d x %d", m.Width, m.Height)
		}
		m.Pix = make([]byte, size*m.Width*m.Height)
		return m, Box(m.Pix, size, v, item.Rect{W: v.Width, H: v.Height})
	}
	return FromFile(v.Bytes)
}

// Resized returns the mask with class numbers of size bytes; it fails when one of
// them does not fit.
func (m *Mask) Resized(size int) (*Mask, error) {
	out := &Mask{Width: m.Width, Height: m.Height, Size: size, Pix: make([]byte, size*m.Width*m.Height)}
	return out, cut(out.Pix, size, m, item.Rect{W: int32(m.Width), H: int32(m.Height)})
}

// Box writes the part box of the mask v into dst: class numbers of size bytes
// each, 1 or 2, rows without padding. The width and height of v must be known.
func Box(dst []byte, size int, v *driver.Value, box item.Rect) error {
	w, h := int(v.Width), int(v.Height)
	if box.X < 0 || box.Y < 0 || box.W < 1 || box.H < 1 || box.X > v.Width-box.W || box.Y > v.Height-box.H {
		return fmt.Errorf("the part %+v of a mask of %d x %d", box, w, h)
	}
	if need := size * int(box.W) * int(box.H); len(dst) < need {
		return fmt.Errorf("%d bytes for a part of %d", len(dst), need)
	}
	switch v.Codec {
	case driver.CodecRaw:
		stored := len(v.Bytes) / w / h
		if stored*w*h != len(v.Bytes) || stored != 1 && stored != 2 {
			return fmt.Errorf("%d bytes for a mask of %d x %d", len(v.Bytes), w, h)
		}
		return cut(dst, size, &Mask{Width: w, Height: h, Size: stored, Pix: v.Bytes}, box)
	case driver.CodecRuns:
		return runsBox(dst, size, v.Bytes, w, h, box)
	}
	m, err := FromFile(v.Bytes)
	if err != nil {
		return err
	}
	if m.Width != w || m.Height != h {
		return fmt.Errorf("a mask of %d x %d where one of %d x %d is expected", m.Width, m.Height, w, h)
	}
	return cut(dst, size, m, box)
}

// cut copies a part of a mask, widened or narrowed to size.
func cut(dst []byte, size int, m *Mask, box item.Rect) error {
	w := int(box.W)
	for y := range int(box.H) {
		from := m.Size * ((int(box.Y)+y)*m.Width + int(box.X))
		src, row := m.Pix[from:from+m.Size*w], dst[size*y*w:size*(y+1)*w]
		switch {
		case size == m.Size:
			copy(row, src)
		case size == 2:
			for x, c := range src {
				row[2*x], row[2*x+1] = c, 0
			}
		default:
			for x := range row {
				if src[2*x+1] != 0 {
					return errWide(binary.LittleEndian.Uint16(src[2*x:]))
				}
				row[x] = src[2*x]
			}
		}
	}
	return nil
}

func errWide(c uint16) error {
	return fmt.Errorf("class number %d in a mask that is said to have uint8", c)
}
