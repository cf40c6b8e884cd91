package cdec

import (
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
)

// ColorSpace says what the samples of an image mean.
type ColorSpace string

// The colour spaces that Probe tells apart.
const (
	ColorGray    ColorSpace = "gray"
	ColorGrayA   ColorSpace = "gray+alpha"
	ColorRGB     ColorSpace = "rgb"
	ColorRGBA    ColorSpace = "rgba"
	ColorYCbCr   ColorSpace = "ycbcr"
	ColorCMYK    ColorSpace = "cmyk"
	ColorYCCK    ColorSpace = "ycck"
	ColorPalette ColorSpace = "palette"
	ColorOther   ColorSpace = "other"
)

// ImageInfo is what the header of an image says.
type ImageInfo struct {
	Codec         driver.Codec
	Width, Height int32
	// Channels are the samples per pixel in the file (a palette counts as 1).
	Channels int32
	Color    ColorSpace
	// Precision is the number of bits per sample.
	Precision int32
	// Orientation is the EXIF orientation, 1 to 8, or 0 if the file has none.
	Orientation int32

	// Of JPEGs only. Progressive and Arithmetic say how it is coded, Lossless
	// that it is neither baseline, extended nor progressive.
	Progressive, Arithmetic, Lossless bool
	// Sampling is "4:4:4", "4:2:0" and so on, "" when it has no such name.
	Sampling string
	// RestartInterval is in MCUs, 0 for none.
	RestartInterval int32
	// MetadataBytes counts the APPn and COM segments.
	MetadataBytes int64
}

// Probe reads the header of an image, of whatever format its content says.
// It looks at no pixels and its work is bounded by the size of the header.
func Probe(src []byte) (ImageInfo, error) {
	codec := Sniff(src)
	var info ImageInfo
	var err error
	switch codec {
	case driver.CodecJPEG:
		info, err = probeJPEG(src)
	case driver.CodecPNG:
		info, err = probePNG(src)
	case driver.CodecBMP:
		info, err = probeBMP(src)
	case driver.CodecGIF:
		info, err = probeGIF(src)
	case driver.CodecWebP:
		info, err = probeWebP(src)
	case driver.CodecTIFF:
		info, err = probeTIFF(src)
	default:
		if len(src) == 0 {
			return info, corrupt("the image is empty")
		}
		return info, &Error{Kind: ErrUnsupported, Msg: fmt.Sprintf("not an image of a known format: it starts with % x", src[:min(len(src), 8)])}
	}
	info.Codec = codec
	if err != nil {
		return info, err
	}
	return info, CheckSize(int64(info.Width), int64(info.Height))
}

// CheckSize refuses sizes that are not those of an image or pass the limits of
// this package, before memory is taken for them.
func CheckSize(width, height int64) error {
	switch {
	case width < 1 || height < 1:
		return corrupt("the image is %d x %d pixels", width, height)
	case width > MaxSide || height > MaxSide:
		return &Error{Kind: ErrLimit, Msg: fmt.Sprintf("the image is %d x %d pixels; at most %d per side are supported", width, height, MaxSide)}
	case width*height > MaxPixels:
		return &Error{Kind: ErrLimit, Msg: fmt.Sprintf("the image is %d x %d pixels; at most %d in all are supported", width, height, MaxPixels)}
	}
	return nil
}

// Sniff tells the format of an image by its first bytes.
func Sniff(src []byte) driver.Codec {
	has := func(at int, s string) bool { return len(src) >= at+len(s) && string(src[at:at+len(s)]) == s }
	switch {
	case has(0, "\xff\xd8\xff"):
		return driver.CodecJPEG
	case has(0, "\x89PNG\r\n\x1a\n"):
		return driver.CodecPNG
	case has(0, "GIF87a"), has(0, "GIF89a"):
		return driver.CodecGIF
	case has(0, "RIFF") && has(8, "WEBP"):
		return driver.CodecWebP
	case has(0, "II*\x00"), has(0, "MM\x00*"):
		return driver.CodecTIFF
	case has(0, "BM") && len(src) >= 26:
		return driver.CodecBMP
	}
	return driver.CodecUnknown
}

func corrupt(format string, args ...any) error {
	return &Error{Kind: ErrCorrupt, Msg: fmt.Sprintf(format, args...)}
}

// side keeps a size from a 32-bit field in the range of int32; CheckSize
// refuses what was cut.
func side(v uint32) int32 { return int32(min(v, 1<<31-1)) }

