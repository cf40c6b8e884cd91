package imagefile

import (
	"encoding/binary"
	"fmt"
	"math"
)

// SampleFormat is the number format of the samples of a TIFF file.
type SampleFormat uint32

// The formats.
const (
	FormatUnsigned SampleFormat = 1
	FormatSigned   SampleFormat = 2
	FormatFloat    SampleFormat = 3
)

// Compressions of the strips and tiles of a TIFF file.
const (
	TIFFNone     = 1
	TIFFRLE      = 2 // CCITT, modified Huffman
	TIFFGroup3   = 3
	TIFFGroup4   = 4
	TIFFLZW      = 5
	TIFFJPEG     = 7
	TIFFDeflate  = 8
	TIFFRLEW     = 32771 // TIFFRLE with rows of whole 16-bit words
	TIFFPackBits = 32773
	TIFFLZMA     = 34925
	TIFFZstd     = 50000

	tiffOldDeflate = 32946
)

// unreadCompressions names compressions that exist and are not read.
var unreadCompressions = map[int]string{
	6: "JPEG of the old kind", 32766: "NeXT", 32809: "ThunderScan", 33003: "JPEG 2000", 33005: "JPEG 2000",
	34661: "JBIG", 34676: "SGI LogLuv", 34677: "SGI LogLuv", 34712: "JPEG 2000", 34887: "LERC", 34892: "lossy JPEG (DNG)",
	34933: "PNG", 50001: "WebP", 50002: "JPEG XL", 52546: "JPEG XL",
}

// Photometric is the meaning of the samples of a TIFF file.
type Photometric uint32

// The values that are read.
const (
	WhiteIsZero   Photometric = 0
	BlackIsZero   Photometric = 1
	TIFFRGB       Photometric = 2
	TIFFPalette   Photometric = 3
	TIFFCMYK      Photometric = 5
	TIFFYCbCr     Photometric = 6
	TIFFCIELab    Photometric = 8
	noPhotometric Photometric = math.MaxUint32
)

// unreadPhotometrics names colours that exist and are not read.
var unreadPhotometrics = map[Photometric]string{
	4: "a transparency mask", 9: "ICC Lab", 10: "ITU Lab", 32803: "a colour filter array (raw photo)", 32844: "LogL",
	32845: "LogLuv", 34892: "linear raw",
}

// Alpha is the meaning of the sample after the colours of a TIFF file.
type Alpha uint8

// The kinds of alpha.
const (
	NoAlpha Alpha = iota
	StraightAlpha
	Premultiplied
)

// TIFFLayout describes the position and format of the first picture in a TIFF file.
type TIFFLayout struct {
	Order         binary.ByteOrder
	Width, Height int
	// Samples are those of a pixel in the file, Channels the first of them, which are
	// used.
	Samples, Channels int
	Bits              int
	Format            SampleFormat
	Photometric       Photometric
	Alpha             Alpha
	// Planar reports whether each sample has blocks of its own.
	Planar bool
	// Colormap has the red, then the green, then the blue of all colours of a palette.
	Colormap []uint32
	// LowBitFirst reports whether the first pixel of a byte is in its lowest bit.
	LowBitFirst bool
	// Fax are the options of TIFFGroup3: 1 for two-dimensional coding.
	Fax uint32
	// JPEGTables are those of all blocks: a JPEG without a picture.
	JPEGTables []byte
	// SubX and SubY are the pixels for each sample of chroma, across and down.
	SubX, SubY int
	// Luma are the weights of YCbCr, Reference its black and white.
	Luma      [3]float64
	Reference [6]float64
	// Compression is one of the TIFF constants, Predictor 1, 2 (differences of
	// neighbours) or 3 (those of the bytes of floats).
	Compression, Predictor int
	// BlockWidth and BlockHeight are the size of tiles, which may reach over the right and lower border, or of strips.
	// The last strip may be shorter.
	BlockWidth, BlockHeight int
	Tiled                   bool
	// Offsets and Sizes are those of the blocks: row by row, channel by channel.
	Offsets, Sizes []uint32
}

// Across returns the number of blocks in a row.
func (l *TIFFLayout) Across() int { return (l.Width + l.BlockWidth - 1) / l.BlockWidth }

// Down returns the number of rows of blocks.
func (l *TIFFLayout) Down() int { return (l.Height + l.BlockHeight - 1) / l.BlockHeight }

