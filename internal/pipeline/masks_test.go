package pipeline

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// pairs is a source of images and masks of w x h. The first channel of an image
// is the class number of its pixels, which for dtype Uint16 is the lower half of
// it.
func pairs(n int64, w, h int, dtype driver.DType) *sourcetest.Memory {
	size := dtype.Size()
	fields := []driver.Field{
		{Name: "image", Kind: driver.KindImage, Width: int32(w), Height: int32(h), Channels: 3, MaxBytes: int64(3 * w * h)},
		{Name: "mask", Kind: driver.KindMask, DType: dtype, Width: int32(w), Height: int32(h), MaxBytes: int64(size * w * h), Classes: []string{"sky", "road"}},
		{Name: "label", Kind: driver.KindLabel, Classes: []string{"day", "night"}},
	}
	return sourcetest.NewMemory(n, fields, func(id int64, v []driver.Value) error {
		image, mask := make([]byte, 0, 3*w*h), make([]byte, 0, size*w*h)
		for y := range h {
			for x := range w {
				class := uint16(id)*31 + uint16(y*w+x)*7
				image = append(image, byte(class), byte(x), byte(y))
				if size == 1 {
					mask = append(mask, byte(class))
				} else {
					mask = binary.LittleEndian.AppendUint16(mask, class)
				}
			}
		}
		raw := driver.Value{Codec: driver.CodecRaw, Width: int32(w), Height: int32(h)}
		v[0], v[1] = raw, raw
		v[0].Bytes, v[0].Channels = image, 3
		v[1].Bytes = mask // a mask has one channel by default
		return nil
	})
}

var (
	cropNearest   = `{"op":"RandomResizedCrop","size":[13,17],"scale":[0.1,1],"interpolation":"nearest"}`
	affineNearest = `{"op":"RandomAffine","degrees":40,"translate":[0.2,0.2],"scale":[0.7,1.4]}`
	moves         = []string{cropNearest, opFlip, affineNearest, `{"op":"RandomVerticalFlip"}`, `{"op":"RandomCrop","size":[12,12],"padding":2}`}
)

// A mask is detected as a mask, and moves with its image.
func TestMasksMoveWithImages(t *testing.T) {
	for _, dtype := range []driver.DType{driver.Uint8, driver.Uint16} {
		t.Run(string(dtype), func(t *testing.T) { masksMove(t, dtype) })
	}
}

func masksMove(t *testing.T, dtype driver.DType) {
	outputs := func(last ...string) []transform.Output {
		return []transform.Output{
			{Name: "image", Ops: ops(append(slices.Clone(moves), last...)...)},
			{Name: "mask", Ops: ops(moves...)},
		}
	}
	p := mustOpen(t, Config{OpenSource: use(pairs(500, 23, 19, dtype)), BatchSize: 100, Shuffle: true, Seed: 4, Threads: 2, Outputs: outputs()})
	for _, a := range p.Info().Arrays {
		if a.Name == "mask" && (a.Kind != "mask" || a.DType.String() != string(dtype) || !slices.Equal(a.Shape, []int{12, 12})) {
			t.Fatalf("%+v", a)
		}
	}
	if c := p.Info().Classes; len(c["mask"]) != 2 || len(c["label"]) != 2 {
		t.Errorf("classes are %v", c)
	}
	p.Start(item.Position{})
	values, size := map[uint16]bool{}, dtype.Size()
	for rows := 0; rows < 10_000; {
		ev, err := p.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind != EventBatch {
			continue
		}
		r := newSlotReader(p, ev)
		for i := range ev.Rows {
			image, mask := r.row("image", i), r.row("mask", i)
			for k := range len(mask) / size {
				class := uint16(mask[size*k])
				if size == 2 {
					class = binary.LittleEndian.Uint16(mask[2*k:])
				}
				if image[3*k] != byte(class) {
					t.Fatalf("epoch %d, record %d, pixel %d: class %d lies on %v", ev.Epoch, r.int("index", i), k, class, image[3*k:3*k+3])
				}
				values[class] = true
			}
			rows++
		}
		p.Release(ev.Slot)
	}
	if len(values) < 256*size {
		t.Errorf("%d classes came", len(values))
	}
	// Operations on colours and types change the image and not the mask.
	q := mustOpen(t, Config{OpenSource: use(pairs(500, 23, 19, dtype)), BatchSize: 100, Shuffle: true, Seed: 4, Threads: 1, Layout: "NCHW",
		Outputs: outputs(`{"op":"ColorJitter","brightness":0.9}`, `{"op":"ToDtype","dtype":"float32","scale":true}`)})
	p.Start(item.Position{})
	q.Start(item.Position{})
	for range 3 {
		a, err := p.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		b, err := q.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.Rows {
			if !bytes.Equal(newSlotReader(p, a).row("mask", i), newSlotReader(q, b).row("mask", i)) {
				t.Fatal("the mask depends on what is done to the image's colours")
			}
		}
		p.Release(a.Slot)
		q.Release(b.Slot)
	}
}