func probePNG(src []byte) (ImageInfo, error) {
	var info ImageInfo
	if len(src) < 33 || string(src[12:16]) != "IHDR" {
		return info, corrupt("the PNG is truncated: it has no header")
	}
	info.Width, info.Height = side(binary.BigEndian.Uint32(src[16:])), side(binary.BigEndian.Uint32(src[20:]))
	info.Precision = int32(src[24])
	switch src[25] {
	case 0:
		info.Channels, info.Color = 1, ColorGray
	case 2:
		info.Channels, info.Color = 3, ColorRGB
	case 3:
		info.Channels, info.Color = 1, ColorPalette
	case 4:
		info.Channels, info.Color = 2, ColorGrayA
	case 6:
		info.Channels, info.Color = 4, ColorRGBA
	default:
		return info, corrupt("a PNG of colour type %d, which does not exist", src[25])
	}
	// EXIF is a chunk before the pixels.
	for at := 8; at+12 <= len(src); {
		n, kind := int(binary.BigEndian.Uint32(src[at:])), string(src[at+4:at+8])
		if kind == "IDAT" || n > len(src)-at-12 {
			break
		}
		if kind == "eXIf" {
			info.Orientation = exifOrientation(src[at+8 : at+8+n])
		}
		at += 12 + n
	}
	return info, nil
}

func probeBMP(src []byte) (ImageInfo, error) {
	var info ImageInfo
	if len(src) < 26 {
		return info, corrupt("the BMP is truncated: it has no header")
	}
	bits := uint16(0)
	switch size := binary.LittleEndian.Uint32(src[14:]); {
	case size == 12:
		info.Width, info.Height = int32(binary.LittleEndian.Uint16(src[18:])), int32(binary.LittleEndian.Uint16(src[20:]))
		bits = binary.LittleEndian.Uint16(src[24:])
	case size >= 16 && len(src) >= 30:
		info.Width = side(binary.LittleEndian.Uint32(src[18:]))
		h := int64(int32(binary.LittleEndian.Uint32(src[22:])))
		info.Height = side(uint32(max(h, -h))) // negative: top row first
		bits = binary.LittleEndian.Uint16(src[28:])
	default:
		return info, corrupt("a BMP with a header of %d bytes", size)
	}
	switch bits {
	case 1, 2, 4, 8:
		info.Channels, info.Color, info.Precision = 1, ColorPalette, int32(bits)
	case 16, 24:
		info.Channels, info.Color, info.Precision = 3, ColorRGB, 8
	case 32:
		info.Channels, info.Color, info.Precision = 4, ColorRGBA, 8
	default:
		return info, corrupt("a BMP of %d bits per pixel", bits)
	}
	return info, nil
}

func probeGIF(src []byte) (ImageInfo, error) {
	if len(src) < 13 {
		return ImageInfo{}, corrupt("the GIF is truncated: it has no header")
	}
	return ImageInfo{
		Width: int32(binary.LittleEndian.Uint16(src[6:])), Height: int32(binary.LittleEndian.Uint16(src[8:])),
		Channels: 1, Color: ColorPalette, Precision: 8,
	}, nil
}

func probeWebP(src []byte) (ImageInfo, error) {
	info := ImageInfo{Precision: 8, Channels: 3, Color: ColorRGB}
	alpha := func(yes bool) {
		if yes {
			info.Channels, info.Color = 4, ColorRGBA
		}
	}
	found := false
	for at := 12; at+8 <= len(src); {
		kind, n := string(src[at:at+4]), int64(binary.LittleEndian.Uint32(src[at+4:]))
		body := src[at+8:]
		if int64(len(body)) > n {
			body = body[:n]
		}
		switch {
		case kind == "VP8X" && len(body) >= 10:
			info.Width = 1 + (int32(body[4]) | int32(body[5])<<8 | int32(body[6])<<16)
			info.Height = 1 + (int32(body[7]) | int32(body[8])<<8 | int32(body[9])<<16)
			alpha(body[0]&0x10 != 0)
			found = true
		case kind == "VP8 " && !found && len(body) >= 10:
			if body[3] != 0x9d || body[4] != 0x01 || body[5] != 0x2a {
				return info, corrupt("the WebP has a damaged frame header")
			}
			info.Width = int32(binary.LittleEndian.Uint16(body[6:]) & 0x3fff)
			info.Height = int32(binary.LittleEndian.Uint16(body[8:]) & 0x3fff)
			found = true
		case kind == "VP8L" && !found && len(body) >= 5:
			if body[0] != 0x2f {
				return info, corrupt("the WebP has a damaged lossless header")
			}
			bits := binary.LittleEndian.Uint32(body[1:])
			info.Width, info.Height = 1+int32(bits&0x3fff), 1+int32(bits>>14&0x3fff)
			alpha(bits>>28&1 != 0)
			found = true
		case kind == "EXIF":
			info.Orientation = exifOrientation(body)
		}
		at64 := int64(at) + 8 + n + n&1
		if at64 > int64(len(src)) {
			break
		}
		at = int(at64)
	}
	if !found {
		return info, corrupt("the WebP is truncated: it has no frame header")
	}
	return info, nil
}

