package cocosource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func opener(dir string, masks boxes.Masks) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return open(ctx, localstore.New(dir), masks) })
}

func open(ctx context.Context, st store.Store, masks boxes.Masks) (driver.Source, error) {
	return Open(ctx, "test", st, &Options{File: "annotations/instances_val.json", Folder: "val", Masks: masks})
}

func BenchmarkFile(b *testing.B) { drivertest.Bench(b, opener(formattest.COCO(b), boxes.NoMasks)) }

func floats(b []byte) (out []float32) {
	for i := 0; i+4 <= len(b); i += 4 {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
	}
	return out
}

func TestRecords(t *testing.T) {
	s := opener(formattest.COCO(t), boxes.Instances)(t)
	defer s.Close()
	info := s.Info()
	var names []string
	for _, f := range info.Fields {
		names = append(names, f.Name)
	}
	if want := "image boxes labels iscrowd area keypoints visibility mask instances image_id"; strings.Join(names, " ") != want || info.Len != formattest.COCOImages {
		t.Fatalf("%d records of %s", info.Len, names)
	}
	if f := info.Fields; !slices.Equal(f[2].Classes, []string{"cat", "dog"}) || f[1].Format != driver.XYWH || !slices.Equal(f[5].Shape, []int{3, 2}) || f[8].Boxes != "boxes" {
		t.Fatalf("%+v", info.Fields)
	}
	for i := range formattest.COCOImages {
		r := drivertest.Records(t, s, int64(i))[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		v := r.Values
		if want := fmt.Sprintf("%02d.jpg", (i*7)%formattest.COCOImages); !strings.HasSuffix(s.Name(r.ID), want) || v[9].Int != int64(100+i) {
			t.Errorf("record %d is %s, %d", i, s.Name(r.ID), v[9].Int)
		}
		if !bytes.Equal(v[0].Bytes, formattest.Photo(t, 20+i, 15+i%5, i)) {
			t.Errorf("record %d has another image", i)
		}
		var boxes, areas, points []float32
		var labels, crowd, seen, instances []byte
		for k := range i % 4 {
			boxes = append(boxes, float32(k)+0.25, 2, 5.5, 6)
			labels, areas = binary.LittleEndian.AppendUint64(labels, uint64(k%2)), append(areas, 33.5)
			points, crowd, seen = append(points, float32(k), 1, 3.5, 4, 0, 0), append(crowd, byte(k/2)), append(seen, 2, 1, 0)
			instances = append(instances, byte(k+1), 0)
		}
		if !slices.Equal(floats(v[1].Bytes), boxes) || !bytes.Equal(v[2].Bytes, labels) || !bytes.Equal(v[3].Bytes, crowd) || !slices.Equal(floats(v[4].Bytes), areas) ||
			!slices.Equal(floats(v[5].Bytes), points) || !bytes.Equal(v[6].Bytes, seen) || !bytes.Equal(v[8].Bytes, instances) {
			t.Errorf("record %d: %v", i, v)
		}
		m := v[7]
		if int(m.Width) != 20+i || int(m.Height) != 15+i%5 || len(m.Bytes) != 2*(20+i)*(15+i%5) {
			t.Fatalf("record %d: a mask of %d x %d", i, m.Width, m.Height)
		}
		at := func(x, y int) int { return int(binary.LittleEndian.Uint16(m.Bytes[2*(y*int(m.Width)+x):])) }
		want := min(i%4, 2) // the last polygon
		if at(12, 12) != 0 && at(12, 12) != want || at(13, 11) != want && i%4 > 0 {
			t.Errorf("record %d: the mask has %d and %d", i, at(12, 12), at(13, 11))
		}
		if i%4 == 3 && (at(0, 2) == 3 || at(0, 3) != 3 || at(0, 7) != 3 || at(0, 8) == 3) {
			t.Errorf("record %d: the runs are not where they should be", i)
		}
	}
	left := s.(driver.Skipper).Skipped()
	if len(left) != 2 || left[0].Path != "gone.jpg" || !strings.Contains(left[1].Reason, "1 annotations belong to images") {
		t.Errorf("%+v", left)
	}
}

// Captions are a list per image.
func TestCaptions(t *testing.T) {
	dir := t.TempDir()
	drivertest.Put(t, dir, "images/a.jpg", formattest.Photo(t, 4, 4, 1))
	drivertest.Put(t, dir, "images/b.jpg", formattest.Photo(t, 4, 4, 2))
	drivertest.Put(t, dir, "c.json", []byte(`{"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}], "annotations": [
		{"id": 9, "image_id": 2, "caption": "two \"dogs\"\n"}, {"id": 8, "image_id": 2, "caption": "ein H\u00fcndchen"}]}`))
	s, err := Open(t.Context(), "test", localstore.New(dir), &Options{File: "c.json", Folder: "images"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if f := s.Info().Fields; len(f) != 3 || f[1].Name != "captions" || f[1].Kind != driver.KindJSON {
		t.Fatalf("%+v", f)
	}
	r := drivertest.Records(t, s, 0, 1)
	if string(r[0].Values[1].Bytes) != "[]" || string(r[1].Values[1].Bytes) != `["two \"dogs\"\n", "ein Hündchen"]` {
		t.Errorf("%s, %s", r[0].Values[1].Bytes, r[1].Values[1].Bytes)
	}
}

// Files that are cut off or invalid give an error with the file and the offset.
func TestBadFiles(t *testing.T) {
	const images = `"images": [{"id": 1, "file_name": "a.jpg", "width": 4, "height": 4}], "categories": [{"id": 1, "name": "x"}]`
	one := func(more string) string {
		return `{` + images + `, "annotations": [{"id": 4, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], ` + more + `}]}`
	}
	for text, want := range map[string]string{
		`{"images": [{"id": 1, "file_na`:    "c.json, byte 30: the file ends in the middle of its JSON",
		`{"images": [], "annotations": []}`: "the file has no images",
		`{"annotations": []}`:               "it has no list of images",
		`[1]`:                               "c.json, byte 0: expected '{', got '['",
		`{"images": [{"id": 1, "file_name": "../x.jpg"}]}`:                               "expected a path below the folder",
		`{"images": [{"id": 1}]}`:                                                        "an image has no id or no file_name",
		`{"images": [{"id": 1, "file_name": "a.jpg", "width": -4}]}`:                     "-4 x 0 pixels",
		`{"images": [{"id": 1, "file_name": "b.jpg"}], "annotations": []}`:               `none of its 1 images, such as`,
		`{"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 1, "file_name": "a.jpg"}]}`: "two images have the id 1",
		`{` + images + `, "annotations": [{"id": 4}]}`:                                   "has no image_id",
		one(`"keypoints": [1, 2]`):                                                       "not a multiple of three",
		one(`"keypoints": [1, 2, 300]`):                                                  "visibility 300",
		one(`"area": 1}, {"image_id": 1`) + strings.Repeat("[", 9):                       "c.json, byte ",
	} {
		dir := t.TempDir()
		drivertest.Put(t, dir, "a.jpg", formattest.Photo(t, 4, 4, 0))
		drivertest.Put(t, dir, "c.json", []byte(text))
		_, err := Open(t.Context(), "test", localstore.New(dir), &Options{File: "c.json"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	// An annotation with wrong values makes the record of its image bad.
	for more, want := range map[string]string{
		`"category_id": 8`: "annotation 4 has the category 8, which is not among the 1 categories", `"bbox": [1, 2, 3]`: "its box has 3 numbers",
		`"bbox": [1, 2, 3, NaN]`: "its box is not a number", `"bbox": [1, 2, -Infinity, 4]`: "its box is not a number",
		`"bbox": ["1", 2, 3, 4]`: "its box is not a number", `"area": {"x": 1}`: "its area is not a number", `"area": NaN`: "annotation 4: ",
	} {
		dir := t.TempDir()
		drivertest.Put(t, dir, "a.jpg", formattest.Photo(t, 4, 4, 0))
		drivertest.Put(t, dir, "b.jpg", formattest.Photo(t, 4, 4, 0))
		drivertest.Put(t, dir, "c.json", []byte(strings.Replace(one(more), `"images": [`, `"images": [{"id": 2, "file_name": "b.jpg"}, `, 1)))
		s, err := Open(t.Context(), "test", localstore.New(dir), &Options{File: "c.json"})
		if err != nil {
			t.Fatalf("%s: %v", more, err)
		}
		r := drivertest.Records(t, s, 0, 1)
		if err := errors.Join(r[0].Err, r[1].Err); (r[0].Err == nil) == (r[1].Err == nil) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "c.json") {
			t.Errorf("%s: %v and %v, want one error with %q", more, r[0].Err, r[1].Err, want)
		}
		s.Close()
	}
	// Outlines are checked with their record.
	for seg, want := range map[string]string{
		`[[1, 2, 3]]`: "a polygon has 3 numbers", `{"size": [4, 4]}`: "runs without", `{"size": [4, 5], "counts": [20]}`: "of 5 x 4, but",
		`{"size": [4, 4], "counts": [17]}`: "a run of 17", `{"size": [4, 4], "counts": "0"}`: "end after", `[[1, 2, 3, 1e9, 4, 5]]`: "far outside", `[1]`: "expected '['",
	} {
		dir := t.TempDir()
		drivertest.Put(t, dir, "a.jpg", formattest.Photo(t, 4, 4, 0))
		drivertest.Put(t, dir, "c.json", []byte(one(`"segmentation": `+seg)))
		s, err := Open(t.Context(), "test", localstore.New(dir), &Options{File: "c.json", Masks: boxes.Classes})
		if err != nil {
			t.Fatal(err)
		}
		r := drivertest.Records(t, s, 0)[0]
		if r.Err == nil || !strings.Contains(r.Err.Error(), want) || !strings.Contains(r.Err.Error(), "annotation 4: ") || !strings.Contains(r.Err.Error(), "c.json, byte ") {
			t.Errorf("%s: %v, want %q", seg, r.Err, want)
		}
		s.Close()
	}
}

func TestIsFile(t *testing.T) {
	dir := formattest.COCO(t)
	drivertest.Put(t, dir, "x.json", []byte(`{"a": 1}`))
	drivertest.Put(t, dir, "y.json", []byte(`[{"images": 1}]`))
	st := localstore.New(dir)
	if !IsFile(t.Context(), st, "annotations/instances_val.json") || IsFile(t.Context(), st, "x.json") || IsFile(t.Context(), st, "y.json") || IsFile(t.Context(), st, "val/00.jpg") {
		t.Error("files are taken for what they are not")
	}
}

func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	drivertest.Put(f, dir, "a.jpg", formattest.Photo(f, 4, 4, 0))
	f.Add([]byte(`{"images": [{"id": 1, "file_name": "a.jpg", "width": 4, "height": 4}], "categories": [{"id": 1, "name": "x"}], "annotations": [
		{"id": 4, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "segmentation": [[1, 2, 3, 4, 5, 6]], "keypoints": [1, 2, 3], "caption": "x"},
		{"id": 5, "image_id": 1, "category_id": 1, "segmentation": {"size": [4, 4], "counts": "04<"}, "iscrowd": 1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		drivertest.Put(t, dir, "c.json", b)
		s, err := Open(t.Context(), "test", localstore.New(dir), &Options{File: "c.json", Masks: boxes.Instances})
		if err != nil {
			return
		}
		defer s.Close()
		drivertest.Records(t, s, 0)
	})
}
