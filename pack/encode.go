package pack

import (
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/pack/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// encoder turns the bytes of image files into what is stored. One goroutine
// uses it at a time.
type encoder struct {
	opt    *Options
	dec    *cdec.Decoder
	pixels []byte // a decoded picture
	jpeg   []byte // a JPEG being put together
}

func newWorker(opt *Options) (*worker, error) {
	dec, err := cdec.NewDecoder()
	if err != nil {
		return nil, err
	}
	return &worker{opt: opt, enc: encoder{opt: opt, dec: dec}}, nil
}

func (w *worker) close() { w.enc.dec.Close() }

func bad(format string, a ...any) error { return &BadInput{Reason: fmt.Sprintf(format, a...)} }

// encodeFile checks the image file b and puts it into the job's record as the
// options say. The record's image lies in j.buf.
func (e *encoder) encodeFile(b []byte, j *job) error {
	info, err := imagefile.Check(b)
	repaired := false
	if errors.Is(err, imagefile.ErrNoEOI) {
		// Cameras and tools leave the end marker out now and then. It is put
		// back if the picture data in front of it is all there.
		e.jpeg = append(append(e.jpeg[:0], b...), 0xFF, 0xD9)
		if fixed, ferr := imagefile.Check(e.jpeg); ferr == nil && e.decodeJPEG(e.jpeg, &fixed) == nil {
			b, info, err, repaired = e.jpeg, fixed, nil, true
		}
	}
	if err != nil {
		return bad("%v", err)
	}
	if int64(info.Width)*int64(info.Height) > cdec.MaxPixels {
		return bad("%d x %d pixels are more than the limit of %d", info.Width, info.Height, cdec.MaxPixels)
	}
	r := &j.rec
	r.width, r.height, r.orientation, r.codec = info.Width, info.Height, info.Orientation, info.Codec
	if e.opt.Images == ImagesRaw {
		return e.raw(b, &info, j)
	}
	if e.opt.Check == CheckDecode && !repaired {
		if err := e.decode(b, &info); err != nil {
			return bad("%v", err)
		}
	}
	if e.opt.Images != ImagesKeep && info.Codec == driver.CodecJPEG {
		done, err := e.dct(b, &info, j)
		if done || err != nil {
			return err
		}
	}
	if info.JPEG != nil && !e.opt.Metadata {
		j.buf = info.JPEG.AppendStripped(j.buf, b)
	} else {
		j.buf = append(j.buf, b...)
	}
	r.image = j.buf
	return nil
}

// metadata puts EXIF data and colour profile into their columns, for images
// whose stored form has no room for them.
func (e *encoder) metadata(b []byte, info *imagefile.Info, r *record) {
	if !e.opt.Metadata || info.JPEG == nil {
		return
	}
	// Copies: b is used again for the next file.
	r.exif = append([]byte(nil), info.JPEG.Exif(b)...)
	r.icc = append([]byte(nil), info.JPEG.ICC(b)...)
}

// decode decodes the image to e.pixels, u8 RGB rows.
func (e *encoder) decode(b []byte, info *imagefile.Info) error {
	if info.Codec == driver.CodecJPEG {
		return e.decodeJPEG(b, info)
	}
	var err error
	e.pixels, err = imagefile.DecodeRGB(e.pixels, b, int(info.Width), int(info.Height))
	return err
}

func (e *encoder) decodeJPEG(b []byte, info *imagefile.Info) error {
	if int64(info.Width)*int64(info.Height) > cdec.MaxPixels {
		return fmt.Errorf("%d x %d pixels are more than the limit of %d", info.Width, info.Height, cdec.MaxPixels)
	}
	e.pixels = grow(e.pixels, 3*int(info.Width)*int(info.Height))
	w, h, err := e.dec.DecodeFull(b, e.pixels)
	if err != nil {
		return err
	}
	if int32(w) != info.Width || int32(h) != info.Height {
		return fmt.Errorf("decodes to %d x %d pixels, its header says %d x %d", w, h, info.Width, info.Height)
	}
	return nil
}

// raw stores the picture's pixels, resized as the options say.
func (e *encoder) raw(b []byte, info *imagefile.Info, j *job) error {
	r := &j.rec
	e.metadata(b, info, r)
	if err := e.decode(b, info); err != nil {
		return bad("%v", err)
	}
	return e.storePixels(info.Width, info.Height, j)
}

// storePixels stores e.pixels, a picture of w x h.
func (e *encoder) storePixels(w, h int32, j *job) error {
	r := &j.rec
	tw, th := e.opt.Resize.target(w, h)
	size := 3 * int64(tw) * int64(th)
	if size > maxValueBytes {
		return bad("%d x %d pixels are %d bytes as raw, more than the limit of %d", tw, th, size, maxValueBytes)
	}
	j.buf = grow(j.buf, int(size))
	if tw == w && th == h {
		copy(j.buf, e.pixels)
	} else {
		jobs := [1]cdec.Job{{
			Format: cdec.FormatRGB, Src: e.pixels, Width: w, Height: h, Dst: j.buf,
			Geom: item.Geometry{
				Box: item.Rect{W: w, H: h}, ResizeW: tw, ResizeH: th, Window: item.Rect{W: tw, H: th}, Filter: item.Bilinear,
			},
			Store: item.Store{DType: item.U8, Layout: item.NHWC, Channels: 3, Scale: [3]float32{1, 1, 1}},
		}}
		e.dec.Run(jobs[:])
		if jobs[0].Err != nil {
			return bad("cannot be resized to %d x %d: %v", tw, th, jobs[0].Err)
		}
	}
	r.image, r.codec, r.width, r.height = j.buf, driver.CodecRaw, tw, th
	return nil
}