// byteOrder reads the four bytes that begin TIFF and EXIF.
func byteOrder(src []byte) binary.ByteOrder {
	switch {
	case len(src) < 8:
		return nil
	case string(src[:4]) == "II*\x00":
		return binary.LittleEndian
	case string(src[:4]) == "MM\x00*":
		return binary.BigEndian
	}
	return nil
}

// ifdEntries calls entry for the fields of the first directory of TIFF or EXIF
// data: tag, type, count and the four bytes of value or offset. A directory
// has at most 65,535 fields.
func ifdEntries(src []byte, order binary.ByteOrder, entry func(tag, kind uint16, count uint32, value []byte)) bool {
	at := int64(order.Uint32(src[4:]))
	if at+2 > int64(len(src)) {
		return false
	}
	n := int64(order.Uint16(src[at:]))
	for at += 2; n > 0; n, at = n-1, at+12 {
		if at+12 > int64(len(src)) {
			return false
		}
		entry(order.Uint16(src[at:]), order.Uint16(src[at+2:]), order.Uint32(src[at+4:]), src[at+8:at+12])
	}
	return true
}

const tagOrientation = 0x112

// exifOrientation finds the orientation in EXIF data, with or without the
// "Exif\0\0" in front. It is 0 if there is none or the data is damaged.
func exifOrientation(src []byte) int32 {
	if len(src) >= 6 && string(src[:6]) == "Exif\x00\x00" {
		src = src[6:]
	}
	order := byteOrder(src)
	if order == nil {
		return 0
	}
	var found int32
	ifdEntries(src, order, func(tag, kind uint16, count uint32, value []byte) {
		if tag == tagOrientation && kind == 3 && count == 1 {
			if v := order.Uint16(value); v >= 1 && v <= 8 {
				found = int32(v)
			}
		}
	})
	return found
}

func probeTIFF(src []byte) (ImageInfo, error) {
	info := ImageInfo{Channels: 1, Precision: 1, Color: ColorOther}
	order := byteOrder(src)
	if order == nil {
		return info, corrupt("the TIFF is truncated: it has no header")
	}
	photometric := uint32(0)
	whole := ifdEntries(src, order, func(tag, kind uint16, count uint32, value []byte) {
		var v uint32
		switch {
		case kind == 3 && count <= 2:
			v = uint32(order.Uint16(value))
		case kind == 4 && count == 1:
			v = order.Uint32(value)
		case kind == 3: // an array elsewhere: its first element
			if at := int64(order.Uint32(value)); at+2 <= int64(len(src)) {
				v = uint32(order.Uint16(src[at:]))
			}
		}
		switch tag {
		case 256:
			info.Width = side(v)
		case 257:
			info.Height = side(v)
		case 258:
			info.Precision = side(v)
		case 262:
			photometric = v
		case tagOrientation:
			if v >= 1 && v <= 8 {
				info.Orientation = int32(v)
			}
		case 277:
			info.Channels = side(v)
		}
	})
	if !whole {
		return info, corrupt("the TIFF is truncated: its directory lies outside of it")
	}
	switch {
	case photometric <= 1 && info.Channels == 1:
		info.Color = ColorGray
	case photometric == 2 && info.Channels == 3:
		info.Color = ColorRGB
	case photometric == 2 && info.Channels == 4:
		info.Color = ColorRGBA
	case photometric == 3:
		info.Color = ColorPalette
	case photometric == 5:
		info.Color = ColorCMYK
	case photometric == 6:
		info.Color = ColorYCbCr
	}
	return info, nil
}
