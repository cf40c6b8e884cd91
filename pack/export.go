package pack

import (
	"bytes"
	"fmt"
	"image"
	"image/png"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/source/driver"
)

// File returns a value as a standard file, and the usual extension of its format. Kept images are returned unchanged,
// dct becomes a JPEG with the same pixels, raw pixels and masks become a PNG. Arrays and lists become a .npy file,
// bytes and text stay unchanged. File fails for numbers.
func (v *Value) File() (data []byte, ext string, err error) {
	f := v.Field
	switch f.Kind {
	case driver.KindImage:
		return v.imageFile()
	case driver.KindMask:
		return v.maskFile()
	case driver.KindAudio:
		return v.Bytes, "", nil
	case driver.KindText:
		return v.Bytes, ".txt", nil
	case driver.KindJSON:
		return v.Bytes, ".json", nil
	case driver.KindBytes:
		return v.Bytes, "", nil
	case driver.KindArray, driver.KindVolume, driver.KindRagged, driver.KindTokens, driver.KindMultiLabel, driver.KindBoxes, driver.KindKeyPoints:
		t := f.DType
		if f.Kind == driver.KindMultiLabel {
			t = driver.Int64
		}
		var shape []int64
		if f.Kind != driver.KindArray && f.Kind != driver.KindVolume {
			shape = append(shape, int64(len(v.Bytes))/f.rowBytes())
		}
		for _, n := range f.Shape {
			shape = append(shape, int64(n))
		}
		return append(npy.AppendHeader(nil, t, shape), v.Bytes...), ".npy", nil
	}
	return nil, "", fmt.Errorf("field %q is a number: there is nothing to export", f.Name)
}

func (v *Value) imageFile() ([]byte, string, error) {
	switch v.Codec {
	case driver.CodecDCT:
		data, err := jpegOf(nil, v.Bytes, v.EXIF, v.ICC)
		return data, ".jpg", err
	case driver.CodecRaw:
		w, h := int(v.Width), int(v.Height)
		if v.Channels == 1 && v.Depth == 8 && len(v.Bytes) == w*h {
			return pngFile(&image.Gray{Pix: v.Bytes, Stride: w, Rect: image.Rect(0, 0, w, h)})
		}
		if v.Channels != 3 || v.Depth != 8 || len(v.Bytes) != 3*w*h {
			return nil, "", fmt.Errorf("%d bytes for %d x %d raw pixels of %d channels with %d bits", len(v.Bytes), w, h, v.Channels, v.Depth)
		}
		m := image.NewNRGBA(image.Rect(0, 0, w, h))
		for i := range w * h {
			copy(m.Pix[4*i:4*i+3], v.Bytes[3*i:])
			m.Pix[4*i+3] = 0xFF
		}
		return pngFile(m)
	}
	return v.Bytes, extension(v.Codec), nil
}

func (v *Value) maskFile() ([]byte, string, error) {
	if v.Codec < driver.CodecRaw {
		return v.Bytes, extension(v.Codec), nil
	}
	size := v.Field.DType.Size()
	w, h := int(v.Width), int(v.Height)
	pix := make([]byte, size*w*h)
	if err := mask.Box(pix, size, &v.Value, item.Rect{W: v.Width, H: v.Height}); err != nil {
		return nil, "", err
	}
	if size == 1 {
		return pngFile(&image.Gray{Pix: pix, Stride: w, Rect: image.Rect(0, 0, w, h)})
	}
	for i := 0; i+1 < len(pix); i += 2 {
		pix[i], pix[i+1] = pix[i+1], pix[i] // PNG has the high byte first
	}
	return pngFile(&image.Gray16{Pix: pix, Stride: 2 * w, Rect: image.Rect(0, 0, w, h)})
}

func pngFile(m image.Image) ([]byte, string, error) {
	var b bytes.Buffer
	err := png.Encode(&b, m)
	return b.Bytes(), ".png", err
}

// extension returns the usual extension of an image format.
func extension(c driver.Codec) string {
	if c == driver.CodecJPEG {
		return ".jpg"
	}
	return "." + CodecName(c)
}
