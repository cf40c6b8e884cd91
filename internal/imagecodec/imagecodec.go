// Package imagecodec decodes the image formats that no library in use decodes as Pillow does: BMP, TIFF, Netpbm, float
// maps and optical flow. Package imagefile reads their headers. It also decodes lossless JPEG, which DICOM files contain.
package imagecodec

import (
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// Options are the settings for decoding a picture.
type Options struct {
	// Mask reads class numbers: the stored values without conversion, or the indices of a palette.
	Mask bool
	// Narrow reads as 8 bits the values that Pillow holds as 8 bits: 16-bit colours, and the bits of signed bytes.
	Narrow bool
	// JPEG decodes JPEGs inside of TIFF files. If it is nil, a new decoder is used.
	JPEG *cdec.Decoder
}

// Picture is the picture of a file whose header was read.
type Picture struct {
	Width, Height, Channels int
	// DType is U8, U16 or F32.
	DType dtype.Type
	// Lossy reports whether pixels are compressed with loss.
	Lossy bool
	// Decode returns the values of all pixels: height x width x channels, little-endian, the upper row first. They are in
	// memory of alloc, which Decode calls at most once, or a part of the file that stores them in this form.
	Decode func(alloc Alloc) ([]byte, error)
}

// Alloc returns n bytes with any content.
type Alloc func(n int) ([]byte, error)

// Make is an Alloc that allocates.
func Make(n int) ([]byte, error) { return make([]byte, n), nil }

// formats has a function for each format that reads the header of a file.
var formats = map[driver.Codec]func(b []byte, opt Options) (*Picture, error){
	driver.CodecBMP:  openBMP,
	driver.CodecTIFF: openTIFF,
	driver.CodecPNM:  openPNM,
	driver.CodecPFM:  func(b []byte, _ Options) (*Picture, error) { return openFloats(driver.CodecPFM, b) },
	driver.CodecFlo:  func(b []byte, _ Options) (*Picture, error) { return openFloats(driver.CodecFlo, b) },
}

// Decodes reports whether this package decodes files of a codec.
func Decodes(codec driver.Codec) bool { return formats[codec] != nil }

// Open reads the header of a file of a codec for which Decodes is true.
func Open(codec driver.Codec, b []byte, opt Options) (*Picture, error) {
	open := formats[codec]
	if open == nil {
		return nil, fmt.Errorf("%w: an image of codec %v", imagefile.ErrUnsupported, codec)
	}
	return open(b, opt)
}

// into makes Decode of a function that fills memory of the size of the picture.
func (p *Picture) into(fill func(dst []byte) error) *Picture {
	p.Decode = func(alloc Alloc) ([]byte, error) {
		dst, err := alloc(p.Width * p.Height * p.Channels * p.DType.Size())
		if err != nil {
			return nil, err
		}
		return dst, fill(dst)
	}
	return p
}

func openFloats(codec driver.Codec, b []byte) (*Picture, error) {
	l, err := imagefile.ReadFloatLayout(codec, b, int64(len(b)))
	if err != nil {
		return nil, err
	}
	p := &Picture{Width: l.Shape[1], Height: l.Shape[0], Channels: 1, DType: dtype.F32}
	if len(l.Shape) == 3 {
		p.Channels = l.Shape[2]
	}
	return p.into(func(dst []byte) error {
		Floats(dst, b, l)
		return nil
	}), nil
}

// Floats puts the numbers of a whole file of floats into dst, little-endian, the first row first.
func Floats(dst, file []byte, l *imagefile.FloatLayout) {
	src, row := file[l.Offset:], len(dst)/l.Shape[0]
	for y := range l.Shape[0] {
		from := src[y*row : (y+1)*row]
		if l.BottomUp {
			from = src[(l.Shape[0]-1-y)*row:][:row]
		}
		to := dst[y*row : (y+1)*row]
		if !l.BigEndian {
			copy(to, from)
			continue
		}
		for i := 0; i+4 <= row; i += 4 {
			binary.LittleEndian.PutUint32(to[i:], binary.BigEndian.Uint32(from[i:]))
		}
	}
}