// Subsampled reports whether several pixels share a sample of chroma outside of a JPEG, which has its own subsampling.
func (l *TIFFLayout) Subsampled() bool {
	return l.Photometric == TIFFYCbCr && l.Samples == 3 && l.Compression != TIFFJPEG && l.SubX*l.SubY > 1
}

// Fax reports whether a compression is one of bits in black and white.
func fax(compression int) bool {
	return compression >= TIFFRLE && compression <= TIFFGroup4 || compression == TIFFRLEW
}

// maxTileExcess is the most by which a side of a tile may exceed that of the picture.
const maxTileExcess = 1024

// ReadTIFFLayout reads the layout of the first picture in a TIFF file. Its error is ErrUnsupported if the file uses a
// feature that is not supported.
func ReadTIFFLayout(b []byte) (*TIFFLayout, error) {
	d, err := openDirectory(b)
	if err != nil {
		return nil, err
	}
	if d.whole() < d.n {
		return nil, truncated(b, "inside of its directory")
	}
	l := new(TIFFLayout)
	if err := d.layout(l); err != nil {
		return nil, err
	}
	if err := d.tables(l); err != nil {
		return nil, err
	}
	blocks := int64(l.Across()) * int64(l.Down())
	if l.Planar {
		blocks *= int64(l.Samples)
	}
	if l.Sizes == nil && len(l.Offsets) == 1 && int64(l.Offsets[0]) < int64(len(b)) {
		l.Sizes = []uint32{uint32(min(int64(len(b))-int64(l.Offsets[0]), math.MaxUint32))} // as libtiff does
	}
	if int64(len(l.Offsets)) < blocks || int64(len(l.Sizes)) < blocks {
		return nil, broken("it has %d of %d strips or tiles", min(len(l.Offsets), len(l.Sizes)), blocks)
	}
	return l, nil
}

// tables reads the values that do not fit into the directory.
func (d *directory) tables(l *TIFFLayout) error {
	for i := range d.n {
		e := d.entry(i)
		var err error
		switch e.tag {
		case tagStripOffsets, tagTileOffsets:
			l.Offsets, err = d.numbers(e)
		case tagStripBytes, tagTileBytes:
			l.Sizes, err = d.numbers(e)
		case tagColormap:
			l.Colormap, err = d.numbers(e)
		case tagJPEGTables:
			l.JPEGTables, err = d.bytes(e)
		case tagYCbCrWeights:
			err = d.rationals(e, l.Luma[:])
		case tagReference:
			err = d.rationals(e, l.Reference[:])
		}
		if err != nil {
			return err
		}
	}
	if l.Photometric == TIFFPalette && len(l.Colormap) < 3<<l.Bits {
		return broken("its palette has %d colours of %d", len(l.Colormap)/3, 1<<l.Bits)
	}
	return nil
}

// layout is ReadTIFFLayout without the tables.
func (d *directory) layout(l *TIFFLayout) error {
	*l = TIFFLayout{
		Order: d.order, Samples: 1, Bits: 1, Format: FormatUnsigned, Photometric: noPhotometric, Compression: TIFFNone, Predictor: 1,
		SubX: 2, SubY: 2, Luma: [3]float64{0.299, 0.587, 0.114}, Reference: [6]float64{0, 255, 128, 255, 128, 255},
	}
	var extra []uint32
	rows := 0
	for i := range d.whole() {
		e := d.entry(i)
		if e.tag == tagExtra || e.tag == tagSubsampling || e.tag == tagBits {
			v, err := d.numbers(e)
			if err != nil {
				return err
			}
			if err := l.list(e.tag, v, &extra); err != nil {
				return err
			}
			continue
		}
		if v, ok := d.number(e); ok {
			l.set(e.tag, v, &rows)
		}
	}
	if !l.Tiled {
		if l.BlockWidth, l.BlockHeight = l.Width, rows; rows < 1 || rows > l.Height {
			l.BlockHeight = l.Height
		}
	}
	if l.Samples == 1 {
		l.Planar = false
	}
	switch l.Compression {
	case TIFFLZW, TIFFDeflate, TIFFZstd, TIFFLZMA:
	default:
		l.Predictor = 1 // the others have none, whatever the file says
	}
	if l.Photometric == noPhotometric {
		if l.Photometric = WhiteIsZero; l.Samples > 2 {
			l.Photometric = TIFFRGB
		}
	}
	l.colors(extra)
	return l.check()
}

