package imagelib

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// What is not there is one line that says what to install.
func TestMissing(t *testing.T) {
	for _, l := range []*library{libjxl, libavif, libopenjp2} {
		missing := &library{what: l.what, name: l.name, names: []string{"libnothing-" + l.name + ".so.9"}, pattern: l.pattern, advice: l.advice, load: l.load}
		err := missing.find([]string{t.TempDir()})
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), l.name) || !strings.Contains(err.Error(), "apt-get install") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", l.name, err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, l.name+".so.1"), []byte("no library"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := missing.find([]string{dir}); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "cannot be used") {
			t.Errorf("%s: %v", l.name, err)
		}
	}
}

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
