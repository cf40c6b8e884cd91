package formattest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

// Photo is a JPEG of w x h pixels.
func Photo(t testing.TB, w, h, k int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.Set(i%w, i/w, color.RGBA{uint8(i), uint8(k * 7), uint8(i / w), 255})
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// COCOImages is the number of images of write.
const COCOImages = 23

// COCOAnnotations returns the annotations of image i: i%4 of them, with outlines in both encodings.
func COCOAnnotations(i int) (out []map[string]any) {
	w, h := 20+i, 15+i%5
	for k := range i % 4 {
		a := map[string]any{
			"id": 1000*i + k, "image_id": 100 + i, "category_id": 3 + 2*(k%2), "bbox": []float64{float64(k) + 0.25, 2, 5.5, 6}, "area": 33.5, "iscrowd": k / 2,
			"segmentation": [][]float64{{1, 1, float64(k) + 8.5, 2, 6, 9.75}, {10, 10, 14, 10, 14, 14}},
			"keypoints":    []float64{float64(k), 1, 2, 3.5, 4, 1, 0, 0, 0}, "num_keypoints": 2,
		}
		if k == 2 {
			a["segmentation"] = map[string]any{"size": []int{h, w}, "counts": []int{3, 5, w*h - 8}}
		}
		out = append(out, a)
	}
	return out
}

// COCO writes a data set. Its annotations are not grouped by image.
func COCO(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	var images, annotations []map[string]any
	for i := range COCOImages {
		name := fmt.Sprintf("%02d.jpg", (i*7)%COCOImages) // a different order than the file's
		drivertest.Put(t, dir, "val/"+name, Photo(t, 20+i, 15+i%5, i))
		images = append(images, map[string]any{"id": 100 + i, "file_name": name, "width": 20 + i, "height": 15 + i%5, "license": 1})
	}
	for k := range 3 {
		for i := range COCOImages {
			if a := COCOAnnotations(i); k < len(a) {
				annotations = append(annotations, a[k])
			}
		}
	}
	annotations = append(annotations, map[string]any{"id": 5, "image_id": 1, "category_id": 3, "bbox": []int{1, 2, 3, 4}})
	images = append(images, map[string]any{"id": 7, "file_name": "gone.jpg", "width": 4, "height": 4})
	b, err := json.Marshal(map[string]any{
		"info": map[string]any{"year": 2017}, "annotations": annotations, "images": images,
		"categories": []map[string]any{{"id": 3, "name": "cat"}, {"id": 5, "name": "dog", "keypoints": []string{"a", "b", "c"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	drivertest.Put(t, dir, "annotations/instances_val.json", b)
	return dir
}
