package imagefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/source/driver"
)

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// formats are the small images of package decode's tests.
func formats(t testing.TB) map[string][]byte {
	files, err := filepath.Glob("../decode/testdata/formats/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no images for a start: %v", err)
	}
	all := map[string][]byte{}
	for _, name := range files {
		switch filepath.Ext(name) {
		case ".rgb", ".rgba", ".mask", ".u16", ".f32": // their pixels
			continue
		}
		if all[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestProbeJPEG(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	exif := []byte("Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00")
	for _, c := range []struct {
		channels int
		opts     cdec.EncodeOptions
		want     Info
	}{
		{3, cdec.EncodeOptions{HSamp: 2, VSamp: 2}, Info{Channels: 3, Color: YCbCr, Sampling: "4:2:0"}},
		{3, cdec.EncodeOptions{Progressive: true, HSamp: 2}, Info{Channels: 3, Color: YCbCr, Sampling: "4:2:2", Progressive: true, Buffered: true}},
		{3, cdec.EncodeOptions{RestartMCUs: 4, EXIF: exif}, Info{Channels: 3, Color: YCbCr, Sampling: "4:4:4", Orientation: 6}},
		{3, cdec.EncodeOptions{VSamp: 2}, Info{Channels: 3, Color: YCbCr, Sampling: "4:4:0"}},
		{3, cdec.EncodeOptions{HSamp: 4}, Info{Channels: 3, Color: YCbCr, Sampling: "4:1:1"}},
		{3, cdec.EncodeOptions{HSamp: 3}, Info{Channels: 3, Color: YCbCr}},
		{3, cdec.EncodeOptions{RGB: true}, Info{Channels: 3, Color: RGB, Sampling: "4:4:4"}},
		{1, cdec.EncodeOptions{}, Info{Channels: 1, Color: Gray}},
	} {
		src, err := cdec.EncodeJPEG(noise(rng, 40*30*c.channels), 40, 30, c.channels, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Probe(src)
		if err != nil {
			t.Fatal(err)
		}
		c.want.Orientation = max(c.want.Orientation, 1)
		c.want.Codec, c.want.Width, c.want.Height, c.want.Precision = driver.CodecJPEG, 40, 30, 8
		if got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.opts, got, c.want)
		}
		for n := range 40 {
			if _, err := Probe(src[:n]); err == nil {
				t.Errorf("the first %d bytes were taken for an image", n)
			}
		}
	}
}

func TestProbeRefuses(t *testing.T) {
	for name, src := range map[string]string{
		"nothing":        "",
		"text":           "hello there, no image here",
		"PNG, cut":       "\x89PNG\r\n\x1a\n",
		"PNG, no type":   "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x07\x00\x00\x00\x00\x00\x00\x00",
		"GIF, empty":     "GIF89a\x00\x00\x00\x00\x00\x00\x00",
		"WebP, cut":      "RIFF\x10\x00\x00\x00WEBPVP8 ",
		"TIFF, cut":      "II*\x00\xff\xff\xff\xff",
		"BMP, cut":       "BM" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00",
		"JPEG, no frame": "\xff\xd8\xff\xda\x00\x08",
		"JPEG, ended":    "\xff\xd8\xff\xd9",
		"JPEG, segment":  "\xff\xd8\xff\xe0\x00\x01",
	} {
		info, err := Probe([]byte(src))
		if !errors.Is(err, ErrEmpty) && !errors.Is(err, ErrNotImage) && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %+v, error %v", name, info, err)
		}
	}
}

