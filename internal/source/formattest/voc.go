package formattest

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

// Paletted returns a PNG of w x h pixels with a palette.
func Paletted(t testing.TB, w, h, k int) []byte {
	t.Helper()
	m := image.NewPaletted(image.Rect(0, 0, w, h), []color.Color{color.Black, color.White, color.RGBA{200, 0, 0, 255}})
	for i := range m.Pix {
		m.Pix[i] = uint8((i + k) % 3)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// VOCImages is the number of images of VOC.
const VOCImages = 22

// VOCAnnotation returns the XML of image i, with i%4 objects. The last one has parts.
func VOCAnnotation(i int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<annotation>\n<folder>VOC</folder><filename>%02d.jpg</filename><object-count/>\n<size><width>20</width></size>", i)
	for k := range i % 4 {
		fmt.Fprintf(&b, "<object><name>%s</name><pose>Left</pose><truncated>%d</truncated>\n<difficult>%d</difficult>\n<bndbox><xmax>%d.5</xmax><xmin>%d</xmin><ymin>2</ymin> <ymax>9</ymax></bndbox>"+
			"<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part></object>", []string{"dog", "cat", "person"}[k], k%2, (k+1)%2, k+5, k)
	}
	b.WriteString("</annotation>\n")
	return b.String()
}

// VOC writes a dataset with boxes and masks.
func VOC(t testing.TB) string {
	dir := t.TempDir()
	var split strings.Builder
	for i := range VOCImages {
		name := fmt.Sprintf("%02d", i)
		drivertest.Put(t, dir, "JPEGImages/"+name+".jpg", Paletted(t, 20, 15, i))
		if i != 8 {
			drivertest.Put(t, dir, "Annotations/"+name+".xml", []byte(VOCAnnotation(i)))
		}
		if i%2 == 0 {
			drivertest.Put(t, dir, "SegmentationClass/"+name+".png", Paletted(t, 20, 15, i+1))
			drivertest.Put(t, dir, "SegmentationObject/"+name+".png", Paletted(t, 20, 15, i+2))
		}
		if i%3 == 0 {
			fmt.Fprintf(&split, "%s  1\n", name)
		}
	}
	drivertest.Put(t, dir, "Annotations/gone.xml", []byte(VOCAnnotation(1)))
	drivertest.Put(t, dir, "ImageSets/Main/train.txt", []byte(split.String()))
	drivertest.Put(t, dir, "ImageSets/Segmentation/val.txt", []byte("02\n04\n"))
	return dir
}
