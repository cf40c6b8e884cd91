package transform

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

const batchRows, batchClasses = 5, 4

// testBatch compiles a batch operation for images of 9x7 in a dtype and layout
// and makes a batch of 5 rows with room for 6.
func testBatch(t *testing.T, text string, dtype item.DType, layout item.Layout) (BatchOp, *Batch) {
	t.Helper()
	shape := []int{7, 9, 3}
	if layout == item.NCHW {
		shape = []int{3, 7, 9}
	}
	in := BatchInfo{
		Arrays: []item.Array{
			{Name: "image", DType: dtype, Shape: shape, RowBytes: int64(7 * 9 * 3 * dtype.Size())},
			{Name: "label", DType: item.I64, RowBytes: 8},
		},
		Classes: map[string]int{"label": batchClasses},
	}
	op, add, err := CompileBatchOp(json.RawMessage(text), in, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(add) != 1 || add[0].Name != "label_soft" || add[0].DType != item.F32 || add[0].Shape[0] != batchClasses {
		t.Fatalf("adds %+v", add)
	}
	b := &Batch{Rows: batchRows}
	for _, a := range append(in.Arrays, item.Array{Name: "label_soft", DType: item.F32, Shape: []int{batchClasses}, RowBytes: 4 * batchClasses}) {
		a.Offset = int64(len(b.Slot))
		b.Arrays = append(b.Arrays, a)
		b.Slot = append(b.Slot, make([]byte, (a.RowBytes*6+63)/64*64)...)
	}
	_, labels := b.Array("label")
	_, image := b.Array("image")
	for i := range batchRows {
		binary.LittleEndian.PutUint64(labels[8*i:], uint64([]int{0, 3, 3, 1, 2}[i]))
	}
	for i := range image {
		if dtype == item.U8 {
			image[i] = byte(i * 13)
		} else if i%4 == 3 {
			binary.LittleEndian.PutUint32(image[i-3:], math.Float32bits(float32(i)/100-3))
		}
	}
	return op, b
}

func softLabels(b *Batch) (rows [batchRows][batchClasses]float64) {
	_, soft := b.Array("label_soft")
	for i := range rows {
		for c := range rows[i] {
			rows[i][c] = float64(math.Float32frombits(binary.LittleEndian.Uint32(soft[(i*batchClasses+c)*4:])))
		}
	}
	return rows
}

func TestMixUp(t *testing.T) {
	for _, dtype := range []item.DType{item.U8, item.F32} {
		op, b := testBatch(t, `{"op":"MixUp","alpha":0.4}`, dtype, item.NHWC)
		arr, image := b.Array("image")
		before := append([]byte(nil), image...)
		const lam = 0.3
		if err := op.(*mixUp).apply(b, lam); err != nil {
			t.Fatal(err)
		}
		n := int(arr.RowBytes)
		value := func(data []byte, row, i int) float64 {
			row = (row + batchRows) % batchRows
			if dtype == item.U8 {
				return float64(data[row*n+i])
			}
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(data[row*n+4*i:])))
		}
		for row := range batchRows {
			for i := range n / dtype.Size() {
				want := lam*value(before, row, i) + (1-lam)*value(before, row-1, i)
				tol := 1e-5
				if dtype == item.U8 {
					tol = 0.5001
				}
				if got := value(image, row, i); math.Abs(got-want) > tol {
					t.Fatalf("%s row %d element %d is %v, want %v", dtype, row, i, got, want)
				}
			}
		}
		want := [batchRows][batchClasses]float64{
			{0.3, 0, 0.7, 0}, {0.7, 0, 0, 0.3}, {0, 0, 0, 1}, {0, 0.3, 0, 0.7}, {0, 0.7, 0.3, 0},
		}
		for i, row := range softLabels(b) {
			for c, v := range row {
				if math.Abs(v-want[i][c]) > 1e-6 {
					t.Fatalf("soft labels of row %d are %v, want %v", i, row, want[i])
				}
			}
		}
	}
}

