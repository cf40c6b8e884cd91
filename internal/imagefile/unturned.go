package imagefile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/stokerdata/stoker/source/driver"
)

// Unturned returns an image file without its EXIF orientation: a copy whose orientation is 1. It is for files with
// annotations of the stored image, so that no reader turns the image alone.
func Unturned(b []byte) ([]byte, error) {
	info, err := Probe(b)
	if err != nil || info.Orientation < 2 {
		return b, nil // damage is reported by who decodes it
	}
	out := bytes.Clone(b)
	switch info.Codec {
	case driver.CodecJPEG:
		for p := 2; ; {
			seg, _, err := nextSegment(out, p)
			if err != nil || seg.marker == mSOS || seg.marker == mEOI {
				break
			}
			if p = seg.end; seg.marker == mAPP1 && bytes.HasPrefix(seg.payload(out), []byte(exifMark)) {
				setUpright(seg.payload(out))
			}
		}
	case driver.CodecPNG:
		for p := 8; ; {
			kind, body, sum, ok := pngChunk(out, p)
			if !ok {
				break
			}
			if p += 12 + len(body); string(kind) == "eXIf" {
				setUpright(body)
				binary.BigEndian.PutUint32(sum, crc32.Update(crc32.ChecksumIEEE(kind), crc32.IEEETable, body))
			}
		}
	case driver.CodecWebP:
		_ = webpChunks(out, func(kind, body []byte, _ int64) error {
			if string(kind) == "EXIF" {
				setUpright(body)
			}
			return nil
		})
	}
	if info, err = Probe(out); err != nil || info.Orientation > 1 {
		return nil, fmt.Errorf("its orientation %d cannot be removed, and its annotations are for the image before it: turn the file itself first", info.Orientation)
	}
	return out, nil
}

// setUpright sets the orientation in EXIF data to 1.
func setUpright(exif []byte) {
	exif = bytes.TrimPrefix(exif, []byte(exifMark))
	d, err := openDirectory(exif)
	if err != nil {
		return
	}
	for i := range d.whole() {
		if e := d.entry(i); e.tag == tagOrientation && e.count == 1 {
			if e.kind == short {
				d.order.PutUint16(e.value, 1)
			} else {
				d.order.PutUint32(e.value, 1)
			}
		}
	}
}
