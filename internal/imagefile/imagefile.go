// Package imagefile inspects image files. Probe finds their format, size and orientation. Check tests whether a file is
// complete. Only this package reads headers of images and EXIF. It decodes no pixels.
package imagefile

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // for image.DecodeConfig
	_ "image/png"

	_ "golang.org/x/image/webp"

	"github.com/stokerdata/stoker/source/driver"
)

// Info is the content of an image's header.
type Info struct {
	Codec driver.Codec
	// Width and Height are at least 1. They are not held against any limit.
	Width, Height int32
	// Channels are the samples per pixel in the file (a palette counts as 1).
	Channels int32
	Color    Color
	// Precision is the number of bits per sample, Float that they are numbers of
	// floating point.
	Precision int32
	Float     bool
	// Orientation is the EXIF orientation, 1 to 8; 1 when there is none.
	Orientation uint8
	// Turn is the orientation that decoding applies as a part of the format: that of TIFF files, which Pillow also
	// turns. Width and Height are those of the turned image. 0 means none.
	Turn uint8

	// Progressive and Sampling are set for JPEGs only. Sampling is "4:4:4", "4:2:0" and so on, "" if it has no such
	// name.
	Progressive bool
	Sampling    string
	// Buffered reports whether a decoder must hold a second form of the whole picture until it knows the pixels.
	// Examples are the coefficients of a JPEG that is progressive or has several scans, and the passes of an interlaced
	// PNG.
	Buffered bool
	// Rare is set for JPEGs that are neither baseline nor progressive with Huffman codes and 8 bits. Only a decoder can
	// tell whether it reads them.
	Rare bool
	// Animated is set for WebP files with several frames: the first frame is the picture.
	Animated bool
	// Lossless is set for WebP files whose pixels, or their alpha, are VP8L.
	Lossless bool
	// Block is the number of pixels of the largest strip or tile of a TIFF file.
	Block int64
	// JPEGInside is set for TIFF files whose strips or tiles are JPEGs.
	JPEGInside bool
	// Text is set for PNM files whose values are decimal numbers.
	Text bool
	// JPEG is set for JPEG files that Check has read.
	JPEG *JPEG
}

// Color is the meaning of the samples of an image.
type Color string

// The kinds of colour that Probe tells apart.
const (
	Gray    Color = "gray"
	GrayA   Color = "gray+alpha"
	RGB     Color = "rgb"
	RGBA    Color = "rgba"
	YCbCr   Color = "ycbcr"
	CMYK    Color = "cmyk"
	YCCK    Color = "ycck"
	Palette Color = "palette"
	Flow    Color = "flow"
	Other   Color = "other"
)

// The errors of this package. All of them mean that the file is not a whole image. The text gives the reason.
var (
	ErrEmpty     = errors.New("empty file")
	ErrNotImage  = errors.New("not an image")
	ErrTruncated = errors.New("truncated")
	ErrBroken    = errors.New("damaged")
	// ErrUnsupported is the error for files that may be complete, but whose format is not supported.
	ErrUnsupported = errors.New("not supported")
	// ErrNoEOI means a JPEG whose markers are complete, but whose picture data does not end with the end marker. Only a
	// decoder can tell whether something is missing.
	ErrNoEOI = fmt.Errorf("%w: the picture data does not end", ErrTruncated)
)

// maxSide is the largest width and height that records can have.
const maxSide = 1 << 24

// Detect tells the format of the bytes by their beginning.
func Detect(b []byte) driver.Codec {
	has := func(at int, s string) bool { return len(b) >= at+len(s) && string(b[at:at+len(s)]) == s }
	switch {
	case has(0, "\xff\xd8\xff"):
		return driver.CodecJPEG
	case has(0, "\x89PNG\r\n\x1a\n"):
		return driver.CodecPNG
	case has(0, "GIF87a"), has(0, "GIF89a"):
		return driver.CodecGIF
	case has(0, "RIFF") && has(8, "WEBP"):
		return driver.CodecWebP
	case has(0, jxlBare), has(0, jxlContainer):
		return driver.CodecJXL
	case isAVIF(b):
		return driver.CodecAVIF
	case has(0, tiffLittle), has(0, tiffBig), has(0, bigTIFFLittle), has(0, bigTIFFBig):
		return driver.CodecTIFF
	case has(0, "BM") && len(b) >= 26:
		return driver.CodecBMP
	case has(0, "PF\n"), has(0, "Pf\n"):
		return driver.CodecPFM
	case has(0, "PIEH"):
		return driver.CodecFlo
	case isPNM(b):
		return driver.CodecPNM
	case isDIB(b):
		return driver.CodecBMP
	}
	return driver.CodecUnknown
}