func TestCutMix(t *testing.T) {
	for _, layout := range []item.Layout{item.NHWC, item.NCHW} {
		op, b := testBatch(t, `{"op":"CutMix"}`, item.U8, layout)
		_, image := b.Array("image")
		before := append([]byte(nil), image...)
		const x0, y0, x1, y1 = 2, 1, 7, 5
		const lam = 1 - float64((x1-x0)*(y1-y0))/(9*7)
		if err := op.(*cutMix).apply(b, x0, y0, x1, y1, lam); err != nil {
			t.Fatal(err)
		}
		const n = 7 * 9 * 3
		for row := range batchRows {
			for y := range 7 {
				for x := range 9 {
					for c := range 3 {
						at := (y*9+x)*3 + c
						if layout == item.NCHW {
							at = (c*7+y)*9 + x
						}
						from := row
						if x >= x0 && x < x1 && y >= y0 && y < y1 {
							from = (row + batchRows - 1) % batchRows
						}
						if image[row*n+at] != before[from*n+at] {
							t.Fatalf("layout %d row %d (%d, %d) channel %d", layout, row, x, y, c)
						}
					}
				}
			}
		}
		if got := softLabels(b)[0]; math.Abs(got[0]-lam) > 1e-6 || math.Abs(got[2]-(1-lam)) > 1e-6 {
			t.Fatalf("soft labels %v, lambda %v", got, lam)
		}
	}
}

func TestCutMixBoxes(t *testing.T) {
	op, _ := testBatch(t, `{"op":"CutMix"}`, item.U8, item.NHWC)
	c := op.(*cutMix)
	c.width, c.height = 200, 100
	// The expected share, from torchvision's formula by numerical integration
	// over lambda and the centre.
	want := 0.0
	const steps = 60
	for i := range steps {
		half := 0.5 * math.Sqrt(1-(float64(i)+0.5)/steps)
		hw, hh := int(half*200), int(half*100)
		var w, h float64
		for x := range 200 {
			w += float64(min(x+hw, 200) - max(x-hw, 0))
		}
		for y := range 100 {
			h += float64(min(y+hh, 100) - max(y-hh, 0))
		}
		want += 1 - w/200*h/100/(200*100)
	}
	want /= steps
	sum := 0.0
	for id := range int64(draws) {
		r := NewBatchRand(1, 0, id, 0)
		x0, y0, x1, y1, lam := c.drawBox(&r)
		if x0 < 0 || y0 < 0 || x1 > 200 || y1 > 100 || x0 > x1 || y0 > y1 || !(lam >= 0 && lam <= 1) {
			t.Fatalf("box (%d, %d, %d, %d), lambda %v", x0, y0, x1, y1, lam)
		}
		sum += lam
	}
	if math.Abs(sum/draws-want) > 0.01 {
		t.Errorf("mean share %v, want %v", sum/draws, want)
	}
}

// TestBatchComposites: whatever happens, soft labels are there and sum to 1.
func TestBatchComposites(t *testing.T) {
	for _, text := range []string{
		`{"op":"RandomChoice","transforms":[{"op":"MixUp","alpha":0.2},{"op":"CutMix"}],"p":[1,3]}`,
		`{"op":"RandomApply","p":0.5,"transforms":[{"op":"RandomChoice","transforms":[{"op":"MixUp"},{"op":"CutMix"}]}]}`,
		`{"op":"RandomApply","p":0,"transforms":[{"op":"MixUp"}]}`,
	} {
		kinds := map[string]int{}
		for id := range int64(200) {
			op, b := testBatch(t, text, item.U8, item.NHWC)
			_, image := b.Array("image")
			before := string(image)
			r := NewBatchRand(1, 0, id, 0)
			if err := op.ApplyBatch(&r, b); err != nil {
				t.Fatal(err)
			}
			if string(image) == before {
				kinds["kept"]++
			} else {
				kinds["mixed"]++
			}
			for i, row := range softLabels(b) {
				sum := 0.0
				for _, v := range row {
					sum += v
				}
				if math.Abs(sum-1) > 1e-6 {
					t.Fatalf("%s: soft labels of row %d are %v", text, i, row)
				}
			}
		}
		if strings.Contains(text, `"p":0,`) && kinds["mixed"] > 0 || strings.Contains(text, `"p":0.5`) && (kinds["mixed"] < 50 || kinds["kept"] < 50) {
			t.Errorf("%s: %v", text, kinds)
		}
	}
}

