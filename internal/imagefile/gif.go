package imagefile

import (
	"encoding/binary"
	"errors"
)

func probeGIF(b []byte, info *Info) error {
	if len(b) < 13 {
		return truncated(b, "in the header")
	}
	info.Width, info.Height = int32(binary.LittleEndian.Uint16(b[6:])), int32(binary.LittleEndian.Uint16(b[8:]))
	info.Channels, info.Color, info.Precision = 1, Palette, 8
	p, _, err := gifFrame(b)
	switch {
	case errors.Is(err, ErrTruncated):
		return err
	case err == nil:
		w, h := gifExtent(b, p)
		info.Width, info.Height = max(info.Width, int32(w)), max(info.Height, int32(h))
	}
	return nil
}

// gifExtent returns the right and bottom edge of the frame at byte p. As in Pillow, the first frame can make the
// picture larger.
func gifExtent(b []byte, p int) (width, height int) {
	at := func(i int) int { return int(binary.LittleEndian.Uint16(b[p+i:])) }
	return at(1) + at(5), at(3) + at(7)
}

// NormalGIF returns a GIF in the form that strict decoders need: the picture is as large as its first frame, and there
// is a palette, of gray if the file has none. It returns all other files unmodified.
func NormalGIF(b []byte) []byte {
	if len(b) < 13 || string(b[:3]) != "GIF" {
		return b
	}
	p, _, err := gifFrame(b)
	if err != nil {
		return b
	}
	w, h := gifExtent(b, p)
	w, h = max(w, int(binary.LittleEndian.Uint16(b[6:]))), max(h, int(binary.LittleEndian.Uint16(b[8:])))
	palette := b[10]&0x80 != 0 || b[p+9]&0x80 != 0
	if palette && w == int(binary.LittleEndian.Uint16(b[6:])) && h == int(binary.LittleEndian.Uint16(b[8:])) || w > 0xffff || h > 0xffff {
		return b
	}
	out := append(make([]byte, 0, len(b)+768), b[:13]...)
	binary.LittleEndian.PutUint16(out[6:], uint16(w))
	binary.LittleEndian.PutUint16(out[8:], uint16(h))
	if !palette {
		out[10] |= 0x87
		for i := range 256 {
			out = append(out, byte(i), byte(i), byte(i))
		}
	}
	return append(out, b[13:]...)
}

// gifTable is the size in bytes of the palette that a byte of flags announces.
func gifTable(flags byte) int {
	if flags&0x80 == 0 {
		return 0
	}
	return 3 << (flags&7 + 1)
}

// skipSubBlocks returns the end of the data that begins at byte p, and false if the file ends before it.
func skipSubBlocks(b []byte, p int) (int, bool) {
	for p < len(b) {
		n := int(b[p])
		p += 1 + n
		if n == 0 {
			return p, true
		}
	}
	return p, false
}

// gifFrame finds the header of the first frame, which is the one that is used,
// and the colour that its extensions call transparent, or else -1.
func gifFrame(b []byte) (at, transparent int, err error) {
	transparent = -1
	if len(b) < 13 {
		return 0, -1, truncated(b, "in the header")
	}
	for p := 13 + gifTable(b[10]); p < len(b); {
		switch b[p] {
		case 0x21:
			if p+7 < len(b) && b[p+1] == 0xf9 && b[p+3]&1 != 0 {
				transparent = int(b[p+6])
			}
			var whole bool
			if p, whole = skipSubBlocks(b, p+2); !whole {
				return 0, -1, truncated(b, "inside of an extension")
			}
		case 0x2C:
			if p+10 > len(b) {
				return 0, -1, truncated(b, "in the header of the first frame")
			}
			return p, transparent, nil
		case 0x3B:
			return 0, -1, broken("no picture data")
		default:
			return 0, -1, broken("unknown block %#x at byte %d", b[p], p)
		}
	}
	return 0, -1, truncated(b, "before the first frame")
}

// checkGIF walks the blocks up to the end of the first frame.
func checkGIF(b []byte) error {
	p, _, err := gifFrame(b)
	if err != nil {
		return err
	}
	p += 10 + gifTable(b[p+9]) + 1 // with the LZW code size
	if _, whole := skipSubBlocks(b, p); !whole {
		return truncated(b, "inside of the first frame")
	}
	return nil
}

// GIFColors reads the palette of the first frame, and the transparent colour,
// -1 for none. Around the frame is, as in Pillow, the transparent one, or else the
// first. Colours that the file does not have are black.
func GIFColors(b []byte) (table [256][3]byte, transparent int) {
	p, transparent, err := gifFrame(b)
	if err != nil {
		return table, -1
	}
	at, flags := 13, b[10]
	if own := b[p+9]; own&0x80 != 0 {
		at, flags = p+10, own
	}
	for i := 0; i < gifTable(flags)/3 && at+3*i+3 <= len(b); i++ {
		copy(table[i][:], b[at+3*i:])
	}
	return table, transparent
}
