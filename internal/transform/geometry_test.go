package transform

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// torchvisionGolden holds torchvision's results; testdata/geometry.py writes it.
type torchvisionGolden struct {
	Resize     [][]int             `json:"resize"`
	CenterCrop [][]json.RawMessage `json:"center_crop"`
	RRC        []struct {
		W, H         int
		Scale, Ratio []float64
		Stats        map[string]struct{ Points, Share []float64 }
	} `json:"rrc"`
	RandomCrop []struct {
		W, H, CW, CH int
		Padding      []int
		Need         bool
		Left, Top    []int
	} `json:"random_crop"`
}

func readGolden(t *testing.T) *torchvisionGolden {
	t.Helper()
	data, err := os.ReadFile("testdata/geometry.json")
	if err != nil {
		t.Fatal(err)
	}
	var g torchvisionGolden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return &g
}

func TestResizeSizesAreTorchvisions(t *testing.T) {
	for _, c := range readGolden(t).Resize {
		w, h, size, maxSize := c[0], c[1], c[2], c[3]
		text := fmt.Sprintf(`{"op":"Resize","size":%d,"max_size":%d}`, size, maxSize)
		if maxSize == 0 {
			text = fmt.Sprintf(`{"op":"Resize","size":%d}`, size)
		} else if size == 0 {
			text = fmt.Sprintf(`{"op":"Resize","size":null,"max_size":%d}`, maxSize)
		}
		gw, gh := mustOp(t, text).(GeometryOp).OutSize(w, h)
		if gw != c[4] || gh != c[5] {
			t.Errorf("%s of %dx%d gives %dx%d, torchvision %dx%d", text, w, h, gw, gh, c[4], c[5])
		}
	}
}

// runOps makes the output of a list for an image of c channels.
func runOps(t testing.TB, s *Scratch, out Output, src []byte, w, h int, id int64) ([]byte, *Program) {
	t.Helper()
	p, err := Compile(out, Input{W: w, H: h})
	if err != nil {
		t.Fatal(err)
	}
	var r Run
	if err := r.Begin(p, 1, 2, id, w, h); err != nil {
		t.Fatal(err)
	}
	row := make([]byte, p.RowBytes())
	for i := range row {
		row[i] = 0xee
	}
	if r.CopyRaw(row, src) {
		return row, p
	}
	if r.Empty() {
		if err := r.Finish(s, nil, row); err != nil {
			t.Fatal(err)
		}
		return row, p
	}
	st, dst := p.Store, row
	if !r.Direct() {
		st = p.In.Plain()
		dst = make([]byte, r.PixelBytes())
	}
	g := r.Geometry()
	if err := s.kernel.Resample(dst, src, w, h, p.In, &g, &st); err != nil {
		t.Fatal(err)
	}
	if r.Direct() {
		err = r.FinishStored(row)
	} else {
		err = r.Finish(s, dst, row)
	}
	if err != nil {
		t.Fatal(err)
	}
	return row, p
}

func list(texts ...string) []json.RawMessage {
	var l []json.RawMessage
	for _, s := range texts {
		l = append(l, json.RawMessage(s))
	}
	return l
}

func TestCenterCropIsTorchvisions(t *testing.T) {
	s := testScratch(t)
	for _, c := range readGolden(t).CenterCrop {
		var n [4]int
		for i := range n {
			if err := json.Unmarshal(c[i], &n[i]); err != nil {
				t.Fatal(err)
			}
		}
		var want []int
		if err := json.Unmarshal(c[4], &want); err != nil {
			t.Fatal(err)
		}
		src := make([]byte, n[0]*n[1])
		for i := range src {
			src[i] = byte(i + 1)
		}
		out := Output{Name: "m", Mask: true, Ops: list(fmt.Sprintf(`{"op":"CenterCrop","size":[%d,%d]}`, n[3], n[2]))}
		got, _ := runOps(t, s, out, src, n[0], n[1], 0)
		for i := range want {
			if int(got[i]) != want[i] {
				t.Fatalf("CenterCrop of %dx%d to %dx%d: pixel %d is %d, torchvision has %d", n[0], n[1], n[2], n[3], i, got[i], want[i])
			}
		}
	}
}

