package bmpimage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/imagefile"
)

// FuzzRead begins with the files of package decode. The tests of that package compare all pixels with Pillow's.
func FuzzRead(f *testing.F) {
	names, err := filepath.Glob("../decode/testdata/formats/*.bmp")
	if err != nil || len(names) < 20 {
		f.Fatalf("%d files: %v", len(names), err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		l, err := imagefile.ReadBMPLayout(b)
		if err != nil || l.Width*l.Height > 1<<16 {
			return
		}
		for _, mask := range []bool{false, true} {
			_ = Read(b, l, mask, make([]byte, l.Width*l.Height*Channels(l, mask)))
		}
	})
}
