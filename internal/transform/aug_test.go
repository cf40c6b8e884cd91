package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// testKernel resamples with the real kernels.
type testKernel struct{ dec *cdec.Decoder }

func (k testKernel) Resample(dst, src []byte, w, h int, t item.PixelType, g *item.Geometry, st *item.Store) error {
	format := cdec.FormatPixels
	switch {
	case st.DType == item.U16:
	case t == item.RGB:
		format = cdec.FormatRGB
	case t == item.PixelType{DType: item.U8, Channels: 1}:
		format = cdec.FormatGray
	}
	jobs := []cdec.Job{{Format: format, Pixels: t, Src: src[:w*h*t.Size()], Width: int32(w), Height: int32(h), Geom: *g, Store: *st, Dst: dst}}
	k.dec.Run(jobs)
	return jobs[0].Err
}

func testScratch(t testing.TB) *Scratch {
	t.Helper()
	dec, err := cdec.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	s := NewScratch(testKernel{dec}, arena.NewBudget(1<<30))
	t.Cleanup(func() { s.Free(); dec.Close() })
	return s
}

func mustOp(t testing.TB, text string) Op {
	t.Helper()
	op, err := parseOp(json.RawMessage(text), opContext{pixels: item.RGB})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return op
}

// testPixels is an image with values that differ everywhere.
func testPixels(s *Scratch, w, h, c int) *Pixels {
	p := &Pixels{Pix: make([]byte, w*h*c), W: w, H: h, Type: item.PixelType{DType: item.U8, Channels: int32(c)}, scratch: s}
	for i := range p.Pix {
		p.Pix[i] = byte(i*7 + i/w)
	}
	return p
}

type spaceFile struct {
	AutoAugment, RandAugment, TrivialAugmentWide map[string]struct {
		Signed     bool
		Magnitudes []float64
	}
	Policies map[string][][2][3]any
	Boxes    []struct {
		Op     string
		Params struct {
			Angle, Scale     float64
			Translate, Shear [2]float64
		}
		Box [4]float64
	}
}

func readSpace(t *testing.T) *spaceFile {
	t.Helper()
	data, err := os.ReadFile("testdata/aug_space.json")
	if err != nil {
		t.Fatal(err)
	}
	var f spaceFile
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return &f
}

// TestPolicySpaces holds the magnitudes and policies to torchvision's.
func TestPolicySpaces(t *testing.T) {
	f := readSpace(t)
	for _, c := range []struct {
		name  string
		space *policySpace
		bins  int
		want  map[string]struct {
			Signed     bool
			Magnitudes []float64
		}
		last int
	}{
		{"AutoAugment", &autoSpace, autoBins, f.AutoAugment, polInvert},
		{"RandAugment", &autoSpace, 31, f.RandAugment, polEqualize},
		{"TrivialAugmentWide", &wideSpace, 31, f.TrivialAugmentWide, polEqualize},
	} {
		seen := 0
		for op := polIdentity; op <= c.last; op++ {
			want, ok := c.want[policyNames[op]]
			if !ok {
				if c.name == "AutoAugment" && op == polIdentity {
					continue
				}
				t.Errorf("%s: torchvision has no %s", c.name, policyNames[op])
				continue
			}
			seen++
			for i, m := range want.Magnitudes {
				got, signed := c.space.magnitude(op, c.bins, i, 224, 160)
				if math.Abs(got-m) > 1e-6*max(1, m) || signed != want.Signed {
					t.Errorf("%s %s at %d: %v, signed %v, torchvision has %v, %v", c.name, policyNames[op], i, got, signed, m, want.Signed)
				}
			}
		}
		if seen != len(c.want) {
			t.Errorf("%s: %d operations, torchvision has %d", c.name, seen, len(c.want))
		}
	}
	if len(f.Policies) != len(autoPolicies) {
		t.Errorf("%d policies, torchvision has %d", len(autoPolicies), len(f.Policies))
	}
	for name, want := range f.Policies {
		op := mustOp(t, fmt.Sprintf(`{"op":"AutoAugment","policy":%q}`, name)).(*autoAugment)
		if len(op.policies) != len(want) {
			t.Fatalf("%s: %d policies, torchvision has %d", name, len(op.policies), len(want))
		}
		for i, pair := range want {
			for k, w := range pair {
				e := op.policies[i][k]
				mag, _ := w[2].(float64)
				if policyNames[e.op] != w[0] || e.p != w[1].(float64) || e.magnitude != int(mag) {
					t.Errorf("%s %d: %+v, torchvision has %v", name, i, e, w)
				}
			}
		}
	}
}

