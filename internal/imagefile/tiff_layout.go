package imagefile

import (
	"encoding/binary"
	"fmt"
)

// SampleFormat says what the samples of a TIFF file are.
type SampleFormat uint32

// The formats.
const (
	FormatUnsigned SampleFormat = 1
	FormatSigned   SampleFormat = 2
	FormatFloat    SampleFormat = 3
)

// Ways in which blocks of a TIFF file are compressed.
const (
	TIFFNone     = 1
	TIFFLZW      = 5
	TIFFDeflate  = 8
	TIFFPackBits = 32773
	TIFFZstd     = 50000

	tiffOldDeflate = 32946
)

// TIFFLayout says how the first picture of a TIFF file lies in it.
type TIFFLayout struct {
	Order                   binary.ByteOrder
	Width, Height, Channels int
	Bits                    int
	Format                  SampleFormat
	// Planar says that each channel has blocks of its own.
	Planar bool
	// Inverted says that 0 stands for white.
	Inverted bool
	// Compression is one of the TIFF constants, Predictor 1, 2 (differences of
	// neighbours) or 3 (those of the bytes of floats).
	Compression, Predictor int
	// BlockWidth and BlockHeight are those of tiles, which reach over the right and
	// lower border, or of strips, of which the last one may be shorter.
	BlockWidth, BlockHeight int
	Tiled                   bool
	// Offsets and Sizes are those of the blocks: row by row, channel by channel.
	Offsets, Sizes []uint32

	wide bool
}

// Across and Down are how many blocks lie beside and below each other.
func (l *TIFFLayout) Across() int { return (l.Width + l.BlockWidth - 1) / l.BlockWidth }

// Down is how many rows of blocks there are.
func (l *TIFFLayout) Down() int { return (l.Height + l.BlockHeight - 1) / l.BlockHeight }

// own says that the file is one that the Go library does not read, or not as it is.
func (l *TIFFLayout) own() bool {
	switch {
	case l.Format != FormatUnsigned, l.Bits > 16, l.wide, l.Planar, l.Channels == 2, l.Compression == TIFFZstd:
		return true
	}
	return false
}

// maxTileExcess is by how much a side of a tile may be longer than that of the picture.
const maxTileExcess = 1024

// ReadTIFFLayout reads how the first picture lies in a TIFF file. It fails where
// samples are no numbers of 8, 16, 32 or 64 bits that stand for gray or RGB, or
// are compressed in a way that is not known.
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
	for i := range d.n {
		e := d.entry(i)
		switch e.tag {
		case tagStripOffsets, tagTileOffsets:
			l.Offsets, err = d.numbers(e)
		case tagStripBytes, tagTileBytes:
			l.Sizes, err = d.numbers(e)
		}
		if err != nil {
			return nil, err
		}
	}
	blocks := int64(l.Across()) * int64(l.Down())
	if l.Planar {
		blocks *= int64(l.Channels)
	}
	if int64(len(l.Offsets)) < blocks || len(l.Sizes) != len(l.Offsets) {
		return nil, broken("it has %d of %d strips or tiles", min(len(l.Offsets), len(l.Sizes)), blocks)
	}
	return l, nil
}

// layout is ReadTIFFLayout without the places of blocks.
func (d *directory) layout(l *TIFFLayout) error {
	*l = TIFFLayout{Order: d.order, Channels: 1, Bits: 1, Format: FormatUnsigned, Compression: TIFFNone, Predictor: 1, wide: d.wide}
	photometric, order, rows := uint32(1), uint32(1), 0
	for i := range d.whole() {
		e := d.entry(i)
		v, ok := d.number(e)
		if !ok {
			continue
		}
		n := int(side(v))
		switch e.tag {
		case tagWidth:
			l.Width = n
		case tagHeight:
			l.Height = n
		case tagChannels:
			l.Channels = n
		case tagBits:
			l.Bits = n
		case tagFormat:
			if l.Format = SampleFormat(v); v == 4 { // undefined
				l.Format = FormatUnsigned
			}
		case tagPhotometric:
			photometric = v
		case tagCompression:
			if l.Compression = n; n == tiffOldDeflate {
				l.Compression = TIFFDeflate
			}
		case tagPredictor:
			l.Predictor = n
		case tagPlanar:
			l.Planar = v == 2
		case tagFillOrder:
			order = v
		case tagStripRows:
			rows = n
		case tagTileWidth:
			l.Tiled, l.BlockWidth = true, n
		case tagTileHeight:
			l.BlockHeight = n
		}
	}
	if !l.Tiled {
		if l.BlockWidth, l.BlockHeight = l.Width, rows; rows < 1 || rows > l.Height {
			l.BlockHeight = l.Height
		}
	}
	if l.Channels == 1 {
		l.Planar = false
	}
	l.Inverted = photometric == 0
	return l.check(photometric, order)
}

// check says why a picture cannot be read.
func (l *TIFFLayout) check(photometric, order uint32) error {
	no := func(format string, a ...any) error {
		return fmt.Errorf("%w: a TIFF file with %s", ErrUnsupported, fmt.Sprintf(format, a...))
	}
	switch {
	case l.Width < 1 || l.Height < 1 || l.BlockWidth < 1 || l.BlockHeight < 1:
		return broken("%d x %d pixels in blocks of %d x %d", l.Width, l.Height, l.BlockWidth, l.BlockHeight)
	case l.BlockWidth > l.Width+maxTileExcess || l.BlockHeight > l.Height+maxTileExcess:
		return broken("tiles of %d x %d for %d x %d pixels", l.BlockWidth, l.BlockHeight, l.Width, l.Height)
	case l.Channels < 1 || l.Channels > 4:
		return no("%d samples per pixel; 1 to 4 are read", l.Channels)
	case photometric > 2:
		return no("colours of the kind %d", photometric)
	case order != 1:
		return no("bits in reverse order")
	}
	switch l.Compression {
	case TIFFNone, TIFFLZW, TIFFDeflate, TIFFPackBits, TIFFZstd:
	default:
		return no("compression %d; none, LZW, deflate, PackBits and zstd are read", l.Compression)
	}
	if l.Predictor < 1 || l.Predictor > 3 {
		return no("predictor %d", l.Predictor)
	}
	switch l.Format {
	case FormatUnsigned, FormatSigned:
		if (l.Bits == 8 || l.Bits == 16 || l.Bits == 32) && l.Predictor < 3 {
			return nil
		}
	case FormatFloat:
		if l.Bits == 16 || l.Bits == 32 || l.Bits == 64 {
			return nil
		}
	}
	return no("samples of %d bits of the format %d and predictor %d", l.Bits, l.Format, l.Predictor)
}
