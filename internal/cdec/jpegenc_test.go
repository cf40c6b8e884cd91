package cdec

import (
	"bytes"
	"fmt"
	"image/jpeg"
	"strings"
	"testing"
)

// Every kind of file that the encoder writes must have the requested properties, according to another decoder.
func TestEncodeJPEG(t *testing.T) {
	const w, h = 37, 21
	for _, channels := range []int{1, 3, 4} {
		pixels := make([]byte, w*h*channels)
		for i := range pixels {
			pixels[i] = byte(i * 7 / channels)
		}
		for _, opts := range []EncodeOptions{
			{},
			{Quality: 50, HSamp: 2, VSamp: 2},
			{HSamp: 2, VSamp: 1, Optimize: true},
			{Progressive: true, EXIF: []byte("Exif\x00\x00abc")},
			{RestartMCUs: 2, ICC: bytes.Repeat([]byte("profile"), 10000)},
		} {
			t.Run(fmt.Sprintf("%d/%+v", channels, EncodeOptions{Quality: opts.Quality, HSamp: opts.HSamp, Progressive: opts.Progressive, RestartMCUs: opts.RestartMCUs}), func(t *testing.T) {
				data, err := EncodeJPEG(pixels, w, h, channels, opts)
				if err != nil {
					t.Fatal(err)
				}
				img, err := jpeg.Decode(bytes.NewReader(data))
				if err != nil {
					t.Fatal(err)
				}
				if b := img.Bounds(); b.Dx() != w || b.Dy() != h {
					t.Errorf("size %v, want %dx%d", b, w, h)
				}
				if got := bytes.Contains(data, []byte{0xff, 0xc2}); got != opts.Progressive {
					t.Errorf("progressive: %v, want %v", got, opts.Progressive)
				}
				if got := bytes.Contains(data, []byte{0xff, 0xdd, 0, 4}); got != (opts.RestartMCUs > 0) {
					t.Errorf("restart interval: %v", got)
				}
				if opts.EXIF != nil && !bytes.Contains(data, opts.EXIF) {
					t.Error("EXIF is missing")
				}
				// 70,000 bytes of profile need two segments.
				if opts.ICC != nil && bytes.Count(data, []byte("ICC_PROFILE\x00")) != 2 {
					t.Error("ICC profile is not in two segments")
				}
			})
		}
	}
}

func TestEncodeJPEGRefuses(t *testing.T) {
	for _, test := range []struct {
		n, w, h, c int
		opts       EncodeOptions
		want       string
	}{
		{0, 0, 5, 3, EncodeOptions{}, "0 x 5 pixels"},
		{10, 70000, 1, 3, EncodeOptions{}, "70000 x 1 pixels"},
		{10, 2, 2, 3, EncodeOptions{}, "10 bytes of pixels"},
		{8, 2, 2, 2, EncodeOptions{}, "2 channels"},
		{12, 2, 2, 3, EncodeOptions{HSamp: 9}, "sampling factors"},
		{12, 2, 2, 3, EncodeOptions{EXIF: make([]byte, 70000)}, "of EXIF"},
	} {
		_, err := EncodeJPEG(make([]byte, test.n), test.w, test.h, test.c, test.opts)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: error %v, want %q", test, err, test.want)
		}
	}
}
