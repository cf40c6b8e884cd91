package pack

import (
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
)

// encoder converts the bytes of image files to their stored form. Only one goroutine may use it at a time.
type encoder struct {
	opt    *Options
	dec    *decode.Decoder
	toDCT  *cdec.DCTEncoder
	pixels []byte // a picture decoded only to see whether that works
	jpeg   []byte // a JPEG being put together
	clip   video.Clip
	sound  audio.Decoder
	// allowed is the maximum memory for an image, 0 for no limit (room.go).
	allowed int64
}

func newWorker(opt *Options) (*worker, error) {
	dec, err := decode.New(decode.Options{})
	if err != nil {
		return nil, err
	}
	toDCT, err := cdec.NewDCTEncoder()
	if err != nil {
		dec.Close()
		return nil, err
	}
	return &worker{opt: opt, enc: encoder{opt: opt, dec: dec, toDCT: toDCT}}, nil
}

func (w *worker) close() {
	w.enc.dec.Close()
	w.enc.sound.Close()
	w.enc.toDCT.Close()
}

// bad makes an error about the input out of err, unless it is about the
// machine.
func bad(format string, err error) error {
	if errors.Is(err, cdec.ErrMemory) {
		return err
	}
	return &BadInput{Reason: fmt.Sprintf(format, err)}
}

// encodeFile checks the image file b and stores it in v as p specifies. The result is in *buf.
func (e *encoder) encodeFile(b []byte, p *picture, v *value, buf *[]byte) error {
	info, err := imagefile.Check(b)
	if errors.Is(err, imagefile.ErrNoEOI) {
		// Cameras and tools sometimes omit the end marker. It is restored if the picture data before it is complete,
		// which only decoding can show.
		e.jpeg = append(append(e.jpeg[:0], b...), 0xFF, 0xD9)
		fixed, ferr := imagefile.Check(e.jpeg)
		if ferr == nil && e.tryDecode(fileValue(e.jpeg, &fixed)) == nil {
			b, info, err = e.jpeg, fixed, nil
		}
	}
	if err == nil {
		err = cdec.CheckSize(int64(info.Width), int64(info.Height))
	}
	if err != nil {
		return bad("%v", err)
	}
	v.Width, v.Height, v.Codec = info.Width, info.Height, info.Codec
	v.Channels, v.depth, v.Orientation = min(info.Channels, 255), min(info.Precision, 255), int32(info.Orientation)
	if p.how == ImagesRaw || p.recodes() {
		e.metadata(b, &info, v)
		if p.recodes() {
			return e.recode(fileValue(b, &info), p, v, buf)
		}
		return e.storePixels(fileValue(b, &info), p, v, buf)
	}
	if e.opt.Check == CheckDecode || info.Rare {
		if err := e.tryDecode(fileValue(b, &info)); err != nil {
			return bad("%v", err)
		}
	}
	if p.how != ImagesKeep && info.Codec == driver.CodecJPEG {
		if done, err := e.dct(b, &info, v, buf); done || err != nil {
			return err
		}
	}
	if info.JPEG != nil && !e.opt.Metadata {
		*buf = info.JPEG.AppendStripped((*buf)[:0], b)
	} else {
		*buf = append((*buf)[:0], b...)
	}
	v.Bytes = *buf
	return nil
}

// fileValue returns an image file as a value for the decoder.
func fileValue(b []byte, info *imagefile.Info) driver.Value {
	return driver.Value{Bytes: b, Codec: info.Codec, Width: info.Width, Height: info.Height}
}

// metadata stores EXIF data and the colour profile in their columns, for images whose stored form cannot contain
// them.
func (e *encoder) metadata(b []byte, info *imagefile.Info, v *value) {
	if !e.opt.Metadata || info.JPEG == nil {
		return
	}
	// Copies: b is used again for the next file.
	v.exif = append([]byte(nil), info.JPEG.Exif(b)...)
	v.icc = append([]byte(nil), info.JPEG.ICC(b)...)
}

// whole returns the geometry of a w x h image resized to tw x th.
func whole(w, h, tw, th int32) item.Geometry {
	return item.Geometry{
		Box: item.Rect{W: w, H: h}, ResizeW: tw, ResizeH: th, Window: item.Rect{W: tw, H: th}, Filter: item.Bilinear,
	}
}

// tryDecode decodes an image, to see whether that works.
func (e *encoder) tryDecode(v driver.Value) error {
	if err := cdec.CheckSize(int64(v.Width), int64(v.Height)); err != nil {
		return err
	}
	if n := tried(&v); e.allowed > 0 && n > e.allowed {
		return &decode.MemoryError{Need: n, Limit: e.allowed}
	}
	e.pixels = grow(e.pixels, int(tried(&v)))
	return e.dec.Try(v, e.pixels)
}

// storePixels stores the pixels of the image src, changed as p specifies: RGB, or one channel if the image is raw and
// gray or is converted to gray.
func (e *encoder) storePixels(src driver.Value, p *picture, v *value, buf *[]byte) error {
	geom, err := p.geometry(src.Width, src.Height)
	if err != nil {
		return err
	}
	tw, th := geom.OutW(), geom.OutH()
	pixels := item.RGB
	if src.Codec == driver.CodecRaw && src.Channels == 1 {
		pixels.Channels = 1
	}
	plain := pixels
	if p.gray {
		plain.Channels = 1
	}
	size := int64(plain.Channels) * int64(tw) * int64(th)
	if size > maxValueBytes {
		return &BadInput{Reason: fmt.Sprintf("%d x %d raw pixels are %d bytes, more than the limit of %d", tw, th, size, maxValueBytes)}
	}
	*buf = grow(*buf, int(size))
	reqs := [1]decode.Request{{Value: src, Pixels: pixels, Geom: geom, Store: plain.Plain(), Dst: *buf}}
	if e.dec.Run(reqs[:]); reqs[0].Err != nil {
		return bad("%v", reqs[0].Err)
	}
	v.fromW, v.fromH = src.Width, src.Height
	v.Bytes, v.Codec, v.Width, v.Height, v.Channels, v.depth = *buf, driver.CodecRaw, tw, th, int32(plain.Channels), 8
	return nil
}

// grow returns a slice of n bytes, b's own memory when that is large enough.
func grow(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	return make([]byte, n, n+min(n/4, 1<<20))
}
