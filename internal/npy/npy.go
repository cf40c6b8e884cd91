// Package npy reads the header of NumPy's .npy format, versions 1 to 3: element type, shape and the offset of the
// elements. It checks everything in a header.
package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/source/driver"
)

// Magic begins every .npy file.
const Magic = "\x93NUMPY"

// Objects is the element type of arrays of Python objects.
const Objects = "|O"

// Prefix is enough of a file for HeaderSize.
const Prefix = 12

// maxHeader is the largest header, far above those that NumPy writes.
const maxHeader = 1 << 16

// Header describes the array of a file.
type Header struct {
	// Descr is the element type as NumPy writes it, such as <f4.
	Descr string
	// DType is the element type. Parse does not set it.
	DType driver.DType
	// Fortran reports that the first axis is the fastest one.
	Fortran bool
	// Shape is the shape of the whole array, in C order.
	Shape []int64
	// Offset is the offset of the elements from the beginning.
	Offset int64
	// Bytes is the size of all elements. Parse does not set it.
	Bytes int64
}

// ErrFormat is in all errors: the bytes do not follow the format.
var ErrFormat = errors.New("not a .npy file that can be read")

func bad(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, a...))
}

// HeaderSize returns the number of bytes that ParseHeader needs. b holds at least the first Prefix bytes, or the whole
// file.
func HeaderSize(b []byte) (int, error) {
	if len(b) < 10 || string(b[:6]) != Magic {
		return 0, bad("it does not begin with \\x93NUMPY")
	}
	n, at := int64(0), 0
	switch b[6] {
	case 1:
		n, at = int64(binary.LittleEndian.Uint16(b[8:])), 10
	case 2, 3:
		if len(b) < 12 {
			return 0, bad("it ends in its header")
		}
		n, at = int64(binary.LittleEndian.Uint32(b[8:])), 12
	default:
		return 0, bad("format version %d.%d is not known", b[6], b[7])
	}
	if n > maxHeader {
		return 0, bad("a header of %d bytes", n)
	}
	return at + int(n), nil
}

// ParseHeader reads the header at the beginning of b. The array must hold numbers in C order that this machine can use
// without conversion.
func ParseHeader(b []byte) (*Header, error) {
	h, err := Parse(b)
	if err != nil {
		return nil, err
	}
	if h.DType, err = dtypeOf(h.Descr); err != nil {
		return nil, err
	}
	if h.Fortran {
		return nil, bad("it is in Fortran order, which is not supported: save numpy.ascontiguousarray(a)")
	}
	h.Bytes, err = h.Size(int64(h.DType.Size()))
	return h, err
}

// Size returns the size of all elements, with elem bytes each.
func (h *Header) Size(elem int64) (int64, error) {
	for _, side := range h.Shape {
		if side != 0 && elem > math.MaxInt64/2/side {
			return 0, bad("shape %v", h.Shape)
		}
		elem *= side
	}
	return elem, nil
}

// Parse reads the header that b begins with, of an array of any type.
func Parse(b []byte) (*Header, error) {
	n, err := HeaderSize(b)
	if err != nil {
		return nil, err
	}
	if n > len(b) {
		return nil, bad("it ends in its header")
	}
	start := 10
	if b[6] > 1 {
		start = 12
	}
	p := &parser{b: bytes.TrimRight(b[start:n], " \n\x00")}
	h := &Header{Offset: int64(n)}
	if err := p.dict(h); err != nil {
		return nil, err
	}
	return h, nil
}

func dtypeOf(descr string) (driver.DType, error) {
	if len(descr) < 2 {
		return "", bad("element type %q", descr)
	}
	t, ok := dtype.ParseNumPy(descr[1:])
	switch order := descr[0]; {
	case descr == Objects:
		return "", bad("it holds Python objects (a pickle), which are not loaded: save numbers or text as an array of their own type")
	case !ok || !strings.ContainsRune("<>|=", rune(order)):
		return "", bad("element type %q is not supported: bool, integers and floats are", descr)
	case order == '>' && t.Size() > 1:
		return "", bad("element type %q is big-endian, which is not supported: convert it with a.astype(a.dtype.newbyteorder('<'))", descr)
	}
	return driver.DType(t.String()), nil
}

// parser reads the Python dictionary of a header.
type parser struct {
	b  []byte
	at int
}

func (p *parser) space() {
	for p.at < len(p.b) && (p.b[p.at] == ' ' || p.b[p.at] == '\n' || p.b[p.at] == '\t') {
		p.at++
	}
}

