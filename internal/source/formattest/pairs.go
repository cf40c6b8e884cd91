package formattest

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

// Black returns a PNG of w x 3 black pixels.
func Black(t testing.TB, w int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, 3))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Pairs creates a folder of n images with masks, texts and sounds, and some files without
// partners.
func Pairs(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, b []byte) { drivertest.Put(t, dir, name, b) }
	for i := range n {
		write(fmt.Sprintf("images/%03d.png", i), Black(t, i+1))
		write(fmt.Sprintf("masks/%03d_seg.png", i), Black(t, i+2))
		write(fmt.Sprintf("texts/%03d.txt", i), fmt.Appendf(nil, "text %d", i))
		write(fmt.Sprintf("sounds/%03d.wav", i), fmt.Appendf(nil, "RIFF%d", i))
	}
	write("images/alone.png", Black(t, 9))
	write("masks/other_seg.png", Black(t, 9))
	write("masks/unrelated.png", Black(t, 9))
	write("images/000.jpeg", Black(t, 9))
	return dir
}
