package imagecodec

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagefile"
)

// bmp decodes a BMP file as Pillow does: palettes of 1, 2, 4 and 8 bits, also in runs, and colours of 16, 24 and 32 bits
// with masks of any kind.
type bmp struct {
	*imagefile.BMPLayout
	// mask means that pixels are indices of a palette, with one channel.
	mask     bool
	channels int
}

func openBMP(b []byte, opt Options) (*Picture, error) {
	l, err := imagefile.ReadBMPLayout(b)
	if err != nil {
		return nil, err
	}
	r := &bmp{BMPLayout: l, mask: opt.Mask, channels: 3}
	switch {
	case l.Bits <= 8 && opt.Mask:
		r.channels = 1
	case l.Bits > 8 && l.Masks[3] != 0:
		r.channels = 4
	}
	p := &Picture{Width: l.Width, Height: l.Height, Channels: r.channels, DType: dtype.U8}
	return p.into(func(dst []byte) error { return r.decode(dst, b[l.Pixels:]) }), nil
}

func (r *bmp) decode(dst, src []byte) error {
	if r.RLE {
		return (&bmpRuns{bmp: r, dst: dst}).decode(src)
	}
	size, stride := r.Width*r.channels, r.Stride()
	for y := range r.Height {
		row := src[y*stride:]
		row = row[:min(stride, len(row))]
		r.convert(dst[r.line(y)*size:][:size], row)
	}
	return nil
}

// line returns the row of the picture that row y of the file belongs to.
func (r *bmp) line(y int) int {
	if r.TopDown {
		return y
	}
	return r.Height - 1 - y
}

// convert converts a row.
func (r *bmp) convert(dst, row []byte) {
	switch r.Bits {
	case 24:
		for x := range r.Width {
			copy(dst[3*x:3*x+3], []byte{row[3*x+2], row[3*x+1], row[3*x]})
		}
	case 16:
		for x := range r.Width {
			r.masked(dst, x, uint32(binary.LittleEndian.Uint16(row[2*x:])))
		}
	case 32:
		for x := range r.Width {
			r.masked(dst, x, binary.LittleEndian.Uint32(row[4*x:]))
		}
	default:
		for x := range r.Width {
			at := x * r.Bits
			r.index(dst, x, row[at/8]>>(8-r.Bits-at%8)&(1<<r.Bits-1))
		}
	}
}

// masked writes the colours of a pixel, which its masks pick.
func (r *bmp) masked(dst []byte, x int, v uint32) {
	n := r.channels
	for c := range n {
		m := r.Masks[c]
		low := bits.TrailingZeros32(m)
		top := uint64(m >> low)
		dst[n*x+c] = byte(uint64(v&m>>low) * 255 / top)
	}
}

// index writes a pixel of a palette. Colours that are not in it are black.
func (r *bmp) index(dst []byte, x int, i byte) {
	if r.mask {
		dst[x] = i
		return
	}
	p := dst[3*x : 3*x+3]
	if at := int(i) * r.Step; at+3 <= len(r.Palette) {
		p[0], p[1], p[2] = r.Palette[at+2], r.Palette[at+1], r.Palette[at]
	} else {
		p[0], p[1], p[2] = 0, 0, 0
	}
}

// bmpRuns writes runs of indices to their positions. at is the number of the next pixel, and x is its column. Like
// Pillow, it continues single pixels that are too many for a row in the next row. It drops those of a run, so x can be
// larger than the width.
type bmpRuns struct {
	*bmp
	dst   []byte
	at, x int
}

// count is the number of pixels of the picture.
func (d *bmpRuns) count() int { return d.Width * d.Height }

func (d *bmpRuns) pixel(i byte) {
	if d.at < d.count() {
		size := d.Width * d.channels
		d.index(d.dst[d.line(d.at/d.Width)*size:], d.at%d.Width, i)
	}
	d.at++
}

// nibbles writes n pixels. A byte of RLE4 has two pixels.
func (d *bmpRuns) nibbles(at func(i int) byte, n int) {
	for i := range n {
		if d.Bits == 8 {
			d.pixel(at(i))
		} else {
			d.pixel(at(i/2) >> (4 - 4*(i%2)) & 15)
		}
	}
	d.x += n
}

// newRow goes to the start of the next row.
func (d *bmpRuns) newRow() {
	if r := d.at % d.Width; r != 0 || d.x == 0 {
		d.at += d.Width - r
	}
	d.x = 0
}

// decode decodes RLE8 and RLE4. Pixels that are passed over have index 0.
func (d *bmpRuns) decode(src []byte) error {
	for range d.count() {
		d.pixel(0)
	}
	d.at = 0
	for d.at < d.count() {
		if len(src) < 2 {
			return fmt.Errorf("row %d of %d of its runs: %w", d.at/d.Width+1, d.Height, io.ErrUnexpectedEOF)
		}
		n, v := int(src[0]), src[1]
		src = src[2:]
		switch {
		case n > 0:
			d.nibbles(func(int) byte { return v }, min(n, max(0, d.Width-d.x)))
		case v == 0:
			d.newRow()
		case v == 1:
			return nil
		case v == 2:
			if len(src) < 2 {
				return io.ErrUnexpectedEOF
			}
			d.at += int(src[0]) + int(src[1])*d.Width
			d.x = d.at % d.Width
			src = src[2:]
		default:
			size := (int(v)*d.Bits + 7) / 8
			if len(src) < size {
				return io.ErrUnexpectedEOF
			}
			d.nibbles(func(i int) byte { return src[i] }, int(v))
			src = src[min((size+1)/2*2, len(src)):]
		}
	}
	return nil
}
