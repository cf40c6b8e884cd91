package imagecodec

import (
	"bytes"
	giflzw "compress/lzw"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/image/tiff/lzw"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/inflate"
)

// tiffType returns the type of the values and the number of channels: uint8, uint16 or float32.
func tiffType(l *imagefile.TIFFLayout, opt Options) (t dtype.Type, channels int) {
	switch l.Photometric {
	case imagefile.TIFFPalette:
		if opt.Mask {
			return dtype.U8, 1
		}
		return dtype.U8, 2 + l.Channels
	case imagefile.TIFFCMYK, imagefile.TIFFYCbCr, imagefile.TIFFCIELab:
		return dtype.U8, min(l.Channels, 3)
	}
	switch {
	case l.Format == imagefile.FormatSigned && l.Bits == 8 && opt.Narrow:
		t = dtype.U8
	case l.Format != imagefile.FormatUnsigned || l.Bits > 16:
		t = dtype.F32
	case l.Bits <= 8 || opt.Narrow && l.Channels > 1:
		t = dtype.U8
	default:
		t = dtype.U16
	}
	return t, l.Channels
}

func openTIFF(b []byte, opt Options) (*Picture, error) {
	l, err := imagefile.ReadTIFFLayout(b)
	if err != nil {
		return nil, err
	}
	return newTIFF(b, l, opt), nil
}

func newTIFF(b []byte, l *imagefile.TIFFLayout, opt Options) *Picture {
	t, channels := tiffType(l, opt)
	p := &Picture{Width: l.Width, Height: l.Height, Channels: channels, DType: t, Lossy: l.Compression == imagefile.TIFFJPEG}
	r := &tiff{l: l, file: b, opt: opt, size: sampleBytes(l)}
	return p.into(r.decode)
}

func (r *tiff) decode(dst []byte) error {
	r.pixels = dst
	if !r.direct() {
		r.pixels = make([]byte, r.l.Width*r.l.Height*r.l.Channels*r.size)
	}
	if err := r.blocks(); err != nil {
		return err
	}
	if !r.direct() {
		r.convert(dst)
	}
	return nil
}

// sampleBytes is the size of a sample as the reader holds it.
func sampleBytes(l *imagefile.TIFFLayout) int {
	switch {
	case l.Bits <= 8:
		return 1
	case l.Bits <= 16:
		return 2
	case l.Bits <= 32:
		return 4
	}
	return 8
}

// tiff decodes the picture of a TIFF file: samples of 1 to 32 bits and floats of 16, 32 and 64, in strips or tiles, by
// pixel or by channel. It reads all compressions of imagefile.TIFFLayout.
type tiff struct {
	l    *imagefile.TIFFLayout
	file []byte
	opt  Options
	// pixels are the samples of the whole picture that are used, of size bytes each,
	// little-endian.
	pixels []byte
	size   int
	// samples are those of a pixel of a block, row the bytes of a block's row.
	samples, row int
	block, wide  []byte
}

// direct reports whether samples need no conversion.
func (r *tiff) direct() bool {
	l := r.l
	t, channels := tiffType(l, r.opt)
	whole := l.Format == imagefile.FormatUnsigned && (l.Bits == 8 || l.Bits == 16) ||
		l.Format == imagefile.FormatFloat && l.Bits == 32 || l.Format == imagefile.FormatSigned && l.Bits == 8 && t == dtype.U8
	if !whole || t.Size() != r.size || channels != l.Channels {
		return false
	}
	switch l.Photometric {
	case imagefile.TIFFRGB, imagefile.BlackIsZero:
		return l.Alpha != imagefile.Premultiplied || r.opt.Mask
	case imagefile.WhiteIsZero:
		return l.Format != imagefile.FormatUnsigned
	case imagefile.TIFFPalette:
		return r.opt.Mask
	case imagefile.TIFFYCbCr:
		return channels == 1 || l.Compression == imagefile.TIFFJPEG
	}
	return false
}

