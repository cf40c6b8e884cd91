package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// numbers calls f with the images of testdata whose numbers are known.
func numbers(t *testing.T, f func(name string, src []byte, want []byte, w, h, channels int32)) {
	t.Helper()
	files, err := filepath.Glob("testdata/formats/*.f32")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d images with their numbers: %v", len(files), err)
	}
	for _, file := range files {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(file, ".f32")
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		w, h := int32(binary.LittleEndian.Uint32(want)), int32(binary.LittleEndian.Uint32(want[4:]))
		want = want[8:]
		f(filepath.Base(name), src, want, w, h, int32(len(want))/(4*w*h))
	}
}

func f32(channels int32) item.PixelType { return item.PixelType{DType: item.F32, Channels: channels} }

func value(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }

// TestNumbersAreThoseOfTheFile decodes images to float32 and compares them with the values that Pillow or tifffile
// read. 16-bit integers are also compared as such.
func TestNumbersAreThoseOfTheFile(t *testing.T) {
	d := newDecoder(t, Options{})
	numbers(t, func(name string, src, want []byte, w, h, channels int32) {
		info, err := imagefile.Check(src)
		if err != nil || info.Width != w || info.Height != h || info.Channels != channels {
			t.Errorf("%s: %+v, %v", name, info, err)
			return
		}
		got, err := decodeAs(d, driver.Value{Bytes: src}, f32(channels), false, w, h)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if strings.HasSuffix(name, ".ppm") && info.Precision == 16 {
			return // Pillow reads only 8 bits of those: TestWideColoursOfPNM
		}
		scale := float32(1)
		if info.Precision == 1 { // Pillow's arrays of bits have 1 where its pixels have 255
			scale = 255
		}
		for i := range len(want) / 4 {
			a, b := value(got, i), value(want, i)*scale
			if a != b && !(a != a && b != b) {
				t.Errorf("%s: number %d is %v, want %v", name, i, a, b)
				break
			}
		}
		if info.Precision != 16 || info.Float || strings.HasPrefix(name, "int") {
			return
		}
		wide, err := decodeAs(d, driver.Value{Bytes: src}, u16(channels), false, w, h)
		if err != nil {
			t.Errorf("%s as uint16: %v", name, err)
			return
		}
		for i := range len(want) / 4 {
			if v := binary.LittleEndian.Uint16(wide[2*i:]); float32(v) != value(want, i) {
				t.Errorf("%s as uint16: number %d is %v, want %v", name, i, v, value(want, i))
				break
			}
		}
	})
}