func (p *parser) next(c byte) bool {
	p.space()
	if p.at < len(p.b) && p.b[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) text() (string, error) {
	p.space()
	if p.at >= len(p.b) || p.b[p.at] != '\'' && p.b[p.at] != '"' {
		return "", bad("its header at byte %d", p.at)
	}
	quote := p.b[p.at]
	end := bytes.IndexByte(p.b[p.at+1:], quote)
	if end < 0 {
		return "", bad("its header at byte %d", p.at)
	}
	s := string(p.b[p.at+1 : p.at+1+end])
	p.at += end + 2
	return s, nil
}

func (p *parser) word() string {
	p.space()
	from := p.at
	for p.at < len(p.b) && (p.b[p.at] >= '0' && p.b[p.at] <= '9' || p.b[p.at] >= 'A' && p.b[p.at] <= 'Z' || p.b[p.at] >= 'a' && p.b[p.at] <= 'z') {
		p.at++
	}
	return string(p.b[from:p.at])
}

func (p *parser) dict(h *Header) error {
	if !p.next('{') {
		return bad("its header is not a dictionary")
	}
	seen := map[string]bool{}
	for !p.next('}') {
		key, err := p.text()
		if err != nil {
			return err
		}
		if !p.next(':') || seen[key] {
			return bad("its header at byte %d", p.at)
		}
		seen[key] = true
		switch key {
		case "descr":
			p.space()
			if p.at < len(p.b) && p.b[p.at] == '[' {
				return bad("it holds records of several types (a structured array); save each field as an array of its own")
			}
			if h.Descr, err = p.text(); err != nil {
				return err
			}
		case "fortran_order":
			switch w := p.word(); w {
			case "False":
			case "True":
				h.Fortran = true
			default:
				return bad("fortran_order is %q", w)
			}
		case "shape":
			if err := p.shape(h); err != nil {
				return err
			}
		default:
			return bad("its header has the unknown key %q", key)
		}
		if !p.next(',') && (p.at >= len(p.b) || p.b[p.at] != '}') {
			return bad("its header at byte %d", p.at)
		}
	}
	p.space()
	if p.at != len(p.b) || len(seen) != 3 {
		return bad("its header has %d of 3 keys, %d bytes after them", len(seen), len(p.b)-p.at)
	}
	return nil
}

func (p *parser) shape(h *Header) error {
	if !p.next('(') {
		return bad("its shape is not a tuple")
	}
	h.Shape = []int64{}
	for !p.next(')') {
		w := strings.TrimSuffix(p.word(), "L")
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil || n < 0 || len(h.Shape) == driver.MaxAxes {
			return bad("side %q of its shape", w)
		}
		h.Shape = append(h.Shape, n)
		if !p.next(',') && (p.at >= len(p.b) || p.b[p.at] != ')') {
			return bad("its shape at byte %d", p.at)
		}
	}
	return nil
}

// AppendHeader appends the header of a C-contiguous array, as NumPy writes it.
func AppendHeader(b []byte, t driver.DType, shape []int64) []byte {
	d, _ := dtype.Parse(string(t))
	order := "<"
	if t.Size() == 1 {
		order = "|"
	}
	var sides strings.Builder
	for _, n := range shape {
		fmt.Fprintf(&sides, "%d, ", n)
	}
	tuple := strings.TrimSuffix(sides.String(), " ")
	if len(shape) > 1 {
		tuple = strings.TrimSuffix(tuple, ",")
	}
	text := fmt.Sprintf("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }", order, d.NumPy(), tuple)
	pad := 64 - (10+len(text)+1)%64
	text += strings.Repeat(" ", pad%64) + "\n"
	b = append(b, Magic...)
	b = append(b, 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// Read parses the header of a .npy file and checks it against the file size.
func Read(r interface {
	ReadAt(b []byte, off int64) (int, error)
}, size int64) (*Header, error) {
	b := make([]byte, min(size, 128))
	if _, err := r.ReadAt(b, 0); err != nil {
		return nil, err
	}
	n, err := HeaderSize(b)
	if err != nil {
		return nil, err
	}
	if n > len(b) && int64(n) <= size {
		b = make([]byte, n)
		if _, err := r.ReadAt(b, 0); err != nil {
			return nil, err
		}
	}
	h, err := ParseHeader(b)
	if err != nil {
		return nil, err
	}
	if h.Bytes != size-h.Offset {
		return nil, fmt.Errorf("%w: a %s array of shape %v has %d bytes, but %d follow the header: the file is cut off or was changed",
			ErrFormat, h.DType, h.Shape, h.Bytes, size-h.Offset)
	}
	return h, nil
}
