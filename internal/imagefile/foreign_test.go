package imagefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// foreign are files of JPEG XL and AVIF, by name.
func foreign(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/foreign/*")
	if err != nil || len(names) < 6 {
		t.Fatal(names, err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(name)] = b
	}
	return out
}

// The size is that which the name has, however much of the file there is, and a file
// that is cut off is found.
func TestForeign(t *testing.T) {
	for name, b := range foreign(t) {
		var w, h int32
		m := regexp.MustCompile(`-(\d+)x(\d+)\.(jxl|avif)$`).FindStringSubmatch(name)
		_, _ = fmt.Sscan(m[1], &w)
		_, _ = fmt.Sscan(m[2], &h)
		codec := map[string]driver.Codec{"jxl": driver.CodecJXL, "avif": driver.CodecAVIF}[m[3]]
		info, err := Check(b)
		if err != nil || info.Codec != codec || info.Width != w || info.Height != h {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		if want := uint8(1); name == "turned-23x17.avif" && info.Orientation != 6 || name != "turned-23x17.avif" && info.Orientation != want {
			t.Errorf("%s: orientation %d", name, info.Orientation)
		}
		if want := map[string]int32{"gray16-13x9.jxl": 1, "rgba-8x16.jxl": 4, "rgb-23x17.jxl": 3}[name]; want > 0 && info.Channels != want {
			t.Errorf("%s: %d channels", name, info.Channels)
		}
		if name == "gray16-13x9.jxl" && info.Precision != 16 {
			t.Errorf("%s: %d bits", name, info.Precision)
		}
		bare := codec == driver.CodecJXL && string(b[:2]) == jxlBare // which does not say how long it is
		for n := range len(b) {
			part, err := Check(b[:n])
			if err == nil && !bare || err == nil && (part.Width != w || part.Height != h) {
				t.Fatalf("%s, cut off at %d of %d: %+v", name, n, len(b), part)
			}
			if n > 16 && err != nil && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrBroken) {
				t.Fatalf("%s, cut off at %d: %v", name, n, err)
			}
		}
	}
}

// Any bytes give an error or a size.
func FuzzForeign(f *testing.F) {
	for _, b := range foreign(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := Check(b)
		if err == nil && (info.Width < 1 || info.Height < 1 || info.Orientation < 1 || info.Orientation > 8) {
			t.Errorf("%+v", info)
		}
	})
}

// TestFirstBrand has AVIF files of brands that Pillow does not read.
func TestFirstBrand(t *testing.T) {
	for name, b := range foreign(t) {
		if strings.HasSuffix(name, ".avif") {
			copy(b[8:], "miaf")
			if codec := Detect(b); codec == driver.CodecAVIF {
				t.Errorf("%s of another brand is %v", name, codec)
			}
		}
	}
}