// TestMixTwice: a second operation mixes the soft labels of the first.
func TestMixTwice(t *testing.T) {
	first, b := testBatch(t, `{"op":"MixUp"}`, item.U8, item.NHWC)
	if err := first.(*mixUp).apply(b, 0.5); err != nil {
		t.Fatal(err)
	}
	op, add, err := CompileBatchOp(json.RawMessage(`{"op":"MixUp"}`), BatchInfo{Arrays: b.Arrays, Classes: map[string]int{"label": batchClasses}}, 1)
	if err != nil || len(add) != 0 {
		t.Fatal(err, add)
	}
	if err := op.(*mixUp).apply(b, 0.5); err != nil {
		t.Fatal(err)
	}
	// Row 1: half of (3, 0), half of (0, 2).
	if got := softLabels(b)[1]; got != [batchClasses]float64{0.5, 0, 0.25, 0.25} {
		t.Errorf("soft labels %v", got)
	}
}

func TestBatchErrors(t *testing.T) {
	image := item.Array{Name: "image", DType: item.U8, Shape: []int{7, 9, 3}}
	small := item.Array{Name: "small", DType: item.U8, Shape: []int{3, 4, 3}}
	deep := item.Array{Name: "deep", Kind: "image", DType: item.U16, Shape: []int{7, 9, 1}}
	array := item.Array{Name: "array", Kind: "array", DType: item.F32, Shape: []int{7, 9, 2}}
	label := item.Array{Name: "label", DType: item.I64}
	known := map[string]int{"label": 3}
	for _, c := range []struct {
		text    string
		arrays  []item.Array
		classes map[string]int
		want    string
	}{
		{`{"op":"MixUp"}`, []item.Array{label}, known, "no images"},
		{`{"op":"MixUp"}`, []item.Array{image}, known, "no labels"},
		{`{"op":"MixUp"}`, []item.Array{image, label, {Name: "index", DType: item.I64}}, nil, `no labels to mix; if "label" has class numbers, state it with .kinds({"label": "label"}) of the dataset`},
		{`{"op":"MixUp","labels":"label"}`, []item.Array{image, label}, nil, `"label" is a number and not a label; if "label" has class numbers, state it with .kinds({"label": "label"}) of the dataset`},
		{`{"op":"MixUp"}`, []item.Array{array, label}, known, "no images"},
		{`{"op":"MixUp"}`, []item.Array{image, deep, label}, known, `MixUp: takes images of uint8, float16, bfloat16 or float32, but "deep" is uint16`},
		{`{"op":"MixUp"}`, []item.Array{image, label}, map[string]int{"label": 0}, "give num_classes"},
		{`{"op":"MixUp","num_classes":2}`, []item.Array{image, label}, known, "from 3 to"},
		{`{"op":"MixUp","alpha":0}`, []item.Array{image, label}, known, "alpha must be a number above 0"},
		{`{"op":"MixUp","labels":"lable"}`, []item.Array{image, label}, known, `did you mean "label"?`},
		{`{"op":"MixUp","images":["imag"]}`, []item.Array{image, label}, known, `did you mean "image"?`},
		{`{"op":"CutMix"}`, []item.Array{image, small, label}, known, "different sizes"},
		{`{"op":"CutMixx"}`, []item.Array{image, label}, known, `did you mean "CutMix"?`},
		{`{"op":"RandomApply","transforms":[{"op":"MixUp"},{"op":"CutMix"}]}`, []item.Array{image, label}, known, "takes one operation"},
		{`{"op":"RandomChoice","transforms":[{"op":"MixUp"},{"op":"CutMix","num_classes":9}]}`, []item.Array{image, label}, known, "number of classes"},
	} {
		_, _, err := CompileBatchOp(json.RawMessage(c.text), BatchInfo{Arrays: c.arrays, Classes: c.classes}, 0)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
	op, b := testBatch(t, `{"op":"MixUp"}`, item.U8, item.NHWC)
	_, labels := b.Array("label")
	labels[0] = 4
	r := NewBatchRand(0, 0, 0, 0)
	if err := op.ApplyBatch(&r, b); err == nil || !strings.Contains(err.Error(), "class 4") {
		t.Errorf("a label out of range: %v", err)
	}
}

func TestChannelsLast(t *testing.T) {
	for _, c := range []struct {
		shape []int
		want  bool
	}{
		{[]int{9, 7, 3}, true}, {[]int{9, 7, 1}, true}, {[]int{9, 7, 4}, true}, {[]int{9, 7, 2}, true},
		{[]int{3, 9, 7}, false}, {[]int{4, 9, 7}, false}, {[]int{2, 9, 4}, false}, {[]int{1, 9, 2}, false},
	} {
		if got := channelsLast(c.shape); got != c.want {
			t.Errorf("%v: %v", c.shape, got)
		}
	}
}
