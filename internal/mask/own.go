package mask

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/bmpimage"
	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/netpbm"
	"github.com/stokerdata/stoker/internal/tiffimage"
	"github.com/stokerdata/stoker/source/driver"
)

// errColours is the error of an image of more than one value per pixel.
var errColours = errors.New("it has colours and not class numbers: save it as gray or with a palette")

// fromOwn decodes the files that no Go library reads; nil without an error for others.
func fromOwn(b []byte, info *imagefile.Info) (*Mask, error) {
	switch {
	case info.Codec == driver.CodecPNM:
		h, err := netpbm.Parse(b)
		if err != nil {
			return nil, err
		}
		if h.Channels > 1 {
			return nil, errColours
		}
		pix, err := h.Values(b)
		if err != nil {
			return nil, err
		}
		size := 1
		if h.Wide() {
			size = 2
		}
		return &Mask{Width: int(info.Width), Height: int(info.Height), Size: size, Pix: pix}, nil
	case info.Codec == driver.CodecBMP:
		return fromBMP(b)
	case info.Codec == driver.CodecTIFF:
		return fromTIFF(b)
	case info.Codec == driver.CodecJXL || info.Codec == driver.CodecAVIF:
		return nil, fmt.Errorf("a mask in JPEG XL or AVIF is not read: save masks as PNG")
	case info.Codec == driver.CodecPFM || info.Codec == driver.CodecFlo:
		return nil, fmt.Errorf("it has numbers of floating point and not class numbers")
	}
	return nil, nil
}

// fromBMP decodes a BMP file.
func fromBMP(b []byte) (*Mask, error) {
	l, err := imagefile.ReadBMPLayout(b)
	if err != nil {
		return nil, err
	}
	channels := bmpimage.Channels(l, true)
	pix := make([]byte, l.Width*l.Height*channels)
	if err := bmpimage.Read(b, l, true, pix); err != nil {
		return nil, err
	}
	pix, err = oneOf(pix, 1, channels, l.Width)
	return &Mask{Width: l.Width, Height: l.Height, Size: 1, Pix: pix}, err
}

// fromTIFF decodes a TIFF file of integers of any size, or floats that are whole numbers.
func fromTIFF(b []byte) (*Mask, error) {
	l, err := imagefile.ReadTIFFLayout(b)
	if err != nil {
		return nil, err
	}
	if l.Compression == imagefile.TIFFJPEG {
		return nil, ErrLossy
	}
	opt := tiffimage.Options{Mask: true}
	t, channels := tiffimage.Type(l, opt)
	n := l.Width * l.Height
	pix := make([]byte, n*t.Size()*channels)
	if err := tiffimage.Read(b, l, opt, pix); err != nil {
		return nil, err
	}
	if pix, err = oneOf(pix, t.Size(), channels, l.Width); err != nil {
		return nil, err
	}
	if t != dtype.F32 {
		return &Mask{Width: l.Width, Height: l.Height, Size: t.Size(), Pix: pix}, nil
	}
	for i := range n {
		v := math.Float32frombits(binary.LittleEndian.Uint32(pix[4*i:]))
		if !(v >= 0 && v <= math.MaxUint16) || v != float32(uint16(v)) {
			return nil, fmt.Errorf("it has %v (at %d, %d); class numbers are whole numbers from 0 to 65535", v, i%l.Width, i/l.Width)
		}
		binary.LittleEndian.PutUint16(pix[2*i:], uint16(v))
	}
	return &Mask{Width: l.Width, Height: l.Height, Size: 2, Pix: pix[:2*n]}, nil
}

// oneOf reduces pixels that are all gray to one value each. Alpha is ignored.
func oneOf(pix []byte, size, channels, width int) ([]byte, error) {
	if channels == 1 {
		return pix, nil
	}
	n := len(pix) / size / channels
	for i := range n {
		px := pix[i*size*channels:][:size*channels]
		if channels > 2 && !(bytes.Equal(px[:size], px[size:2*size]) && bytes.Equal(px[:size], px[2*size:3*size])) {
			return nil, fmt.Errorf("%w (at %d, %d)", errColours, i%width, i/width)
		}
		copy(pix[i*size:], px[:size])
	}
	return pix[:n*size], nil
}
