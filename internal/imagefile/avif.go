package imagefile

import (
	"encoding/binary"
	"errors"
	"slices"
)

// AVIF: an image of AV1 in the boxes of ISO 14496-12 and 23008-12. This file reads the size of the primary item and its
// turn, and checks whether its bytes are there.

// avifMajor lists the first brands of files that Pillow reads.
var avifMajor = []string{"avif", "avis", "mif1", "msf1"}

// isAVIF reports whether the bytes begin like an AVIF file.
func isAVIF(b []byte) bool {
	if len(b) < 16 || string(b[4:8]) != "ftyp" || !slices.Contains(avifMajor, string(b[8:12])) {
		return false
	}
	size := min(int(min(binary.BigEndian.Uint32(b), 1<<10)), len(b))
	for p := 8; p+4 <= size; p += 4 {
		if brand := string(b[p : p+4]); p != 12 && (brand == "avif" || brand == "avis") {
			return true
		}
	}
	return false
}

var errBoxEnds = errors.New("a box ends")

// boxReader reads numbers of a box.
type boxReader struct {
	b   []byte
	err error
}

func (r *boxReader) uint(n int) uint64 {
	if n > len(r.b) {
		r.err, r.b = errBoxEnds, nil
		return 0
	}
	v := uint64(0)
	for _, c := range r.b[:n] {
		v = v<<8 | uint64(c)
	}
	r.b = r.b[n:]
	return v
}

// boxes calls each for the boxes in b; whole is false for one that b ends in.
func boxes(b []byte, each func(kind string, body []byte, whole bool) error) error {
	for len(b) >= 8 {
		size, head := uint64(binary.BigEndian.Uint32(b)), uint64(8)
		switch {
		case size == 0:
			size = uint64(len(b))
		case size == 1 && len(b) >= 16:
			size, head = binary.BigEndian.Uint64(b[8:]), 16
		}
		if size < head {
			return broken("a box of %d bytes", size)
		}
		end := min(size, uint64(len(b)))
		if end < head {
			return nil
		}
		if err := each(string(b[4:8]), b[head:end], size <= uint64(len(b))); err != nil || size >= uint64(len(b)) {
			return err
		}
		b = b[size:]
	}
	return nil
}

// avifHead holds the needed parts of the box "meta".
type avifHead struct {
	primary uint64
	props   []avifProp
	of      map[uint64][]uint64 // properties by item, counted from 1
	end     uint64              // behind the last byte of an item
}

type avifProp struct {
	kind string
	body []byte
}

// maxAVIFItems bounds the entries in the tables of a file.
const maxAVIFItems = 1 << 16

func readAVIF(b []byte) (*avifHead, error) {
	h := &avifHead{of: map[uint64][]uint64{}}
	found, whole := false, false
	err := boxes(b, func(kind string, body []byte, all bool) error {
		if kind != "meta" || found {
			return nil
		}
		found, whole = true, all
		if len(body) < 4 {
			return nil
		}
		return boxes(body[4:], h.meta)
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, truncated(b, "before its description")
	case !whole:
		return nil, truncated(b, "inside of its description")
	}
	return h, nil
}

func (h *avifHead) meta(kind string, body []byte, _ bool) error {
	r := &boxReader{b: body}
	switch kind {
	case "pitm":
		if v := r.uint(4) >> 24; v == 0 {
			h.primary = r.uint(2)
		} else {
			h.primary = r.uint(4)
		}
	case "iprp":
		return boxes(body, h.properties)
	case "iloc":
		h.places(r)
	}
	if r.err != nil {
		return broken("the box %q ends too early", kind)
	}
	return nil
}

func (h *avifHead) properties(kind string, body []byte, _ bool) error {
	switch kind {
	case "ipco":
		return boxes(body, func(kind string, body []byte, _ bool) error {
			if len(h.props) >= maxAVIFItems {
				return broken("it has too many properties")
			}
			h.props = append(h.props, avifProp{kind, body})
			return nil
		})
	case "ipma":
		r := &boxReader{b: body}
		flags := r.uint(4)
		for range min(r.uint(4), maxAVIFItems) {
			size := 2
			if flags>>24 > 0 {
				size = 4
			}
			item := r.uint(size)
			for range r.uint(1) {
				n := r.uint(1) & 0x7f
				if flags&1 != 0 {
					n = n<<8 | r.uint(1)
				}
				h.of[item] = append(h.of[item], n)
			}
			if r.err != nil {
				return broken("the box %q ends too early", kind)
			}
		}
	}
	return nil
}

// places reads the positions of the items that are in the file.
func (h *avifHead) places(r *boxReader) {
	version := r.uint(4) >> 24
	sizes := r.uint(2)
	offset, length, base, index := int(sizes>>12), int(sizes>>8&15), int(sizes>>4&15), int(sizes&15)
	count := uint64(0)
	if version < 2 {
		count = r.uint(2)
	} else {
		count = r.uint(4)
	}
	for range min(count, maxAVIFItems) {
		if version < 2 {
			r.uint(2)
		} else {
			r.uint(4)
		}
		method := uint64(0)
		if version > 0 {
			method = r.uint(2) & 15
		}
		r.uint(2)
		from := r.uint(base)
		for range r.uint(2) {
			if version > 0 {
				r.uint(index)
			}
			at, size := r.uint(offset), r.uint(length)
			if end := from + at + size; method == 0 && r.err == nil && end >= size {
				h.end = max(h.end, end)
			}
			if r.err != nil {
				return
			}
		}
	}
}

func probeAVIF(b []byte, info *Info) error {
	h, err := readAVIF(b)
	if err != nil {
		return err
	}
	info.Precision, info.Channels, info.Color = 8, 4, RGBA // which libavif gives
	turn, mirror := uint64(0), -1
	for _, n := range h.of[h.primary] {
		if n < 1 || n > uint64(len(h.props)) {
			continue
		}
		p := h.props[n-1]
		r := &boxReader{b: p.body}
		switch p.kind {
		case "ispe":
			r.uint(4)
			info.Width, info.Height = side(uint32(r.uint(4))), side(uint32(r.uint(4)))
		case "av1C":
			r.uint(2)
			if b := r.uint(1); b&0x60 == 0x60 {
				info.Precision = 12
			} else if b&0x40 != 0 {
				info.Precision = 10
			}
		case "irot":
			turn = r.uint(1) & 3
		case "imir":
			mirror = int(r.uint(1) & 1)
		}
		if r.err != nil {
			return broken("the property %q ends too early", p.kind)
		}
	}
	if info.Width == 0 {
		return broken("it does not say how large it is")
	}
	// The EXIF orientation that says the same: turned anticlockwise, then mirrored, about
	// the vertical axis (0: top and bottom change places) or the horizontal one.
	info.Orientation = [3][4]uint8{{1, 8, 3, 6}, {4, 5, 2, 7}, {2, 7, 4, 5}}[mirror+1][turn]
	return nil
}

func checkAVIF(b []byte) error {
	h, err := readAVIF(b)
	if err == nil && h.end > uint64(len(b)) {
		err = truncated(b, "inside of the picture data")
	}
	return err
}