// TestMovedBoxes compares moved boxes with torchvision's.
func TestMovedBoxes(t *testing.T) {
	for _, c := range readSpace(t).Boxes {
		var d warp
		if c.Op == "rotate" {
			d = rotation(c.Params.Angle, 45, 33, false, nil)
		} else {
			p := c.Params
			d = warp{outW: 45, outH: 33, params: cdec.AffineParams{Angle: p.Angle, TX: p.Translate[0], TY: p.Translate[1], Scale: p.Scale, SX: p.Shear[0], SY: p.Shear[1]}}
		}
		m := d.moved(45, 33)
		got := m.Box([4]float64{10, 5, 31, 22})
		for i := range got {
			if math.Abs(got[i]-c.Box[i]) > 1e-3 {
				t.Errorf("%s %+v: box %v, torchvision has %v", c.Op, c.Params, got, c.Box)
				break
			}
		}
	}
}

// TestMoverFollowsPixels draws each warp twice with the same numbers: a bright spot must land at the position of Move.
func TestMoverFollowsPixels(t *testing.T) {
	s := testScratch(t)
	for _, text := range []string{
		`{"op":"RandomRotation","degrees":40,"interpolation":"bilinear"}`,
		`{"op":"RandomRotation","degrees":[90,90],"expand":true}`,
		`{"op":"RandomRotation","degrees":[-80,80],"expand":true}`,
		`{"op":"RandomAffine","degrees":30,"translate":[0.1,0.1],"scale":[0.8,1.2],"shear":[-10,10,-5,5]}`,
		`{"op":"RandomCrop","size":[70,60],"padding":4,"padding_mode":"reflect"}`,
	} {
		op := mustOp(t, text)
		for seed := range uint64(50) {
			img := &Pixels{Pix: make([]byte, 90*80*3), W: 90, H: 80, Type: item.RGB, scratch: s}
			const x0, y0 = 40, 36
			for y := y0; y < y0+5; y++ {
				for x := x0; x < x0+5; x++ {
					copy(img.Pix[(y*90+x)*3:], []byte{255, 255, 255})
				}
			}
			r := newRand(seed, 0, 0, "image", 0)
			var m Moves
			m.begin(90, 80)
			if err := op.(Mover).Move(&r, &m); err != nil {
				t.Fatal(err)
			}
			r = newRand(seed, 0, 0, "image", 0)
			if err := op.(PixelOp).Apply(&r, img); err != nil {
				t.Fatal(err)
			}
			if m.W != img.W || m.H != img.H {
				t.Fatalf("%s: Move says %dx%d, the image has %dx%d", text, m.W, m.H, img.W, img.H)
			}
			var sum, sx, sy float64
			for y := range img.H {
				for x := range img.W {
					v := float64(img.Pix[(y*img.W+x)*3])
					sum, sx, sy = sum+v, sx+v*(float64(x)+0.5), sy+v*(float64(y)+0.5)
				}
			}
			wx, wy := m.Point(x0+2.5, y0+2.5)
			if wx < 6 || wy < 6 || wx > float64(m.W)-6 || wy > float64(m.H)-6 {
				continue // partly outside
			}
			limit := 0.6
			if strings.Contains(text, "expand") {
				limit = 1.5 // as torchvision has it: see warp.moved
			}
			if math.Hypot(sx/sum-wx, sy/sum-wy) > limit {
				t.Errorf("%s seed %d: the spot is at (%.2f, %.2f), Move says (%.2f, %.2f)", text, seed, sx/sum, sy/sum, wx, wy)
			}
		}
	}
}

