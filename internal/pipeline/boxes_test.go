package pipeline

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// boxedFields returns an image of 20 x 10 raw pixels and fields that may belong to it.
func boxedFields() []driver.Field {
	return []driver.Field{
		{Name: "image", Kind: driver.KindImage, Width: 20, Height: 10, Channels: 3, MaxBytes: 600},
		{Name: "boxes", Kind: driver.KindBoxes, DType: driver.Float32, Shape: []int{4}, Format: driver.XYWH, MaxBytes: 16 * 4},
		{Name: "labels", Kind: driver.KindMultiLabel, Classes: []string{"a", "b", "c", "d"}, Boxes: "boxes", MaxBytes: 8 * 4},
		{Name: "points", Kind: driver.KindKeyPoints, DType: driver.Float32, Shape: []int{2, 2}, Boxes: "boxes", MaxBytes: 16 * 4},
		{Name: "crowd", Kind: driver.KindRagged, DType: driver.Uint8, Boxes: "boxes", MaxBytes: 4},
		{Name: "spots", Kind: driver.KindKeyPoints, DType: driver.Float32, Shape: []int{1, 2}, MaxBytes: 8 * 3},
		{Name: "tags", Kind: driver.KindMultiLabel, MaxBytes: 8 * 3},
	}
}

func floats(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// boxedValue sets the values of record id: id%5 boxes, where those with odd numbers are one pixel high.
func boxedValue(id int64, v []driver.Value) error {
	var boxes, points []float32
	var labels, crowd []byte
	for k := range int(id % 5) {
		height := float32(4)
		if k%2 == 1 {
			height = 1
		}
		boxes = append(boxes, float32(k), 1, 6, height)
		points = append(points, float32(k), 1, float32(k)+1, 2)
		labels = binary.LittleEndian.AppendUint64(labels, uint64(k))
		crowd = append(crowd, byte(10+k))
	}
	for i, b := range [][]byte{bytes.Repeat([]byte{byte(id)}, 600), floats(boxes...), labels, floats(points...), crowd, floats(float32(id), 3), labels[:len(labels)/8/2*8]} {
		v[i] = driver.Value{Bytes: b}
	}
	v[0].Codec, v[0].Width, v[0].Height, v[0].Channels = driver.CodecRaw, 20, 10, 3
	return nil
}

// eachRow opens a pipeline and hands over every row of its first epoch.
func eachRow(t *testing.T, cfg Config, f func(r slotReader, i int, id int64)) {
	t.Helper()
	p := mustOpen(t, cfg)
	p.Start(item.Position{})
	for {
		ev, err := p.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == EventEpochEnd {
			return
		}
		r := newSlotReader(p, ev)
		for i := range ev.Rows {
			f(r, i, r.int("index", i))
		}
	}
}

// Boxes and key points follow their image by default, and fields of the boxes lose the same rows.
func TestBoxesFollowTheirImage(t *testing.T) {
	const flip = `{"op":"RandomHorizontalFlip","p":1}`
	for name, c := range map[string]struct {
		outputs []transform.Output
		format  string
		all     bool // no row is dropped
	}{
		"in the list of the image": {[]transform.Output{
			{Name: "image", Ops: ops(`{"op":"Resize","size":[20,40]}`, flip, `{"op":"SanitizeBoundingBoxes","min_size":3}`, `{"op":"ConvertBoundingBoxFormat","format":"XYXY"}`)},
		}, "XYXY", false},
		"in their own list": {[]transform.Output{
			{Name: "image", Ops: ops(`{"op":"Resize","size":[20,40]}`, flip)},
			{Name: "boxes", Ops: ops(`{"op":"SanitizeBoundingBoxes","min_size":3}`, `{"op":"ConvertBoundingBoxFormat","format":"XYXY"}`)},
		}, "XYXY", false},
		"all of them": {[]transform.Output{{Name: "image", Ops: ops(`{"op":"Resize","size":[20,40]}`, flip)}}, "XYWH", true},
	} {
		t.Run(name, func(t *testing.T) {
			src := sourcetest.NewMemory(53, boxedFields(), boxedValue)
			seen := 0
			eachRow(t, Config{BatchSize: 8, Shuffle: true, Threads: 3, OpenSource: use(src), Outputs: c.outputs}, func(r slotReader, i int, id int64) {
				seen++
				if f := r.arrays["boxes"].Format; f != c.format {
					t.Fatalf("the format is %q", f)
				}
				var boxes, points []float32
				var labels, crowd []byte
				for k := range int(id % 5) {
					if k%2 == 1 && !c.all {
						continue
					}
					x, h := float32(k)*2, float32(8)
					if k%2 == 1 {
						h = 2
					}
					x = 40 - x - 12
					if c.format == "XYXY" {
						boxes = append(boxes, x, 2, x+12, 2+h)
					} else {
						boxes = append(boxes, x, 2, 12, h)
					}
					points = append(points, 39-2*float32(k), 2, 39-2*float32(k)-2, 4)
					labels = binary.LittleEndian.AppendUint64(labels, uint64(k))
					crowd = append(crowd, byte(10+k))
				}
				v := make([]driver.Value, len(boxedFields()))
				_ = boxedValue(id, v)
				for field, want := range map[string][]byte{
					"boxes": floats(boxes...), "points": floats(points...), "labels": labels, "crowd": crowd, "spots": floats(39-2*float32(id), 6), "tags": v[6].Bytes,
				} {
					if got := r.row(field, i); !bytes.Equal(got, want) {
						t.Errorf("record %d: %s is %v, not %v", id, field, got, want)
					}
				}
			})
			if seen != 53 {
				t.Errorf("%d records", seen)
			}
		})
	}
}

// Without an image, boxes come as stored, or in another format if requested. Several images have boxes each.
func TestBoxesOfSeveralImages(t *testing.T) {
	src := sourcetest.NewMemory(10, boxedFields(), boxedValue)
	eachRow(t, Config{BatchSize: 5, OpenSource: use(src), Fields: []string{"boxes", "labels"}}, func(r slotReader, i int, id int64) {
		v := make([]driver.Value, len(boxedFields()))
		_ = boxedValue(id, v)
		if got := r.row("boxes", i); !bytes.Equal(got, v[1].Bytes) || r.arrays["boxes"].Format != "XYWH" {
			t.Errorf("record %d: %v", id, got)
		}
	})
	outputs := []transform.Output{
		{Name: "one", Field: "image"}, {Name: "two", Field: "image", Ops: ops(`{"op":"CenterCrop","size":[10,4]}`, `{"op":"SanitizeBoundingBoxes"}`)},
		{Name: "boxes"}, {Name: "boxes_two", Field: "boxes", Follow: "two"},
		{Name: "labels"}, {Name: "labels_two", Field: "labels", Follow: "boxes_two"},
	}
	src = sourcetest.NewMemory(10, boxedFields(), boxedValue)
	eachRow(t, Config{BatchSize: 5, OpenSource: use(src), Outputs: outputs, Fields: []string{"labels"}}, func(r slotReader, i int, id int64) {
		var all, left []byte
		var boxes []float32
		for k := range int(id % 5) {
			all = binary.LittleEndian.AppendUint64(all, uint64(k))
			if k >= 3 { // reach over the left side of the crop, which begins at 8
				left = binary.LittleEndian.AppendUint64(left, uint64(k))
				boxes = append(boxes, 0, 1, float32(k)+6-8, map[bool]float32{true: 1, false: 4}[k%2 == 1])
			}
		}
		if got := r.row("labels", i); !bytes.Equal(got, all) {
			t.Errorf("record %d: all labels are %v", id, got)
		}
		if got := r.row("labels_two", i); !bytes.Equal(got, left) || !bytes.Equal(r.row("boxes_two", i), floats(boxes...)) {
			t.Errorf("record %d: labels %v, not %v; boxes %v, not %v", id, got, left, r.row("boxes_two", i), floats(boxes...))
		}
	})
}

func TestBoxesRefused(t *testing.T) {
	for _, c := range []struct {
		outputs []transform.Output
		fields  []string
		want    string
	}{
		{[]transform.Output{{Name: "image"}, {Name: "boxes", Ops: ops(`{"op":"CenterCrop","size":4}`)}}, nil, "by themselves"},
		{[]transform.Output{{Name: "boxes", Ops: ops(`{"op":"SanitizeBoundingBoxes"}`)}}, nil, "needs the size of an image"},
		{[]transform.Output{{Name: "image"}, {Name: "boxes", Follow: "picture"}}, nil, "there is no such output"},
		{[]transform.Output{{Name: "image"}, {Name: "boxes", Mask: true}}, nil, "for images and masks"},
		{[]transform.Output{{Name: "image"}, {Name: "labels", Ops: ops(`{"op":"SanitizeBoundingBoxes"}`)}}, nil, "takes no operations"},
		{[]transform.Output{{Name: "image"}, {Name: "boxes"}, {Name: "labels", Follow: "image"}}, nil, `belong to "boxes"`},
	} {
		src := sourcetest.NewMemory(10, boxedFields(), boxedValue)
		_, err := Open(testContext(t), Config{BatchSize: 4, OpenSource: use(src), Outputs: c.outputs, Fields: c.fields})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.outputs, err)
		}
	}
	// A record with a different number of labels and boxes.
	src := sourcetest.NewMemory(10, boxedFields(), func(id int64, v []driver.Value) error {
		err := boxedValue(id, v)
		if id == 3 {
			v[2].Bytes = v[2].Bytes[:8]
		}
		return err
	})
	p := mustOpen(t, Config{BatchSize: 10, OpenSource: use(src), Outputs: []transform.Output{{Name: "image", Ops: ops(`{"op":"SanitizeBoundingBoxes"}`)}}})
	p.Start(item.Position{})
	if _, err := p.Next(testContext(t)); err == nil || !strings.Contains(fmt.Sprint(err), `"labels" has 1 rows, but there are 3 boxes`) {
		t.Error(err)
	}
}
