package imagecodec

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagefile"
)

// convert makes the requested values from the samples of a picture.
func (r *tiff) convert(dst []byte) {
	switch l := r.l; l.Photometric {
	case imagefile.TIFFPalette:
		if r.opt.Mask {
			r.firsts(dst)
			return
		}
		r.lookUp(dst)
	case imagefile.TIFFCMYK:
		r.cmyk(dst)
	case imagefile.TIFFYCbCr:
		r.ycbcr(dst)
	case imagefile.TIFFCIELab:
		lab(dst, r.pixels)
	default:
		r.numbers(dst)
	}
}

// firsts copies the first sample of each pixel.
func (r *tiff) firsts(dst []byte) {
	for i := range dst {
		dst[i] = r.pixels[i*r.l.Channels]
	}
}

// lookUp replaces palette indices by colours, and keeps alpha.
func (r *tiff) lookUp(dst []byte) {
	l := r.l
	table, n, out := l.Colormap, 1<<l.Bits, 2+l.Channels
	for i := range l.Width * l.Height {
		v := int(r.pixels[i*l.Channels])
		for c := range 3 {
			dst[i*out+c] = byte(table[c*n+v] >> 8)
		}
		if l.Channels == 2 {
			dst[i*out+3] = r.alpha(i)
		}
	}
}

// alpha is that of a pixel with a palette.
func (r *tiff) alpha(i int) byte {
	if r.l.Alpha == imagefile.NoAlpha {
		return 255
	}
	return r.pixels[2*i+1]
}

// cmyk converts inks as Pillow does: black scales the other ones. Of 16 bits the upper
// ones count.
func (r *tiff) cmyk(dst []byte) {
	for i := range r.l.Width * r.l.Height {
		p := r.pixels[i*4*r.size:]
		at := func(c int) int { return int(p[c*r.size+r.size-1]) }
		white := 255 - at(3)
		for c := range 3 {
			t := at(c)*white + 128
			dst[3*i+c] = byte(max(white-(t>>8+t)>>8, 0))
		}
	}
}

// ycbcr converts as Pillow does if each pixel has its own chroma and nothing is compressed. Otherwise it converts as
// libtiff does, which Pillow then uses.
func (r *tiff) ycbcr(dst []byte) {
	l := r.l
	at := jfif
	if l.Subsampled() || l.Compression != imagefile.TIFFNone {
		at = libtiffYCbCr(l)
	}
	for i := 0; i < len(dst); i += 3 {
		at(dst[i:i+3], int(r.pixels[i]), int(r.pixels[i+1]), int(r.pixels[i+2]))
	}
}

// jfif converts a pixel with the fixed-point numbers of Pillow, of 6 bits.
func jfif(dst []byte, y, cb, cr int) {
	fixed := func(f float64, c int) int { return int(f*64*float64(c-128) + 0.5) }
	dst[0] = clip(y + fixed(1.402, cr)>>6)
	dst[1] = clip(y + (fixed(-0.34414, cb)+fixed(-0.71414, cr))>>6)
	dst[2] = clip(y + fixed(1.772, cb)>>6)
}

func clip(v int) byte { return byte(min(max(v, 0), 255)) }

// libtiffYCbCr converts with the weights and the range that the file names, in fixed-point
// numbers of 16 bits.
func libtiffYCbCr(l *imagefile.TIFFLayout) func(dst []byte, y, cb, cr int) {
	const half = 1 << 15
	red, green, blue := l.Luma[0], l.Luma[1], l.Luma[2]
	fix := func(f float64) int { return int(f*(1<<16) + 0.5) }
	f1, f3 := 2-2*red, 2-2*blue
	d1, d2, d3, d4 := fix(f1), -fix(red*f1/max(green, 1e-6)), fix(f3), -fix(blue*f3/max(green, 1e-6))
	ref := l.Reference
	scaled := func(c int, black, white, top float64) int {
		span := white - black
		if span == 0 {
			span = 1
		}
		v := (float64(c) - black) * top / span
		return int(min(max(v, -256), 512))
	}
	return func(dst []byte, y, cb, cr int) {
		u, v := scaled(cb-128, ref[2]-128, ref[3]-128, 127), scaled(cr-128, ref[4]-128, ref[5]-128, 127)
		luma := scaled(y, ref[0], ref[1], 255)
		dst[0] = clip(luma + (d1*v+half)>>16)
		dst[1] = clip(luma + (d4*u+d2*v+half)>>16)
		dst[2] = clip(luma + (d3*u+half)>>16)
	}
}