// TestWideColoursOfPNM decodes colours of 16 bits without loss.
func TestWideColoursOfPNM(t *testing.T) {
	d := newDecoder(t, Options{})
	for name, scale := range map[string]float64{"rgb-16-65535.ppm": 1, "rgb-16-1023.ppm": 65535. / 1023} {
		src, err := os.ReadFile("testdata/formats/" + name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeAs(d, driver.Value{Bytes: src}, u16(3), false, 37, 29)
		if err != nil {
			t.Fatal(err)
		}
		raw := src[len(src)-len(got):]
		for i := 0; i < len(got); i += 2 {
			want := math.RoundToEven(float64(binary.BigEndian.Uint16(raw[i:])) * scale)
			if v := binary.LittleEndian.Uint16(got[i:]); math.Abs(float64(v)-want) > 0 {
				t.Fatalf("%s: value %d is %d, want %v", name, i/2, v, want)
			}
		}
	}
}

// TestMasksOfOwnFormats: class numbers equal those of the file, for any maximum.
func TestMasksOfOwnFormats(t *testing.T) {
	d := newDecoder(t, Options{})
	for name, want := range map[string][]uint16{
		"P2 3 1 20 0 7 20":                 {0, 7, 20},
		"P5 3 1 20\n\x00\x07\x14":          {0, 7, 20},
		"P5 2 1 700\n\x00\x07\x02\xbc":     {7, 700},
		"P1 3 1 0 1 0":                     {1, 0, 1},
		"P3 1 1 9 4 4 4":                   {4},
		"P3 1 1 9 4 4 5":                   nil,
		"P5 2 1 65535\n\x00\x07\xff\xff  ": {7, 65535},
	} {
		info, err := imagefile.Probe([]byte(name))
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := decodeAs(d, driver.Value{Bytes: []byte(name)}, u16(1), true, info.Width, info.Height)
		if want == nil {
			if !errors.Is(err, cdec.ErrUnsupported) || !strings.Contains(err.Error(), "the mask has a colour") {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		for i, v := range want {
			if err != nil || binary.LittleEndian.Uint16(got[2*i:]) != v {
				t.Errorf("%q: class %d is %d, want %d (%v)", name, i, binary.LittleEndian.Uint16(got[2*i:]), v, err)
			}
		}
	}
	for name, want := range map[string]string{"float-none-1.tiff": "whole numbers from 0 to 65535", "le.pfm": "whole numbers from 0 to 65535"} {
		src, err := os.ReadFile("testdata/formats/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeAs(d, driver.Value{Bytes: src}, u16(1), true, 37, 29); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Broken files are refused with the reason.
func TestBrokenOwnFormats(t *testing.T) {
	d := newDecoder(t, Options{})
	tiff, err := os.ReadFile("testdata/formats/float-lzw-3.tiff")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"cut":      {[]byte("P6 3 1 255\n12345678"), "a picture of 3 x 1 has at least 20"},
		"text cut": {[]byte("P2 3 2 255\n1 2 3 100 5  "), "after 5 of 6 values"},
		"text big": {[]byte("P2 3 1 20\n1 2 30 "), `"30 " at byte 14 is not a value from 0 to 20`},
		"letter":   {[]byte("P2 3 1 20\n1 2 x "), `"x" at byte 14 is not a value from 0 to 20`},
		"bit":      {[]byte("P1 3 1 102"), `'2' at byte 9 is neither 0 nor 1`},
		"zero":     {[]byte("P5 3 1 0\n123"), "its largest value is 0"},
		"huge":     {[]byte("P5 99999999999 1 255\n1"), "for the width"},
		"large":    {[]byte("P5 1000000 1000000 255\n1"), "at most 65500 per side"},
		"endless":  {append([]byte("P7\n#"), bytes.Repeat([]byte("x"), 1<<20)...), "its header does not end"},
		"depth":    {[]byte("P7\nWIDTH 1\nHEIGHT 1\nDEPTH 7\nMAXVAL 255\nENDHDR\n1234567"), "7 values per pixel"},
		"tiff cut": {tiff[:len(tiff)/2], ""},
	} {
		_, err := decodeAs(d, driver.Value{Bytes: c.file}, item.RGB, false, 1, 1)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for at := range tiff { // and no damage makes it panic
		b := bytes.Clone(tiff)
		b[at] ^= 0xFF
		_, _ = decodeAs(d, driver.Value{Bytes: b}, f32(1), false, 37, 29)
	}
}

func FuzzOwnFormats(f *testing.F) {
	files, err := filepath.Glob("testdata/formats/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if info, err := imagefile.Probe(b); err == nil && ownReader(&info) != nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := imagefile.Probe(b)
		if err != nil || ownReader(&info) == nil || int64(info.Width)*int64(info.Height) > 1<<20 {
			return
		}
		d := newDecoder(t, Options{})
		for _, px := range []item.PixelType{item.RGB, u16(4), f32(info.Channels)} {
			_, err = decodeAs(d, driver.Value{Bytes: b}, px, false, info.Width, info.Height)
		}
		_, _ = decodeAs(d, driver.Value{Bytes: b}, u16(1), true, info.Width, info.Height)
		if _, checked := imagefile.Check(b); checked != nil && err == nil && info.Codec != driver.CodecTIFF {
			t.Errorf("decoded, but %v", checked)
		}
	})
}
