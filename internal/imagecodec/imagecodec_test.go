package imagecodec

import (
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