// Stored masks come like any field; an image may be used as a mask.
func TestMasksAsStored(t *testing.T) {
	p := mustOpen(t, Config{OpenSource: use(pairs(8, 5, 4, driver.Uint8)), BatchSize: 8})
	p.Start(item.Position{})
	ev, err := p.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	r := newSlotReader(p, ev)
	for i := range ev.Rows {
		image, mask := r.row("image", i), r.row("mask", i)
		if len(mask) != 20 || mask[7] != image[21] {
			t.Errorf("row %d: %v", i, mask)
		}
	}
}

func TestFollowIsKnown(t *testing.T) {
	for _, c := range []struct {
		outputs []transform.Output
		want    string
	}{
		{[]transform.Output{{Name: "image"}, {Name: "mask", Follow: "imaeg"}}, `output "mask": follow is "imaeg", and there is no such output; did you mean "image"?`},
		{[]transform.Output{{Name: "mask", Follow: "image"}}, `output "mask": follow is "image", and there is no such output`},
	} {
		cfg := Config{OpenSource: use(pairs(8, 5, 4, driver.Uint8)), BatchSize: 8, Outputs: c.outputs}
		if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// Arrays with operations are pixels.
func TestArraysWithOperations(t *testing.T) {
	src := func(f driver.Field) Config {
		f.Name, f.Kind = "x", driver.KindArray
		n, err := driver.ArrayBytes(f.DType, f.Shape)
		if err != nil {
			t.Fatal(err)
		}
		make := func(id int64, v []driver.Value) error {
			for k := range n {
				v[0].Bytes = append(v[0].Bytes, byte(id+k*3))
			}
			return nil
		}
		return Config{BatchSize: 6, OpenSource: use(sourcetest.NewMemory(6, []driver.Field{f}, make)), Outputs: []transform.Output{
			{Name: "cut", Field: "x", Ops: ops(`{"op":"CenterCrop","size":[2,4]}`)}, {Name: "x"},
		}}
	}
	p := mustOpen(t, src(driver.Field{DType: driver.Uint8, Shape: []int{6, 8, 3}}))
	p.Start(item.Position{})
	ev, err := p.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	r := newSlotReader(p, ev)
	for i := range ev.Rows {
		x, cut := r.row("x", i), r.row("cut", i)
		for y := range 2 {
			if !bytes.Equal(cut[12*y:12*y+12], x[24*(y+2)+6:][:12]) {
				t.Errorf("row %d: %v of %v", i, cut, x)
			}
		}
	}
	// The same holds for floating-point numbers, which keep their values.
	p = mustOpen(t, src(driver.Field{DType: driver.Float32, Shape: []int{6, 8}}))
	p.Start(item.Position{})
	if ev, err = p.Next(testContext(t)); err != nil {
		t.Fatal(err)
	}
	r = newSlotReader(p, ev)
	if a := r.arrays["cut"]; a.DType != item.F32 || !slices.Equal(a.Shape, []int{2, 4}) {
		t.Errorf("%+v", a)
	}
	for i := range ev.Rows {
		x, cut := r.row("x", i), r.row("cut", i)
		for y := range 2 {
			if !bytes.Equal(cut[16*y:16*y+16], x[32*(y+2)+8:][:16]) {
				t.Errorf("row %d: %v of %v", i, cut, x)
			}
		}
	}
	for shape, want := range map[[3]int]string{
		{6, 8, 9}: `output "cut": field "x" has shape [6 8 9]; operations work on arrays of shape [H, W] or [H, W, C] with up to 4 channels`,
	} {
		if _, err := Open(t.Context(), src(driver.Field{DType: driver.Uint8, Shape: shape[:]})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := Open(t.Context(), src(driver.Field{DType: driver.Int64, Shape: []int{6, 8}})); err == nil || !strings.Contains(err.Error(), "operations work on uint8, uint16 and float32, not on int64") {
		t.Errorf("got %v", err)
	}
}
