package mask

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagecodec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// errColours is the error of an image of more than one value per pixel.
var errColours = errors.New("it has colours and not class numbers: save it as gray or with a palette")

// fromOwn decodes the files that no Go library reads; nil without an error for others. Pixels are integers, or floats that
// are whole numbers.
func fromOwn(b []byte, info *imagefile.Info) (*Mask, error) {
	switch codec := info.Codec; {
	case codec == driver.CodecJXL || codec == driver.CodecAVIF:
		return nil, fmt.Errorf("a mask in JPEG XL or AVIF is not read: save masks as PNG")
	case codec == driver.CodecPFM || codec == driver.CodecFlo:
		return nil, fmt.Errorf("it has numbers of floating point and not class numbers")
	case !imagecodec.Decodes(codec):
		return nil, nil
	}
	p, err := imagecodec.Open(info.Codec, b, imagecodec.Options{Mask: true})
	if err != nil {
		return nil, err
	}
	if p.Lossy {
		return nil, ErrLossy
	}
	pix, err := p.Decode(imagecodec.Make)
	if err != nil {
		return nil, err
	}
	size := p.DType.Size()
	if pix, err = oneOf(pix, size, p.Channels, p.Width); err != nil {
		return nil, err
	}
	if p.DType == dtype.F32 {
		size = 2
		if pix, err = wholeNumbers(pix, p.Width); err != nil {
			return nil, err
		}
	}
	return &Mask{Width: p.Width, Height: p.Height, Size: size, Pix: pix}, nil
}

// wholeNumbers converts floats to numbers of 16 bits, in place.
func wholeNumbers(pix []byte, width int) ([]byte, error) {
	n := len(pix) / 4
	for i := range n {
		v := math.Float32frombits(binary.LittleEndian.Uint32(pix[4*i:]))
		if !(v >= 0 && v <= math.MaxUint16) || v != float32(uint16(v)) {
			return nil, fmt.Errorf("it has %v (at %d, %d); class numbers are whole numbers from 0 to 65535", v, i%width, i/width)
		}
		binary.LittleEndian.PutUint16(pix[2*i:], uint16(v))
	}
	return pix[:2*n], nil
}

// oneOf reduces pixels that are all gray to one value each. Alpha is ignored.
func oneOf(pix []byte, size, channels, width int) ([]byte, error) {
	if channels == 1 {
		return pix, nil
	}
	n := len(pix) / size / channels
	out := make([]byte, n*size) // pixels may be a part of the file
	for i := range n {
		px := pix[i*size*channels:][:size*channels]
		if channels > 2 && !(bytes.Equal(px[:size], px[size:2*size]) && bytes.Equal(px[:size], px[2*size:3*size])) {
			return nil, fmt.Errorf("%w (at %d, %d)", errColours, i%width, i/width)
		}
		copy(out[i*size:(i+1)*size], px)
	}
	return out, nil
}
