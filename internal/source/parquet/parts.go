package parquet

import (
	"encoding/binary"
	"math"
)

// Single values of a page that is compressed with Snappy can be read without decompressing the whole page.
// Compressors work on independent pieces of 64 KiB, and each can be decompressed alone. FindParts checks once
// whether this is true for a page.

// PartBytes is the decompressed size of such a piece.
const PartBytes = 1 << 16

// Parts has the positions of the parts of a page that can be read alone.
type Parts struct {
	// Body is the offset of the compressed bytes from the start of the page header.
	Body int64
	// Size is the decompressed size.
	Size int64
	// At are the offsets of the parts from Body on, and the end of the last one. It is nil for an uncompressed
	// page.
	At []uint32
}

// FindParts finds the parts of a page. It returns nil if the page can only be read as a whole.
func FindParts(codec Codec, r Raw) *Parts {
	levels := r.reps + r.defs
	p := &Parts{Body: r.Header.Size + levels, Size: r.Plain - levels}
	if codec == None || r.kind == pageDataV2 && r.stored {
		return p
	}
	if codec != Snappy || p.Size == 0 {
		return nil
	}
	src := r.Body[levels:]
	size, n := binary.Uvarint(src)
	if n <= 0 || int64(size) != p.Size || len(src) > math.MaxUint32 {
		return nil
	}
	out := int64(0)
	for at := n; at < len(src); {
		if out%PartBytes == 0 {
			p.At = append(p.At, uint32(at))
		}
		length, offset, head := snappyElement(src[at:])
		if head == 0 {
			return nil
		}
		at += head
		in := out % PartBytes
		if length > PartBytes-in || offset > in {
			return nil // it crosses the end of its part
		}
		if offset == 0 {
			if length > int64(len(src)-at) {
				return nil
			}
			at += int(length)
		}
		out += length
	}
	if out != p.Size {
		return nil
	}
	p.At = append(p.At, uint32(len(src)))
	return p
}

// snappyElement parses the header of an element: a copy from offset bytes before or, if offset is 0, a literal that
// follows the header. head is 0 for an invalid element.
func snappyElement(b []byte) (length, offset int64, head int) {
	tag := b[0]
	switch tag & 3 {
	case 0:
		n := int64(tag >> 2)
		if n < 60 {
			return n + 1, 0, 1
		}
		k := int(n) - 59
		if len(b) < 1+k {
			return 0, 0, 0
		}
		n = 0
		for i := range k {
			n |= int64(b[1+i]) << (8 * i)
		}
		return n + 1, 0, 1 + k
	case 1:
		if len(b) < 2 {
			return 0, 0, 0
		}
		length, offset, head = 4+int64(tag>>2&7), int64(tag>>5)<<8|int64(b[1]), 2
	case 2:
		if len(b) < 3 {
			return 0, 0, 0
		}
		length, offset, head = 1+int64(tag>>2), int64(binary.LittleEndian.Uint16(b[1:])), 3
	default:
		if len(b) < 5 {
			return 0, 0, 0
		}
		length, offset, head = 1+int64(tag>>2), int64(binary.LittleEndian.Uint32(b[1:])), 5
	}
	if offset == 0 {
		return 0, 0, 0
	}
	return length, offset, head
}

// Range returns the range of the page to read for bytes lo to hi of the decompressed page. lo must be less than hi.
func (p *Parts) Range(lo, hi int64) (from, to int64) {
	if p.At == nil {
		return p.Body + lo, p.Body + hi
	}
	return p.Body + int64(p.At[lo/PartBytes]), p.Body + int64(p.At[(hi-1)/PartBytes+1])
}

// Extract fills dst with the decompressed page from byte lo on. src are the bytes in Range. scratch must have
// PartBytes bytes.
func (p *Parts) Extract(dst, src []byte, lo int64, scratch []byte) error {
	hi := lo + int64(len(dst))
	first := lo / PartBytes
	base := int64(p.At[first])
	for k := first; k*PartBytes < hi; k++ {
		begin, end := k*PartBytes, min((k+1)*PartBytes, p.Size)
		from, to := int64(p.At[k])-base, int64(p.At[k+1])-base
		if to > int64(len(src)) {
			return damaged("its Snappy data is cut off")
		}
		out := scratch[:end-begin]
		whole := begin >= lo && end <= hi
		if whole {
			out = dst[begin-lo : end-lo]
		}
		if err := snappyPart(out, src[from:to]); err != nil {
			return err
		}
		if !whole {
			a, b := max(lo, begin), min(hi, end)
			copy(dst[a-lo:b-lo], out[a-begin:b-begin])
		}
	}
	return nil
}

// snappyPart decompresses a part.
func snappyPart(dst, src []byte) error {
	out := 0
	for len(src) > 0 {
		length, offset, head := snappyElement(src)
		if head == 0 || length > int64(len(dst)-out) || offset > int64(out) {
			return damaged("its Snappy data")
		}
		src = src[head:]
		n := int(length)
		if offset == 0 {
			if n > len(src) {
				return damaged("its Snappy data is cut off")
			}
			copy(dst[out:], src[:n])
			src = src[n:]
			out += n
			continue
		}
		from := out - int(offset)
		if int(offset) >= n {
			copy(dst[out:out+n], dst[from:])
		} else {
			for i := range n { // the copy overlaps itself
				dst[out+i] = dst[from+i]
			}
		}
		out += n
	}
	if out != len(dst) {
		return damaged("its Snappy data has %d bytes, expected %d", out, len(dst))
	}
	return nil
}

// Pages parses the consecutive pages in b: the dictionary page if dict is set, otherwise the data pages.
func Pages(b []byte, dict bool) ([]Raw, error) {
	var out []Raw
	for len(b) > 0 {
		h, err := ParseHeader(b)
		if err != nil {
			return nil, err
		}
		if h.Bytes > int64(len(b))-h.Size {
			return nil, damaged("a page of %d bytes, of which %d exist", h.Bytes, int64(len(b))-h.Size)
		}
		if dict && h.IsDict() || !dict && h.IsData() {
			out = append(out, Raw{h, b[h.Size : h.Size+h.Bytes : h.Size+h.Bytes]})
		}
		b = b[h.Size+h.Bytes:]
		if dict && len(out) > 0 {
			break // only one dictionary is needed
		}
	}
	if len(out) == 0 {
		return nil, damaged("expected a page")
	}
	return out, nil
}
