package imagecodec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagefile"
)

// pnmLongestWord is the size of the longest number that Pillow reads.
const pnmLongestWord = 10

// pnm reads the values of a file of Netpbm.
type pnm struct {
	*imagefile.PNMLayout
	file  []byte
	alloc Alloc
}

// openPNM scales values to the range of 8 or 16 bits as Pillow does, except for masks. Narrow colours are rounded to 8
// bits; gray stays as it is.
func openPNM(b []byte, opt Options) (*Picture, error) {
	l, err := imagefile.ReadPNMLayout(b)
	if err != nil {
		return nil, err
	}
	p := &Picture{Width: l.Width, Height: l.Height, Channels: l.Channels, DType: dtype.U8}
	top := math.MaxUint8
	if l.Wide() && (l.Channels < 3 || !opt.Narrow) {
		p.DType, top = dtype.U16, math.MaxUint16
	}
	if opt.Mask {
		top = l.Max
	}
	p.Decode = func(alloc Alloc) ([]byte, error) {
		r := &pnm{l, b, alloc}
		pix, own, err := r.values()
		if err != nil || l.Max == top {
			return pix, err
		}
		return r.scaled(pix, own, top)
	}
	return p, nil
}

// values returns the values of all pixels: one byte each, or two, little-endian, if they are wide. own reports whether
// they are in memory of alloc, and not in the file. White is 1 also in PBM, although the file stores 0 for it.
func (r *pnm) values() (pix []byte, own bool, err error) {
	n, size := r.Width*r.Height*r.Channels, 1
	if r.Wide() {
		size = 2
	}
	if !r.Text && !r.Bits && !r.Wide() {
		pix = r.file[r.Offset : r.Offset+n : r.Offset+n]
		if !r.exceeded(pix) {
			return pix, false, nil
		}
	}
	out, err := r.alloc(n * size)
	if err != nil {
		return nil, false, err
	}
	switch src := r.file[r.Offset:]; {
	case r.Text:
		err = r.numbers(out, size)
	case r.Bits:
		r.spread(out, src)
	case r.Wide():
		for i := 0; i < len(out); i += 2 {
			binary.LittleEndian.PutUint16(out[i:], min(binary.BigEndian.Uint16(src[i:]), uint16(r.Max)))
		}
	default:
		for i := range out {
			out[i] = min(pix[i], byte(r.Max))
		}
	}
	return out, true, err
}

// exceeded reports whether a byte is above the largest value.
func (r *pnm) exceeded(pix []byte) bool {
	if r.Max < math.MaxUint8 {
		for _, v := range pix {
			if int(v) > r.Max {
				return true
			}
		}
	}
	return false
}

// spread makes bytes of bits. Rows begin at whole bytes.
func (r *pnm) spread(dst, src []byte) {
	w, row := r.Width, (r.Width+7)/8
	for y := range r.Height {
		to, from := dst[y*w:(y+1)*w], src[y*row:]
		for x := range to {
			to[x] = ^(from[x/8] >> (7 - x%8)) & 1
		}
	}
}

// numbers reads values that are written as text.
func (r *pnm) numbers(dst []byte, size int) error {
	p := r.Offset
	for i := 0; i < len(dst); i += size {
		v, next, err := r.TextValue(r.file, p)
		if err != nil {
			return fmt.Errorf("%w, after %d of %d values", err, i/size, len(dst)/size)
		}
		if p = next; size == 2 {
			binary.LittleEndian.PutUint16(dst[i:], uint16(v))
		} else {
			dst[i] = byte(v)
		}
	}
	// Pillow refuses a long word at the end of a file, also after the last value.
	rest := r.file[p:]
	if word := rest[bytes.LastIndexAny(rest, " \t\n\v\f\r")+1:]; len(word) > pnmLongestWord && !r.Inverted {
		return fmt.Errorf("%w: %d bytes after the last value; save it as PNG", imagefile.ErrUnsupported, len(rest))
	}
	return nil
}

// scaled brings values to the range up to top, rounded as Python rounds. It changes them in place if they are own.
func (r *pnm) scaled(pix []byte, own bool, top int) ([]byte, error) {
	scale := make([]uint16, r.Max+1)
	for v := range scale {
		scale[v] = uint16(math.RoundToEven(float64(v) / float64(r.Max) * float64(top)))
	}
	out := pix
	if !own {
		var err error
		if out, err = r.alloc(len(pix)); err != nil {
			return nil, err
		}
	}
	switch {
	case !r.Wide():
		for i, v := range pix {
			out[i] = byte(scale[v])
		}
	case top == math.MaxUint8:
		out = out[:len(pix)/2]
		for i := range out {
			out[i] = byte(scale[binary.LittleEndian.Uint16(pix[2*i:])])
		}
	default:
		for i := 0; i < len(pix); i += 2 {
			binary.LittleEndian.PutUint16(out[i:], scale[binary.LittleEndian.Uint16(pix[i:])])
		}
	}
	return out, nil
}