// IsPicture reports whether b begins an image that has colours. If the first bytes are not a proof, the header must be
// valid. whole reports whether b is the whole file.
func IsPicture(b []byte, whole bool) bool {
	switch codec := Detect(b); codec {
	case driver.CodecUnknown, driver.CodecFlo:
		return false
	case driver.CodecBMP, driver.CodecTIFF, driver.CodecPNM, driver.CodecPFM, driver.CodecJXL:
		_, err := Probe(b)
		return err == nil || codec == driver.CodecTIFF && !whole
	}
	return true
}

// Probe reads the header of an image in any format, which the content determines. It reads no pixels, allocates no
// memory, and needs only the beginning of a file that contains the header.
func Probe(b []byte) (Info, error) {
	info := Info{Codec: Detect(b), Orientation: 1}
	var err error
	switch info.Codec {
	case driver.CodecJPEG:
		err = probeJPEG(b, &info)
	case driver.CodecPNG:
		err = probePNG(b, &info)
	case driver.CodecGIF:
		err = probeGIF(b, &info)
	case driver.CodecBMP:
		err = probeBMP(b, &info)
	case driver.CodecWebP:
		err = probeWebP(b, &info)
	case driver.CodecJXL:
		err = probeJXL(b, &info)
	case driver.CodecAVIF:
		err = probeAVIF(b, &info)
	case driver.CodecTIFF:
		err = probeTIFF(b, &info)
	case driver.CodecPNM:
		err = probePNM(b, &info)
	case driver.CodecPFM, driver.CodecFlo:
		err = probeFloats(b, &info)
	default:
		if len(b) == 0 {
			return info, ErrEmpty
		}
		return info, fmt.Errorf("%w: it begins with %s", ErrNotImage, beginning(b))
	}
	if err == nil && (info.Width < 1 || info.Height < 1) {
		err = broken("%d x %d pixels", info.Width, info.Height)
	}
	return info, err
}

// Check checks whether b is a whole image.
//
// Every format must be as long as its own structure requires. The checksums of PNG are compared. For JPEG the chain of
// markers is followed through all scans to the end marker. This finds a file that was cut off anywhere. It does not
// find bits that changed inside the entropy-coded data, or a cut file that was given an end marker afterwards.
func Check(b []byte) (Info, error) {
	info, err := Probe(b)
	if err != nil {
		return info, err
	}
	switch info.Codec {
	case driver.CodecJPEG:
		info.JPEG, err = parseJPEG(b)
		return info, err
	case driver.CodecPNG:
		err = checkPNG(b)
	case driver.CodecGIF:
		err = checkGIF(b)
	case driver.CodecBMP: // the padding of the last row may be missing
		_, err = ReadBMPLayout(b)
	case driver.CodecWebP:
		err = checkWebP(b)
	case driver.CodecJXL:
		err = checkJXL(b)
	case driver.CodecAVIF:
		err = checkAVIF(b)
	case driver.CodecTIFF:
		err = checkTIFF(b)
	case driver.CodecPNM:
		_, err = ReadPNMLayout(b)
	case driver.CodecPFM, driver.CodecFlo:
		err = checkFloats(b)
	}
	if err != nil {
		return info, err
	}
	if info.Width > maxSide || info.Height > maxSide {
		return info, broken("%d x %d pixels", info.Width, info.Height)
	}
	if info.decodedHere() {
		return info, nil
	}
	// The decoder of the format has to understand the header in the same way.
	cfg, _, err := image.DecodeConfig(bytes.NewReader(NormalGIF(b)))
	if err != nil {
		return info, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if info.Turn >= 5 {
		cfg.Width, cfg.Height = cfg.Height, cfg.Width
	}
	if cfg.Width != int(info.Width) || cfg.Height != int(info.Height) {
		return info, broken("%d x %d pixels by one header, %d x %d by another", info.Width, info.Height, cfg.Width, cfg.Height)
	}
	return info, nil
}

// decodedHere reports whether this package's reader of the header also decodes the image, or a library that reads the
// header again.
func (info *Info) decodedHere() bool {
	switch info.Codec {
	case driver.CodecPNM, driver.CodecPFM, driver.CodecFlo, driver.CodecJXL, driver.CodecAVIF, driver.CodecTIFF,
		driver.CodecBMP:
		return true
	case driver.CodecWebP: // of an animation the decoder gets a file of one frame
		return info.Animated
	}
	return false
}

func beginning(b []byte) string {
	b = b[:min(len(b), 8)]
	for _, c := range b {
		if c < 0x20 || c > 0x7e {
			return fmt.Sprintf("the bytes % x", b)
		}
	}
	return fmt.Sprintf("%q", b)
}

func truncated(b []byte, where string) error {
	return fmt.Errorf("%w: ends at byte %d, %s", ErrTruncated, len(b), where)
}

func broken(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, a...))
}

// side keeps a size from a 32-bit field in the range of int32.
func side(v uint32) int32 { return int32(min(v, 1<<31-1)) }
