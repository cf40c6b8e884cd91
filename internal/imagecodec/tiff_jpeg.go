package imagecodec

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
)

// unpackJPEG decodes a strip or tile that is a JPEG. Its tables may be in the file's
// directory. The colours of the file count, not those that markers in the JPEG name.
func (r *tiff) unpackJPEG(dst, src []byte, rows int) error {
	jpeg, w, h, err := r.jpegFile(src)
	if err != nil {
		return err
	}
	l := r.l
	if w < l.BlockWidth || h < rows || w > l.BlockWidth+maxJPEGExcess || h > l.BlockHeight+maxJPEGExcess {
		return fmt.Errorf("a JPEG of %d x %d pixels for a block of %d x %d", w, h, l.BlockWidth, rows)
	}
	out := dst
	if w != l.BlockWidth || h != rows {
		out = make([]byte, w*h*r.samples)
	}
	if err := r.decodeJPEG(jpeg, out); err != nil {
		return err
	}
	if w != l.BlockWidth {
		for y := range rows {
			copy(dst[y*r.row:(y+1)*r.row], out[y*w*r.samples:])
		}
	} else if h != rows {
		copy(dst, out)
	}
	return nil
}

// maxJPEGExcess is the most by which the side of a JPEG may exceed that of its block.
const maxJPEGExcess = 64

func (r *tiff) decodeJPEG(jpeg, out []byte) error {
	d := r.opt.JPEG
	if d == nil {
		var err error
		if d, err = cdec.NewDecoder(); err != nil {
			return err
		}
		defer d.Close()
	}
	_, _, channels, err := d.DecodeSamples(jpeg, out)
	if err == nil && channels != r.samples {
		err = fmt.Errorf("a JPEG of %d components for %d samples", channels, r.samples)
	}
	return err
}

// jpegFile builds a JPEG from the tables and a block, with a marker for the meaning of the colours, and returns its
// size.
func (r *tiff) jpegFile(src []byte) (jpeg []byte, w, h int, err error) {
	transform := byte(0)
	if r.l.Photometric == imagefile.TIFFYCbCr {
		transform = 1
	}
	jpeg = append(make([]byte, 0, len(src)+len(r.l.JPEGTables)+16), 0xFF, 0xD8, 0xFF, mAPP14, 0, 14)
	jpeg = append(jpeg, "Adobe\x00\x64\x00\x00\x00\x00"...)
	jpeg = append(jpeg, transform)
	if len(r.l.JPEGTables) > 0 {
		if jpeg, _, _, err = segments(jpeg, r.l.JPEGTables); err != nil {
			return nil, 0, 0, fmt.Errorf("its JPEG tables: %w", err)
		}
	}
	jpeg, w, h, err = segments(jpeg, src)
	if err == nil && w*h == 0 {
		err = fmt.Errorf("a JPEG without a frame header: %w", io.ErrUnexpectedEOF)
	}
	return jpeg, w, h, err
}

// segments appends the segments of a JPEG, except those on colours, and everything after its first scan header. It
// returns the size of the frame.
func segments(to, b []byte) (out []byte, w, h int, err error) {
	if len(b) < 4 || b[0] != 0xFF || b[1] != 0xD8 {
		return nil, 0, 0, fmt.Errorf("it is not a JPEG")
	}
	for p := 2; p+4 <= len(b); {
		if b[p] != 0xFF {
			return nil, 0, 0, fmt.Errorf("no marker at byte %d of its JPEG", p)
		}
		m := b[p+1]
		switch m {
		case 0xFF:
			p++
			continue
		case mEOI:
			return to, w, h, nil
		case mSOS:
			return append(to, b[p:]...), w, h, nil
		}
		end := p + 2 + int(binary.BigEndian.Uint16(b[p+2:]))
		if end > len(b) || end < p+4 {
			return nil, 0, 0, io.ErrUnexpectedEOF
		}
		if m >= mSOF0 && m <= 0xCF && m != mDHT && m != mJPG && m != mDAC && end >= p+9 {
			h, w = int(binary.BigEndian.Uint16(b[p+5:])), int(binary.BigEndian.Uint16(b[p+7:]))
		}
		if m != mAPP0 && m != mAPP14 {
			to = append(to, b[p:end]...)
		}
		p = end
	}
	return to, w, h, nil
}
