package pack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// Convert writes the pack src anew to dst with its images stored as
// opt.Images says. Records, their order, labels and paths stay the same; so do
// the pixels, unless opt.Resize asks for others. It can be interrupted and
// gone on with like Write.
func Convert(ctx context.Context, src, dst string, opt *Options) (*Summary, error) {
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	if inside, err := within(dst, src); err != nil {
		return nil, err
	} else if inside {
		return nil, fmt.Errorf("%s lies inside of %s: choose a folder outside of it", dst, src)
	}
	// Damage must not get a new, right checksum.
	r, err := Open(ctx, src, &ReadOptions{VerifyChunks: true})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if r.recs != nil {
		return nil, fmt.Errorf("%s holds no images: there is nothing to convert", src)
	}
	if n := r.man.image().Images.Codecs[CodecName(driver.CodecRaw)]; n > 0 && o.Images != ImagesRaw {
		return nil, fmt.Errorf("%s holds %d images as raw pixels, which cannot become files again: pack the source with --images %s", src, n, o.Images)
	}
	o.Metadata = r.man.Options.Metadata
	in := &packInput{r: r, src: Source{
		Kind: "pack", Path: filepath.Clean(src), Files: r.Len(), Bytes: r.man.Bytes, Fingerprint: r.man.Fingerprint,
	}}
	return run(ctx, in, dst, o)
}

// packInput is a pack that is converted.
type packInput struct {
	r   *Reader
	src Source
}

func (in *packInput) source() Source     { return in.src }
func (in *packInput) command() string    { return "convert" }
func (in *packInput) classes() []string  { return in.r.man.Classes() }
func (in *packInput) len() int64         { return in.r.Len() }
func (in *packInput) skipped() []Skipped { return nil }
func (in *packInput) bytes(i int64) int64 {
	c, _ := in.r.locate(i)
	ref := &in.r.chunks[c]
	return ref.bytes / ref.rows
}

// packCursor is what a worker keeps of the pack between two records.
type packCursor struct {
	view *view
	head []byte
	rec  Record
}

func (in *packInput) load(_ context.Context, i int64, w *worker, j *job) error {
	c, row := in.r.locate(i)
	cur := &w.cursor
	if cur.view == nil || cur.view.c != c {
		v, err := in.r.view(c, &cur.head)
		if err == nil && in.r.opt.VerifyChunks {
			err = in.r.verifyChunk(c, make([]byte, 1<<20))
		}
		if err == nil {
			err = v.checkRows()
		}
		if err != nil {
			cur.view = nil
			return err
		}
		cur.view = v
	}
	rec := &cur.rec
	if err := cur.view.record(row, rec, w.src); err != nil {
		return err
	}
	w.src = rec.Image
	j.rec.path, j.rec.label = rec.Path, rec.Label
	err := w.enc.encodeStored(rec, j)
	var b *BadInput
	if errors.As(err, &b) {
		b.Path = rec.Path
	}
	return err
}

// encodeStored stores a record of another pack as the options say.
func (e *encoder) encodeStored(rec *Record, j *job) error {
	// What the pack knows is better than what is left in the bytes, out of
	// which the metadata may have been taken.
	defer func() { j.rec.orientation = rec.Orientation }()
	switch rec.Codec {
	case driver.CodecRaw:
		j.rec.exif, j.rec.icc = rec.EXIF, rec.ICC
		return e.storePixels(rec.value(), j)
	case driver.CodecDCT:
		return e.fromDCT(rec, j)
	}
	if err := e.encodeFile(rec.Image, j); err != nil {
		return err
	}
	if j.rec.codec != rec.Codec && j.rec.exif == nil && j.rec.icc == nil {
		j.rec.exif, j.rec.icc = rec.EXIF, rec.ICC
	}
	return nil
}

// decodeStored decodes the image of a record, to see whether that works.
func (e *encoder) decodeStored(rec *Record) error {
	switch rec.Codec {
	case driver.CodecRaw:
		return nil // any bytes are pixels; their number was checked
	case driver.CodecDCT:
		d, err := cdec.DCTInfo(rec.Image)
		if err != nil {
			return err
		}
		if int32(d.Width) != rec.Width || int32(d.Height) != rec.Height {
			return fmt.Errorf("it is %d x %d, the index says %d x %d", d.Width, d.Height, rec.Width, rec.Height)
		}
		return e.tryDecode(rec.value())
	}
	info, err := imagefile.Check(rec.Image)
	if err != nil {
		return err
	}
	if info.Codec != rec.Codec || info.Width != rec.Width || info.Height != rec.Height {
		return fmt.Errorf("it is a %s of %d x %d, the index says %s of %d x %d", CodecName(info.Codec), info.Width, info.Height,
			CodecName(rec.Codec), rec.Width, rec.Height)
	}
	return e.tryDecode(rec.value())
}

// value is the image of the record as the decoder takes it.
func (rec *Record) value() driver.Value {
	v := driver.Value{Bytes: rec.Image, Codec: rec.Codec, Width: rec.Width, Height: rec.Height}
	if v.Codec == driver.CodecRaw {
		v.Channels = 3
	}
	return v
}
