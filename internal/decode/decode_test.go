package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

func newDecoder(t testing.TB, opt Options) *Decoder {
	t.Helper()
	d, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// cut returns the geometry that crops a box without resizing.
func cut(x, y, w, h int32) item.Geometry {
	return item.Geometry{
		Box: item.Rect{X: x, Y: y, W: w, H: h}, ResizeW: w, ResizeH: h,
		Window: item.Rect{W: w, H: h}, Filter: item.Bilinear,
	}
}

// formats returns the images of testdata and their pixels.
func formats(t testing.TB, f func(name string, src, want []byte, w, h int32)) {
	t.Helper()
	files, err := filepath.Glob("testdata/formats/*.rgb")
	if err != nil || len(files) == 0 {
		t.Fatalf("no images in testdata/formats: %v", err)
	}
	for _, file := range files {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(file, ".rgb")
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		w, h := int32(binary.LittleEndian.Uint32(want)), int32(binary.LittleEndian.Uint32(want[4:]))
		f(filepath.Base(name), src, want[8:], w, h)
	}
}

// TestPixelsArePillows decodes images of all formats and compares each pixel
// with Pillow's convert("RGB").
func TestPixelsArePillows(t *testing.T) {
	d := newDecoder(t, Options{ApplyOrientation: true})
	formats(t, func(name string, src, want []byte, w, h int32) {
		info, err := d.Info(driver.Value{Bytes: src})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if info.Width != w || info.Height != h {
			t.Errorf("%s: %dx%d, want %dx%d", name, info.Width, info.Height, w, h)
			return
		}
		got := make([]byte, w*h*3)
		if err := d.RGB(driver.Value{Bytes: src}, cut(0, 0, w, h), got); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		differ, worst, first := 0, 0, -1
		for i := range got {
			if n := int(got[i]) - int(want[i]); n != 0 {
				if differ++; first < 0 {
					first = i
				}
				worst = max(worst, n, -n)
			}
		}
		if differ > 0 {
			t.Errorf("%s: %d of %d bytes differ, by up to %d, first %d: %d, want %d", name, differ, len(got), worst, first, got[first], want[first])
		}
	})
}

// TestGeometryOfAllFormats checks that a resized box of an image equals the resized box of its pixels, so that the use
// of scratch memory loses nothing.
func TestGeometryOfAllFormats(t *testing.T) {
	for _, turn := range []bool{false, true} {
		d := newDecoder(t, Options{ApplyOrientation: turn})
		formats(t, func(name string, src, _ []byte, _, _ int32) {
			info, err := d.Info(driver.Value{Bytes: src})
			if err != nil {
				t.Fatal(name, err)
			}
			w, h := info.Width, info.Height
			pix := make([]byte, w*h*3)
			if err := d.RGB(driver.Value{Bytes: src}, cut(0, 0, w, h), pix); err != nil {
				t.Fatal(name, err)
			}
			if w < 20 || h < 20 {
				return
			}
			g := cut(3, 2, w-7, h-4)
			g.ResizeW, g.ResizeH, g.FlipH = 20, 17, true
			g.Window = item.Rect{X: 2, Y: 1, W: 15, H: 14}
			got, want := make([]byte, 15*14*3), make([]byte, 15*14*3)
			reqs := []Request{
				{Value: driver.Value{Bytes: src}, Geom: g, Store: PlainRGB, Dst: got},
				{Value: driver.Value{Bytes: pix, Codec: driver.CodecRaw, Width: w, Height: h, Channels: 3}, Geom: g, Store: PlainRGB, Dst: want},
			}
			d.Run(reqs)
			if reqs[0].Err != nil || reqs[1].Err != nil {
				t.Fatal(name, reqs[0].Err, reqs[1].Err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: the box differs from the box of the pixels", name)
			}
		})
	}
}

func TestDamagedImages(t *testing.T) {
	d := newDecoder(t, Options{})
	dst := make([]byte, 50*50*3)
	formats(t, func(name string, src, _ []byte, w, h int32) {
		if int(w*h*3) > len(dst) {
			t.Fatal(name)
		}
		if name == "animated.gif" {
			return // its first frame ends early
		}
		for _, n := range []int{0, 1, 7, 20, len(src) / 3, len(src) / 2, len(src) * 3 / 4} {
			n = min(n, len(src)*3/4)
			reqs := []Request{{Value: driver.Value{Bytes: src[:n]}, Geom: cut(0, 0, w, h), Store: PlainRGB, Dst: dst}}
			d.Run(reqs)
			if reqs[0].Err == nil {
				t.Errorf("%s: %d of %d bytes were decoded", name, n, len(src))
			} else if len(reqs[0].Err.Error()) < 10 {
				t.Errorf("%s: error %q", name, reqs[0].Err)
			}
		}
	})
	small := newDecoder(t, Options{MaxPixels: 100, ApplyOrientation: true})
	formats(t, func(name string, src, _ []byte, w, h int32) {
		if w*h <= 100 {
			return
		}
		reqs := []Request{{Value: driver.Value{Bytes: src}, Geom: cut(0, 0, w, h), Store: PlainRGB, Dst: dst}}
		small.Run(reqs)
		if !errors.Is(reqs[0].Err, cdec.ErrLimit) {
			t.Errorf("%s with a limit of 100 pixels: %v", name, reqs[0].Err)
		}
	})
	for name, v := range map[string]driver.Value{
		"no bytes":          {},
		"text":              {Bytes: []byte("hello, this is not an image at all")},
		"raw of 5 channels": {Bytes: make([]byte, 500), Codec: driver.CodecRaw, Width: 10, Height: 10, Channels: 5},
		"raw, short":        {Bytes: make([]byte, 200), Codec: driver.CodecRaw, Width: 10, Height: 10, Channels: 3},
	} {
		reqs := []Request{{Value: v, Geom: cut(0, 0, 10, 10), Store: PlainRGB, Dst: dst}}
		d.Run(reqs)
		if reqs[0].Err == nil {
			t.Errorf("%s was decoded", name)
		}
	}
}

// FuzzDecode feeds the decoders of all formats with damaged images.
func FuzzDecode(f *testing.F) {
	formats(f, func(_ string, src, _ []byte, _, _ int32) { f.Add(src) })
	d := newDecoder(f, Options{MaxPixels: 1 << 18, ApplyOrientation: true})
	dst := make([]byte, 3<<18)
	f.Fuzz(func(t *testing.T, src []byte) {
		v := driver.Value{Bytes: src}
		info, err := d.Info(v)
		if err != nil || int64(info.Width)*int64(info.Height) > 1<<18 {
			return
		}
		_ = d.RGB(v, cut(0, 0, info.Width, info.Height), dst)
		if info.Width > 4 && info.Height > 4 {
			g := cut(1, 1, info.Width-2, info.Height-2)
			g.ResizeW, g.ResizeH, g.Window = 8, 8, item.Rect{W: 8, H: 8}
			_ = d.RGB(v, g, dst)
		}
	})
}

// TestOrientationFromSource rotates coefficients and raw pixels, which have no EXIF, by the source's orientation. The
// result must equal that of the JPEG with EXIF.
func TestOrientationFromSource(t *testing.T) {
	d, plain := newDecoder(t, Options{ApplyOrientation: true}), newDecoder(t, Options{})
	encoder, err := cdec.NewDCTEncoder()
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	turned := 0
	formats(t, func(name string, src, want []byte, w, h int32) {
		info, err := imagefile.Probe(src)
		if err != nil || info.Orientation <= 1 || imagefile.Detect(src) != driver.CodecJPEG {
			return
		}
		turned++
		dct, err := encoder.Encode(src)
		if err != nil {
			t.Fatal(name, err)
		}
		raw := make([]byte, info.Width*info.Height*3)
		if err := plain.RGB(driver.Value{Bytes: src}, cut(0, 0, info.Width, info.Height), raw); err != nil {
			t.Fatal(name, err)
		}
		for codec, data := range map[driver.Codec][]byte{driver.CodecDCT: dct, driver.CodecRaw: raw, driver.CodecJPEG: src} {
			v := driver.Value{Bytes: data, Codec: codec, Width: info.Width, Height: info.Height, Channels: 3, Orientation: int32(info.Orientation)}
			got, err := d.Info(v)
			if err != nil || got.Width != w || got.Height != h {
				t.Fatalf("%s: codec %d is %dx%d (%v), want %dx%d", name, codec, got.Width, got.Height, err, w, h)
			}
			pix := make([]byte, w*h*3)
			if err := d.RGB(v, cut(0, 0, w, h), pix); err != nil {
				t.Fatal(name, codec, err)
			}
			if !bytes.Equal(pix, want) {
				t.Errorf("%s: codec %d is not turned as the JPEG is", name, codec)
			}
		}
	})
	if turned == 0 {
		t.Error("no fixture has an orientation")
	}
}
