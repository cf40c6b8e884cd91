package archive

import (
	"path"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// The results equal those of base_plus_ext in webdataset 1.0.
func TestSplit(t *testing.T) {
	for name, want := range map[string][2]string{
		"a.jpg": {"a", "jpg"}, "a": {}, "a/b.seg.png": {"a/b", "seg.png"}, "a.b/c.jpg": {"a.b/c", "jpg"}, ".x": {}, "d/.x": {"d/", "x"},
		"d.e/.x": {}, "x/y/.z": {"x/y/", "z"}, "a..jpg": {"a", ".jpg"}, "a.": {"a", ""}, "./0.jpg": {"./0", "jpg"}, "/0.jpg": {"/0", "jpg"},
		"a/b/c": {}, "d/.a.b": {"d/", "a.b"}, "e/f.g/.h.i": {}, "/.x": {"/", "x"}, "x/.../y.z": {"x/.../y", "z"},
	} {
		key, suffix, ok := Split(name)
		if ok != (want[0] != "") || key != want[0] || suffix != want[1] {
			t.Errorf("%s: %q, %q, %v", name, key, suffix, ok)
		}
	}
}

func TestMeaning(t *testing.T) {
	for suffix, want := range map[string]meaning{
		"jpg": {"image", driver.KindImage, false, false}, "webp": {"image", driver.KindImage, false, false}, "left.png": {"left", driver.KindImage, false, false},
		"seg.png": {"seg", driver.KindMask, false, false}, "mask.png": {"mask", driver.KindMask, false, false}, "cls": {"label", driver.KindLabel, false, false},
		"txt": {"text", driver.KindText, false, false}, "caption.txt": {"caption", driver.KindText, false, false}, "json": {"json", driver.KindJSON, false, false},
		"npy": {"array", driver.KindArray, true, false}, "depth.npy": {"depth", driver.KindArray, true, false}, "flac": {"audio", driver.KindAudio, false, false},
		"pyd": {"pyd", driver.KindBytes, false, false}, "pth": {"pth", driver.KindBytes, false, false}, "a.pickle": {"a.pickle", driver.KindBytes, false, false},
		"flo": {"flo", driver.KindImage, false, true}, "depth.pfm": {"depth", driver.KindImage, false, true},
		"": {"", driver.KindBytes, false, false}, "id": {"id", driver.KindInt, false, false},
	} {
		if got := meaningOf(suffix); got != want {
			t.Errorf("%s: %+v", suffix, got)
		}
	}
	for name, want := range map[string]bool{"a/b": false, "./a": false, "../a": false, ".a": true, "a/.b": true, "__MACOSX/a": true, "a/._b.jpg": true} {
		if hidden(name) != want {
			t.Errorf("%s: hidden is %v", name, !want)
		}
	}
	for name, want := range map[string]bool{"__a__": true, "__a__/x.jpg": true, "__a": false, "a/__b__": false, "____": true, "___": false} {
		if meta(name) != want {
			t.Errorf("%s: meta is %v", name, !want)
		}
	}
}

func FuzzUnpackedName(f *testing.F) {
	for _, name := range []string{"/a/0.jpg", "../../x", `C:\a\b`, "a/./b/", "", "/", "a\x00b", "k\xff/1.jpg"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := unpackedName(name)
		if got == "" {
			return
		}
		if !filepath.IsLocal(got) || path.Clean(got) != got || unpackedName("./"+got) != got {
			t.Errorf("%q became %q", name, got)
		}
	})
}
