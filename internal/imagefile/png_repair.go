package imagefile

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// RepairPNG returns a PNG with the same pixels that strict decoders read. All pixels must be there. It repairs these
// faults: too many rows, a missing end, chunks out of order, damage after the pixels, and a wrong checksum of a chunk
// whose compressed data has a right checksum of its own. It returns nil for all others, and for pictures of more than
// most bytes.
func RepairPNG(b []byte, most int64) []byte {
	var info Info
	if err := probePNG(b, &info); err != nil || info.Width < 1 || info.Height < 1 {
		return nil
	}
	out, data, sure := pngParts(b, &info)
	if out == nil {
		return nil
	}
	pixels := pngPixels(&info, info.Buffered, data, most, sure)
	if pixels == nil {
		return nil
	}
	out = pngAppend(out, "IDAT", pixels)
	return pngAppend(out, "IEND", nil)
}

// pngRead are the chunks that change the picture, besides the pixels.
var pngRead = map[string]bool{"IHDR": true, "PLTE": true, "tRNS": true, "eXIf": true}

// pngParts returns the header of a PNG with the chunks that its pixels need, in the order of the specification. It also
// returns the compressed pixels. sure reports whether the checksums of their chunks are right. Like Pillow, it returns
// nil if a chunk before the pixels has a wrong checksum, because the chunk's name may be damaged. It accepts damage
// after the pixels, except in chunks that change the picture.
func pngParts(b []byte, info *Info) (head, data []byte, sure bool) {
	parts := map[string][]byte{}
	sure = true
	for p := 8; ; {
		kind, body, sum, ok := pngChunk(b, p)
		name := string(kind)
		if !ok && name == "IDAT" { // the pixels may be complete
			data, sure = append(data, b[p+8:]...), false
		}
		if !ok || name == "IEND" {
			break
		}
		right := crc32.ChecksumIEEE(b[p+4:p+8+len(body)]) == binary.BigEndian.Uint32(sum)
		switch {
		case name == "IDAT":
			data = append(data, body...)
			sure = sure && right
		case !right && (pngRead[name] || data == nil), name == "IHDR" && parts[name] != nil:
			return nil, nil, false
		case name != "PLTE" || data == nil: // a palette after the pixels is not theirs
			parts[name] = body
		}
		p += 12 + len(body)
	}
	head = pngAppend(append([]byte(nil), b[:8]...), "IHDR", parts["IHDR"][:13])
	if plte := parts["PLTE"]; info.Color == Palette {
		n := min(len(plte)/3, 1<<info.Precision)
		head = pngAppend(head, "PLTE", plte[:3*n])
	}
	if t, ok := parts["tRNS"]; ok {
		head = pngTransparency(head, t, info.Color)
	}
	return head, data, sure
}

// pngTransparency appends the part of a chunk tRNS that the pixels have a use for.
func pngTransparency(head, t []byte, color Color) []byte {
	if n, ok := map[Color]int{Palette: min(len(t), 256), Gray: 2, RGB: 6}[color]; ok {
		return pngAppend(head, "tRNS", t[:min(n, len(t))])
	}
	return head
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
	// The checksum follows the pixels and any other data.
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
