package formattest

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

// Gray returns a PNG of w x h gray pixels.
func Gray(t testing.TB, w, h, k int) []byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, w, h))
	for i := range m.Pix {
		m.Pix[i] = uint8(i + k)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// YOLOImages is the number of images of YOLO.
const YOLOImages = 23

// YOLOLabels returns the text of image i: i%4 objects, of which the second is a polygon.
func YOLOLabels(i int) string {
	var b strings.Builder
	for k := range i % 4 {
		if k == 1 {
			b.WriteString("2 0.1 0.2 0.9 0.2 0.5 0.75\n\n")
		} else {
			fmt.Fprintf(&b, "%d 0.5 0.5 0.25 0.%d\r\n", k, k+1)
		}
	}
	return b.String()
}

// YOLO writes images and their labels.
func YOLO(t testing.TB) string {
	dir := t.TempDir()
	for i := range YOLOImages {
		name := fmt.Sprintf("%02d", i)
		drivertest.Put(t, dir, "images/train/"+name+".png", Gray(t, 20+i, 16, i))
		if i%4 > 0 || i == 4 {
			drivertest.Put(t, dir, "labels/train/"+name+".txt", []byte(YOLOLabels(i)))
		}
	}
	drivertest.Put(t, dir, "images/train/README.md", []byte("x"))
	return dir
}
