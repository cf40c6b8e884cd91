package pack

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
)

// boxed returns a source of raw images of 20 x 10 pixels with boxes and their related fields.
func boxed() driver.Source {
	fields := []driver.Field{
		{Name: "boxes", Kind: driver.KindBoxes, DType: driver.Float32, Shape: []int{4}, Format: driver.CXCYWH, MaxBytes: 16 * 3},
		{Name: "image", Kind: driver.KindImage, Width: 20, Height: 10, Channels: 3, MaxBytes: 600},
		{Name: "labels", Kind: driver.KindMultiLabel, Classes: []string{"a", "b"}, Boxes: "boxes", MaxBytes: 8 * 3},
		{Name: "points", Kind: driver.KindKeyPoints, DType: driver.Float32, Shape: []int{1, 2}, Boxes: "boxes", MaxBytes: 8 * 3},
	}
	return sourcetest.NewMemory(30, fields, func(id int64, v []driver.Value) error {
		var boxes, labels, points []byte
		for k := range id % 4 {
			for _, x := range []float32{float32(id), 4, float32(k), 2} {
				boxes = binary.LittleEndian.AppendUint32(boxes, math.Float32bits(x))
			}
			labels = binary.LittleEndian.AppendUint64(labels, uint64(k%2))
			points = append(points, boxes[len(boxes)-16:len(boxes)-8]...)
		}
		v[0].Bytes, v[2].Bytes, v[3].Bytes = boxes, labels, points
		v[1] = driver.Value{Bytes: make([]byte, 600), Codec: driver.CodecRaw, Width: 20, Height: 10, Channels: 3}
		return nil
	})
}

// Boxes are packed with their format and their related fields, and are scaled with resized images.
func TestPackBoxes(t *testing.T) {
	for _, resized := range []bool{false, true} {
		dir := t.TempDir()
		opt := Options{Images: ImagesRaw}
		if resized {
			opt.Resize = Resize{Width: 40, Height: 30}
		}
		if _, err := WriteSource(context.Background(), boxed(), dir, &opt); err != nil {
			t.Fatal(err)
		}
		r, err := Open(context.Background(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f := r.Info().Fields
		if f[0].Format != driver.CXCYWH || f[2].Boxes != "boxes" || f[3].Boxes != "boxes" || !slices.Equal(f[3].Shape, []int{1, 2}) {
			t.Fatalf("%+v", f)
		}
		for id := range int64(30) {
			rec, err := r.Record(context.Background(), id)
			if err != nil {
				t.Fatal(err)
			}
			sx, sy := float32(1), float32(1)
			if resized {
				sx, sy = 2, 3
			}
			var boxes, points []float32
			for k := range id % 4 {
				boxes = append(boxes, float32(id)*sx, 4*sy, float32(k)*sx, 2*sy)
				points = append(points, float32(id)*sx, 4*sy)
			}
			if got := float32s(rec.Values[0].Bytes); !slices.Equal(got, boxes) {
				t.Errorf("record %d: boxes %v, not %v", id, got, boxes)
			}
			if got := float32s(rec.Values[3].Bytes); !slices.Equal(got, points) {
				t.Errorf("record %d: points %v, not %v", id, got, points)
			}
		}
		if s := f[0].Stats; s.Rows.Max != 3 || s.Floats.Max != map[bool]float64{false: 29, true: 58}[resized] {
			t.Errorf("the statistics are %+v, %+v", s.Rows, s.Floats)
		}
	}
}

func float32s(b []byte) (out []float32) {
	for i := 0; i+4 <= len(b); i += 4 {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
	}
	return out
}

// A manifest with impossible properties of boxes is refused.
func TestBoxesOfManifest(t *testing.T) {
	good := []Field{
		{Name: "boxes", Kind: driver.KindBoxes, DType: driver.Float32, Shape: []int{4}, Format: driver.XYXY},
		{Name: "labels", Kind: driver.KindMultiLabel, Boxes: "boxes"},
		{Name: "points", Kind: driver.KindKeyPoints, DType: driver.Float32, Shape: []int{3, 2}},
	}
	if _, err := newSchema(good, false); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(f []Field){
		"boxes of format":    func(f []Field) { f[0].Format = "LTRB" },
		"four numbers each":  func(f []Field) { f[0].Shape = []int{5} },
		"which are not":      func(f []Field) { f[1].Boxes = "points" },
		"of shape [k, 2]":    func(f []Field) { f[2].Shape = []int{2} },
		"cannot belong":      func(f []Field) { f[0].Boxes = "boxes" },
		"key points of \"fl": func(f []Field) { f[2].DType = driver.Float64 },
	} {
		f := slices.Clone(good)
		change(f)
		if _, err := newSchema(f, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