// lab converts CIE L*a*b* with the white of D50 to sRGB.
func lab(dst, src []byte) {
	known := map[[3]byte][3]byte{} // pictures have far fewer colours than pixels
	for i := 0; i < len(dst); i += 3 {
		k := [3]byte(src[i : i+3])
		rgb, ok := known[k]
		if !ok {
			rgb = labToRGB(k)
			if len(known) < 1<<16 {
				known[k] = rgb
			}
		}
		copy(dst[i:], rgb[:])
	}
}

// labNodes is the number of computed nodes per axis. Colours between them are interpolated, as Little CMS does for
// Pillow. Pillow's colours outside of sRGB differ by up to 50 levels from exact ones.
const labNodes = 33

var labTable = sync.OnceValue(func() *[labNodes][labNodes][labNodes][3]int32 {
	t := new([labNodes][labNodes][labNodes][3]int32)
	for l := range t {
		for a := range t[l] {
			for b := range t[l][a] {
				at := func(i int) float64 { return float64(i) * 255 / (labNodes - 1) }
				t[l][a][b] = labExact(at(l)*100/255, at(a)-128, at(b)-128)
			}
		}
	}
	return t
})

// labToRGB interpolates between four nodes: it goes along the axes in the order of their fractions.
func labToRGB(p [3]byte) (rgb [3]byte) {
	var node, rest [3]int
	for i, v := range [3]byte{p[0], p[1] ^ 0x80, p[2] ^ 0x80} {
		at := int(v) * 257 * (labNodes - 1)
		at += (at + 0x7fff) / 0xffff // 1 is 0x10000
		node[i], rest[i] = at>>16, at&0xffff
	}
	axes := [3]int{0, 1, 2}
	slices.SortStableFunc(axes[:], func(a, b int) int { return rest[b] - rest[a] })
	t := labTable()
	first := t[node[0]][node[1]][node[2]]
	last, sum := first, [3]int{0x8001, 0x8001, 0x8001}
	for _, axis := range axes {
		node[axis] = min(node[axis]+1, labNodes-1)
		next := t[node[0]][node[1]][node[2]]
		for c := range sum {
			sum[c] += int(next[c]-last[c]) * rest[axis]
		}
		last = next
	}
	for c, v := range sum {
		rgb[c] = byte((uint32(int(first[c])+(v+v>>16)>>16)*65281 + 1<<23) >> 24)
	}
	return rgb
}

// labExact converts a colour to sRGB of 16 bits.
func labExact(l, a, b float64) (rgb [3]int32) {
	inverse := func(t float64) float64 {
		if t > 24./116 {
			return t * t * t
		}
		return (t - 16./116) * 108 / 841
	}
	fy := (l + 16) / 116
	x, y, z := 0.9642*inverse(fy+a/500), inverse(fy), 0.8249*inverse(fy-b/200)
	for c, w := range [3][3]float64{
		{3.1338561, -1.6168667, -0.4906146}, {-0.9787684, 1.9161415, 0.0334540}, {0.0719453, -0.2289914, 1.4052427},
	} {
		v := w[0]*x + w[1]*y + w[2]*z
		if v > 0.0031308 {
			v = 1.055*math.Pow(v, 1/2.4) - 0.055
		} else {
			v *= 12.92
		}
		rgb[c] = int32(min(max(math.Floor(65535*v+0.5), 0), 65535))
	}
	return rgb
}

