package imagefile

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// exifOf is EXIF data with an orientation.
func exifOf(orientation uint16) []byte {
	be := binary.BigEndian
	b := append([]byte("MM\x00*\x00\x00\x00\x08\x00\x01"), 1, 18, 0, 3, 0, 0, 0, 1)
	return append(be.AppendUint16(b, orientation), 0, 0, 0, 0, 0, 0)
}

// turned puts an orientation into a JPEG, a PNG and a WebP.
func turned(t testing.TB, orientation uint16) map[string][]byte {
	be, exif := binary.BigEndian, exifOf(orientation)
	jpeg := encoded(t, encJPEG, 37, 21)
	app := append(be.AppendUint16([]byte{0xff, 0xe1}, uint16(2+len(exifMark)+len(exif))), exifMark...)
	png := encoded(t, encPNG, 37, 21)
	chunk := append(append(be.AppendUint32(nil, uint32(len(exif))), "eXIf"...), exif...)
	chunk = be.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
	webp := webpFile(t)
	webp = append(binary.LittleEndian.AppendUint32(append(bytes.Clone(webp), "EXIF"...), uint32(len(exif))), exif...)
	binary.LittleEndian.PutUint32(webp[4:], uint32(len(webp)-8))
	return map[string][]byte{
		"jpeg": bytes.Join([][]byte{jpeg[:2], app, exif, jpeg[2:]}, nil), "png": bytes.Join([][]byte{png[:33], chunk, png[33:]}, nil), "webp": webp,
	}
}

func TestUnturned(t *testing.T) {
	for name, b := range turned(t, 6) {
		if info, err := Probe(b); err != nil || info.Orientation != 6 {
			t.Fatalf("%s: %+v, %v", name, info, err)
		}
		got, err := Unturned(b)
		if err != nil || !bytes.Equal(got, turned(t, 1)[name]) {
			t.Errorf("%s: %v", name, err)
		}
		if same, err := Unturned(got); err != nil || !bytes.Equal(same, got) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnturned(f *testing.F) {
	for _, b := range turned(f, 6) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := Unturned(b); err == nil && len(out) != len(b) {
			t.Errorf("%d bytes, not %d", len(out), len(b))
		}
	})
}
