// Package bmpimage reads the pixels of BMP files as Pillow does. It reads palettes of 1, 2, 4 and 8 bits, also in runs,
// and colours of 16, 24 and 32 bits with masks of any kind. Package imagefile has read the layout of the file.
package bmpimage

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"

	"github.com/stokerdata/stoker/internal/imagefile"
)

// Channels is the number of channels that Read gives: 1 for the indices of a palette,
// which masks are, else 3, or 4 with alpha.
func Channels(l *imagefile.BMPLayout, mask bool) int {
	switch {
	case l.Bits <= 8 && mask:
		return 1
	case l.Bits > 8 && l.Masks[3] != 0:
		return 4
	}
	return 3
}

// Read reads a whole picture to dst, height x width x channels of u8, the upper row first.
func Read(b []byte, l *imagefile.BMPLayout, mask bool, dst []byte) error {
	if l.RLE {
		return runs(b[l.Pixels:], l, mask, dst)
	}
	size, stride := l.Width*Channels(l, mask), l.Stride()
	for y := range l.Height {
		row := b[l.Pixels+y*stride:]
		row = row[:min(stride, len(row))]
		put(dst[line(l, y)*size:][:size], row, l, mask)
	}
	return nil
}

// line returns the row of the picture that row y of the file belongs to.
func line(l *imagefile.BMPLayout, y int) int {
	if l.TopDown {
		return y
	}
	return l.Height - 1 - y
}

// put converts a row.
func put(dst, row []byte, l *imagefile.BMPLayout, mask bool) {
	switch l.Bits {
	case 24:
		for x := range l.Width {
			copy(dst[3*x:3*x+3], []byte{row[3*x+2], row[3*x+1], row[3*x]})
		}
	case 16:
		for x := range l.Width {
			masked(dst, x, uint32(binary.LittleEndian.Uint16(row[2*x:])), l)
		}
	case 32:
		for x := range l.Width {
			masked(dst, x, binary.LittleEndian.Uint32(row[4*x:]), l)
		}
	default:
		for x := range l.Width {
			at := x * l.Bits
			index(dst, x, row[at/8]>>(8-l.Bits-at%8)&(1<<l.Bits-1), l, mask)
		}
	}
}

// masked writes the colours of a pixel, which its masks pick.
func masked(dst []byte, x int, v uint32, l *imagefile.BMPLayout) {
	n := 3
	if l.Masks[3] != 0 {
		n = 4
	}
	for c := range n {
		m := l.Masks[c]
		low := bits.TrailingZeros32(m)
		top := uint64(m >> low)
		dst[n*x+c] = byte(uint64(v&m>>low) * 255 / top)
	}
}

// index writes a pixel of a palette. Colours that are not in it are black.
func index(dst []byte, x int, i byte, l *imagefile.BMPLayout, mask bool) {
	if mask {
		dst[x] = i
		return
	}
	p := dst[3*x : 3*x+3]
	if at := int(i) * l.Step; at+3 <= len(l.Palette) {
		p[0], p[1], p[2] = l.Palette[at+2], l.Palette[at+1], l.Palette[at]
	} else {
		p[0], p[1], p[2] = 0, 0, 0
	}
}

// decoder writes runs of indices to their positions. at is the number of the next pixel, and x is its column. Like
// Pillow, it continues single pixels that are too many for a row in the next row. It drops those of a run, so x can be
// larger than the width.
type decoder struct {
	l     *imagefile.BMPLayout
	mask  bool
	dst   []byte
	at, x int
}

// pixels is the number of pixels of the picture.
func (d *decoder) pixels() int { return d.l.Width * d.l.Height }

func (d *decoder) pixel(i byte) {
	if d.at < d.pixels() {
		size := d.l.Width * Channels(d.l, d.mask)
		index(d.dst[line(d.l, d.at/d.l.Width)*size:], d.at%d.l.Width, i, d.l, d.mask)
	}
	d.at++
}

// nibbles writes n pixels. A byte of RLE4 has two pixels.
func (d *decoder) nibbles(at func(i int) byte, n int) {
	for i := range n {
		if d.l.Bits == 8 {
			d.pixel(at(i))
		} else {
			d.pixel(at(i/2) >> (4 - 4*(i%2)) & 15)
		}
	}
	d.x += n
}

// newRow goes to the start of the next row.
func (d *decoder) newRow() {
	if r := d.at % d.l.Width; r != 0 || d.x == 0 {
		d.at += d.l.Width - r
	}
	d.x = 0
}

// runs decodes RLE8 and RLE4. Pixels that are passed over have index 0.
func runs(src []byte, l *imagefile.BMPLayout, mask bool, dst []byte) error {
	d := &decoder{l: l, mask: mask, dst: dst}
	clearTo(d)
	for d.at < d.pixels() {
		if len(src) < 2 {
			return fmt.Errorf("row %d of %d of its runs: %w", d.at/l.Width+1, l.Height, io.ErrUnexpectedEOF)
		}
		n, v := int(src[0]), src[1]
		src = src[2:]
		switch {
		case n > 0:
			d.nibbles(func(int) byte { return v }, min(n, max(0, l.Width-d.x)))
		case v == 0:
			d.newRow()
		case v == 1:
			return nil
		case v == 2:
			if len(src) < 2 {
				return io.ErrUnexpectedEOF
			}
			d.at += int(src[0]) + int(src[1])*l.Width
			d.x = d.at % l.Width
			src = src[2:]
		default:
			size := (int(v)*l.Bits + 7) / 8
			if len(src) < size {
				return io.ErrUnexpectedEOF
			}
			d.nibbles(func(i int) byte { return src[i] }, int(v))
			src = src[min((size+1)/2*2, len(src)):]
		}
	}
	return nil
}

// clearTo fills the picture with index 0.
func clearTo(d *decoder) {
	for range d.pixels() {
		d.pixel(0)
	}
	d.at = 0
}
