package imagefile

import (
	"encoding/binary"
	"fmt"
)

func probeBMP(b []byte, info *Info) error {
	le := binary.LittleEndian
	bits := uint16(0)
	switch size := le.Uint32(b[14:]); {
	case size == 12: // OS/2 1.x
		info.Width, info.Height = int32(le.Uint16(b[18:])), int32(le.Uint16(b[20:]))
		bits = le.Uint16(b[24:])
	case size < 16:
		return broken("header of %d bytes", size)
	case len(b) < 30:
		return truncated(b, "in the header")
	default:
		info.Width = side(le.Uint32(b[18:]))
		h := int64(int32(le.Uint32(b[22:])))
		info.Height = side(uint32(max(h, -h))) // negative: top row first
		bits = le.Uint16(b[28:])
	}
	switch bits {
	case 1, 2, 4, 8:
		info.Channels, info.Color, info.Precision = 1, Palette, int32(bits)
	case 16, 24:
		info.Channels, info.Color, info.Precision = 3, RGB, 8
	case 32:
		info.Channels, info.Color, info.Precision = 4, RGBA, 8
	default:
		return broken("%d bits per pixel", bits)
	}
	return nil
}

func checkBMP(b []byte) error {
	if len(b) < 54 {
		return truncated(b, "in the header")
	}
	le := binary.LittleEndian
	off, header := int64(le.Uint32(b[10:])), le.Uint32(b[14:])
	if header < 40 {
		return broken("header of %d bytes, from OS/2 1.x, which is not supported", header)
	}
	w, h := int64(int32(le.Uint32(b[18:]))), int64(int32(le.Uint32(b[22:])))
	bpp, compression := int64(le.Uint16(b[28:])), le.Uint32(b[30:])
	if h < 0 {
		h = -h
	}
	if w <= 0 || h <= 0 || w > maxSide || h > maxSide || bpp > 64 {
		return broken("%d x %d pixels of %d bits", w, h, bpp)
	}
	need := (w*bpp + 31) / 32 * 4 * h
	if compression != 0 && compression != 3 {
		need = int64(le.Uint32(b[34:]))
	}
	if off+need > int64(len(b)) {
		return truncated(b, fmt.Sprintf("%d bytes of pixels are missing", off+need-int64(len(b))))
	}
	return nil
}
