package pack

import (
	"bytes"
	"fmt"
	"image"
	"image/png"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/source/driver"
)

// File returns the image of the record as a file that any program opens, and
// the usual extension of its format: the file's own bytes where they were
// kept, a JPEG with the same pixels for dct, a PNG for raw pixels.
func (rec *Record) File() (data []byte, ext string, err error) {
	switch rec.Codec {
	case driver.CodecDCT:
		exif := rec.EXIF
		if len(exif) > 0 {
			exif = append([]byte("Exif\x00\x00"), exif...)
		}
		data, err = cdec.DCTToJPEG(nil, rec.Image, exif, rec.ICC)
		return data, ".jpg", err
	case driver.CodecRaw:
		w, h := int(rec.Width), int(rec.Height)
		if len(rec.Image) != 3*w*h {
			return nil, "", fmt.Errorf("%d bytes for %d x %d raw pixels", len(rec.Image), w, h)
		}
		m := image.NewNRGBA(image.Rect(0, 0, w, h))
		for i := range w * h {
			copy(m.Pix[4*i:4*i+3], rec.Image[3*i:])
			m.Pix[4*i+3] = 0xFF
		}
		var b bytes.Buffer
		err = png.Encode(&b, m)
		return b.Bytes(), ".png", err
	}
	ext = "." + CodecName(rec.Codec)
	if rec.Codec == driver.CodecJPEG {
		ext = ".jpg"
	}
	return rec.Image, ext, nil
}