// Probe needs only the beginning of a file, and returns the same for it as for the whole file.
func TestProbeOfTheBeginning(t *testing.T) {
	for name, b := range formats(t) {
		whole, err := Probe(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for n := range b {
			if part, err := Probe(b[:n]); err == nil && (part.Width != whole.Width || part.Height != whole.Height || part.Codec != whole.Codec) {
				t.Fatalf("%s: the first %d bytes are %+v, all of them %+v", name, n, part, whole)
			}
		}
	}
}

// The orientation counts at each position that the format allows: tools write EXIF after the pixels of a PNG, and write
// it into WebP in the form that JPEG uses.
func TestOrientationBesidePixels(t *testing.T) {
	turned := exif(binary.BigEndian, "MM", 6)
	chunk := func(kind string, data []byte) []byte {
		c := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
		c = append(append(c, kind...), data...)
		return binary.BigEndian.AppendUint32(c, crc32.ChecksumIEEE(c[4:]))
	}
	png := encoded(t, encPNG, 37, 21)
	end := len(png) - 12
	webp := webpFile(t)
	riff := func(data []byte) []byte {
		b := append(bytes.Clone(webp), "EXIF"...)
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(data))), data...)
		if len(data)%2 == 1 {
			b = append(b, 0)
		}
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
		return b
	}
	for name, b := range map[string][]byte{
		"PNG, in front":       append(append(bytes.Clone(png[:33]), chunk("eXIf", turned)...), png[33:]...),
		"PNG, behind":         append(append(bytes.Clone(png[:end]), chunk("eXIf", turned)...), png[end:]...),
		"WebP":                riff(turned),
		"WebP, as in JPEG":    riff(append([]byte(exifMark), turned...)),
		"TIFF, cut directory": append(append(bytes.Clone(png[:33]), chunk("eXIf", turned[:len(turned)-4])...), png[33:]...),
	} {
		probed, err := Probe(b)
		if err != nil || probed.Orientation != 6 {
			t.Errorf("%s: Probe says %d, want 6 (%v)", name, probed.Orientation, err)
		}
		if checked, err := Check(b); err != nil || checked != probed {
			t.Errorf("%s: Check says %+v, Probe %+v (%v)", name, checked, probed, err)
		}
	}
}

func TestProbeTakesNoMemory(t *testing.T) {
	for codec, b := range samples(t) {
		if codec == driver.CodecJPEG {
			b, _ = insertMetadata(nil, b, exif(binary.LittleEndian, "II", 3), nil)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = Probe(b) }); n > 0 {
			t.Errorf("codec %d: %v allocations", codec, n)
		}
	}
}

func FuzzProbe(f *testing.F) {
	for _, b := range formats(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := Probe(b)
		if err == nil && (info.Width < 1 || info.Height < 1 || info.Orientation < 1 || info.Orientation > 8) {
			t.Errorf("%+v", info)
		}
		GIFColors(b)
	})
}

// A byte that changes in a PNG which is repaired never changes its pixels.
func TestRepairedPNG(t *testing.T) {
	m := image.NewPaletted(image.Rect(0, 0, 9, 7), color.Palette{color.NRGBA{1, 2, 3, 4}, color.NRGBA{9, 9, 9, 255}})
	for i := range m.Pix {
		m.Pix[i] = byte(i * i % 5 % 2)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	want, _ := png.Decode(bytes.NewReader(b.Bytes()))
	end := b.Len() - 12
	for name, whole := range map[string][]byte{
		"no end":      b.Bytes()[:end],
		"cut":         b.Bytes()[:end-1],
		"wrong":       append(append(bytes.Clone(b.Bytes()[:end-1]), b.Bytes()[end-1]^1), b.Bytes()[end:]...),
		"end damaged": append(bytes.Clone(b.Bytes()[:end+11]), 0),
	} {
		for i := -1; i < len(whole); i++ {
			changed := bytes.Clone(whole)
			if i >= 8 {
				changed[i] ^= 0x11
			}
			fixed := RepairPNG(changed, 1<<20)
			if fixed == nil {
				if i < 0 {
					t.Errorf("%s: not repaired", name)
				}
				continue
			}
			if got, err := png.Decode(bytes.NewReader(fixed)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: byte %d changed other pixels: %v", name, i, err)
			}
		}
	}
}
