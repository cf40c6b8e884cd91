// Package netpbm reads the formats of Netpbm: PBM, PGM and PPM, as text (P1 to P3) or binary (P4 to P6), and PAM (P7),
// with values of up to 16 bits. It returns the values of the file. Package decode converts them to colours.
package netpbm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The errors: a file that ends too early, and one that makes no sense.
var (
	ErrTruncated = errors.New("truncated")
	ErrBroken    = errors.New("damaged")
)

// MaxChannels is the largest number of values of a pixel.
const MaxChannels = 4

// Header is the content of a file's header.
type Header struct {
	Width, Height int32
	// Channels are 1 (gray), 2 (gray, alpha), 3 (RGB) or 4 (RGB, alpha).
	Channels int32
	// Max is the value of white, 1 to 65535.
	Max int
	// Offset is the offset of the pixels.
	Offset int
	// text means that values are decimal numbers, bits means 8 pixels per byte, and inverted means that 1 is black.
	text, bits, inverted bool
}

// Bilevel reports whether the only values are 0 and 1.
func (h *Header) Bilevel() bool { return h.Max == 1 }

// Wide reports whether values have two bytes.
func (h *Header) Wide() bool { return h.Max > 255 }

// IsBeginning reports whether b begins like one of the formats.
func IsBeginning(b []byte) bool {
	if len(b) < 4 || b[0] != 'P' || b[1] < '1' || b[1] > '7' || !blank(b[2]) {
		return false
	}
	if b[1] == '7' {
		return b[2] == '\n' && (b[3] == '#' || b[3] >= 'A' && b[3] <= 'Z')
	}
	return b[3] == '#' || digit(b[3]) || blank(b[3])
}

func blank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func digit(c byte) bool { return c >= '0' && c <= '9' }

// Parse reads the header of a file.
func Parse(b []byte) (Header, error) {
	if !IsBeginning(b) {
		return Header{}, fmt.Errorf("%w: it does not begin as files of Netpbm do", ErrBroken)
	}
	var h Header
	var err error
	if b[1] == '7' {
		err = h.parsePAM(b)
	} else {
		err = h.parsePNM(b)
	}
	if err != nil {
		return h, err
	}
	if h.Width < 1 || h.Height < 1 {
		return h, fmt.Errorf("%w: %d x %d pixels", ErrBroken, h.Width, h.Height)
	}
	return h, nil
}

// parsePNM reads a header of P1 to P6: numbers between blanks and comments, and one blank after the last number.
func (h *Header) parsePNM(b []byte) error {
	kind := b[1] - '0'
	h.Channels, h.Max = 1, 1
	h.text = kind <= 3
	h.bits = kind == 4
	h.inverted = kind == 1 || kind == 4
	if kind == 3 || kind == 6 {
		h.Channels = 3
	}
	p := 2
	number := func(what string, limit int) (int, error) {
		var err error
		if p, err = skip(b, p); err != nil {
			return 0, err
		}
		n, from := 0, p
		for ; p < len(b) && digit(b[p]); p++ {
			if n = n*10 + int(b[p]-'0'); n > limit {
				return 0, fmt.Errorf("%w: its header has %.20q for the %s", ErrBroken, b[from:p+1], what)
			}
		}
		switch {
		case p == len(b):
			return 0, fmt.Errorf("%w: ends at byte %d, in the header", ErrTruncated, p)
		case p == from || !blank(b[p]) && b[p] != '#':
			return 0, fmt.Errorf("%w: its header has %.20q where the %s is expected", ErrBroken, b[from:min(p+1, len(b))], what)
		}
		return n, nil
	}
	w, err := number("width", math.MaxInt32)
	if err != nil {
		return err
	}
	height, err := number("height", math.MaxInt32)
	if err != nil {
		return err
	}
	h.Width, h.Height = int32(w), int32(height)
	if !h.inverted {
		if h.Max, err = number("largest value", 65535); err != nil {
			return err
		}
		if h.Max == 0 {
			return fmt.Errorf("%w: its largest value is 0", ErrBroken)
		}
	}
	if b[p] == '#' && !h.text {
		return fmt.Errorf("%w: a comment stands where the pixels begin", ErrBroken)
	}
	h.Offset = p + 1
	if h.text {
		h.Offset = p
	}
	return nil
}

// skip returns the offset after blanks and comments.
func skip(b []byte, p int) (int, error) {
	for p < len(b) {
		switch {
		case blank(b[p]):
			p++
		case b[p] == '#':
			for p < len(b) && b[p] != '\n' && b[p] != '\r' {
				p++
			}
		default:
			return p, nil
		}
	}
	return p, fmt.Errorf("%w: ends at byte %d", ErrTruncated, p)
}

// maxPAMHeader bounds the header of a PAM, which can have any number of comments.
const maxPAMHeader = 64 << 10

