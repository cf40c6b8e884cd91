package imagefile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// pngChunk returns the chunk that begins at byte p: four bytes of its kind, its data and its checksum. ok is false if
// the file ends before the chunk does.
func pngChunk(b []byte, p int) (kind, body, sum []byte, ok bool) {
	if len(b)-p < 12 {
		return nil, nil, nil, false
	}
	kind = b[p+4 : p+8]
	n := int64(binary.BigEndian.Uint32(b[p:]))
	if int64(p)+12+n > int64(len(b)) {
		return kind, nil, nil, false
	}
	end := p + 8 + int(n)
	return kind, b[p+8 : end], b[end : end+4], true
}

func probePNG(b []byte, info *Info) error {
	kind, header, _, ok := pngChunk(b, 8)
	switch {
	case !ok:
		return truncated(b, "in the header")
	case string(kind) != "IHDR" || len(header) < 13:
		return broken("no header chunk")
	}
	info.Width, info.Height = side(binary.BigEndian.Uint32(header)), side(binary.BigEndian.Uint32(header[4:]))
	info.Precision = int32(header[8])
	info.Buffered = header[12] != 0
	switch header[9] {
	case 0:
		info.Channels, info.Color = 1, Gray
	case 2:
		info.Channels, info.Color = 3, RGB
	case 3:
		info.Channels, info.Color = 1, Palette
	case 4:
		info.Channels, info.Color = 2, GrayA
	case 6:
		info.Channels, info.Color = 4, RGBA
	default:
		return broken("colour type %d, which does not exist", header[9])
	}
	// EXIF may come before or after the pixels.
	for p := 8; ; {
		kind, body, _, ok := pngChunk(b, p)
		if !ok || string(kind) == "IEND" {
			return nil
		}
		if string(kind) == "eXIf" {
			info.Orientation = Orientation(body)
		}
		p += 12 + len(body)
	}
}

// checkPNG walks the chunks up to IEND and compares the checksums of those
// that a decoder needs.
func checkPNG(b []byte) error {
	data := false
	for p := 8; ; {
		kind, body, sum, ok := pngChunk(b, p)
		switch {
		case !ok && kind == nil:
			return truncated(b, "before the end chunk")
		case !ok:
			return truncated(b, fmt.Sprintf("inside of chunk %q", kind))
		}
		critical := kind[0]&0x20 == 0
		if critical && crc32.ChecksumIEEE(b[p+4:p+8+len(body)]) != binary.BigEndian.Uint32(sum) {
			return broken("wrong checksum of chunk %q at byte %d", kind, p)
		}
		switch string(kind) {
		case "IDAT":
			data = true
		case "IEND":
			if !data {
				return broken("no picture data")
			}
			return nil
		}
		p += 12 + len(body)
	}
}
