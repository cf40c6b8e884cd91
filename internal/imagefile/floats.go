package imagefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// MaxFloatHeader is more than the header of a PFM file has.
const MaxFloatHeader = 256

// FloatLayout describes the pixels of a file of float32: optical flow in the format of Middlebury (.flo), or a portable
// float map (.pfm), the format of depth and disparity.
type FloatLayout struct {
	// Shape is height, width and, except for a PFM of one channel, the numbers of a pixel.
	Shape []int
	// Offset is the offset of the pixels.
	Offset int
	// BigEndian is the byte order of the numbers. BottomUp reports whether the last row comes first.
	BigEndian, BottomUp bool
}

// parseFloats reads the header at the beginning of a file.
func parseFloats(codec driver.Codec, b []byte) (*FloatLayout, error) {
	if codec == driver.CodecPFM {
		return parsePFM(b)
	}
	return parseFlo(b)
}

// ReadFloatLayout reads the header at the beginning of a file that has size bytes, and compares it with that size. The
// codec is CodecPFM or CodecFlo.
func ReadFloatLayout(codec driver.Codec, b []byte, size int64) (*FloatLayout, error) {
	l, err := parseFloats(codec, b)
	if err != nil {
		return nil, err
	}
	n, err := driver.ArrayBytes(driver.Float32, l.Shape)
	if err != nil {
		return nil, err
	}
	if size-int64(l.Offset) != n {
		return nil, fmt.Errorf("its header announces %s of float32 (%d bytes), %d bytes follow: the file is cut off or was changed",
			Sides(l.Shape), n, size-int64(l.Offset))
	}
	return l, nil
}

// Sides returns a shape as text, "height x width x channels".
func Sides(shape []int) string {
	var parts []string
	for _, n := range shape {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, " x ")
}

// parseFlo reads the header of Middlebury's optical flow: "PIEH", width and height.
func parseFlo(b []byte) (*FloatLayout, error) {
	if len(b) < 12 || string(b[:4]) != "PIEH" {
		return nil, errors.New("it does not begin with PIEH, as .flo files do")
	}
	w, h := int32(binary.LittleEndian.Uint32(b[4:])), int32(binary.LittleEndian.Uint32(b[8:]))
	return &FloatLayout{Shape: []int{int(h), int(w), 2}, Offset: 12}, nil
}

// parsePFM reads the header of a portable float map: PF (three channels) or Pf (one), width, height and a scale. A scale
// below 0 means little-endian pixels. One blank ends the header.
func parsePFM(b []byte) (*FloatLayout, error) {
	b = b[:min(len(b), MaxFloatHeader)]
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
	out := &FloatLayout{Offset: at + 1, BottomUp: true}
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
	out.BigEndian = scale > 0
	return out, nil
}

func probeFloats(b []byte, info *Info) error {
	l, err := parseFloats(info.Codec, b)
	if err != nil {
		return broken("%v", err)
	}
	info.Height, info.Width = int32(l.Shape[0]), int32(l.Shape[1])
	info.Channels, info.Precision, info.Float = 1, 32, true
	if len(l.Shape) == 3 {
		info.Channels = int32(l.Shape[2])
	}
	if info.Color = colors[info.Channels]; info.Codec == driver.CodecFlo {
		info.Color = Flow
	}
	return nil
}

func checkFloats(b []byte) error {
	if _, err := ReadFloatLayout(Detect(b), b, int64(len(b))); err != nil {
		return broken("%v", err)
	}
	return nil
}
