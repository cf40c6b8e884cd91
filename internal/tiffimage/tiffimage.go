// Package tiffimage reads the samples of TIFF files as they are: integers of 8, 16
// and 32 bits and floats of 16, 32 and 64, in strips or tiles, by pixel or by
// channel, not compressed or by LZW, deflate, PackBits or zstd, with differences of
// neighbours or without. Package imagefile has read how they lie in the file.
package tiffimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/image/tiff/lzw"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/inflate"
)

// Type is what the samples of a file become: u8 and u16 stay what they are, all else
// becomes f32.
func Type(l *imagefile.TIFFLayout) dtype.Type {
	if l.Format == imagefile.FormatUnsigned && l.Bits <= 16 {
		if l.Bits == 8 {
			return dtype.U8
		}
		return dtype.U16
	}
	return dtype.F32
}

// Read gives the samples of a whole file, height x width x channels, little-endian.
// Integers in which 0 stands for white are inverted, unless they are signed.
func Read(b []byte, l *imagefile.TIFFLayout, dst []byte) error {
	r := reader{l: l, file: b, dst: dst, to: Type(l), sample: l.Bits / 8}
	r.channels = l.Channels
	planes := 1
	if l.Planar {
		r.channels, planes = 1, l.Channels
	}
	r.row = l.BlockWidth * r.channels * r.sample
	r.block = make([]byte, r.row*l.BlockHeight)
	i := 0
	for plane := range planes {
		for y := 0; y < l.Height; y += l.BlockHeight {
			for x := 0; x < l.Width; x += l.BlockWidth {
				if err := r.read(i, plane, x, y); err != nil {
					return fmt.Errorf("block %d of %d: %w", i+1, len(l.Offsets), err)
				}
				i++
			}
		}
	}
	return nil
}

type reader struct {
	l         *imagefile.TIFFLayout
	file, dst []byte
	to        dtype.Type
	// channels are those of a block, sample the bytes of one, row those of a block's
	// row.
	channels, sample, row int
	block                 []byte
}

// read reads a block, whose upper left corner is at x and y.
func (r *reader) read(i, plane, x, y int) error {
	l := r.l
	from, size := int64(l.Offsets[i]), int64(l.Sizes[i])
	if from+size > int64(len(r.file)) {
		return fmt.Errorf("it lies outside of the file: %w", io.ErrUnexpectedEOF)
	}
	block := r.block
	if !l.Tiled {
		block = block[:min(l.BlockHeight, l.Height-y)*r.row]
	}
	block, err := unpack(l.Compression, block, r.file[from:from+size])
	if err != nil {
		return err
	}
	rows, width := min(l.BlockHeight, l.Height-y), min(l.BlockWidth, l.Width-x)
	size8 := r.to.Size()
	for k := range rows {
		row := block[k*r.row : (k+1)*r.row]
		switch l.Predictor {
		case 2:
			r.sum(row)
		case 3:
			row = r.sumBytes(row)
		}
		at := (((y+k)*l.Width+x)*l.Channels + plane) * size8
		if l.Planar {
			for p := range width {
				r.convert(r.dst[at+p*l.Channels*size8:], row[p*r.sample:], 1)
			}
			continue
		}
		r.convert(r.dst[at:], row, width*r.channels)
	}
	return nil
}

// unpack fills dst with what is compressed in src. What is not compressed stays where
// it is, unless it is worked on afterwards.
func unpack(how int, dst, src []byte) ([]byte, error) {
	short := func(n int) error {
		return fmt.Errorf("it has %d bytes of pixels instead of %d: %w", n, len(dst), io.ErrUnexpectedEOF)
	}
	switch how {
	case imagefile.TIFFNone:
		if copy(dst, src) < len(dst) {
			return nil, short(len(src))
		}
		return dst, nil
	case imagefile.TIFFDeflate:
		return dst, inflate.Zlib(dst, src)
	case imagefile.TIFFLZW:
		in := lzw.NewReader(bytes.NewReader(src), lzw.MSB, 8)
		defer in.Close()
		if n, err := io.ReadFull(in, dst); err != nil {
			return nil, errors.Join(short(n), err)
		}
		return dst, nil
	case imagefile.TIFFPackBits:
		if n := unpackBits(dst, src); n < len(dst) {
			return nil, short(n)
		}
		return dst, nil
	}
	z, err := zstdReader()
	if err != nil {
		return nil, err
	}
	defer zstdReaders.Put(z)
	if err := z.Reset(bytes.NewReader(src)); err != nil {
		return nil, err
	}
	if n, err := io.ReadFull(z, dst); err != nil {
		return nil, errors.Join(short(n), err)
	}
	return dst, nil
}