// The distribution of each parameter of RandomResizedCrop agrees with
// torchvision's at each of its quantiles, within the noise of both samples.
func TestRandomResizedCropIsDistributedAsTorchvisions(t *testing.T) {
	const draws = 20000
	for _, c := range readGolden(t).RRC {
		op := mustOp(t, fmt.Sprintf(`{"op":"RandomResizedCrop","size":224,"scale":[%v,%v],"ratio":[%v,%v]}`,
			c.Scale[0], c.Scale[1], c.Ratio[0], c.Ratio[1])).(GeometryOp)
		cols := map[string][]float64{}
		for id := range int64(draws) {
			r := newRand(1, 0, id, "image", 0)
			s := op.Draw(&r, c.W, c.H)
			if s.X < 0 || s.Y < 0 || s.W < 1 || s.H < 1 || s.X+s.W > c.W || s.Y+s.H > c.H || s.RW != 224 || s.RH != 224 {
				t.Fatalf("%dx%d: %+v is not inside", c.W, c.H, s)
			}
			cols["left"] = append(cols["left"], float64(s.X))
			cols["top"] = append(cols["top"], float64(s.Y))
			cols["width"] = append(cols["width"], float64(s.W))
			cols["height"] = append(cols["height"], float64(s.H))
		}
		for name, v := range cols {
			sort.Float64s(v)
			st := c.Stats[name]
			for i, point := range st.Points {
				got := float64(sort.SearchFloat64s(v, math.Nextafter(point, math.Inf(1)))) / draws
				// Five standard deviations of the difference of two samples.
				tol := 5*math.Sqrt(2*st.Share[i]*(1-st.Share[i])/draws) + 1e-9
				if math.Abs(got-st.Share[i]) > tol {
					t.Errorf("%dx%d scale %v ratio %v: %.4f of %s is at most %v, torchvision has %.4f",
						c.W, c.H, c.Scale, c.Ratio, got, name, point, st.Share[i])
				}
			}
		}
	}
}

func TestRandomCropRange(t *testing.T) {
	for _, c := range readGolden(t).RandomCrop {
		pad, _ := json.Marshal(c.Padding)
		op := mustOp(t, fmt.Sprintf(`{"op":"RandomCrop","size":[%d,%d],"padding":%s,"pad_if_needed":%v}`, c.CH, c.CW, pad, c.Need)).(GeometryOp)
		minX, maxX, minY, maxY := math.MaxInt, math.MinInt, math.MaxInt, math.MinInt
		count := map[int]int{}
		for id := range int64(4000) {
			r := newRand(3, 1, id, "image", 0)
			s := op.Draw(&r, c.W, c.H)
			minX, maxX = min(minX, s.X), max(maxX, s.X)
			minY, maxY = min(minY, s.Y), max(maxY, s.Y)
			count[s.X]++
		}
		if minX != c.Left[0] || maxX != c.Left[1] || minY != c.Top[0] || maxY != c.Top[1] {
			t.Errorf("%+v: x in [%d, %d], y in [%d, %d]", c, minX, maxX, minY, maxY)
		}
		want := 4000 / float64(len(count))
		for x, n := range count {
			if math.Abs(float64(n)-want) > 6*math.Sqrt(want) {
				t.Errorf("%+v: x = %d came %d times, expected %.0f", c, x, n, want)
			}
		}
	}
	op := mustOp(t, `{"op":"RandomCrop","size":20}`).(GeometryOp)
	r := newRand(0, 0, 0, "image", 0)
	if s := op.Draw(&r, 10, 30); s.Err == nil {
		t.Error("a crop larger than the image was drawn")
	}
}