// list sets a field with several numbers.
func (l *TIFFLayout) list(tag uint16, v []uint32, extra *[]uint32) error {
	switch {
	case tag == tagExtra:
		*extra = v
	case tag == tagSubsampling && len(v) == 2:
		l.SubX, l.SubY = int(side(v[0])), int(side(v[1]))
	case tag == tagBits && len(v) > 0:
		l.Bits = int(side(v[0]))
		for _, n := range v {
			if n != v[0] {
				return fmt.Errorf("%w: a TIFF file whose samples have %d and %d bits; samples of one size are read",
					ErrUnsupported, v[0], n)
			}
		}
	}
	return nil
}

// set sets the field of a tag with one number.
func (l *TIFFLayout) set(tag uint16, v uint32, rows *int) {
	n := int(side(v))
	switch tag {
	case tagWidth:
		l.Width = n
	case tagHeight:
		l.Height = n
	case tagChannels:
		l.Samples = n
	case tagFormat:
		if l.Format = SampleFormat(v); v == 4 { // undefined
			l.Format = FormatUnsigned
		}
	case tagPhotometric:
		l.Photometric = Photometric(v)
	case tagCompression:
		if l.Compression = n; n == tiffOldDeflate {
			l.Compression = TIFFDeflate
		}
	case tagPredictor:
		l.Predictor = n
	case tagPlanar:
		l.Planar = v == 2
	case tagFillOrder:
		l.LowBitFirst = v == 2
	case tagStripRows:
		*rows = n
	case tagTileWidth:
		l.Tiled, l.BlockWidth = true, n
	case tagTileHeight:
		l.BlockHeight = n
	case tagFaxOptions:
		l.Fax = v
	}
}

// colors works out which samples are used, and which of them is alpha.
func (l *TIFFLayout) colors(extra []uint32) {
	colors := map[Photometric]int{TIFFRGB: 3, TIFFYCbCr: 3, TIFFCIELab: 3, TIFFCMYK: 4}[l.Photometric]
	if colors == 0 || l.Samples < colors && l.Samples == 1 {
		colors = 1
	}
	l.Channels = min(l.Samples, colors)
	switch l.Photometric {
	case WhiteIsZero, BlackIsZero: // without colours, bands are kept as they are
		if l.Channels = l.Samples; l.Samples != 2 && l.Samples != 4 {
			return
		}
	case TIFFRGB, TIFFPalette:
		// As in Pillow, an extra band declared as unspecified is not alpha. For formats that Pillow does not read it is
		// kept.
		pillow := l.Format == FormatUnsigned && l.Bits <= 16
		if l.Samples > colors && !(pillow && len(extra) > 0 && extra[0] == 0) {
			l.Channels++
		}
	}
	if l.Channels%2 == 1 || l.Photometric == TIFFCMYK {
		return
	}
	switch {
	case len(extra) == 0 && l.Photometric == TIFFRGB:
		l.Alpha = StraightAlpha // as Pillow has it
	case len(extra) > 0 && extra[0] == 1:
		l.Alpha = Premultiplied
	case len(extra) > 0 && extra[0] > 1:
		l.Alpha = StraightAlpha
	}
}

// check reports why a picture cannot be read.
func (l *TIFFLayout) check() error {
	switch {
	case l.Width < 1 || l.Height < 1 || l.BlockWidth < 1 || l.BlockHeight < 1:
		return broken("%d x %d pixels in blocks of %d x %d", l.Width, l.Height, l.BlockWidth, l.BlockHeight)
	case l.BlockWidth > l.Width+maxTileExcess || l.BlockHeight > l.Height+maxTileExcess:
		return broken("tiles of %d x %d for %d x %d pixels", l.BlockWidth, l.BlockHeight, l.Width, l.Height)
	case l.Samples < 1 || l.Channels < 1:
		return broken("%d samples per pixel", l.Samples)
	}
	for _, why := range []string{l.colorProblem(), l.sampleProblem(), l.compressionProblem()} {
		if why != "" {
			return fmt.Errorf("%w: a TIFF file with %s", ErrUnsupported, why)
		}
	}
	return nil
}

// maxSamples bounds the samples of a pixel. Only the first ones are used.
const maxSamples = 64

