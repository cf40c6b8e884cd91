package pack

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// Convert writes the pack src again to dst with images and masks stored as opt.Images specifies. Records, their order
// and all other fields stay the same. Pixels also stay the same, unless opt.Resize is set. Convert can be interrupted
// and resumed like Write.
func Convert(ctx context.Context, src, dst string, opt *Options) (*Summary, error) {
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	// Damage must not get a new, right checksum.
	r, err := Open(ctx, src, &ReadOptions{VerifyChunks: true, URL: filepath.Clean(src)})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	pictures := 0
	for i := range r.man.Fields {
		f := &r.man.Fields[i]
		if !f.picture() {
			continue
		}
		pictures++
		how := o.images.of(f.Name)
		if n := f.Stats.Images.Codecs[CodecName(driver.CodecRaw)].Count; f.Kind == driver.KindImage && n > 0 && how != ImagesRaw && o.Quality == 0 {
			return nil, fmt.Errorf("%s holds %d images as raw pixels, which cannot become files again: pack the source with --images %s", src, n, how)
		}
		if n := f.Stats.Count - fileCount(f.Stats.Images); f.Kind == driver.KindMask && n > 0 && how == ImagesKeep {
			return nil, fmt.Errorf("%s holds %d masks as class numbers, which cannot become the files that they were: pack the source with --images %s=keep", src, n, f.Name)
		}
	}
	if pictures == 0 {
		return nil, fmt.Errorf("%s holds no images: there is nothing to convert", src)
	}
	opts := *o
	opts.Metadata = r.man.Options.Metadata
	opts.Transforms, opts.Augment = r.man.Options.Transforms, r.man.Options.Augment
	opts.Audio, opts.Seed = r.man.Options.Audio, r.man.Options.Seed
	return WriteSource(ctx, r, dst, &opts)
}

// fileCount returns the number of pictures that are stored as files.
func fileCount(im *driver.ImageStats) (n int64) {
	for _, c := range im.Codecs {
		if c.Number < driver.CodecRaw {
			n += c.Count
		}
	}
	return n
}

// encodeStored stores an image of a pack that is not a file as p specifies.
func (e *encoder) encodeStored(src *driver.Value, p *picture, v *value, buf *[]byte) error {
	v.Width, v.Height, v.Channels, v.Codec, v.Orientation = src.Width, src.Height, src.Channels, src.Codec, src.Orientation
	v.depth = 8
	if p.recodes() {
		return e.recode(*src, p, v, buf)
	}
	if src.Codec == driver.CodecRaw {
		return e.storePixels(*src, p, v, buf)
	}
	d, err := cdec.DCTInfo(src.Bytes)
	if err != nil {
		return bad("%v", err)
	}
	v.Channels = int32(d.Components)
	switch p.how {
	case ImagesRaw:
		return e.storePixels(*src, p, v, buf)
	case ImagesKeep:
		jpeg, err := jpegOf((*buf)[:0], src.Bytes, v.exif, v.icc)
		if err != nil {
			return err
		}
		*buf, v.Bytes, v.Codec = jpeg, jpeg, driver.CodecJPEG
		v.exif, v.icc = nil, nil
	default:
		*buf = append((*buf)[:0], src.Bytes...)
		v.Bytes = *buf
	}
	return nil
}

// decodeStored decodes an image of a pack, to see whether that works.
func (e *encoder) decodeStored(v *Value) error {
	switch v.Codec {
	case driver.CodecRaw:
		return nil // any bytes are pixels; their number was checked
	case driver.CodecDCT:
		d, err := cdec.DCTInfo(v.Bytes)
		if err != nil {
			return err
		}
		if int32(d.Width) != v.Width || int32(d.Height) != v.Height {
			return fmt.Errorf("it is %d x %d, the index says %d x %d", d.Width, d.Height, v.Width, v.Height)
		}
		return e.tryDecode(v.Value)
	}
	info, err := imagefile.Check(v.Bytes)
	if err != nil {
		return err
	}
	if info.Codec != v.Codec || info.Width != v.Width || info.Height != v.Height {
		return fmt.Errorf("it is a %s of %d x %d, the index says %s of %d x %d", CodecName(info.Codec), info.Width, info.Height,
			CodecName(v.Codec), v.Width, v.Height)
	}
	return e.tryDecode(v.Value)
}