// parsePAM reads a header of P7: a name and a value in each line.
func (h *Header) parsePAM(b []byte) error {
	var tuple string
	depth := 0
	for p := 3; ; {
		n := bytes.IndexByte(b[p:min(len(b), p+maxPAMHeader)], '\n')
		if n < 0 || p > maxPAMHeader {
			return fmt.Errorf("%w: its header does not end within %d bytes", ErrTruncated, len(b))
		}
		line := strings.TrimSpace(string(b[p : p+n]))
		p += n + 1
		name, value, _ := strings.Cut(line, " ")
		value = strings.TrimSpace(value)
		switch name {
		case "ENDHDR":
			h.Offset = p
			return h.finishPAM(depth, tuple)
		case "TUPLTYPE":
			tuple = value
		case "WIDTH", "HEIGHT", "DEPTH", "MAXVAL":
			v, err := strconv.ParseInt(value, 10, 32)
			if err != nil || v < 1 {
				return fmt.Errorf("%w: its header has %s %.20q", ErrBroken, name, value)
			}
			switch name {
			case "WIDTH":
				h.Width = int32(v)
			case "HEIGHT":
				h.Height = int32(v)
			case "DEPTH":
				depth = int(v)
			default:
				h.Max = int(v)
			}
		default:
			if name != "" && name[0] != '#' {
				return fmt.Errorf("%w: its header has a line %.20q", ErrBroken, line)
			}
		}
	}
}

func (h *Header) finishPAM(depth int, tuple string) error {
	if depth < 1 || depth > MaxChannels {
		return fmt.Errorf("%w: it has %d values per pixel (%s); 1 to %d are read", ErrBroken, depth, tuple, MaxChannels)
	}
	if h.Max < 1 || h.Max > 65535 {
		return fmt.Errorf("%w: its largest value is %d", ErrBroken, h.Max)
	}
	h.Channels = int32(depth)
	return nil
}

// values is the number of values of the picture.
func (h *Header) values() int64 { return int64(h.Width) * int64(h.Height) * int64(h.Channels) }

// Least returns the minimum number of bytes of a file with this header. Values in text form have at least a digit each
// and, except for bits, a blank between them.
func (h *Header) Least() int64 {
	n := h.values()
	switch {
	case h.text && h.inverted:
	case h.text:
		n = 2*n - 1
	case h.bits:
		n = (int64(h.Width) + 7) / 8 * int64(h.Height)
	case h.Wide():
		n *= 2
	}
	return int64(h.Offset) + n
}

// Values returns the values of all pixels: one byte each, or two, little-endian, if h.Wide. The result may be a part of
// b. White is 1 also in PBM, although the file stores 0 for it.
func (h *Header) Values(b []byte) ([]byte, error) {
	if least := h.Least(); int64(len(b)) < least {
		return nil, fmt.Errorf("%w: %d bytes, a picture of %d x %d has at least %d", ErrTruncated, len(b), h.Width, h.Height, least)
	}
	n := int(h.values())
	switch {
	case h.text:
		return h.numbers(b, n)
	case h.bits:
		return h.spread(b[h.Offset:]), nil
	case h.Wide():
		out := make([]byte, 2*n)
		for i, src := 0, b[h.Offset:]; i < 2*n; i += 2 {
			v := binary.BigEndian.Uint16(src[i:])
			binary.LittleEndian.PutUint16(out[i:], min(v, uint16(h.Max)))
		}
		return out, nil
	}
	out := b[h.Offset : h.Offset+n : h.Offset+n]
	if h.Max < 255 {
		out = h.cut(out)
	}
	return out, nil
}

// cut limits bytes to the largest value. It returns a copy if a byte is above it.
func (h *Header) cut(in []byte) []byte {
	for i, v := range in {
		if int(v) > h.Max {
			out := append([]byte(nil), in...)
			for k := i; k < len(out); k++ {
				out[k] = min(out[k], byte(h.Max))
			}
			return out
		}
	}
	return in
}

// spread makes bytes of bits; rows begin at whole bytes.
func (h *Header) spread(src []byte) []byte {
	w, row := int(h.Width), (int(h.Width)+7)/8
	out := make([]byte, w*int(h.Height))
	for y := range int(h.Height) {
		to, from := out[y*w:(y+1)*w], src[y*row:]
		for x := range to {
			to[x] = ^(from[x/8] >> (7 - x%8)) & 1
		}
	}
	return out
}

// numbers reads values that are written as text.
func (h *Header) numbers(b []byte, n int) ([]byte, error) {
	size := 1
	if h.Wide() {
		size = 2
	}
	out := make([]byte, n*size)
	p := h.Offset
	for i := range n {
		var err error
		if p, err = skip(b, p); err != nil {
			return nil, fmt.Errorf("%w, after %d of %d values", err, i, n)
		}
		if h.inverted { // of bits, which need nothing between them
			if b[p] != '0' && b[p] != '1' {
				return nil, fmt.Errorf("%w: %q at byte %d is neither 0 nor 1", ErrBroken, b[p], p)
			}
			out[i] = '1' - b[p]
			p++
			continue
		}
		v, from := 0, p
		for ; p < len(b) && digit(b[p]) && v <= h.Max; p++ {
			v = v*10 + int(b[p]-'0')
		}
		if p == from || v > h.Max || p < len(b) && !blank(b[p]) && b[p] != '#' {
			return nil, fmt.Errorf("%w: %.12q at byte %d is not a value from 0 to %d", ErrBroken, b[from:min(p+1, len(b))], from, h.Max)
		}
		if size == 2 {
			binary.LittleEndian.PutUint16(out[2*i:], uint16(v))
		} else {
			out[i] = byte(v)
		}
	}
	return out, nil
}

// Scale returns for each value the corresponding one in the range up to top, rounded as Python rounds. It is nil if the
// values need no change.
func (h *Header) Scale(top int) []uint16 {
	if h.Max == top {
		return nil
	}
	out := make([]uint16, h.Max+1)
	for v := range out {
		out[v] = uint16(math.RoundToEven(float64(v) / float64(h.Max) * float64(top)))
	}
	return out
}