// TestProgramMove follows a spot through whole lists: crops, resizes, flips, warps and combinations of them.
func TestProgramMove(t *testing.T) {
	s := testScratch(t)
	var ops []json.RawMessage
	if err := json.Unmarshal([]byte(`[
		{"op":"RandomResizedCrop","size":[90,100],"scale":[0.6,1]},
		{"op":"RandomHorizontalFlip"},
		{"op":"RandomApply","transforms":[{"op":"RandomRotation","degrees":15},{"op":"RandomVerticalFlip"},{"op":"GaussianBlur","kernel_size":3}]},
		{"op":"RandomOrder","transforms":[{"op":"RandomAffine","degrees":5,"translate":[0.05,0.05]},{"op":"RandomChoice","transforms":[{"op":"RandomRotation","degrees":[180,180]},{"op":"RandomGrayscale"}]}]},
		{"op":"TrivialAugmentWide","num_magnitude_bins":5},
		{"op":"AutoAugment","policy":"svhn"},
		{"op":"RandAugment","magnitude":3},
		{"op":"RandomCrop","size":80,"padding":5,"padding_mode":"edge"}]`), &ops); err != nil {
		t.Fatal(err)
	}
	p, err := Compile(Output{Name: "image", Ops: ops, Mask: true}, Input{W: 120, H: 110})
	if err != nil {
		t.Fatal(err)
	}
	src := make([]byte, 120*110)
	const x0, y0, side = 56, 50, 9
	for y := y0; y < y0+side; y++ {
		for x := x0; x < x0+side; x++ {
			src[y*120+x] = 200
		}
	}
	seen := 0
	for id := range int64(300) {
		var r Run
		if err := r.Begin(p, 1, 0, id, 120, 110); err != nil {
			t.Fatal(err)
		}
		g, st := r.Geometry(), item.PixelType{DType: item.U8, Channels: 1}.Plain()
		pixels, row := make([]byte, r.PixelBytes()), make([]byte, p.RowBytes())
		if err := s.kernel.Resample(pixels, src, 120, 110, p.In, &g, &st); err != nil {
			t.Fatal(err)
		}
		if err := r.Finish(s, pixels, row); err != nil {
			t.Fatal(err)
		}
		var m Moves
		if err := p.Move(&m, 1, 0, id, 120, 110); err != nil {
			t.Fatal(err)
		}
		if m.W != 80 || m.H != 80 {
			t.Fatalf("record %d: %dx%d", id, m.W, m.H)
		}
		wx, wy := m.Point(x0+side/2.0, y0+side/2.0)
		if wx < 18 || wy < 18 || wx > 62 || wy > 62 {
			continue // perhaps partly outside, or repeated by the padding
		}
		var sum, sx, sy float64
		for i, v := range row {
			sum, sx, sy = sum+float64(v), sx+float64(v)*(float64(i%80)+0.5), sy+float64(v)*(float64(i/80)+0.5)
		}
		seen++
		if math.Hypot(sx/sum-wx, sy/sum-wy) > 1.2 {
			t.Errorf("record %d: the spot is at (%.2f, %.2f), Move says (%.2f, %.2f)", id, sx/sum, sy/sum, wx, wy)
		}
	}
	if seen < 100 {
		t.Errorf("only %d spots stayed inside", seen)
	}
}

