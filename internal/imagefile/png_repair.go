package imagefile

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// RepairPNG returns a PNG that strict decoders read, with the same pixels, of one whose
// pixels are all there, but which has rows too many, a wrong checksum of compressed data
// that is right by its own checksum, or no end. It returns nil for all others, and for
// pictures of more than most bytes.
func RepairPNG(b []byte, most int64) []byte {
	var info Info
	if err := probePNG(b, &info); err != nil || info.Width < 1 || info.Height < 1 {
		return nil
	}
	out, data, sure := append([]byte(nil), b[:8]...), []byte(nil), true
	for p := 8; ; {
		kind, body, sum, ok := pngChunk(b, p)
		if !ok || string(kind) == "IEND" {
			break
		}
		right := crc32.ChecksumIEEE(b[p+4:p+8+len(body)]) == binary.BigEndian.Uint32(sum)
		switch string(kind) {
		case "IDAT":
			data = append(data, body...)
			sure = sure && right
		case "IHDR", "PLTE", "tRNS":
			if !right {
				return nil
			}
			out = append(out, b[p:p+12+len(body)]...)
		}
		p += 12 + len(body)
	}
	pixels := pngPixels(&info, b[8+8+12] != 0, data, most, sure)
	if pixels == nil {
		return nil
	}
	out = pngAppend(out, "IDAT", pixels)
	return pngAppend(out, "IEND", nil)
}

// pngPixels unpacks the pixels, and packs those that belong to the picture again, stored. It returns
// nil if the checksum of all data is wrong. If it is not sure that each chunk is right, it also
// returns nil if the data has no checksum or too much follows the pixels to compare it.
func pngPixels(info *Info, interlaced bool, data []byte, most int64, sure bool) []byte {
	need := pngBytes(info, interlaced)
	if need > most {
		return nil
	}
	in, err := zlib.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	raw := make([]byte, need)
	if _, err := io.ReadFull(in, raw); err != nil {
		return nil
	}
	// The checksum follows the pixels and what else there is.
	n, err := io.Copy(io.Discard, io.LimitReader(in, need+1<<20))
	if errors.Is(err, zlib.ErrChecksum) || !sure && (err != nil || n == need+1<<20) {
		return nil
	}
	var packed bytes.Buffer
	z, _ := zlib.NewWriterLevel(&packed, zlib.NoCompression)
	if _, err := z.Write(raw); err != nil || z.Close() != nil {
		return nil
	}
	return packed.Bytes()
}

// pngBytes is the size of the pixels with a byte for the filter of each row, in one pass or
// in the seven of Adam7.
func pngBytes(info *Info, interlaced bool) int64 {
	passes := [][4]int64{{0, 0, 1, 1}} // the first column and row, and the steps
	if interlaced {
		passes = [][4]int64{{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}
	}
	all := int64(0)
	for _, p := range passes {
		w, h := (int64(info.Width)-p[0]+p[2]-1)/p[2], (int64(info.Height)-p[1]+p[3]-1)/p[3]
		if w > 0 && h > 0 {
			all += h * (1 + (w*int64(info.Channels)*int64(info.Precision)+7)/8)
		}
	}
	return all
}

func pngAppend(to []byte, kind string, body []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(body)))
	at := len(to)
	to = append(append(to, kind...), body...)
	return binary.BigEndian.AppendUint32(to, crc32.ChecksumIEEE(to[at:]))
}
