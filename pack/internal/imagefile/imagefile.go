// Package imagefile looks into image files as far as packing needs: what
// format the bytes are, whether they are all there, how large the picture is
// and how it is turned. It decodes no pixels.
package imagefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // for image.DecodeConfig
	_ "image/png"

	_ "golang.org/x/image/bmp"
	_ "golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"

	"github.com/stokerdata/stoker/source/driver"
)

// Info is what Check found.
type Info struct {
	Codec         driver.Codec
	Width, Height int32
	// Orientation is the EXIF orientation, 1 to 8; 1 when there is none.
	Orientation uint8
	// JPEG is set for JPEG files.
	JPEG *JPEG
}

// The errors of Check. All of them mean that the file is no whole image; the
// text says in what way.
var (
	ErrEmpty     = errors.New("empty file")
	ErrNotImage  = errors.New("not an image")
	ErrTruncated = errors.New("truncated")
	ErrBroken    = errors.New("damaged")
	// ErrNoEOI means a JPEG that is whole as far as its markers go, but whose
	// picture data does not end with the end marker. Only a decoder can tell
	// whether something is missing.
	ErrNoEOI = fmt.Errorf("%w: the picture data does not end", ErrTruncated)
)

// maxSide is the largest width and height that records can have.
const maxSide = 1 << 24

// Detect tells the format of the bytes by their beginning.
func Detect(b []byte) driver.Codec {
	has := func(s string) bool { return bytes.HasPrefix(b, []byte(s)) }
	switch {
	case has("\xff\xd8\xff"):
		return driver.CodecJPEG
	case has("\x89PNG\r\n\x1a\n"):
		return driver.CodecPNG
	case has("BM") && len(b) >= 26:
		return driver.CodecBMP
	case has("GIF87a"), has("GIF89a"):
		return driver.CodecGIF
	case has("RIFF") && len(b) >= 12 && string(b[8:12]) == "WEBP":
		return driver.CodecWebP
	case has("II*\x00"), has("MM\x00*"):
		return driver.CodecTIFF
	}
	return driver.CodecUnknown
}

// Check looks whether b is a whole image.
//
// Every format is checked to be as long as its own structure says. PNG also has
// checksums, which are compared. For JPEG the chain of markers is walked
// through all scans up to the end marker: a file that was cut off anywhere is
// found, bits that changed inside of the entropy-coded data are not, and
// neither is a file that was cut off and given an end marker afterwards.
func Check(b []byte) (Info, error) {
	info := Info{Codec: Detect(b), Orientation: 1}
	if len(b) == 0 {
		return info, ErrEmpty
	}
	var err error
	switch info.Codec {
	case driver.CodecUnknown:
		return info, fmt.Errorf("%w: it begins with %s", ErrNotImage, beginning(b))
	case driver.CodecJPEG:
		j, jerr := parseJPEG(b)
		if j == nil {
			return info, jerr
		}
		info.JPEG, info.Width, info.Height, info.Orientation = j, j.Width, j.Height, j.Orientation
		return info, jerr
	case driver.CodecPNG:
		err = checkPNG(b, &info)
	case driver.CodecGIF:
		err = checkGIF(b)
	case driver.CodecBMP:
		err = checkBMP(b)
	case driver.CodecWebP:
		err = checkWebP(b, &info)
	case driver.CodecTIFF:
		err = checkTIFF(b, &info)
	}
	if err != nil {
		return info, err
	}
	cfg, _, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return info, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if cfg.Width <= 0 || cfg.Height <= 0 || cfg.Width > maxSide || cfg.Height > maxSide {
		return info, fmt.Errorf("%w: %d x %d pixels", ErrBroken, cfg.Width, cfg.Height)
	}
	info.Width, info.Height = int32(cfg.Width), int32(cfg.Height)
	return info, nil
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

// Orientation reads the orientation out of EXIF data (a TIFF header and its
// first directory); 1 when there is none or it makes no sense.
func Orientation(exif []byte) uint8 {
	o := uint8(1)
	_ = walkIFD(exif, func(tag, typ uint16, count uint32, value []byte, order binary.ByteOrder) error {
		if tag == 0x0112 && typ == 3 && count == 1 {
			if v := order.Uint16(value); v >= 1 && v <= 8 {
				o = uint8(v)
			}
		}
		return nil
	})
	return o
}

// walkIFD calls fn for each entry of the first directory of a TIFF structure.
// value is the four bytes of the entry itself.
func walkIFD(b []byte, fn func(tag, typ uint16, count uint32, value []byte, order binary.ByteOrder) error) error {
	if len(b) < 8 {
		return truncated(b, "in the header")
	}
	var order binary.ByteOrder
	switch string(b[:2]) {
	case "II":
		order = binary.LittleEndian
	case "MM":
		order = binary.BigEndian
	default:
		return broken("no TIFF header")
	}
	at := int64(order.Uint32(b[4:]))
	if at < 8 || at+2 > int64(len(b)) {
		return truncated(b, fmt.Sprintf("before its directory at byte %d", at))
	}
	n := int64(order.Uint16(b[at:]))
	if at+2+12*n > int64(len(b)) {
		return truncated(b, "inside of its directory")
	}
	for i := range n {
		e := b[at+2+12*i:]
		if err := fn(order.Uint16(e), order.Uint16(e[2:]), order.Uint32(e[4:]), e[8:12], order); err != nil {
			return err
		}
	}
	return nil
}
