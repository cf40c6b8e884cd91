package imagefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/stokerdata/stoker/source/driver"
)

func picture(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, color.NRGBA{uint8(x * 7), uint8(y * 11), uint8(x * y), 255})
		}
	}
	return m
}

func encoded(t testing.TB, enc func(b *bytes.Buffer, m image.Image) error, w, h int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := enc(&b, picture(w, h)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encJPEG(b *bytes.Buffer, m image.Image) error { return jpeg.Encode(b, m, nil) }
func encPNG(b *bytes.Buffer, m image.Image) error  { return png.Encode(b, m) }
func encGIF(b *bytes.Buffer, m image.Image) error  { return gif.Encode(b, m, nil) }
func encBMP(b *bytes.Buffer, m image.Image) error  { return bmp.Encode(b, m) }
func encTIFF(b *bytes.Buffer, m image.Image) error { return tiff.Encode(b, m, nil) }

// webpFile is a lossless WebP of 37 x 21 pixels.
func webpFile(t testing.TB) []byte {
	b, err := os.ReadFile(filepath.Join("testdata", "small.webp"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func samples(t testing.TB) map[driver.Codec][]byte {
	return map[driver.Codec][]byte{
		driver.CodecJPEG: encoded(t, encJPEG, 37, 21), driver.CodecPNG: encoded(t, encPNG, 37, 21),
		driver.CodecGIF: encoded(t, encGIF, 37, 21), driver.CodecBMP: encoded(t, encBMP, 37, 21),
		driver.CodecTIFF: encoded(t, encTIFF, 37, 21), driver.CodecWebP: webpFile(t),
	}
}

func TestWholeFiles(t *testing.T) {
	for codec, b := range samples(t) {
		info, err := Check(b)
		if err != nil || info.Codec != codec || info.Width != 37 || info.Height != 21 || info.Orientation != 1 {
			t.Errorf("codec %d: %+v, %v", codec, info, err)
		}
	}
}

// A file that was cut off anywhere is found, in every format.
func TestEveryTruncationIsFound(t *testing.T) {
	for codec, b := range samples(t) {
		end := len(b)
		switch codec {
		case driver.CodecGIF:
			end-- // the trailer after the first frame is not needed
		case driver.CodecBMP:
			end-- // nor is the padding of the last row
		case driver.CodecTIFF:
			end -= 16 // nor is the resolution after the image
		}
		for n := range end {
			if info, err := Check(b[:n]); err == nil {
				t.Errorf("codec %d: %d of %d bytes pass: %+v", codec, n, len(b), info)
			} else if n >= 30 && !errors.Is(err, ErrTruncated) && codec != driver.CodecTIFF {
				t.Errorf("codec %d: %d of %d bytes: %v, want %v", codec, n, len(b), err, ErrTruncated)
			}
		}
	}
}

func TestNotImages(t *testing.T) {
	for content, want := range map[string]error{
		"":                            ErrEmpty,
		"hello, this is text":         ErrNotImage,
		"\xff\xd8\xff\xd9":            ErrBroken,
		"\xff\xd8\xff\xd8\xff\xd9":    ErrBroken,
		"\x89PNG\r\n\x1a\n":           ErrTruncated,
		"GIF89a":                      ErrTruncated,
		strings.Repeat("\x00", 10000): ErrNotImage,
	} {
		if _, err := Check([]byte(content)); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", content, err, want)
		}
	}
	png := encoded(t, encPNG, 20, 20)
	png[len(png)-20] ^= 1 // in the picture data
	if _, err := Check(png); !errors.Is(err, ErrBroken) {
		t.Errorf("a PNG with a flipped bit: %v", err)
	}
}

// exif is EXIF data that holds an orientation and nothing else.
func exif(order binary.AppendByteOrder, name string, orientation uint16) []byte {
	b := []byte(name)
	b = order.AppendUint16(b, 42)
	b = order.AppendUint32(b, 8)
	b = order.AppendUint16(b, 1)
	b = order.AppendUint16(b, 0x0112)
	b = order.AppendUint16(b, 3)
	b = order.AppendUint32(b, 1)
	b = order.AppendUint16(b, orientation)
	b = order.AppendUint16(b, 0)
	return order.AppendUint32(b, 0)
}

func TestOrientation(t *testing.T) {
	base := encoded(t, encJPEG, 16, 16)
	for want := uint16(1); want <= 8; want++ {
		for _, x := range [][]byte{exif(binary.LittleEndian, "II", want), exif(binary.BigEndian, "MM", want)} {
			b, err := insertMetadata(nil, base, x, nil)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := Check(b); err != nil || info.Orientation != uint8(want) {
				t.Errorf("orientation %d, want %d (%v)", info.Orientation, want, err)
			}
		}
	}
	for _, x := range [][]byte{exif(binary.LittleEndian, "II", 0), exif(binary.LittleEndian, "II", 9), []byte("II*"), {}} {
		if o := Orientation(x); o != 1 {
			t.Errorf("orientation %d of %q, want 1", o, x)
		}
	}
}

func TestStrip(t *testing.T) {
	base := encoded(t, encJPEG, 40, 30)
	meta := exif(binary.LittleEndian, "II", 6)
	icc := bytes.Repeat([]byte("profile!"), 20000) // three segments
	b, err := insertMetadata(nil, base, meta, icc)
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, "and something behind the end"...)
	info, err := Check(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(info.JPEG.Exif(b), meta) || !bytes.Equal(info.JPEG.ICC(b), icc) {
		t.Errorf("EXIF of %d bytes and ICC of %d bytes, want %d and %d", len(info.JPEG.Exif(b)), len(info.JPEG.ICC(b)), len(meta), len(icc))
	}
	if got := info.JPEG.AppendStripped(nil, b); !bytes.Equal(got, base) {
		t.Errorf("stripped to %d bytes, want the %d that it was made of", len(got), len(base))
	}
}

// JFIF and Adobe markers define the meaning of the colours, so they stay.
func TestStripKeepsColours(t *testing.T) {
	base := encoded(t, encJPEG, 8, 8)
	var b []byte
	b = append(b, 0xFF, 0xD8)
	b = append(b, "\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"...)
	b = append(b, "\xff\xe0\x00\x08JFXX\x00\x10"...)
	b = append(b, "\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x01"...)
	b = append(b, "\xff\xfe\x00\x07hello"...)
	b = append(b, base[2:]...)
	info, err := Check(b)
	if err != nil {
		t.Fatal(err)
	}
	s := info.JPEG.AppendStripped(nil, b)
	for text, want := range map[string]bool{"JFIF": true, "JFXX": false, "Adobe": true, "hello": false} {
		if bytes.Contains(s, []byte(text)) != want {
			t.Errorf("%s: kept is %t, want %t", text, !want, want)
		}
	}
}

func TestMissingEnd(t *testing.T) {
	b := encoded(t, encJPEG, 40, 30)
	info, err := Check(b[:len(b)-2])
	if !errors.Is(err, ErrNoEOI) || info.JPEG == nil {
		t.Errorf("without its end marker: %v", err)
	}
}

// The real photographs pass, and stripping them does not touch their pixels.
func TestPhotos(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/data/photos/*.JPEG")
	if len(files) == 0 {
		files, _ = filepath.Glob("../../../../shared/data/photos/*.JPEG")
	}
	if len(files) == 0 {
		t.Skip("no photographs here")
	}
	for i, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := Check(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if i%20 != 0 {
			continue
		}
		s := info.JPEG.AppendStripped(nil, b)
		if again, err := Check(s); err != nil || again.Width != info.Width {
			t.Errorf("%s, stripped: %v", name, err)
		}
		before, err1 := jpeg.Decode(bytes.NewReader(b))
		after, err2 := jpeg.Decode(bytes.NewReader(s))
		if err1 != nil || err2 != nil {
			continue // of a kind that Go does not decode
		}
		r := before.Bounds()
		for y := r.Min.Y; y < r.Max.Y; y += 3 {
			for x := r.Min.X; x < r.Max.X; x += 3 {
				if before.At(x, y) != after.At(x, y) {
					t.Fatalf("%s: stripping changed pixel (%d, %d)", name, x, y)
				}
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, b := range samples(f) {
		f.Add(b)
	}
	b, _ := insertMetadata(nil, encoded(f, encJPEG, 16, 16), exif(binary.LittleEndian, "II", 3), []byte("icc"))
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := Check(b)
		if info.JPEG != nil {
			_, _ = info.JPEG.Exif(b), info.JPEG.ICC(b)
		}
		if err != nil {
			return
		}
		if info.Width <= 0 || info.Height <= 0 || info.Orientation < 1 || info.Orientation > 8 {
			t.Fatalf("%+v", info)
		}
		if info.JPEG != nil {
			s := info.JPEG.AppendStripped(nil, b)
			again, err := Check(s)
			if err != nil || again.Width != info.Width || again.Height != info.Height {
				t.Fatalf("stripped: %+v, %v; before: %+v", again, err, info)
			}
		}
	})
}

// insertMetadata appends the JPEG b with EXIF data and a colour profile put in
// after its start and JFIF markers. Empty ones are skipped.
func insertMetadata(dst, b, exif, icc []byte) ([]byte, error) {
	if len(b) < 4 || b[0] != 0xFF || b[1] != mSOI {
		return nil, broken("not a JPEG")
	}
	const most = 65533
	if len(exif) > most-len(exifMark) {
		return nil, broken("EXIF data of %d bytes does not fit into a segment", len(exif))
	}
	at := 2
	if b[2] == 0xFF && b[3] == mAPP0 && len(b) >= 6 {
		at = 4 + int(b[4])<<8 + int(b[5])
		if at > len(b) {
			return nil, truncated(b, "in the header")
		}
	}
	dst = append(dst, b[:at]...)
	put := func(marker byte, parts ...[]byte) {
		n := 2
		for _, p := range parts {
			n += len(p)
		}
		dst = append(dst, 0xFF, marker, byte(n>>8), byte(n))
		for _, p := range parts {
			dst = append(dst, p...)
		}
	}
	if len(exif) > 0 {
		put(mAPP1, []byte(exifMark), exif)
	}
	if len(icc) > 0 {
		const per = most - len(iccPrefix) - 2
		count := (len(icc) + per - 1) / per
		if count > 255 {
			return nil, broken("colour profile of %d bytes does not fit", len(icc))
		}
		for i := range count {
			put(mAPP2, []byte(iccPrefix), []byte{byte(i + 1), byte(count)}, icc[i*per:min(len(icc), (i+1)*per)])
		}
	}
	return append(dst, b[at:]...), nil
}

// FuzzOdd rewrites files of formats whose first picture is cut out or repaired.
func FuzzOdd(f *testing.F) {
	for _, pattern := range []string{"*.webp", "*.gif", "*.png"} {
		names, err := filepath.Glob("../decode/testdata/formats/" + pattern)
		if err != nil || len(names) < 5 {
			f.Fatalf("%d files: %v", len(names), err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		switch Detect(b) {
		case driver.CodecWebP:
			_, _ = FirstWebPFrame(b)
		case driver.CodecGIF:
			NormalGIF(b)
		case driver.CodecPNG:
			RepairPNG(b, 1<<16)
		}
	})
}

// TestWebPFlags has an extended header with a flag that libwebp does not know.
func TestWebPFlags(t *testing.T) {
	names, _ := filepath.Glob("../decode/testdata/formats/*.webp")
	n := 0
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(b[12:16]) == "VP8X" {
			b[20] |= 0x40
			if _, err := Check(b); err == nil {
				t.Errorf("%s: no error", name)
			}
			n++
		}
	}
	if n == 0 {
		t.Error("no file has an extended header")
	}
}
