package imagefile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// checkPNG walks the chunks up to IEND and compares the checksums of those
// that a decoder needs.
func checkPNG(b []byte, info *Info) error {
	data := false
	for p := 8; ; {
		if len(b)-p < 12 {
			return truncated(b, "before the end chunk")
		}
		n := int64(binary.BigEndian.Uint32(b[p:]))
		kind := string(b[p+4 : p+8])
		if int64(p)+12+n > int64(len(b)) {
			return truncated(b, fmt.Sprintf("inside of chunk %q", kind))
		}
		body := b[p+8 : p+8+int(n)]
		critical := kind[0]&0x20 == 0
		if critical && crc32.ChecksumIEEE(b[p+4:p+8+int(n)]) != binary.BigEndian.Uint32(b[p+8+int(n):]) {
			return broken("wrong checksum of chunk %q at byte %d", kind, p)
		}
		switch kind {
		case "eXIf":
			info.Orientation = Orientation(body)
		case "IDAT":
			data = true
		case "IEND":
			if !data {
				return broken("no picture data")
			}
			return nil
		}
		p += 12 + int(n)
	}
}

// checkGIF walks the blocks up to the end of the first frame, which is the one
// that is used.
func checkGIF(b []byte) error {
	if len(b) < 13 {
		return truncated(b, "in the header")
	}
	p := 13
	table := func(flags byte) {
		if flags&0x80 != 0 {
			p += 3 << (flags&7 + 1)
		}
	}
	table(b[10])
	subBlocks := func() bool {
		for p < len(b) {
			n := int(b[p])
			p += 1 + n
			if n == 0 {
				return true
			}
		}
		return false
	}
	for p < len(b) {
		switch b[p] {
		case 0x21:
			p += 2
			if !subBlocks() {
				return truncated(b, "inside of an extension")
			}
		case 0x2C:
			if p+10 > len(b) {
				return truncated(b, "in the header of the first frame")
			}
			flags := b[p+9]
			p += 10
			table(flags)
			p++ // LZW code size
			if !subBlocks() {
				return truncated(b, "inside of the first frame")
			}
			return nil
		case 0x3B:
			return broken("no picture data")
		default:
			return broken("unknown block %#x at byte %d", b[p], p)
		}
	}
	return truncated(b, "before the first frame")
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

func checkWebP(b []byte, info *Info) error {
	n := 8 + int64(binary.LittleEndian.Uint32(b[4:]))
	if n > int64(len(b)) {
		return truncated(b, fmt.Sprintf("the header says %d", n))
	}
	for p := int64(12); p+8 <= n; {
		size := int64(binary.LittleEndian.Uint32(b[p+4:]))
		if p+8+size > n {
			return truncated(b, fmt.Sprintf("inside of chunk %q", b[p:p+4]))
		}
		if string(b[p:p+4]) == "EXIF" {
			info.Orientation = Orientation(b[p+8 : p+8+size])
		}
		p += 8 + size + size&1
	}
	return nil
}

// checkTIFF checks that all strips or tiles of the first picture lie inside of
// the file.
func checkTIFF(b []byte, info *Info) error {
	var offsets, counts []uint32
	read := func(typ uint16, count uint32, value []byte, order binary.ByteOrder) ([]uint32, error) {
		var size int64
		switch typ {
		case 3:
			size = 2
		case 4:
			size = 4
		default:
			return nil, broken("strip table of type %d", typ)
		}
		total := size * int64(count)
		src := value
		if total > 4 {
			at := int64(order.Uint32(value))
			if at+total > int64(len(b)) {
				return nil, truncated(b, "before its strip table")
			}
			src = b[at : at+total]
		}
		out := make([]uint32, count)
		for i := range out {
			if size == 2 {
				out[i] = uint32(order.Uint16(src[2*i:]))
			} else {
				out[i] = order.Uint32(src[4*i:])
			}
		}
		return out, nil
	}
	err := walkIFD(b, func(tag, typ uint16, count uint32, value []byte, order binary.ByteOrder) (err error) {
		switch tag {
		case 273, 324:
			offsets, err = read(typ, count, value, order)
		case 279, 325:
			counts, err = read(typ, count, value, order)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(offsets) == 0 || len(offsets) != len(counts) {
		return broken("no picture data")
	}
	for i := range offsets {
		if int64(offsets[i])+int64(counts[i]) > int64(len(b)) {
			return truncated(b, fmt.Sprintf("before the end of strip %d of %d", i+1, len(offsets)))
		}
	}
	info.Orientation = Orientation(b)
	return nil
}
