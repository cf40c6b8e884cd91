package cdec

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

func TestProbeJPEG(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	exif := []byte("Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00")
	for _, c := range []struct {
		channels int
		opts     EncodeOptions
		want     ImageInfo
	}{
		{3, EncodeOptions{HSamp: 2, VSamp: 2}, ImageInfo{Channels: 3, Color: ColorYCbCr, Sampling: "4:2:0"}},
		{3, EncodeOptions{Progressive: true, HSamp: 2}, ImageInfo{Channels: 3, Color: ColorYCbCr, Sampling: "4:2:2", Progressive: true}},
		{3, EncodeOptions{RestartMCUs: 4, EXIF: exif}, ImageInfo{Channels: 3, Color: ColorYCbCr, Sampling: "4:4:4", RestartInterval: 4, Orientation: 6}},
		{3, EncodeOptions{VSamp: 2}, ImageInfo{Channels: 3, Color: ColorYCbCr, Sampling: "4:4:0"}},
		{3, EncodeOptions{HSamp: 4}, ImageInfo{Channels: 3, Color: ColorYCbCr, Sampling: "4:1:1"}},
		{3, EncodeOptions{HSamp: 3}, ImageInfo{Channels: 3, Color: ColorYCbCr, Sampling: "3x1"}},
		{3, EncodeOptions{RGB: true}, ImageInfo{Channels: 3, Color: ColorRGB, Sampling: "4:4:4"}},
		{1, EncodeOptions{}, ImageInfo{Channels: 1, Color: ColorGray}},
	} {
		src, err := EncodeJPEG(noisy(rng, 40*30*c.channels), 40, 30, c.channels, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Probe(src)
		if err != nil {
			t.Fatal(err)
		}
		if got.MetadataBytes == 0 && !c.opts.RGB { // JFIF at least
			t.Errorf("%+v: no metadata", c.opts)
		}
		got.MetadataBytes = 0
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
		"nothing":         "",
		"text":            "hello there, no image here",
		"PNG, cut":        "\x89PNG\r\n\x1a\n",
		"PNG, 4 Gpx wide": "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\xff\xff\xff\xff\x00\x00\x00\x01\x08\x02\x00\x00\x00\x00\x00\x00\x00",
		"PNG, no type":    "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x07\x00\x00\x00\x00\x00\x00\x00",
		"GIF, empty":      "GIF89a\x00\x00\x00\x00\x00\x00\x00",
		"WebP, cut":       "RIFF\x10\x00\x00\x00WEBPVP8 ",
		"TIFF, cut":       "II*\x00\xff\xff\xff\xff",
		"BMP, cut":        "BM" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00",
		"JPEG, no frame":  "\xff\xd8\xff\xda\x00\x08",
		"JPEG, ended":     "\xff\xd8\xff\xd9",
		"JPEG, segment":   "\xff\xd8\xff\xe0\x00\x01",
	} {
		info, err := Probe([]byte(src))
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %+v, error %v", name, info, err)
		}
	}
}

func TestProbePhotos(t *testing.T) {
	d := newDecoder(t)
	for _, file := range photos(t, 500) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := Probe(src)
		if err != nil {
			t.Fatalf("%s: %v", filepath.Base(file), err)
		}
		if w, h, _ := d.DecodeFull(src, nil); int(info.Width) != w || int(info.Height) != h {
			t.Errorf("%s: %dx%d, the decoder says %dx%d", filepath.Base(file), info.Width, info.Height, w, h)
		}
	}
}

// addImages gives a fuzz target the small images of package decode's tests.
func addImages(f *testing.F, pattern string) {
	files, err := filepath.Glob("../decode/testdata/formats/" + pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no images for a start: %v", err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".rgb" {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
}

func FuzzProbe(f *testing.F) {
	addImages(f, "*")
	f.Fuzz(func(t *testing.T, src []byte) {
		info, err := Probe(src)
		if err == nil && CheckSize(int64(info.Width), int64(info.Height)) != nil {
			t.Errorf("%dx%d pixels passed", info.Width, info.Height)
		}
	})
}

// FuzzDecodeJPEG decodes damaged JPEGs: a whole image that decodes must decode
// to the same pixels box by box, with all kernels, and nothing may be written
// outside of the output.
func FuzzDecodeJPEG(f *testing.F) {
	addImages(f, "*.jpg")
	rng := rand.New(rand.NewPCG(1, 1))
	for i, s := range allSamplings {
		if s[0]*s[1] > 8 {
			continue
		}
		src, err := EncodeJPEG(noisy(rng, 40*30*3), 40, 30, 3, EncodeOptions{HSamp: s[0], VSamp: s[1], Progressive: i%2 == 1, RestartMCUs: i % 3})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	d := newDecoder(f)
	d.SetMaxPixels(1 << 16)
	f.Fuzz(func(t *testing.T, src []byte) {
		info, err := Probe(src)
		if err != nil || info.Codec != driver.CodecJPEG || int64(info.Width)*int64(info.Height) > 1<<16 {
			return
		}
		w, h := int(info.Width), int(info.Height)
		pix := make([]byte, w*h*3)
		_, _, whole := d.DecodeFull(src, pix)
		seed := rand.New(rand.NewPCG(uint64(len(src)), uint64(src[len(src)/2])))
		for range 3 {
			bw, bh := 1+seed.IntN(w), 1+seed.IntN(h)
			x, y := seed.IntN(w-bw+1), seed.IntN(h-bh+1)
			dst, intact := guarded(bw * bh * 3)
			jobs := []Job{{Format: FormatJPEG, Src: src, Geom: cut(x, y, bw, bh), Store: plainStore, Dst: dst}}
			d.Run(jobs)
			if !intact() {
				t.Fatal("wrote outside of the output")
			}
			if whole != nil {
				continue
			}
			if jobs[0].Err != nil {
				t.Fatalf("box %dx%d at (%d,%d): %v, but the whole image decodes", bw, bh, x, y, jobs[0].Err)
			}
			if string(dst) != string(cutPixels(pix, w, x, y, bw, bh)) {
				t.Fatalf("box %dx%d at (%d,%d): pixels differ from a full decode", bw, bh, x, y)
			}
		}
	})
}