// numbers converts gray and RGB.
func (r *tiff) numbers(dst []byte) {
	t, channels := tiffType(r.l, r.opt)
	n := r.l.Width * r.l.Height * channels
	switch t {
	case dtype.U8:
		for i := range n {
			dst[i] = byte(r.integer8(i))
		}
	case dtype.U16:
		for i := range n {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(r.integer(i)))
		}
	default:
		for i := range n {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(r.float(i)))
		}
	}
	if r.l.Alpha == imagefile.Premultiplied && !r.opt.Mask {
		divide(dst, t, channels)
	}
}

// stored is a sample as an unsigned number.
func (r *tiff) stored(i int) uint32 {
	switch b := r.pixels[i*r.size:]; r.size {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(binary.LittleEndian.Uint16(b))
	default:
		return binary.LittleEndian.Uint32(b)
	}
}

// integer returns a sample in the range of its type. Samples of fewer than 8 bits are spread over all of it, as are
// colours of 9 to 15 bits. Gray of 9 to 15 bits is not changed, as in Pillow.
func (r *tiff) integer(i int) uint32 {
	l, v := r.l, r.stored(i)
	top := uint32(1)<<l.Bits - 1
	if l.Photometric == imagefile.WhiteIsZero && l.Format == imagefile.FormatUnsigned {
		v = top - v
	}
	full := uint32(255)
	switch {
	case r.opt.Mask || l.Bits%8 == 0 || l.Bits > 16 || l.Bits > 8 && l.Channels < 3:
		return v
	case l.Bits > 8:
		full = 65535
	}
	return (v*full + top/2) / top
}

// integer8 is a sample as 8 bits.
func (r *tiff) integer8(i int) uint32 {
	if v := r.integer(i); r.l.Bits > 8 {
		return v >> 8
	} else {
		return v
	}
}

// float returns a sample whose type is not an unsigned number of up to 16 bits.
func (r *tiff) float(i int) float32 {
	b := r.pixels[i*r.size:]
	switch v := r.stored(i); r.l.Format {
	case imagefile.FormatFloat:
		switch r.size {
		case 2:
			return float32(dtype.Float16(uint16(v)))
		case 4:
			return math.Float32frombits(v)
		}
		return float32(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case imagefile.FormatSigned:
		switch r.size {
		case 1:
			return float32(int8(v))
		case 2:
			return float32(int16(v))
		}
		return float32(int32(v))
	default:
		return float32(v)
	}
}

// divide divides colours by their alpha, as Pillow does.
func divide(p []byte, t dtype.Type, channels int) {
	n := len(p) / t.Size() / channels
	for i := range n {
		switch px := p[i*channels*t.Size():][:channels*t.Size()]; t {
		case dtype.U8:
			divide8(px)
		case dtype.U16:
			divide16(px)
		default:
			divideFloat(px)
		}
	}
}

func divide8(px []byte) {
	last := len(px) - 1
	a := int(px[last])
	for c := range last {
		switch a {
		case 0:
			px[c] = 0
		case 255:
		default:
			px[c] = clip(int(px[c]) * 255 / a)
		}
	}
}

func divide16(px []byte) {
	last := len(px)/2 - 1
	a := uint32(binary.LittleEndian.Uint16(px[2*last:]))
	for c := range last {
		v := uint32(0)
		if a > 0 {
			v = min(uint32(binary.LittleEndian.Uint16(px[2*c:]))*65535/a, 65535)
		}
		binary.LittleEndian.PutUint16(px[2*c:], uint16(v))
	}
}

func divideFloat(px []byte) {
	last := len(px)/4 - 1
	a := math.Float32frombits(binary.LittleEndian.Uint32(px[4*last:]))
	if a == 0 {
		return
	}
	for c := range last {
		v := math.Float32frombits(binary.LittleEndian.Uint32(px[4*c:])) / a
		binary.LittleEndian.PutUint32(px[4*c:], math.Float32bits(v))
	}
}