var zstdReaders sync.Pool

// maxWindow is the largest window of zstd.
const maxWindow = 128 << 20

func zstdReader() (*zstd.Decoder, error) {
	if z, ok := zstdReaders.Get().(*zstd.Decoder); ok {
		return z, nil
	}
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
}

// unpackBits is Apple's PackBits: a count of bytes that follow, or of how often one does.
func unpackBits(dst, src []byte) int {
	n := 0
	for len(src) > 0 && n < len(dst) {
		c := int8(src[0])
		src = src[1:]
		switch {
		case c >= 0:
			k := min(int(c)+1, len(src))
			n += copy(dst[n:], src[:k])
			src = src[k:]
		case c != -128 && len(src) > 0:
			for range min(1-int(c), len(dst)-n) {
				dst[n] = src[0]
				n++
			}
			src = src[1:]
		}
	}
	return n
}

// sum adds to each sample of a row the one of its channel before it.
func (r *reader) sum(row []byte) {
	step, o := r.channels*r.sample, r.l.Order
	for i := step; i < len(row); i += r.sample {
		switch r.sample {
		case 1:
			row[i] += row[i-step]
		case 2:
			o.PutUint16(row[i:], o.Uint16(row[i:])+o.Uint16(row[i-step:]))
		case 4:
			o.PutUint32(row[i:], o.Uint32(row[i:])+o.Uint32(row[i-step:]))
		default:
			o.PutUint64(row[i:], o.Uint64(row[i:])+o.Uint64(row[i-step:]))
		}
	}
}

// sumBytes adds to each byte of a row of floats the one of its channel before it, and
// puts the bytes of each float, of which all first ones come first, together.
func (r *reader) sumBytes(row []byte) []byte {
	for i := r.channels; i < len(row); i++ {
		row[i] += row[i-r.channels]
	}
	out, n := make([]byte, len(row)), len(row)/r.sample
	for i := range n {
		for k := range r.sample {
			at := i*r.sample + k
			if r.l.Order == binary.ByteOrder(binary.LittleEndian) {
				at = i*r.sample + r.sample - 1 - k
			}
			out[at] = row[k*n+i]
		}
	}
	return out
}

// convert writes n samples as the type that they become.
func (r *reader) convert(dst, src []byte, n int) {
	o, l := r.l.Order, r.l
	switch {
	case r.to == dtype.U8:
		copy(dst[:n], src)
		if l.Inverted {
			for i := range dst[:n] {
				dst[i] = ^dst[i]
			}
		}
	case r.to == dtype.U16:
		for i := range n {
			v := o.Uint16(src[2*i:])
			if l.Inverted {
				v = ^v
			}
			binary.LittleEndian.PutUint16(dst[2*i:], v)
		}
	default:
		for i := range n {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(r.float(src[i*r.sample:])))
		}
	}
}

// float is a sample that is no unsigned number of 8 or 16 bits.
func (r *reader) float(b []byte) float32 {
	o := r.l.Order
	if r.l.Format == imagefile.FormatFloat {
		switch r.sample {
		case 2:
			return float32(dtype.Float16(o.Uint16(b)))
		case 4:
			return math.Float32frombits(o.Uint32(b))
		}
		return float32(math.Float64frombits(o.Uint64(b)))
	}
	switch {
	case r.l.Format == imagefile.FormatUnsigned:
		return float32(o.Uint32(b))
	case r.sample == 1:
		return float32(int8(b[0]))
	case r.sample == 2:
		return float32(int16(o.Uint16(b)))
	}
	return float32(int32(o.Uint32(b)))
}
