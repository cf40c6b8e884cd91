// Package floatmap reads the bytes of files of float32 pixels: optical flow as
// Middlebury's .flo files have it, and portable float maps (.pfm), as depth and
// disparity come.
package floatmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// The formats, by the extensions of their files.
const (
	Flo = "flo"
	PFM = "pfm"
)

// HeaderBytes is more than the header of a PFM file has.
const HeaderBytes = 256

// Header is what the beginning of a file says.
type Header struct {
	// Shape is height, width and, but for a PFM of one channel, the numbers of a
	// pixel.
	Shape []int
	// Offset is where the pixels begin.
	Offset int
	// big says that they are big-endian, bottomUp that the last row comes first.
	big, bottomUp bool
}

// ParseHeader reads the header at the beginning of a file.
func ParseHeader(format string, b []byte) (*Header, error) {
	if format == PFM {
		return parsePFM(b)
	}
	return parseFlo(b)
}

// Parse reads the header at the beginning of a file that has size bytes, and
// compares it with that size.
func Parse(format string, b []byte, size int64) (*Header, error) {
	out, err := ParseHeader(format, b)
	if err != nil {
		return nil, err
	}
	n, err := driver.ArrayBytes(driver.Float32, out.Shape)
	if err != nil {
		return nil, err
	}
	if size-int64(out.Offset) != n {
		return nil, fmt.Errorf("its header announces %s of float32 (%d bytes), %d bytes follow: the file is cut off or was changed", Sides(out.Shape), n, size-int64(out.Offset))
	}
	return out, nil
}

// Sides is "height x width x channels".
func Sides(shape []int) string {
	var parts []string
	for _, n := range shape {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, " x ")
}

// parseFlo reads the header of Middlebury's optical flow: a number that is "PIEH",
// width and height.
func parseFlo(b []byte) (*Header, error) {
	if len(b) < 12 || string(b[:4]) != "PIEH" {
		return nil, errors.New("it does not begin with PIEH, as .flo files do")
	}
	w, h := int32(binary.LittleEndian.Uint32(b[4:])), int32(binary.LittleEndian.Uint32(b[8:]))
	return &Header{Shape: []int{int(h), int(w), 2}, Offset: 12}, nil
}

// parsePFM reads the header of a portable float map: PF (three channels) or Pf (one),
// width, height and a scale, which is below 0 where the pixels are little-endian.
// One blank ends it.
func parsePFM(b []byte) (*Header, error) {
	b = b[:min(len(b), HeaderBytes)]
	var word [4]string
	at := 0
	for i := range word {
		for i > 0 && at < len(b) && blank(b[at]) {
			at++
		}
		from := at
		for at < len(b) && !blank(b[at]) {
			at++
		}
		if word[i] = string(b[from:at]); at == len(b) {
			return nil, fmt.Errorf("its header does not end within %d bytes", len(b))
		}
		if i == 0 && word[0] != "PF" && word[0] != "Pf" {
			return nil, errors.New("it does not begin with PF or Pf, as .pfm files do")
		}
	}
	out := &Header{Offset: at + 1, bottomUp: true}
	for _, text := range []string{word[2], word[1]} {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("its header has %.40q where width and height are expected", text)
		}
		out.Shape = append(out.Shape, int(n))
	}
	if word[0] == "PF" {
		out.Shape = append(out.Shape, 3)
	}
	scale, err := strconv.ParseFloat(word[3], 64)
	if err != nil || scale == 0 || math.IsNaN(scale) {
		return nil, fmt.Errorf("its header has the scale %.40q: a number below 0 means little-endian, one above 0 big-endian", word[3])
	}
	out.big = scale > 0
	return out, nil
}

func blank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// Pixels puts the numbers of a whole file into dst, little-endian, the first row
// first.
func (h *Header) Pixels(dst, file []byte) {
	src, row := file[h.Offset:], len(dst)/h.Shape[0]
	for y := range h.Shape[0] {
		from := src[y*row : (y+1)*row]
		if h.bottomUp {
			from = src[(h.Shape[0]-1-y)*row:][:row]
		}
		to := dst[y*row : (y+1)*row]
		if !h.big {
			copy(to, from)
			continue
		}
		for i := 0; i+4 <= row; i += 4 {
			binary.LittleEndian.PutUint32(to[i:], binary.BigEndian.Uint32(from[i:]))
		}
	}
}
