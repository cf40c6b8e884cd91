package imagelib

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// Bytes that are cut off or changed are errors, or pixels, and nothing else.
func TestDamage(t *testing.T) {
	names, _ := filepath.Glob("../imagefile/testdata/foreign/*")
	for _, name := range names {
		codec, channels, w, h := driver.CodecJXL, 3, 23, 17
		switch base := filepath.Base(name); {
		case strings.HasPrefix(base, "turned"):
			codec, channels = driver.CodecAVIF, 4
		case !strings.HasPrefix(base, "rgb-"):
			continue
		}
		if err := Ready(codec); err != nil {
			t.Skip(err)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pix := make([]byte, w*h*channels)
		if err := Decode(codec, b, w, h, channels, 1, pix); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, wrong := range [][2]int{{w + 1, h}, {w, h - 1}} {
			if err := Decode(codec, b, wrong[0], wrong[1], channels, 1, make([]byte, 2*len(pix))); err == nil {
				t.Errorf("%s: taken for %v pixels", name, wrong)
			}
		}
		for i := 0; i < len(b); i += 1 + len(b)/60 {
			_ = Decode(codec, b[:i], w, h, channels, 1, pix)
			c := append([]byte(nil), b...)
			c[i] ^= 0x55
			_ = Decode(codec, c, w, h, channels, 1, pix)
		}
		if err := Decode(codec, b[:len(b)/2], w, h, channels, 1, pix); err == nil || err.Error() == "" {
			t.Errorf("%s: half of it is decoded", name)
		}
	}
}

// Lossless JPEG 2000 gives the samples, as many rows as requested. Damaged data gives an error, or samples, and nothing
// else. The file is from scripts/fixtures/jpeg2000.py.
func TestGray(t *testing.T) {
	if _, err := libopenjp2.Load(); err != nil {
		t.Skip(err)
	}
	const w, h = 23, 17
	b, err := os.ReadFile("testdata/gray12-23x17.j2k")
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{h, 5, 1} {
		pix := make([]byte, 2*w*rows)
		if err := DecodeGray(b, w, rows, 2, pix); err != nil {
			t.Fatal(err)
		}
		for i := range w * rows {
			if got, want := int(pix[2*i])|int(pix[2*i+1])<<8, (i/w*151+i%w*37)%4096; got != want {
				t.Fatalf("sample %d of %d rows is %d, want %d", i, rows, got, want)
			}
		}
	}
	pix := make([]byte, 4*w*h)
	for _, c := range []struct {
		w, h, size int
		want       string
	}{
		{w + 1, h, 2, "it is JPEG 2000 of 23 x 17, and a frame has 24 x 17"}, {w, h + 1, 2, "a frame has 23 x 18"},
		{w, h, 1, "its samples have 12 bits, and not 1 bytes"}, {0, h, 2, "0 x 17 samples"}, {w, h, 3, "samples of 3 bytes"},
	} {
		if err := DecodeGray(b, c.w, c.h, c.size, pix); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	for i := 0; i < len(b); i += 1 + len(b)/100 {
		if err := DecodeGray(b[:i], w, h, 2, pix); i < 90 && (err == nil || err.Error() == "" || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%d bytes are decoded: %v", i, err)
		}
		c := append([]byte(nil), b...)
		c[i] ^= 0x55
		_ = DecodeGray(c, w, h, 2, pix)
	}
}
