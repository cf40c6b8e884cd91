package imagefile

import (
	"encoding/binary"
	"errors"
)

// JPEG XL: a codestream, bare or in boxes. Its header is a string of bits, the lowest
// ones first.

const (
	jxlBare      = "\xff\x0a"
	jxlContainer = "\x00\x00\x00\x0cJXL \x0d\x0a\x87\x0a"
)

var errJXLBits = errors.New("the header ends")

// jxlBits reads the bits of a codestream.
type jxlBits struct {
	b   []byte
	at  uint64
	err error
}

func (r *jxlBits) bits(n uint64) uint64 {
	v := uint64(0)
	for i := range n {
		if r.at/8 >= uint64(len(r.b)) {
			r.err = errJXLBits
			return 0
		}
		v |= uint64(r.b[r.at/8]>>(r.at%8)&1) << i
		r.at++
	}
	return v
}

func (r *jxlBits) bool() bool { return r.bits(1) == 1 }

// u32 reads one of four forms: offset plus some bits.
func (r *jxlBits) u32(forms [4][2]uint64) uint64 {
	f := forms[r.bits(2)]
	return f[0] + r.bits(f[1])
}

// size reads a SizeHeader.
func (r *jxlBits) size() (w, h uint64) {
	forms := [4][2]uint64{{1, 9}, {1, 13}, {1, 18}, {1, 30}}
	small := r.bool()
	side := func() uint64 {
		if small {
			return 8 * (1 + r.bits(5))
		}
		return r.u32(forms)
	}
	h = side()
	ratios := [8][2]uint64{{}, {1, 1}, {12, 10}, {4, 3}, {3, 2}, {16, 9}, {5, 4}, {2, 1}}
	if k := r.bits(3); k != 0 {
		return h * ratios[k][0] / ratios[k][1], h
	}
	return side(), h
}

// preview reads a PreviewHeader, animation an AnimationHeader. Their contents are not used.
func (r *jxlBits) preview() {
	forms := [4][2]uint64{{1, 6}, {65, 8}, {321, 10}, {1345, 12}}
	if r.bool() {
		forms = [4][2]uint64{{16, 0}, {32, 0}, {1, 5}, {33, 9}}
	}
	r.u32(forms)
	if r.bits(3) == 0 {
		r.u32(forms)
	}
}

func (r *jxlBits) animation() {
	r.u32([4][2]uint64{{100, 0}, {1000, 0}, {1, 10}, {1, 30}})
	r.u32([4][2]uint64{{1, 0}, {1001, 0}, {1, 8}, {1, 10}})
	r.u32([4][2]uint64{{0, 0}, {0, 3}, {0, 16}, {0, 32}})
	r.bits(1)
}

// depth reads a BitDepth.
func (r *jxlBits) depth() (bits uint64, float bool) {
	if float = r.bool(); float {
		bits = r.u32([4][2]uint64{{32, 0}, {16, 0}, {24, 0}, {1, 6}})
		r.bits(4)
		return bits, true
	}
	return r.u32([4][2]uint64{{8, 0}, {10, 0}, {12, 0}, {1, 6}}), false
}

// jxlStream is the codestream, or the beginning of it, and whether all of it is there.
func jxlStream(b []byte) (stream []byte, whole bool, err error) {
	if len(b) >= 2 && string(b[:2]) == jxlBare {
		return b, true, nil
	}
	var parts []byte
	for p := uint64(0); p < uint64(len(b)); {
		rest := b[p:]
		if len(rest) < 8 {
			return parts, false, truncated(b, "inside of the header of a box")
		}
		size, head := uint64(binary.BigEndian.Uint32(rest)), uint64(8)
		switch {
		case size == 0: // to the end
			size = uint64(len(rest))
		case size == 1 && len(rest) >= 16:
			size, head = binary.BigEndian.Uint64(rest[8:]), 16
		}
		if size < head {
			return nil, false, broken("a box of %d bytes", size)
		}
		body := rest[head:min(size, uint64(len(rest)))]
		switch kind := string(rest[4:8]); {
		case kind == "jxlc":
			return body, size <= uint64(len(rest)), nil
		case kind == "jxlp" && len(body) >= 4:
			last := body[0]&0x80 != 0
			parts = append(parts, body[4:]...)
			if last || len(parts) > 1<<16 { // more than any header takes
				return parts, size <= uint64(len(rest)), nil
			}
		}
		if size > uint64(len(rest)) {
			return parts, false, truncated(b, "inside of a box")
		}
		p += size
	}
	return parts, false, truncated(b, "before the picture data")
}

func probeJXL(b []byte, info *Info) error {
	stream, _, err := jxlStream(b)
	if len(stream) < 2 {
		if err == nil {
			err = truncated(b, "before the picture data")
		}
		return err
	}
	if string(stream[:2]) != jxlBare {
		return broken("the picture data begins with %s", beginning(stream))
	}
	r := &jxlBits{b: stream, at: 16}
	w, h := r.size()
	info.Precision, info.Channels, info.Color = 8, 3, RGB
	turned := uint64(1)
	if !r.bool() { // not all is as usual
		if r.bool() {
			turned = 1 + r.bits(3)
			if r.bool() {
				r.size()
			}
			if r.bool() {
				r.preview()
			}
			if r.bool() {
				r.animation()
			}
		}
		bits, float := r.depth()
		info.Precision, info.Float = int32(bits), float
		r.bits(1)
		if extra := r.u32([4][2]uint64{{0, 0}, {1, 0}, {2, 4}, {1, 12}}); extra > 0 {
			info.Channels, info.Color = 4, RGBA // what they are is for the decoder to know
		} else {
			r.bits(1)         // xyb
			other := r.bool() // sRGB
			if !other {
				other = r.bool() // a profile says it
			}
			if !other {
				if r.u32([4][2]uint64{{0, 0}, {1, 0}, {2, 4}, {18, 6}}) == 1 {
					info.Channels, info.Color = 1, Gray
				}
			}
		}
	}
	if r.err != nil {
		return truncated(b, "inside of the header")
	}
	if turned >= 5 { // decoders turn the image: there is nothing left to turn
		w, h = h, w
	}
	info.Width, info.Height = side(uint32(min(w, 1<<31))), side(uint32(min(h, 1<<31)))
	return nil
}

func checkJXL(b []byte) error {
	_, whole, err := jxlStream(b)
	if err == nil && !whole {
		err = truncated(b, "inside of the picture data")
	}
	return err
}
