package pack

import (
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// dct stores the JPEG b without its entropy code. It reports false where that
// is not possible; the JPEG is then kept as it is and the reason counted.
func (e *encoder) dct(b []byte, info *imagefile.Info, j *job) (bool, error) {
	r := &j.rec
	out, err := cdec.EncodeDCT(j.buf, b)
	var not *cdec.NotDCT
	switch {
	case errors.As(err, &not) && not.Reason == cdec.NotDCTIncomplete:
		// Better found now than in the middle of a training run.
		if err := e.tryDecode(value(b, info)); err != nil {
			return false, bad("%v", err)
		}
		r.notDCT = string(not.Reason)
		return false, nil
	case errors.As(err, &not):
		r.notDCT = string(not.Reason)
		return false, nil
	case err != nil:
		return false, err
	}
	e.metadata(b, info, r)
	j.buf, r.image, r.codec = out, out, driver.CodecDCT
	return true, nil
}

// fromDCT stores a dct record of another pack as the options say.
func (e *encoder) fromDCT(rec *Record, j *job) error {
	r := &j.rec
	r.width, r.height, r.codec = rec.Width, rec.Height, rec.Codec
	switch e.opt.Images {
	case ImagesRaw:
		r.exif, r.icc = rec.EXIF, rec.ICC
		return e.storePixels(rec.value(), j)
	case ImagesKeep:
		exif := rec.EXIF
		if len(exif) > 0 {
			exif = append([]byte("Exif\x00\x00"), exif...)
		}
		jpeg, err := cdec.DCTToJPEG(j.buf, rec.Image, exif, rec.ICC)
		if err != nil {
			return fmt.Errorf("%s: %w", rec.Path, err)
		}
		j.buf, r.image, r.codec = jpeg, jpeg, driver.CodecJPEG
	default:
		r.exif, r.icc = rec.EXIF, rec.ICC
		j.buf = append(j.buf, rec.Image...)
		r.image = j.buf
	}
	return nil
}