// blocks reads all blocks of the channels that are used.
func (r *tiff) blocks() error {
	l := r.l
	planes := 1
	r.samples = l.Samples
	if l.Planar {
		r.samples, planes = 1, l.Channels
	}
	r.row = (l.BlockWidth*r.samples*l.Bits + 7) / 8
	r.block = make([]byte, r.blockBytes(l.BlockHeight))
	if l.Bits != 8*r.size {
		r.wide = make([]byte, l.BlockWidth*r.samples*r.size)
	}
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

// blockBytes is the size of a block of some rows.
func (r *tiff) blockBytes(rows int) int {
	if l := r.l; l.Subsampled() {
		return up(rows, l.SubY) * up(l.BlockWidth, l.SubX) * (l.SubX*l.SubY + 2)
	}
	return rows * r.row
}

func up(n, by int) int { return (n + by - 1) / by }

// read reads a block with its upper left corner at x and y.
func (r *tiff) read(i, plane, x, y int) error {
	l := r.l
	from, size := int64(l.Offsets[i]), int64(l.Sizes[i])
	if from+size > int64(len(r.file)) {
		return fmt.Errorf("it lies outside of the file: %w", io.ErrUnexpectedEOF)
	}
	rows := l.BlockHeight
	if !l.Tiled {
		rows = min(rows, l.Height-y)
	}
	block, err := r.unpack(r.block[:r.blockBytes(rows)], r.source(r.file[from:from+size]), rows)
	if err != nil {
		return err
	}
	if l.Subsampled() {
		block = r.spread(block, rows)
	}
	rows, width := min(rows, l.Height-y), min(l.BlockWidth, l.Width-x)
	for k := range rows {
		row, err := r.predicted(block[k*r.row : (k+1)*r.row])
		if err != nil {
			return err
		}
		at := (((y+k)*l.Width+x)*l.Channels + plane) * r.size
		r.keep(r.pixels[at:], r.little(row), width)
	}
	return nil
}

// source is compressed data with the first bit of each byte in its highest one.
func (r *tiff) source(src []byte) []byte {
	if !r.l.LowBitFirst || r.l.Compression == imagefile.TIFFJPEG {
		return src
	}
	out := make([]byte, len(src))
	for i, c := range src {
		out[i] = bits.Reverse8(c)
	}
	return out
}

// predicted undoes the predictor in a row.
func (r *tiff) predicted(row []byte) ([]byte, error) {
	switch r.l.Predictor {
	case 2:
		r.sum(row)
	case 3:
		return r.sumBytes(row), nil
	}
	return row, nil
}

// little converts a row of samples of whole bytes to little-endian.
func (r *tiff) little(row []byte) []byte {
	switch {
	case r.wide != nil:
		r.unpackSamples(row)
		return r.wide
	case r.size > 1 && r.l.Order == binary.ByteOrder(binary.BigEndian):
		for i := 0; i+r.size <= len(row); i += r.size {
			reverse(row[i : i+r.size])
		}
	}
	return row
}

func reverse(b []byte) {
	for i, k := 0, len(b)-1; i < k; i, k = i+1, k-1 {
		b[i], b[k] = b[k], b[i]
	}
}

// unpackSamples spreads samples that are not whole bytes, the first one in the highest bits, or samples of 24 bits.
func (r *tiff) unpackSamples(row []byte) {
	n, at := r.l.Bits, 0
	for i := range len(r.wide) / r.size {
		v := uint32(0)
		if n == 24 {
			v = r.sample24(row[3*i:])
		} else {
			for k := n; k > 0; {
				take := min(k, 8-at%8)
				v = v<<take | uint32(row[at/8])>>(8-at%8-take)&(1<<take-1)
				at, k = at+take, k-take
			}
		}
		for k := range r.size {
			r.wide[i*r.size+k] = byte(v >> (8 * k))
		}
	}
}

func (r *tiff) sample24(b []byte) uint32 {
	if r.l.Order == binary.ByteOrder(binary.LittleEndian) {
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	}
	return uint32(b[2]) | uint32(b[1])<<8 | uint32(b[0])<<16
}

// keep stores the samples of a row that are used.
func (r *tiff) keep(dst, row []byte, width int) {
	l, size := r.l, r.size
	switch {
	case l.Planar:
		for x := range width {
			copy(dst[x*l.Channels*size:][:size], row[x*size:])
		}
	case l.Channels == r.samples:
		copy(dst[:width*l.Channels*size], row)
	default:
		n := l.Channels * size
		for x := range width {
			copy(dst[x*n:][:n], row[x*r.samples*size:])
		}
	}
}

// spread expands a block of subsampled YCbCr to three samples for each pixel.
func (r *tiff) spread(block []byte, rows int) []byte {
	l := r.l
	unit, across := l.SubX*l.SubY+2, up(l.BlockWidth, l.SubX)
	out := make([]byte, rows*r.row)
	for y := range rows {
		for x := range l.BlockWidth {
			u := block[(y/l.SubY*across+x/l.SubX)*unit:]
			p := out[y*r.row+3*x:]
			p[0], p[1], p[2] = u[y%l.SubY*l.SubX+x%l.SubX], u[unit-2], u[unit-1]
		}
	}
	return out
}

// unpack decompresses src into dst.
func (r *tiff) unpack(dst, src []byte, rows int) ([]byte, error) {
	switch l := r.l; l.Compression {
	case imagefile.TIFFRLE:
		return dst, unpackFax(dst, src, l.BlockWidth, faxKind{align: 8})
	case imagefile.TIFFRLEW:
		return dst, unpackFax(dst, src, l.BlockWidth, faxKind{align: 16})
	case imagefile.TIFFGroup3:
		return dst, unpackFax(dst, src, l.BlockWidth, faxKind{marks: true, twoDimensions: l.Fax&1 != 0})
	case imagefile.TIFFGroup4:
		return dst, unpackFax(dst, src, l.BlockWidth, faxKind{group4: true})
	case imagefile.TIFFJPEG:
		return dst, r.unpackJPEG(dst, src, rows)
	default:
		return unpack(l.Compression, dst, src)
	}
}

// unpack fills dst with bytes that are compressed in src.
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
	case imagefile.TIFFLZMA:
		return dst, unpackLZMA(dst, src)
	case imagefile.TIFFLZW:
		in := lzwReader(src)
		defer in.Close()
		if n, err := io.ReadFull(in, dst); err != nil {
			return nil, errors.Join(short(n), err)
		}
		return dst, nil
	case imagefile.TIFFPackBits:
		if n, _ := PackBits(dst, src); n < len(dst) {
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

// PackBits unpacks Apple's PackBits, of TIFF and DICOM files: a count of bytes that follow, or of how often one does. It
// returns the number of bytes, with an error if the last run is cut off.
func PackBits(dst, src []byte) (n int, err error) {
	for len(src) > 0 && n < len(dst) {
		c := int(int8(src[0]))
		src = src[1:]
		k := min(max(c+1, 1), len(src)) // bytes of the run in src
		switch {
		case c == -128:
			continue
		case k < c+1 || k == 0:
			err = errors.New("a run goes beyond its end")
		}
		if c >= 0 {
			n += copy(dst[n:], src[:k])
		} else if k > 0 {
			end := min(n+1-c, len(dst))
			for ; n < end; n++ {
				dst[n] = src[0]
			}
		}
		src = src[k:]
	}
	return n, err
}

// sum adds to each sample of a row the one of its channel before it.
func (r *tiff) sum(row []byte) {
	step, o := r.samples*r.size, r.l.Order
	for i := step; i < len(row); i += r.size {
		switch r.size {
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

// sumBytes adds to each byte of a row of floats the preceding byte of its channel. Then it joins the bytes of each
// float: the row has the first bytes of all floats first.
func (r *tiff) sumBytes(row []byte) []byte {
	for i := r.samples; i < len(row); i++ {
		row[i] += row[i-r.samples]
	}
	out, n := make([]byte, len(row)), len(row)/r.size
	for i := range n {
		for k := range r.size {
			at := i*r.size + k
			if r.l.Order == binary.ByteOrder(binary.LittleEndian) {
				at = i*r.size + r.size - 1 - k
			}
			out[at] = row[k*n+i]
		}
	}
	return out
}

// lzwReader decompresses LZW. Writers before TIFF 5.0 put the low bits of a code first, like GIF. Both
// start with the code 256 of 9 bits, which tells them apart.
func lzwReader(src []byte) io.ReadCloser {
	if len(src) > 1 && src[0] == 0 && src[1]&1 != 0 {
		return giflzw.NewReader(bytes.NewReader(src), giflzw.LSB, 8)
	}
	return lzw.NewReader(bytes.NewReader(src), lzw.MSB, 8)
}
