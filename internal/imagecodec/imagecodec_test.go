package imagecodec

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// files calls f with the files of package decode of a codec. The tests of that package compare all pixels with Pillow's.
func files(t testing.TB, codec driver.Codec, f func(name string, b []byte)) {
	t.Helper()
	names, err := filepath.Glob("../decode/testdata/formats/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if imagefile.Detect(b) == codec {
			f(filepath.Base(name), b)
			n++
		}
	}
	least := map[driver.Codec]int{driver.CodecBMP: 20, driver.CodecTIFF: 50, driver.CodecPNM: 20, driver.CodecPFM: 3}
	if n < least[codec] {
		t.Fatalf("%d files", n)
	}
}

// maxFuzzed bounds the pixels of pictures that are decoded while fuzzing.
const maxFuzzed = 1 << 16

// fuzz decodes files of a codec with all options. It skips files that are large.
func fuzz(f *testing.F, codec driver.Codec, large func(b []byte) bool) {
	files(f, codec, func(_ string, b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, opt := range []Options{{}, {Mask: true}, {Narrow: true}} {
			p, err := Open(codec, b, opt)
			if err != nil || int64(p.Width)*int64(p.Height) > maxFuzzed || large != nil && large(b) {
				return
			}
			pix, err := p.Decode(Make)
			if want := p.Width * p.Height * p.Channels * p.DType.Size(); err == nil && len(pix) != want {
				t.Errorf("%d bytes of pixels, want %d", len(pix), want)
			}
		}
	})
}

func FuzzBMP(f *testing.F) { fuzz(f, driver.CodecBMP, nil) }

func FuzzTIFF(f *testing.F) {
	fuzz(f, driver.CodecTIFF, func(b []byte) bool {
		l, err := imagefile.ReadTIFFLayout(b)
		return err != nil || int64(l.BlockWidth)*int64(l.BlockHeight)*int64(l.Samples) > 16*maxFuzzed
	})
}

func FuzzPNM(f *testing.F) { fuzz(f, driver.CodecPNM, nil) }

func FuzzPFM(f *testing.F) { fuzz(f, driver.CodecPFM, nil) }

func FuzzFlo(f *testing.F) {
	f.Add(append([]byte("PIEH\x02\x00\x00\x00\x01\x00\x00\x00"), make([]byte, 16)...))
	fuzz(f, driver.CodecFlo, nil)
}

// TestRefused has files that Pillow refuses although their pixels are complete.
func TestRefused(t *testing.T) {
	colors := make([]byte, 14+40+8+8)
	copy(colors, "BM")
	for at, v := range map[int]byte{10: 62, 14: 40, 18: 2, 22: 2, 26: 1, 28: 1, 46: 2} {
		colors[at] = v
	}
	text := []byte("P3 1 1 255\n1 2 3\n")
	for _, c := range []struct {
		codec     driver.Codec
		good, bad []byte
	}{
		{driver.CodecPNM, text, append(bytes.Clone(text), "# something-long"...)},
		{driver.CodecPNM, text, append(bytes.Clone(text), "12345678901"...)},
		{driver.CodecBMP, colors, append(append(bytes.Clone(colors[:49]), 2), colors[50:]...)},
	} {
		for _, b := range [][]byte{c.good, c.bad} {
			p, err := Open(c.codec, b, Options{})
			if err == nil {
				_, err = p.Decode(Make)
			}
			if (err == nil) == bytes.Equal(b, c.bad) {
				t.Errorf("%q: %v", b, err)
			}
		}
	}
}
