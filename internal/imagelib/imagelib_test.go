package imagelib

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// A library finds what it needs beside it, as in wheels, where it does not say itself where
// that lies; one that needs what is nowhere says so.
func TestNeeded(t *testing.T) {
	dir := t.TempDir()
	build := func(name, code string, needs ...string) string {
		t.Helper()
		src, out := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
		if err := os.WriteFile(src, []byte(code), 0o644); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,-soname," + name, "-o", out, src}, needs...)
		if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return out
	}
	third := build("libstoker-third.so.3", "int third(void) { return 11; }")
	second := build("libstoker-second.so.2", "int third(void); int second(void) { return 1000 * third(); }", third)
	stub := "int second(void); unsigned JxlDecoderVersion(void) { return second(); }\n"
	for _, f := range []string{"Create", "Destroy", "SubscribeEvents", "SetInput", "CloseInput", "ProcessInput", "GetBasicInfo", "ImageOutBufferSize", "SetImageOutBuffer"} {
		stub += "void JxlDecoder" + f + "(void) {}\n"
	}
	build("libjxl-0.so.0", stub, second)
	load := func() error {
		// In a process of its own: what is loaded once is found by all that need it.
		cmd := exec.Command(os.Args[0], "-test.run=^TestNeedsFolder$")
		cmd.Env = append(os.Environ(), needsFolder+"="+dir)
		text, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	}
	if err := load(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(third); err != nil {
		t.Fatal(err)
	}
	if err := load(); err == nil || !strings.Contains(err.Error(), "libstoker-third.so.3: cannot open") || !strings.Contains(err.Error(), "which cannot be used") {
		t.Error(err)
	}
}

const needsFolder = "STOKER_TEST_FOLDER"

// TestNeedsFolder is what a process of TestNeeded does.
func TestNeedsFolder(t *testing.T) {
	dir := os.Getenv(needsFolder)
	if dir == "" {
		t.Skip("a part of TestNeeded")
	}
	l := &library{what: libjxl.what, name: libjxl.name, pattern: libjxl.pattern, advice: libjxl.advice, load: libjxl.load}
	if err := l.find([]string{dir}); err != nil {
		t.Fatal(err)
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

// JPEG 2000 without loss gives the samples, as many rows as are wanted; what is damaged is
// an error, or samples, and nothing else. The file is of scripts/fixtures/jpeg2000.py.
func TestGray(t *testing.T) {
	if err := libopenjp2.ready(); err != nil {
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
