package decode

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/source/driver"
)

// turnedTIFF is a TIFF file of w x h gray pixels of size bytes with the tag Orientation.
func turnedTIFF(pix []byte, w, h, size, orientation int) []byte {
	le := binary.LittleEndian
	tags := [][3]int{{256, 4, w}, {257, 4, h}, {258, 3, 8 * size}, {259, 3, 1}, {262, 3, 1}, {273, 4, 8 + 2 + 12*11 + 4}, {274, 3, orientation},
		{277, 3, 1}, {278, 4, h}, {279, 4, len(pix)}, {339, 3, 1}}
	if size == 4 {
		tags[10][2] = 3 // floats, which imagecodec reads and not the library
	}
	b := append([]byte("II*\x00\x08\x00\x00\x00"), byte(len(tags)), 0)
	for _, t := range tags {
		b = le.AppendUint16(le.AppendUint16(b, uint16(t[0])), uint16(t[1]))
		b = le.AppendUint32(le.AppendUint32(b, 1), uint32(t[2]))
	}
	return append(append(b, 0, 0, 0, 0), pix...)
}

// Decoding turns TIFF files, like Pillow, whether orientations are applied or not: images and masks, by the library and
// by the reader of this repository.
func TestTIFFIsTurned(t *testing.T) {
	const w, h = 5, 3
	for orientation := int32(1); orientation <= 8; orientation++ {
		for size, px := range map[int]int32{1: 1, 4: 0} {
			pix := make([]byte, w*h*size)
			for i := range pix {
				pix[i] = byte(i * 40 / size / 15)
			}
			src := turnedTIFF(pix, w, h, size, int(orientation))
			want := make([]byte, len(pix))
			orient.Pixels(want, pix, w, h, size, max(orientation, 1))
			tw, th := orient.Size(orientation, w, h)
			for _, apply := range []bool{false, true} {
				d := newDecoder(t, Options{ApplyOrientation: apply})
				v := driver.Value{Bytes: src}
				info, err := d.Info(v)
				if err != nil || info.Width != tw || info.Height != th || info.Orientation != 1 {
					t.Fatalf("orientation %d: %+v, %v", orientation, info, err)
				}
				as := u8(px)
				if size == 4 {
					as = f32(1)
				}
				if got, err := decodeAs(d, v, as, false, tw, th); err != nil || !bytes.Equal(got, want) {
					t.Errorf("orientation %d, %d bytes: %v, %v; want %v", orientation, size, got, err, want)
				}
				if size == 4 {
					continue
				}
				if got, err := decodeAs(d, v, u8(1), true, tw, th); err != nil || !bytes.Equal(got, want) {
					t.Errorf("mask of orientation %d: %v, %v; want %v", orientation, got, err, want)
				}
			}
			if size == 4 {
				continue
			}
			m, err := mask.FromFile(src)
			if err != nil || m.Width != int(tw) || m.Height != int(th) || !bytes.Equal(m.Pix, want) {
				t.Errorf("mask of orientation %d in a pack: %+v, %v", orientation, m, err)
			}
			if c, err := imagefile.Check(src); err != nil || c.Width != tw {
				t.Errorf("orientation %d: %+v, %v", orientation, c, err)
			}
		}
	}
}
