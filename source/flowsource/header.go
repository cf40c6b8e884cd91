package flowsource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// The formats, by the extensions of their files.
const (
	Flo = "flo"
	PFM = "pfm"
)

// IsName says whether a file of that name is of a format.
func IsName(format, name string) bool { return strings.EqualFold(path.Ext(name), "."+format) }

// headerBytes is more than the header of a PFM file has.
const headerBytes = 256

// header is what the beginning of a file says.
type header struct {
	// shape is height, width and, but for a PFM of one channel, the numbers of a
	// pixel.
	shape []int
	// offset is where the pixels begin.
	offset int
	// big says that they are big-endian, bottomUp that the last row comes first.
	big, bottomUp bool
}

// parseHeader reads the header at the beginning of a file that has size bytes, and
// compares it with that size.
func parseHeader(format string, b []byte, size int64) (*header, error) {
	parse := parseFlo
	if format == PFM {
		parse = parsePFM
	}
	out, err := parse(b)
	if err != nil {
		return nil, err
	}
	n, err := driver.ArrayBytes(driver.Float32, out.shape)
	if err != nil {
		return nil, err
	}
	if size-int64(out.offset) != n {
		return nil, fmt.Errorf("its header says %s of float32, %d bytes, behind it are %d: the file is cut off or was changed", sides(out.shape), n, size-int64(out.offset))
	}
	return out, nil
}

// sides is "height x width x channels".
func sides(shape []int) string {
	var parts []string
	for _, n := range shape {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, " x ")
}

// parseFlo reads the header of Middlebury's optical flow: a number that is "PIEH",
// width and height.
func parseFlo(b []byte) (*header, error) {
	if len(b) < 12 || string(b[:4]) != "PIEH" {
		return nil, errors.New("it does not begin with PIEH, as .flo files do")
	}
	w, h := int32(binary.LittleEndian.Uint32(b[4:])), int32(binary.LittleEndian.Uint32(b[8:]))
	return &header{shape: []int{int(h), int(w), 2}, offset: 12}, nil
}

// parsePFM reads the header of a portable float map: PF (three channels) or Pf (one),
// width, height and a scale, which is below 0 where the pixels are little-endian.
// One blank ends it.
func parsePFM(b []byte) (*header, error) {
	b = b[:min(len(b), headerBytes)]
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
	out := &header{offset: at + 1, bottomUp: true}
	for _, text := range []string{word[2], word[1]} {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("its header has %.40q where width and height are expected", text)
		}
		out.shape = append(out.shape, int(n))
	}
	if word[0] == "PF" {
		out.shape = append(out.shape, 3)
	}
	scale, err := strconv.ParseFloat(word[3], 64)
	if err != nil || scale == 0 || math.IsNaN(scale) {
		return nil, fmt.Errorf("its header has the scale %.40q: a number below 0 means little-endian, one above 0 big-endian", word[3])
	}
	out.big = scale > 0
	return out, nil
}

func blank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// pixels puts the numbers of a whole file into dst, little-endian, the first row
// first.
func (h *header) pixels(dst, file []byte) {
	src, row := file[h.offset:], len(dst)/h.shape[0]
	for y := range h.shape[0] {
		from := src[y*row : (y+1)*row]
		if h.bottomUp {
			from = src[(h.shape[0]-1-y)*row:][:row]
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
