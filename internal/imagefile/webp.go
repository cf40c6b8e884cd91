package imagefile

import (
	"encoding/binary"
	"fmt"
)

// webpChunks calls chunk for each chunk of the file, also for one that the file
// ends in, until it returns an error. size is what its header says.
func webpChunks(b []byte, chunk func(kind, body []byte, size int64) error) error {
	end := min(8+int64(binary.LittleEndian.Uint32(b[4:])), int64(len(b)))
	for p := int64(12); p+8 <= end; {
		size := int64(binary.LittleEndian.Uint32(b[p+4:]))
		if err := chunk(b[p:p+4], b[p+8:min(p+8+size, end)], size); err != nil {
			return err
		}
		p += 8 + size + size&1
	}
	return nil
}

func probeWebP(b []byte, info *Info) error {
	info.Precision, info.Channels, info.Color = 8, 3, RGB
	alpha := func(yes bool) {
		if yes {
			info.Channels, info.Color = 4, RGBA
		}
	}
	found := false
	err := webpChunks(b, func(kind, body []byte, _ int64) error {
		if string(kind) == "VP8L" || string(kind) == "ALPH" && len(body) > 0 && body[0]&3 == 1 {
			info.Lossless = true
		}
		switch {
		case string(kind) == "VP8X" && !found && len(body) >= 10:
			info.Width = 1 + (int32(body[4]) | int32(body[5])<<8 | int32(body[6])<<16)
			info.Height = 1 + (int32(body[7]) | int32(body[8])<<8 | int32(body[9])<<16)
			alpha(body[0]&0x10 != 0)
			found = true
		case string(kind) == "VP8 " && !found && len(body) >= 10:
			if body[3] != 0x9d || body[4] != 0x01 || body[5] != 0x2a {
				return broken("the frame header makes no sense")
			}
			info.Width = int32(binary.LittleEndian.Uint16(body[6:]) & 0x3fff)
			info.Height = int32(binary.LittleEndian.Uint16(body[8:]) & 0x3fff)
			found = true
		case string(kind) == "VP8L" && !found && len(body) >= 5:
			if body[0] != 0x2f {
				return broken("the header of the lossless frame makes no sense")
			}
			bits := binary.LittleEndian.Uint32(body[1:])
			info.Width, info.Height = 1+int32(bits&0x3fff), 1+int32(bits>>14&0x3fff)
			alpha(bits>>28&1 != 0)
			found = true
		case string(kind) == "EXIF":
			info.Orientation = Orientation(body)
		}
		return nil
	})
	if err == nil && !found {
		err = truncated(b, "before the frame header")
	}
	return err
}

func checkWebP(b []byte) error {
	if n := 8 + int64(binary.LittleEndian.Uint32(b[4:])); n > int64(len(b)) {
		return truncated(b, fmt.Sprintf("the header says %d", n))
	}
	return webpChunks(b, func(kind, body []byte, size int64) error {
		if int64(len(body)) < size {
			return truncated(b, fmt.Sprintf("inside of chunk %q", kind))
		}
		return nil
	})
}