// Geometric operations fused into one geometry give the pixels of doing them
// one after the other.
func TestFusedIsOneAfterTheOther(t *testing.T) {
	s := testScratch(t)
	lists := [][]string{
		{`{"op":"RandomCrop","size":[9,11]}`, `{"op":"RandomHorizontalFlip"}`, `{"op":"CenterCrop","size":[5,8]}`, `{"op":"RandomVerticalFlip"}`, `{"op":"RandomCrop","size":4}`},
		{`{"op":"RandomCrop","size":[20,22],"padding":3,"fill":[9,8,7]}`, `{"op":"RandomHorizontalFlip"}`, `{"op":"RandomVerticalFlip"}`, `{"op":"RandomCrop","size":18,"padding":2}`},
		{`{"op":"RandomHorizontalFlip"}`, `{"op":"RandomCrop","size":[40,40],"padding":20}`, `{"op":"CenterCrop","size":50}`},
		{`{"op":"Resize","size":[15,14],"interpolation":"nearest"}`, `{"op":"RandomHorizontalFlip"}`, `{"op":"RandomCrop","size":7}`},
		{`{"op":"RandomHorizontalFlip"}`, `{"op":"Resize","size":[15,14],"interpolation":"nearest"}`, `{"op":"CenterCrop","size":30}`},
		{`{"op":"RandomResizedCrop","size":12}`, `{"op":"RandomVerticalFlip"}`, `{"op":"Resize","size":20}`, `{"op":"CenterCrop","size":[19,31]}`},
		{`{"op":"RandomCrop","size":3,"padding":[40,0,0,0]}`},
	}
	const w, h = 23, 21
	src := make([]byte, w*h*3)
	for i := range src {
		src[i] = byte(i*7 + i/50)
	}
	for _, l := range lists {
		for id := range int64(40) {
			got, p := runOps(t, s, Output{Name: "image", Ops: list(l...)}, src, w, h, id)
			px := Pixels{Pix: append([]byte(nil), src...), W: w, H: h, Type: item.RGB, scratch: s}
			for i, text := range l {
				r := newRand(1, 2, id, "image", i)
				step := mustOp(t, text).(GeometryOp).Draw(&r, px.W, px.H)
				// Each part of the step alone.
				for _, part := range []Step{
					{HasCrop: step.HasCrop, X: step.X, Y: step.Y, W: step.W, H: step.H, Fill: step.Fill},
					{HasResize: step.HasResize, RW: step.RW, RH: step.RH, Filter: step.Filter},
					{FlipH: step.FlipH}, {FlipV: step.FlipV},
				} {
					if err := px.Transform(&part); err != nil {
						t.Fatal(err)
					}
				}
			}
			if px.W != p.W || px.H != p.H || string(px.Pix) != string(got) {
				t.Fatalf("%v: record %d differs (%dx%d)", l, id, px.W, px.H)
			}
		}
	}
}

func TestStoreFolding(t *testing.T) {
	s := testScratch(t)
	src := []byte{0, 128, 255, 10, 20, 30}
	norm := `{"op":"Normalize","mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225]}`
	out := Output{Name: "x", Layout: "NCHW", Ops: list(`{"op":"ToDtype","dtype":"float32","scale":true}`, norm)}
	row, p := runOps(t, s, out, src, 2, 1, 0)
	if p.Store.DType != item.F32 || fmt.Sprint(p.Shape()) != "[3 1 2]" {
		t.Fatalf("%+v %v", p.Store, p.Shape())
	}
	mean, std := []float64{0.485, 0.456, 0.406}, []float64{0.229, 0.224, 0.225}
	for c := range 3 {
		for x := range 2 {
			bits := uint32(0)
			for b := range 4 {
				bits |= uint32(row[(c*2+x)*4+b]) << (8 * b)
			}
			got, want := float64(math.Float32frombits(bits)), (float64(src[x*3+c])/255-mean[c])/std[c]
			if math.Abs(got-want) > 2e-6 {
				t.Errorf("channel %d pixel %d is %v, want %v", c, x, got, want)
			}
		}
	}
	// Without scale the values stay 0..255.
	row, _ = runOps(t, s, Output{Name: "x", Ops: list(`{"op":"ToDtype","dtype":"float32"}`)}, src, 2, 1, 0)
	if math.Float32frombits(uint32(row[8])|uint32(row[9])<<8|uint32(row[10])<<16|uint32(row[11])<<24) != 255 {
		t.Error("255 became something else")
	}
}

func TestCompileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"op":"Normalise","mean":0,"std":1}`:                      `output "image": operation 1: there is no operation "Normalise"; did you mean "Normalize"?`,
		`{"op":"RandomResizedCrop","size":8,"ration":[1,2]}`:       `did you mean "ratio"?`,
		`{"op":"RandomResizedCrop"}`:                               "RandomResizedCrop: size is missing",
		`{"op":"RandomResizedCrop","size":[1,2,3]}`:                "or (height, width)",
		`{"op":"RandomResizedCrop","size":8,"scale":[1,0.5]}`:      "the smaller one first",
		`{"op":"RandomResizedCrop","size":-8}`:                     "must be a whole number from 1",
		`{"op":"RandomHorizontalFlip","p":2}`:                      "p must be a number from 0 to 1",
		`{"op":"RandomHorizontalFlip","p":"x"}`:                    "p must be a number",
		`{"op":"Resize","size":256}`:                               "its size differs from record to record",
		`{"op":"Resize","size":[8,8],"antialias":false}`:           "antialias must be True",
		`{"op":"Resize","size":[8,8],"interpolation":"lanczos"}`:   `must be "bilinear", "bicubic" or "nearest"`,
		`{"op":"Normalize","mean":[0],"std":[1]}`:                  `put ToDtype("float32", scale=True) before it`,
		`{"op":"ToDtype","dtype":"int8"}`:                          `must be "uint8", "uint16", "float16", "bfloat16" or "float32"`,
		`{"size":3}`:                                               "lacks its name",
		`[]`:                                                       "must be an object",
		`{"op":"RandomCrop","size":8,"padding_mode":"reflection"}`: `must be "constant", "edge", "reflect" or "symmetric"`,
	} {
		_, err := Compile(Output{Name: "image", Ops: list(text)}, Input{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", text, err, want)
		}
	}
	for _, l := range [][]string{
		{`{"op":"ToDtype","dtype":"float32"}`, `{"op":"RandomResizedCrop","size":8}`},
		{`{"op":"ToDtype","dtype":"float32"}`, `{"op":"ToDtype","dtype":"uint8"}`},
	} {
		if _, err := Compile(Output{Name: "image", Ops: list(l...)}, Input{W: 9, H: 9}); err == nil {
			t.Errorf("%v was accepted", l)
		}
	}
	if _, err := Compile(Output{Name: "image", Layout: "HWC"}, Input{W: 9, H: 9}); err == nil {
		t.Error("layout HWC was accepted")
	}
}

// The numbers of an operation do not depend on the other operations of the
// list being drawn from, nor on other outputs.
func TestRandIsAFunctionOfItsKey(t *testing.T) {
	a, b := newRand(1, 2, 3, "image", 4), newRand(1, 2, 3, "image", 4)
	for range 10 {
		if a.Uint64() != b.Uint64() {
			t.Fatal("not reproducible")
		}
	}
	seen := map[uint64]string{}
	for seed := range uint64(3) {
		for epoch := range int64(3) {
			for rec := range int64(50) {
				for _, name := range []string{"image", "view2"} {
					for op := range 4 {
						r := newRand(seed, epoch, rec, name, op)
						key := fmt.Sprint(seed, epoch, rec, name, op)
						v := r.Uint64()
						if other, ok := seen[v]; ok {
							t.Fatalf("%s and %s draw the same", key, other)
						}
						seen[v] = key
					}
				}
			}
		}
	}
	// Pinned: a change here changes the meaning of every seed.
	r := newRand(1, 2, 3, "image", 4)
	if got := r.Uint64(); got != pinnedDraw {
		t.Fatalf("the first number is %#x, was %#x", got, uint64(pinnedDraw))
	}
	var mean, square float64
	const n = 100000
	for range n {
		x := r.Normal()
		mean += x / n
		square += x * x / n
	}
	if math.Abs(mean) > 0.02 || math.Abs(square-1) > 0.02 {
		t.Errorf("normal numbers have mean %v and mean square %v", mean, square)
	}
}

const pinnedDraw = 0x56dd486b41f1979e

func FuzzCompile(f *testing.F) {
	f.Add(`{"name":"image","ops":[{"op":"Resize","size":8},{"op":"CenterCrop","size":[3,4]}],"layout":"NCHW"}`)
	f.Add(`{"name":"m","mask":true,"ops":[{"op":"RandomCrop","size":4,"padding":[1,2,3,4],"fill":3}]}`)
	f.Add(`{"ops":[{"op":"ToDtype","dtype":"float16","scale":true},{"op":"Normalize","mean":[1,2,3],"std":0.1}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var out Output
		if json.Unmarshal([]byte(text), &out) != nil {
			return
		}
		p, err := Compile(out, Input{W: 7, H: 5})
		if err != nil || p.RowBytes() > 1<<20 {
			return
		}
		var r Run
		for id := range int64(3) {
			if err := r.Begin(p, 1, 1, id, 7, 5); err == nil && r.Direct() {
				g := r.Geometry()
				if g.OutW() != int32(p.W) || g.OutH() != int32(p.H) {
					t.Fatalf("%s: geometry %+v for %dx%d", text, g, p.W, p.H)
				}
			}
		}
	})
}