// colorProblem reports which colours cannot be read.
func (l *TIFFLayout) colorProblem() string {
	const bands = "%d samples per pixel; gray with up to 4 is read, and RGB or CMYK with more: keep the bands that you need, " +
		"or save each as a file"
	switch l.Photometric {
	case WhiteIsZero, BlackIsZero:
		if l.Samples > 4 {
			return fmt.Sprintf(bands, l.Samples)
		}
	case TIFFRGB, TIFFCMYK, TIFFCIELab:
		if need := map[Photometric]int{TIFFRGB: 3, TIFFCMYK: 4, TIFFCIELab: 3}[l.Photometric]; l.Samples < need {
			return fmt.Sprintf("%d samples per pixel instead of %d", l.Samples, need)
		}
	case TIFFPalette:
		if l.Samples > 2 || l.Bits > 8 {
			return fmt.Sprintf("a palette, %d samples per pixel and %d bits", l.Samples, l.Bits)
		}
	case TIFFYCbCr:
		if l.Samples != 1 && l.Samples != 3 || l.SubX < 1 || l.SubX > 4 || l.SubY < 1 || l.SubY > 4 {
			return fmt.Sprintf("YCbCr of %d samples, subsampled %d x %d", l.Samples, l.SubX, l.SubY)
		}
		if l.Planar && l.SubX*l.SubY > 1 || l.Subsampled() && l.Predictor != 1 {
			return "subsampled YCbCr in planes, or with a predictor; save it as RGB"
		}
	default:
		if name := unreadPhotometrics[l.Photometric]; name != "" {
			return fmt.Sprintf("colours of the kind %d, %s; save it as RGB or gray", l.Photometric, name)
		}
		return fmt.Sprintf("colours of the unknown kind %d; save it as RGB or gray", l.Photometric)
	}
	if l.Samples > maxSamples {
		return fmt.Sprintf(bands, l.Samples)
	}
	return ""
}

// sampleProblem reports which samples cannot be read.
func (l *TIFFLayout) sampleProblem() string {
	ok := false
	switch l.Format {
	case FormatUnsigned:
		ok = l.Bits >= 1 && l.Bits <= 32
	case FormatSigned:
		ok = l.Bits == 8 || l.Bits == 16 || l.Bits == 32
	case FormatFloat:
		ok = l.Bits == 16 || l.Bits == 32 || l.Bits == 64
	}
	switch l.Photometric {
	case TIFFCMYK:
		ok = ok && l.Format == FormatUnsigned && (l.Bits == 8 || l.Bits == 16)
	case TIFFYCbCr, TIFFCIELab:
		ok = ok && l.Format == FormatUnsigned && l.Bits == 8
	case TIFFPalette:
		ok = ok && l.Format == FormatUnsigned
	}
	byteSized := l.Bits%8 == 0 && l.Bits != 24
	switch l.Predictor {
	case 1:
	case 2:
		ok = ok && byteSized
	case 3:
		ok = ok && l.Format == FormatFloat
	default:
		ok = false
	}
	if ok {
		return ""
	}
	kind := map[SampleFormat]string{FormatUnsigned: "unsigned", FormatSigned: "signed", FormatFloat: "float"}[l.Format]
	if kind == "" {
		kind = fmt.Sprintf("format %d (complex numbers?)", l.Format)
	}
	return fmt.Sprintf("samples of %d bits, %s, and predictor %d for colours of the kind %d; save it with 8 or 16 bits, or as float32",
		l.Bits, kind, l.Predictor, l.Photometric)
}

// compressionProblem reports which compression cannot be read.
func (l *TIFFLayout) compressionProblem() string {
	const known = "none, CCITT, LZW, JPEG, deflate, PackBits, LZMA and zstd are read; save it with one of those"
	switch c := l.Compression; {
	case c == TIFFNone, c == TIFFLZW, c == TIFFDeflate, c == TIFFPackBits, c == TIFFZstd, c == TIFFLZMA:
		return ""
	case fax(c) && l.Bits == 1 && l.Samples == 1 && l.Predictor == 1:
		return ""
	case fax(c):
		return fmt.Sprintf("CCITT compression and %d samples of %d bits", l.Samples, l.Bits)
	case c == TIFFJPEG && (l.Bits != 8 || l.Format != FormatUnsigned || l.Samples > 4 && !l.Planar):
		return fmt.Sprintf("JPEG of %d samples of %d bits inside; 1 to 4 of 8 bits are read", l.Samples, l.Bits)
	case c == TIFFJPEG && (l.Photometric == TIFFPalette || l.Photometric == TIFFCIELab):
		return fmt.Sprintf("JPEG inside and colours of the kind %d", l.Photometric)
	case c == TIFFJPEG:
		return ""
	case unreadCompressions[c] != "":
		return fmt.Sprintf("compression %d, %s; %s", c, unreadCompressions[c], known)
	default:
		return fmt.Sprintf("the unknown compression %d; %s", c, known)
	}
}
