package imagefile

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// colors are the kinds of colour of 1 to 4 values.
var colors = [...]Color{1: Gray, 2: GrayA, 3: RGB, 4: RGBA}

func probePNM(b []byte, info *Info) error {
	var l PNMLayout
	if err := l.parse(b); err != nil {
		return err
	}
	info.Width, info.Height, info.Channels, info.Color = int32(l.Width), int32(l.Height), int32(l.Channels), colors[l.Channels]
	switch {
	case l.Max == 1 && l.Channels == 1:
		info.Precision = 1
	case l.Wide():
		info.Precision = 16
	default:
		info.Precision = 8
	}
	info.Text = l.Text
	return nil
}

// maxPNMChannels is the largest number of values of a pixel.
const maxPNMChannels = 4

// PNMLayout describes the values of a file of Netpbm: PBM, PGM and PPM, as text (P1 to P3) or binary (P4 to P6), and PAM
// (P7), with values of up to 16 bits.
type PNMLayout struct {
	Width, Height int
	// Channels are 1 (gray), 2 (gray, alpha), 3 (RGB) or 4 (RGB, alpha).
	Channels int
	// Max is the value of white, 1 to 65535.
	Max int
	// Offset is the offset of the pixels.
	Offset int
	// Text means that values are decimal numbers, Bits means 8 pixels per byte, and Inverted means that 1 is black.
	Text, Bits, Inverted bool
}

// Wide reports whether values have two bytes.
func (l *PNMLayout) Wide() bool { return l.Max > 255 }

// isPNM reports whether b begins like one of the formats.
func isPNM(b []byte) bool {
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

// ReadPNMLayout reads the header of a file of Netpbm. It fails if the file is too short for its pixels.
func ReadPNMLayout(b []byte) (*PNMLayout, error) {
	l := new(PNMLayout)
	if err := l.parse(b); err != nil {
		return nil, err
	}
	if l.Width > maxSide || l.Height > maxSide {
		return nil, broken("%d x %d pixels", l.Width, l.Height)
	}
	if least := l.least(); int64(len(b)) < least {
		return nil, fmt.Errorf("%w: %d bytes, a picture of %d x %d has at least %d", ErrTruncated, len(b), l.Width, l.Height, least)
	}
	return l, nil
}

func (l *PNMLayout) parse(b []byte) error {
	if !isPNM(b) {
		return broken("it does not begin as files of Netpbm do")
	}
	read := l.parsePNM
	if b[1] == '7' {
		read = l.parsePAM
	}
	if err := read(b); err != nil {
		return err
	}
	if l.Width < 1 || l.Height < 1 {
		return broken("%d x %d pixels", l.Width, l.Height)
	}
	return nil
}

// parsePNM reads a header of P1 to P6: numbers between blanks and comments, and one blank after the last number.
func (l *PNMLayout) parsePNM(b []byte) error {
	kind := b[1] - '0'
	l.Channels, l.Max = 1, 1
	l.Text = kind <= 3
	l.Bits = kind == 4
	l.Inverted = kind == 1 || kind == 4
	if kind == 3 || kind == 6 {
		l.Channels = 3
	}
	p := 2
	number := func(what string, limit int) (int, error) {
		var err error
		if p, err = skipBlanks(b, p); err != nil {
			return 0, err
		}
		n, from := 0, p
		for ; p < len(b) && digit(b[p]); p++ {
			if n = n*10 + int(b[p]-'0'); n > limit {
				return 0, broken("its header has %.20q for the %s", b[from:p+1], what)
			}
		}
		switch {
		case p == len(b):
			return 0, fmt.Errorf("%w: ends at byte %d, in the header", ErrTruncated, p)
		case p == from || !blank(b[p]) && b[p] != '#':
			return 0, broken("its header has %.20q where the %s is expected", b[from:min(p+1, len(b))], what)
		}
		return n, nil
	}
	var err error
	if l.Width, err = number("width", math.MaxInt32); err != nil {
		return err
	}
	if l.Height, err = number("height", math.MaxInt32); err != nil {
		return err
	}
	if !l.Inverted {
		if l.Max, err = number("largest value", 65535); err != nil {
			return err
		}
		if l.Max == 0 {
			return broken("its largest value is 0")
		}
	}
	if b[p] == '#' && !l.Text {
		return broken("a comment stands where the pixels begin")
	}
	l.Offset = p + 1
	if l.Text {
		l.Offset = p
	}
	return nil
}

// skipBlanks returns the offset of a text after blanks and comments.
func skipBlanks(b []byte, p int) (int, error) {
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
func (l *PNMLayout) parsePAM(b []byte) error {
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
			l.Offset = p
			return l.finishPAM(depth, tuple)
		case "TUPLTYPE":
			tuple = value
		case "WIDTH", "HEIGHT", "DEPTH", "MAXVAL":
			v, err := strconv.ParseInt(value, 10, 32)
			if err != nil || v < 1 {
				return broken("its header has %s %.20q", name, value)
			}
			switch name {
			case "WIDTH":
				l.Width = int(v)
			case "HEIGHT":
				l.Height = int(v)
			case "DEPTH":
				depth = int(v)
			default:
				l.Max = int(v)
			}
		default:
			if name != "" && name[0] != '#' {
				return broken("its header has a line %.20q", line)
			}
		}
	}
}

func (l *PNMLayout) finishPAM(depth int, tuple string) error {
	if depth < 1 || depth > maxPNMChannels {
		return broken("it has %d values per pixel (%s); 1 to %d are read", depth, tuple, maxPNMChannels)
	}
	if l.Max < 1 || l.Max > 65535 {
		return broken("its largest value is %d", l.Max)
	}
	l.Channels = depth
	return nil
}

// values is the number of values of the picture.
func (l *PNMLayout) values() int64 { return int64(l.Width) * int64(l.Height) * int64(l.Channels) }

// least returns the minimum number of bytes of a file with this header. Values in text form have at least a digit each
// and, except for bits, a blank between them.
func (l *PNMLayout) least() int64 {
	n := l.values()
	switch {
	case l.Text && l.Inverted:
	case l.Text:
		n = 2*n - 1
	case l.Bits:
		n = (int64(l.Width) + 7) / 8 * int64(l.Height)
	case l.Wide():
		n *= 2
	}
	return int64(l.Offset) + n
}

// TextValue reads a value of a file in text form from offset p on. It returns the value, in which white is the largest,
// and the offset after the value.
func (l *PNMLayout) TextValue(b []byte, p int) (v, next int, err error) {
	if p, err = skipBlanks(b, p); err != nil {
		return 0, p, err
	}
	if l.Inverted { // bits, which need nothing between them
		if b[p] != '0' && b[p] != '1' {
			return 0, p, broken("%q at byte %d is neither 0 nor 1", b[p], p)
		}
		return int('1' - b[p]), p + 1, nil
	}
	from := p
	for ; p < len(b) && digit(b[p]) && v <= l.Max; p++ {
		v = v*10 + int(b[p]-'0')
	}
	if p == from || v > l.Max || p < len(b) && !blank(b[p]) && b[p] != '#' {
		return 0, p, broken("%.12q at byte %d is not a value from 0 to %d", b[from:min(p+1, len(b))], from, l.Max)
	}
	return v, p, nil
}
