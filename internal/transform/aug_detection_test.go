package transform

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// RandomHSV equals OpenCV with the tables of Ultralytics (scripts/fixtures/hsv.py), within one level.
func TestHSV(t *testing.T) {
	b, err := os.ReadFile("testdata/hsv.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Gains    [3]float64
		RGB, Out []int
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	differ, all := 0, 0
	for i, c := range cases {
		img := &Pixels{W: len(c.RGB) / 3, H: 1, Type: item.RGB}
		for _, v := range c.RGB {
			img.Pix = append(img.Pix, byte(v))
		}
		if err := applyHSV(img, c.Gains); err != nil {
			t.Fatal(err)
		}
		for k, want := range c.Out {
			d := int(img.Pix[k]) - want
			if d != 0 {
				differ++
			}
			if all++; d < -1 || d > 1 {
				t.Fatalf("case %d, pixel %d: %v became %v, OpenCV has %v", i, k/3, c.RGB[k/3*3:][:3], img.Pix[k/3*3:][:3], c.Out[k/3*3:][:3])
			}
		}
	}
	if differ > all/50 {
		t.Errorf("%d of %d values differ", differ, all)
	}
}

func TestHSVRefused(t *testing.T) {
	for _, text := range []string{`{"op":"RandomHSV","hgain":2}`, `{"op":"RandomHSV","gain":0.1}`} {
		if _, err := parseOp(json.RawMessage(text), opContext{pixels: item.RGB}); err == nil {
			t.Error(text)
		}
	}
	if _, err := parseOp(json.RawMessage(`{"op":"RandomHSV"}`), opContext{pixels: item.PixelType{DType: item.U16, Channels: 3}}); err == nil || !strings.Contains(err.Error(), "uint8 with 3 channels") {
		t.Error(err)
	}
	bad := [180]byte{5: 180}
	if err := (cdec.Pixmap{Pix: make([]byte, 3), W: 1, H: 1, C: 3}).HSV(&bad, &[256]byte{}, &[256]byte{}); err == nil {
		t.Error("a hue of 180")
	}
}

// BenchmarkHSV is per pixel of a photograph's colours.
func BenchmarkHSV(b *testing.B) {
	img := &Pixels{W: 256, H: 256, Type: item.RGB, Pix: make([]byte, 256*256*3)}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range img.Pix {
		img.Pix[i] = byte(rng.Uint32())
	}
	for b.Loop() {
		if err := applyHSV(img, [3]float64{0.01, 0.3, -0.2}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(256*256), "ns/px")
}

// boxBatch is a batch of n images of side x side pixels in a layout, with boxes, labels
// and key points.
type boxBatch struct {
	Batch
	boxes  [][][4]float32 // by row, XYWH
	labels [][]int64
}

func newBoxBatch(n, side int, nchw bool, seed uint64) *boxBatch {
	rng := rand.New(rand.NewPCG(seed, 9))
	b := &boxBatch{}
	shape := []int{side, side, 3}
	if nchw {
		shape = []int{3, side, side}
	}
	const most = 4096
	b.Arrays = []item.Array{
		{Name: "image", Kind: "image", DType: item.U8, Shape: shape, RowBytes: int64(3 * side * side)},
		{Name: "mask", Kind: "mask", DType: item.U16, Shape: []int{side, side}, RowBytes: int64(2 * side * side)},
		{Name: "boxes", Kind: "boxes", Format: "XYWH", DType: item.F32, Shape: []int{4}, Ragged: true, Capacity: most},
		{Name: "labels", Kind: "multilabel", Boxes: "boxes", DType: item.I64, Ragged: true, Capacity: most},
		{Name: "points", Kind: "keypoints", Boxes: "boxes", DType: item.F32, Shape: []int{2, 2}, Ragged: true, Capacity: most},
	}
	at := int64(0)
	for i := range b.Arrays {
		a := &b.Arrays[i]
		if a.Ragged {
			a.Offsets = at
			at += 8 * int64(n+2)
		}
		a.Offset = at
		at += max(a.Capacity, a.RowBytes*int64(n+1))
	}
	b.Slot, b.Rows, b.Full = make([]byte, at), n, n+1 // one row is not in use
	for _, name := range []string{"image", "mask"} {
		_, data := b.Array(name)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
	}
	var boxes, labels, points []byte
	ends := [3][]int64{{0}, {0}, {0}}
	for range n {
		var row [][4]float32
		var classes []int64
		for range rng.IntN(4) {
			box := [4]float32{rng.Float32() * float32(side) / 2, rng.Float32() * float32(side) / 2, 3 + rng.Float32()*float32(side)/2, 3 + rng.Float32()*float32(side)/2}
			row, classes = append(row, box), append(classes, rng.Int64N(90))
			boxes = appendFloats(boxes, box[:]...)
			labels = binary.LittleEndian.AppendUint64(labels, uint64(classes[len(classes)-1]))
			points = appendFloats(points, box[0], box[1], box[0]+1, box[1]+2)
		}
		b.boxes, b.labels = append(b.boxes, row), append(b.labels, classes)
		for k, v := range [][]byte{boxes, labels, points} {
			ends[k] = append(ends[k], int64(len(v)))
		}
	}
	for k, v := range [][]byte{boxes, labels, points} {
		if err := b.SetRagged(&b.Arrays[2+k], v, ends[k]); err != nil {
			panic(err)
		}
	}
	return b
}

func appendFloats(b []byte, v ...float32) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func (b *boxBatch) info() BatchInfo {
	return BatchInfo{Arrays: b.Arrays}
}

func (b *boxBatch) ragged(name string, row int) []byte {
	a, _ := b.Array(name)
	v, ends := b.Ragged(a)
	return v[ends[row]:ends[row+1]]
}

// A mosaic shows, pixel by pixel, the four images, and its boxes are the kept ones of theirs, in any layout and for any
// number of images.
func TestMosaic(t *testing.T) {
	const side = 24
	for _, n := range []int{1, 2, 3, 4, 5, 9} {
		for _, nchw := range []bool{false, true} {
			b, old := newBoxBatch(n, side, nchw, uint64(n)), newBoxBatch(n, side, nchw, uint64(n))
			made, add, err := CompileBatchOp(json.RawMessage(`{"op":"Mosaic","p":0.8}`), b.info(), 0)
			if err != nil || len(add) > 0 {
				t.Fatal(add, err)
			}
			op := made.(*mosaic)
			if op.Grow("boxes") != 4 || op.Grow("labels") != 4 || op.Grow("image") != 1 {
				t.Fatal("the growth of arrays")
			}
			center := make([][2]int, n)
			rng := rand.New(rand.NewPCG(uint64(n), 4))
			for i := range center {
				if center[i] = [2]int{rng.IntN(side + 1), rng.IntN(side + 1)}; i == 3 {
					center[i] = [2]int{-1, -1}
				}
			}
			if err := op.apply(&b.Batch, center); err != nil {
				t.Fatal(err)
			}
			_, pix := b.Array("image")
			_, was := old.Array("image")
			_, mask := b.Array("mask")
			_, maskWas := old.Array("mask")
			for i, c := range center {
				for y := range side {
					for x := range side {
						k, sx, sy := 0, x, y
						if c[0] >= 0 {
							if sx = x + side - c[0]; x >= c[0] {
								k, sx = 1, x-c[0]
							}
							if sy = y + side - c[1]; y >= c[1] {
								k, sy = k+2, y-c[1]
							}
						}
						j := ((i-k)%n + n) % n
						for ch := range 3 {
							to, from := ((i*side+y)*side+x)*3+ch, ((j*side+sy)*side+sx)*3+ch
							if nchw {
								to, from = ((i*3+ch)*side+y)*side+x, ((j*3+ch)*side+sy)*side+sx
							}
							if pix[to] != was[from] {
								t.Fatalf("%d images, nchw %v, image %d: another pixel at (%d, %d), the centre is %v", n, nchw, i, x, y, c)
							}
						}
						if !slices.Equal(mask[2*((i*side+y)*side+x):][:2], maskWas[2*((j*side+sy)*side+sx):][:2]) {
							t.Fatalf("%d images, image %d: the mask has another class at (%d, %d)", n, i, x, y)
						}
					}
				}
				var boxes, labels, points []byte
				for k := range 4 {
					j := ((i-k)%n + n) % n
					dx, dy := float32(c[0]), float32(c[1])
					lo, hi := [2]float32{dx, dy}, [2]float32{side, side}
					if k%2 == 0 {
						dx, lo[0], hi[0] = dx-side, 0, float32(c[0])
					}
					if k < 2 {
						dy, lo[1], hi[1] = dy-side, 0, float32(c[1])
					}
					if c[0] < 0 {
						if k > 0 {
							break
						}
						dx, dy = 0, 0
					}
					for m, o := range old.boxes[j] {
						x0, y0 := o[0]+dx, o[1]+dy
						x1, y1 := o[0]+o[2]+dx, o[1]+o[3]+dy
						if c[0] >= 0 {
							area := (x1 - x0) * (y1 - y0)
							x0, x1 = min(max(x0, lo[0]), hi[0]), min(max(x1, lo[0]), hi[0])
							y0, y1 = min(max(y0, lo[1]), hi[1]), min(max(y1, lo[1]), hi[1])
							if x1-x0 <= 2 || y1-y0 <= 2 || (x1-x0)*(y1-y0) <= 0.1*area {
								continue
							}
						}
						boxes = appendFloats(boxes, x0, y0, x1-x0, y1-y0)
						labels = binary.LittleEndian.AppendUint64(labels, uint64(old.labels[j][m]))
						points = appendFloats(points, o[0]+dx, o[1]+dy, o[0]+1+dx, o[1]+2+dy)
					}
				}
				near := func(a, b []byte) bool {
					if len(a) != len(b) {
						return false
					}
					for at := 0; at < len(a); at += 4 {
						x, y := math.Float32frombits(binary.LittleEndian.Uint32(a[at:])), math.Float32frombits(binary.LittleEndian.Uint32(b[at:]))
						if d := x - y; d > 1e-4 || d < -1e-4 {
							return false
						}
					}
					return true
				}
				if !near(b.ragged("boxes", i), boxes) || !slices.Equal(b.ragged("labels", i), labels) || !near(b.ragged("points", i), points) {
					t.Fatalf("%d images, image %d: boxes %v, not %v; the centre is %v", n, i, b.ragged("boxes", i), boxes, c)
				}
			}
		}
	}
}

// Each record draws its own numbers, as often as p says.
func TestMosaicDraws(t *testing.T) {
	b := newBoxBatch(8, 16, false, 1)
	made, _, err := CompileBatchOp(json.RawMessage(`{"op":"RandomApply","transforms":[{"op":"Mosaic","p":0.5}],"p":1}`), b.info(), 0)
	if err != nil || made.(Grower).Grow("boxes") != 4 {
		t.Fatal(err)
	}
	moved := 0
	for seed := range uint64(50) {
		b, old := newBoxBatch(8, 16, false, 1), newBoxBatch(8, 16, false, 1)
		r := NewBatchRand(seed, 0, 0, 0)
		if err := made.ApplyBatch(&r, &b.Batch); err != nil {
			t.Fatal(err)
		}
		_, pix := b.Array("image")
		_, was := old.Array("image")
		for i := range 8 {
			if !slices.Equal(pix[i*768:(i+1)*768], was[i*768:(i+1)*768]) {
				moved++
			}
		}
	}
	if moved < 150 || moved > 250 {
		t.Errorf("%d of 400 were moved", moved)
	}
}

// MixUp of images with boxes has the boxes of both, its own first.
func TestMixUpBoxes(t *testing.T) {
	b, old := newBoxBatch(5, 8, false, 3), newBoxBatch(5, 8, false, 3)
	made, add, err := CompileBatchOp(json.RawMessage(`{"op":"MixUp","alpha":32}`), b.info(), 0)
	if err != nil || len(add) > 0 || made.(Grower).Grow("points") != 2 {
		t.Fatal(add, err)
	}
	r := NewBatchRand(1, 0, 0, 0)
	if err := made.ApplyBatch(&r, &b.Batch); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		j := (i + 4) % 5
		for _, name := range []string{"labels", "points"} {
			if want := slices.Concat(old.ragged(name, i), old.ragged(name, j)); !slices.Equal(b.ragged(name, i), want) {
				t.Errorf("row %d: %s are %v, not %v", i, name, b.ragged(name, i), want)
			}
		}
		if len(b.ragged("boxes", i)) != len(old.ragged("boxes", i))+len(old.ragged("boxes", j)) {
			t.Errorf("row %d has other boxes", i)
		}
	}
	if fmt.Sprint(b.ragged("boxes", 4)) == "" {
		t.Error("nothing")
	}
}

func TestBoxBatchOpsRefused(t *testing.T) {
	b := newBoxBatch(2, 8, false, 1)
	two := append(slices.Clone(b.Arrays), item.Array{Name: "other", Kind: "image", DType: item.U8, Shape: []int{8, 8, 3}})
	for _, c := range []struct {
		op   string
		in   BatchInfo
		want string
	}{
		{`{"op":"CutMix"}`, b.info(), "use MixUp or Mosaic"},
		{`{"op":"Mosaic"}`, BatchInfo{Arrays: b.Arrays[:2]}, "no boxes"},
		{`{"op":"Mosaic"}`, BatchInfo{Arrays: two}, "several images and boxes"},
		{`{"op":"Mosaic","p":2}`, b.info(), "from 0 to 1"},
		{`{"op":"MixUp"}`, BatchInfo{Arrays: b.Arrays[:2]}, "no labels"},
	} {
		if _, _, err := CompileBatchOp(json.RawMessage(c.op), c.in, 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.op, err, c.want)
		}
	}
}
