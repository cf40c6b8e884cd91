package pack

import (
	"errors"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// dct stores the JPEG b without its entropy code. It reports false if that is not possible. The JPEG is then kept
// unchanged and the reason is counted.
func (e *encoder) dct(b []byte, info *imagefile.Info, v *value, buf *[]byte) (bool, error) {
	out, err := e.toDCT.Encode(b)
	var not *cdec.NotDCT
	switch {
	case errors.As(err, &not) && not.Reason == cdec.NotDCTIncomplete:
		// Better found now than in the middle of a training run.
		if err := e.tryDecode(fileValue(b, info)); err != nil {
			return false, bad("%v", err)
		}
		v.notDCT = string(not.Reason)
		return false, nil
	case errors.As(err, &not):
		v.notDCT = string(not.Reason)
		return false, nil
	case err != nil:
		return false, err
	}
	e.metadata(b, info, v)
	*buf = append((*buf)[:0], out...)
	v.Bytes, v.Codec = *buf, driver.CodecDCT
	return true, nil
}

// jpegOf makes a JPEG again of an image that is stored as dct.
func jpegOf(dst, dct, exif, icc []byte) ([]byte, error) {
	if len(exif) > 0 {
		exif = append([]byte("Exif\x00\x00"), exif...)
	}
	return cdec.DCTToJPEG(dst, dct, exif, icc)
}