// TestMaskFollowsImage runs an image and its mask with the same operations
// through programs: the mask must be the image's, moved alike.
func TestMaskFollowsImage(t *testing.T) {
	s := testScratch(t)
	const ops = `[{"op":"RandomCrop","size":[48,40],"padding":3,"padding_mode":"edge"},
		{"op":"RandomApply","p":0.7,"transforms":[{"op":"RandomAffine","degrees":20,"fill":0},{"op":"ColorJitter","brightness":0.1},{"op":"RandomHorizontalFlip"}]},
		{"op":"RandomChoice","transforms":[{"op":"RandomRotation","degrees":30},{"op":"RandomInvert","p":0},{"op":"RandomVerticalFlip","p":1}]},
		{"op":"RandAugment","magnitude":0},
		{"op":"RandomRotation","degrees":[90,90]}]`
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(ops), &list); err != nil {
		t.Fatal(err)
	}
	// RandAugment of magnitude 0 changes no colours but equalises, posterises
	// and stretches; a picture of black and white stays one under all of them.
	img, mask := make([]byte, 60*52*3), make([]byte, 60*52)
	for i := range mask {
		if (i/60/9+i%60/7)%2 == 0 {
			mask[i] = 255
			copy(img[3*i:], []byte{255, 255, 255})
		}
	}
	image, err := Compile(Output{Name: "image", Ops: list}, Input{W: 60, H: 52})
	if err != nil {
		t.Fatal(err)
	}
	followed, err := Compile(Output{Name: "mask", Ops: list, Mask: true, Follow: "image"}, Input{W: 60, H: 52})
	if err != nil {
		t.Fatal(err)
	}
	run := func(p *Program, src []byte, c int, id int64) []byte {
		var r Run
		if err := r.Begin(p, 5, 1, id, 60, 52); err != nil {
			t.Fatal(err)
		}
		g := r.Geometry()
		st := item.PixelType{DType: item.U8, Channels: int32(c)}.Plain()
		pixels := make([]byte, r.PixelBytes())
		if err := s.kernel.Resample(pixels, src, 60, 52, p.In, &g, &st); err != nil {
			t.Fatal(err)
		}
		row := make([]byte, p.RowBytes())
		if err := r.Finish(s, pixels, row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	for id := range int64(60) {
		a, b := run(image, img, 3, id), run(followed, mask, 1, id)
		differ := 0
		for i := range b {
			// Solarize at its weakest inverts white.
			if (a[3*i] > 127) != (b[i] > 127) {
				differ++
			}
		}
		if differ != 0 && differ != len(b) && differ > len(b)/100 {
			solarized := 0
			for i := range b {
				if a[3*i] < 128 {
					solarized++
				}
			}
			if solarized != len(b) {
				t.Errorf("record %d: %d of %d pixels of the mask are not the image's", id, differ, len(b))
			}
		}
	}
}

func TestGrayscaleChangesChannels(t *testing.T) {
	s := testScratch(t)
	p, err := Compile(Output{Name: "image", Ops: []json.RawMessage{[]byte(`{"op":"Grayscale"}`)}}, Input{W: 20, H: 10})
	if err != nil {
		t.Fatal(err)
	}
	if sh := p.Shape(); sh[0] != 10 || sh[1] != 20 || sh[2] != 1 || p.In != item.RGB {
		t.Fatalf("shape %v, %v decoded", sh, p.In)
	}
	var r Run
	if err := r.Begin(p, 1, 0, 0, 20, 10); err != nil {
		t.Fatal(err)
	}
	px := testPixels(s, 20, 10, 3)
	want := bytes.Clone(px.Pix)
	row := make([]byte, p.RowBytes())
	if err := r.Finish(s, px.Pix, row); err != nil {
		t.Fatal(err)
	}
	for i, v := range row {
		l := 0.2989*float64(want[3*i]) + 0.587*float64(want[3*i+1]) + 0.114*float64(want[3*i+2])
		if math.Abs(float64(v)-math.Floor(l)) > 1 {
			t.Fatalf("pixel %d is %d, want %v", i, v, l)
		}
	}
}

// TestAugmentErrors: arguments that torchvision refuses, or that are invalid, are refused with a line that names the
// operation and the argument.
func TestAugmentErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"op":"ColorJitter","brightness":-1}`:                                          "ColorJitter: brightness",
		`{"op":"ColorJitter","hue":0.6}`:                                                "hue must be a number from 0 to 0.5",
		`{"op":"ColorJitter","hue":[0.2,0.1]}`:                                          "the smaller one first",
		`{"op":"ColorJitter","contrast":[1]}`:                                           "or (min, max)",
		`{"op":"ColorJiter"}`:                                                           `did you mean "ColorJitter"?`,
		`{"op":"ColorJitter","brigthness":1}`:                                           `did you mean "brightness"?`,
		`{"op":"Grayscale","num_output_channels":2}`:                                    "1 or 3",
		`{"op":"RandomPosterize"}`:                                                      "bits is missing",
		`{"op":"RandomPosterize","bits":9}`:                                             "from 0 to 8",
		`{"op":"RandomSolarize","threshold":300}`:                                       "at most 255",
		`{"op":"RandomInvert","p":1.5}`:                                                 "from 0 to 1",
		`{"op":"GaussianBlur","kernel_size":4}`:                                         "odd",
		`{"op":"GaussianBlur","kernel_size":[3,5,7]}`:                                   "or (columns, rows)",
		`{"op":"GaussianBlur","kernel_size":3,"sigma":[2,1]}`:                           "sigma",
		`{"op":"RandomAdjustSharpness","sharpness_factor":-1}`:                          "sharpness_factor",
		`{"op":"RandomRotation"}`:                                                       "degrees is missing",
		`{"op":"RandomRotation","degrees":-5}`:                                          "a number from 0 to",
		`{"op":"RandomRotation","degrees":[1,2,3]}`:                                     "or (min, max)",
		`{"op":"RandomRotation","degrees":5,"interpolation":"bicubic"}`:                 `must be "nearest" or "bilinear"`,
		`{"op":"RandomRotation","degrees":5,"fill":[1,2]}`:                              "one number or 3, one for each channel",
		`{"op":"RandomRotation","degrees":5,"center":[1]}`:                              "(x, y)",
		`{"op":"RandomAffine","degrees":5,"translate":[0.5,2]}`:                         "from 0 to 1",
		`{"op":"RandomAffine","degrees":5,"scale":[0,1]}`:                               "above 1e-06",
		`{"op":"RandomAffine","degrees":5,"shear":[1,2,3]}`:                             "(min x, max x, min y, max y)",
		`{"op":"RandomCrop","size":5,"padding":2,"padding_mode":"mirror"}`:              "padding_mode",
		`{"op":"RandomErasing","scale":[0.5,2]}`:                                        "from 0 to 1",
		`{"op":"RandomErasing","value":[1,2]}`:                                          "one number or 3, one for each channel, or \"random\"",
		`{"op":"RandomErasing","value":"noise"}`:                                        "random",
		`{"op":"AutoAugment","policy":"mnist"}`:                                         `"imagenet", "cifar10" or "svhn"`,
		`{"op":"RandAugment","magnitude":31}`:                                           "from 0 to num_magnitude_bins - 1 = 30",
		`{"op":"RandAugment","num_ops":-1}`:                                             "num_ops",
		`{"op":"TrivialAugmentWide","num_magnitude_bins":0}`:                            "num_magnitude_bins",
		`{"op":"RandomApply","transforms":[]}`:                                          "one or more transforms",
		`{"op":"RandomApply","transforms":[{"op":"ToDtype","dtype":"float32"}]}`:        "cannot stand inside",
		`{"op":"RandomApply","transforms":[{"op":"Grayscale"}]}`:                        "cannot stand inside",
		`{"op":"RandomChoice","transforms":[{"op":"RandomInvert"}],"p":[1,2]}`:          "2 probabilities for 1 operations",
		`{"op":"RandomChoice","transforms":[{"op":"RandomInvert"}],"p":[0]}`:            "positive sum",
		strings.Repeat(`{"op":"Compose","transforms":[`, 20) + strings.Repeat(`]}`, 20): "nested too deeply",
	} {
		_, err := parseOp(json.RawMessage(text), opContext{pixels: item.RGB})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
	for ops, want := range map[string]string{
		`[{"op":"RandomRotation","degrees":30,"expand":true}]`:                                                "its size differs",
		`[{"op":"RandomApply","transforms":[{"op":"CenterCrop","size":5}]}]`:                                  "its size differs",
		`[{"op":"RandomChoice","transforms":[{"op":"CenterCrop","size":5},{"op":"RandomInvert"}]}]`:           "its size differs",
		`[{"op":"ToDtype","dtype":"float32"},{"op":"ColorJitter","hue":0.1}]`:                                 "ColorJitter works on uint8 pixels",
		`[{"op":"ToDtype","dtype":"float32"},{"op":"RandomErasing"},{"op":"Normalize","mean":[0],"std":[1]}]`: "cannot follow",
		`[{"op":"ToDtype","dtype":"float32"},{"op":"RandomApply","transforms":[{"op":"RandomErasing"}]}]`:     "RandomApply works on uint8 pixels",
	} {
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(ops), &list); err != nil {
			t.Fatal(err)
		}
		if _, err := Compile(Output{Name: "image", Ops: list}, Input{W: 32, H: 32}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", ops, err, want)
		}
	}
}

// TestAugmentDoesNotAllocate: code that runs per record allocates nothing on the Go heap.
func TestAugmentDoesNotAllocate(t *testing.T) {
	if instrumented {
		t.Skip("instrumented builds allocate more")
	}
	s := testScratch(t)
	for _, text := range []string{
		`{"op":"ColorJitter","brightness":0.4,"contrast":0.4,"saturation":0.2,"hue":0.1}`,
		`{"op":"GaussianBlur","kernel_size":9}`,
		`{"op":"RandomAffine","degrees":20,"translate":[0.1,0.1],"interpolation":"bilinear"}`,
		`{"op":"RandomRotation","degrees":20}`,
		`{"op":"RandomAdjustSharpness","sharpness_factor":2,"p":1}`,
		`{"op":"RandomErasing","p":1}`,
		`{"op":"RandomErasing","p":1,"value":"random"}`,
		`{"op":"RandAugment"}`, `{"op":"TrivialAugmentWide"}`, `{"op":"AutoAugment"}`,
		`{"op":"RandomApply","transforms":[{"op":"RandomGrayscale"}]}`,
		`{"op":"RandomOrder","transforms":[{"op":"RandomInvert"},{"op":"RandomEqualize"},{"op":"RandomAutocontrast"}]}`,
	} {
		op := mustOp(t, text).(PixelOp)
		img := testPixels(s, 64, 48, 3)
		id := int64(0)
		var r Rand
		if n := testing.AllocsPerRun(100, func() {
			id++
			r = newRand(1, 0, id, "image", 0)
			if err := op.Apply(&r, img); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations per record", text, n)
		}
	}
}

// FuzzParseOps parses lists of operations and runs those that compile: nothing may panic, and the row must have its
// size.
func FuzzParseOps(f *testing.F) {
	for _, seed := range []string{
		`[{"op":"RandomResizedCrop","size":8},{"op":"ColorJitter","hue":0.1},{"op":"ToDtype","dtype":"float32","scale":true},{"op":"RandomErasing","p":1}]`,
		`[{"op":"RandomChoice","transforms":[{"op":"RandomRotation","degrees":30},{"op":"RandomApply","transforms":[{"op":"GaussianBlur","kernel_size":3}]}]},{"op":"CenterCrop","size":[7,9]}]`,
		`[{"op":"RandomCrop","size":20,"padding":[1,2,3,4],"padding_mode":"symmetric","pad_if_needed":true},{"op":"AutoAugment","policy":"svhn"}]`,
		`[{"op":"RandomAffine","degrees":5,"translate":[0.5,1],"scale":[0.1,3],"shear":[1,2,3,4],"fill":[1,2,3]},{"op":"Grayscale"}]`,
	} {
		f.Add([]byte(seed))
	}
	s := testScratch(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var list []json.RawMessage
		if json.Unmarshal(data, &list) != nil {
			return
		}
		p, err := Compile(Output{Name: "image", Ops: list}, Input{W: 21, H: 17})
		if err != nil || p.RowBytes() > 1<<20 {
			return
		}
		var r Run
		if err := r.Begin(p, 1, 2, 3, 21, 17); err != nil || r.Empty() || r.PixelBytes() > 1<<20 {
			return
		}
		g := r.Geometry()
		st := p.In.Plain()
		src := testPixels(s, 21, 17, int(p.In.Channels))
		pixels := make([]byte, r.PixelBytes())
		if err := s.kernel.Resample(pixels, src.Pix, 21, 17, p.In, &g, &st); err != nil {
			return
		}
		_ = r.Finish(s, pixels, make([]byte, p.RowBytes()))
	})
}

// newRand returns the numbers of operation op of an output for one record.
func newRand(seed uint64, epoch, record int64, output string, op int) Rand {
	return opRand(recordKey(seed, epoch, record, outputKey(output)), op)
}
