package cdec

import (
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
)

// probeJPEG walks the segments up to the first scan, with the tolerance of
// libjpeg: bytes between segments are passed over.
func probeJPEG(src []byte) (ImageInfo, error) {
	info := ImageInfo{Codec: driver.CodecJPEG}
	var jfif, adobe, frame bool
	var transform byte
	var ids [4]byte
	var sampling [4]byte
segments:
	for at := 2; ; {
		for at < len(src) && src[at] != 0xff {
			at++
		}
		for at < len(src) && src[at] == 0xff {
			at++
		}
		if at >= len(src) {
			return info, corrupt("the JPEG is truncated: its header does not end")
		}
		marker := src[at]
		at++
		switch {
		case marker == 0, marker == 0x01, marker >= 0xd0 && marker <= 0xd8:
			continue // stuffed byte or marker without a segment
		case marker == 0xd9:
			return info, corrupt("the JPEG ends before its first scan")
		}
		if at+2 > len(src) {
			return info, corrupt("the JPEG is truncated: its header does not end")
		}
		n := int(binary.BigEndian.Uint16(src[at:]))
		if n < 2 {
			return info, corrupt("the JPEG has a segment of %d bytes", n)
		}
		if marker == 0xda { // start of scan
			if !frame {
				return info, corrupt("the JPEG has a scan before its frame header")
			}
			break segments
		}
		if at+n > len(src) {
			return info, corrupt("the JPEG is truncated: its header does not end")
		}
		body := src[at+2 : at+n]
		at += n
		if marker >= 0xe0 && marker <= 0xef || marker == 0xfe {
			info.MetadataBytes += int64(n) + 2
		}
		switch {
		case marker == 0xe0 && len(body) >= 5 && string(body[:5]) == "JFIF\x00":
			jfif = true
		case marker == 0xe1 && info.Orientation == 0 && len(body) >= 6 && string(body[:6]) == "Exif\x00\x00":
			info.Orientation = exifOrientation(body)
		case marker == 0xee && len(body) >= 12 && string(body[:5]) == "Adobe":
			adobe, transform = true, body[11]
		case marker == 0xdd && len(body) >= 2:
			info.RestartInterval = int32(binary.BigEndian.Uint16(body))
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc:
			if frame {
				return info, corrupt("the JPEG has two frame headers")
			}
			if len(body) < 6 || len(body) < 6+3*int(body[5]) {
				return info, corrupt("the JPEG has a frame header of %d bytes", n)
			}
			frame = true
			info.Progressive = marker == 0xc2 || marker == 0xca
			info.Arithmetic = marker >= 0xc9
			info.Lossless = marker > 0xc2 && marker != 0xc9 && marker != 0xca
			info.Precision = int32(body[0])
			info.Height = int32(binary.BigEndian.Uint16(body[1:]))
			info.Width = int32(binary.BigEndian.Uint16(body[3:]))
			info.Channels = int32(body[5])
			for i := range min(int(info.Channels), 4) {
				ids[i], sampling[i] = body[6+3*i], body[7+3*i]
			}
		}
	}
	info.Color = jpegColor(info.Channels, jfif, adobe, transform, ids)
	info.Sampling = samplingName(info.Channels, sampling)
	return info, nil
}

// jpegColor guesses the colour space as libjpeg does.
func jpegColor(channels int32, jfif, adobe bool, transform byte, ids [4]byte) ColorSpace {
	switch channels {
	case 1:
		return ColorGray
	case 3:
		switch {
		case jfif:
		case adobe && transform == 0:
			return ColorRGB
		case !adobe && ids[0] == 'R' && ids[1] == 'G' && ids[2] == 'B':
			return ColorRGB
		}
		return ColorYCbCr
	case 4:
		if adobe && transform != 0 {
			return ColorYCCK
		}
		return ColorCMYK
	}
	return ColorOther
}

// samplingName names the subsampling of the second and third component
// against the first.
func samplingName(channels int32, s [4]byte) string {
	if channels < 3 || s[1] != s[2] {
		return ""
	}
	h0, v0, h, v := int(s[0]>>4), int(s[0]&15), int(s[1]>>4), int(s[1]&15)
	if h == 0 || v == 0 || h0%h != 0 || v0%v != 0 {
		return ""
	}
	switch [2]int{h0 / h, v0 / v} {
	case [2]int{1, 1}:
		return "4:4:4"
	case [2]int{2, 1}:
		return "4:2:2"
	case [2]int{2, 2}:
		return "4:2:0"
	case [2]int{1, 2}:
		return "4:4:0"
	case [2]int{4, 1}:
		return "4:1:1"
	case [2]int{4, 2}:
		return "4:1:0"
	}
	return fmt.Sprintf("%dx%d", h0/h, v0/v)
}
