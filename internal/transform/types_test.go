package transform

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

func opList(t testing.TB, text string) []json.RawMessage {
	t.Helper()
	var ops []json.RawMessage
	if err := json.Unmarshal([]byte(text), &ops); err != nil {
		t.Fatal(err)
	}
	return ops
}

// runRow makes a row of record id out of whole pixels.
func runRow(t testing.TB, s *Scratch, p *Program, src []byte, w, h int, id int64) []byte {
	t.Helper()
	var r Run
	if err := r.Begin(p, 7, 2, id, w, h); err != nil {
		t.Fatal(err)
	}
	g, st, row := r.Geometry(), p.Store, make([]byte, p.RowBytes())
	if r.Direct() {
		if err := s.kernel.Resample(row, src, w, h, p.In, &g, &st); err != nil {
			t.Fatal(err)
		}
		if err := r.FinishStored(row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	pixels := make([]byte, r.PixelBytes())
	if !r.Empty() {
		st = p.In.Plain()
		if err := s.kernel.Resample(pixels, src, w, h, p.In, &g, &st); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Finish(s, pixels, row); err != nil {
		t.Fatal(err)
	}
	return row
}

// TestWhatOperationsTake compiles every operation on every type of pixels. Either it runs, or the error lists the
// accepted types in one line.
func TestWhatOperationsTake(t *testing.T) {
	s := testScratch(t)
	colours := "takes images of 1 or 3 channels"
	for _, c := range []struct{ op, refused string }{
		{`{"op":"Resize","size":[9,7]}`, ""},
		{`{"op":"Resize","size":[30,31],"interpolation":"bicubic"}`, ""},
		{`{"op":"Resize","size":[5,31],"interpolation":"nearest"}`, ""},
		{`{"op":"CenterCrop","size":25}`, ""},
		{`{"op":"RandomCrop","size":10,"padding":3,"fill":1}`, ""},
		{`{"op":"RandomCrop","size":10,"padding":3,"padding_mode":"reflect"}`, ""},
		{`{"op":"RandomResizedCrop","size":8}`, ""},
		{`{"op":"RandomHorizontalFlip","p":1}`, ""},
		{`{"op":"RandomVerticalFlip","p":1}`, ""},
		{`{"op":"RandomRotation","degrees":[90,90],"expand":true}`, ""},
		{`{"op":"RandomRotation","degrees":30,"interpolation":"bilinear","fill":1}`, ""},
		{`{"op":"RandomAffine","degrees":30}`, ""},
		{`{"op":"RandomInvert","p":1}`, ""},
		{`{"op":"RandomPosterize","bits":3,"p":1}`, ""},
		{`{"op":"RandomSolarize","threshold":0.5,"p":1}`, ""},
		{`{"op":"RandomEqualize","p":1}`, ""},
		{`{"op":"GaussianBlur","kernel_size":5}`, ""},
		{`{"op":"RandomErasing","p":1}`, ""},
		{`{"op":"RandomErasing","p":1,"value":"random"}`, ""},
		{`{"op":"ColorJitter","brightness":0.2,"contrast":0.2,"saturation":0.2,"hue":0.1}`, colours},
		{`{"op":"Grayscale"}`, colours},
		{`{"op":"Grayscale","num_output_channels":3}`, colours},
		{`{"op":"RandomGrayscale","p":1}`, colours},
		{`{"op":"RandomAutocontrast","p":1}`, colours},
		{`{"op":"RandomAdjustSharpness","sharpness_factor":2,"p":1}`, colours},
		{`{"op":"AutoAugment"}`, colours},
		{`{"op":"RandAugment"}`, colours},
		{`{"op":"TrivialAugmentWide"}`, colours},
		{`{"op":"RandomApply","transforms":[{"op":"RandomGrayscale"}]}`, colours},
	} {
		for _, dtype := range []item.DType{item.U8, item.U16, item.F32} {
			for channels := 1; channels <= item.MaxChannels; channels++ {
				in := Input{DType: dtype, Channels: channels, W: 20, H: 18}
				name := fmt.Sprintf("%s on %s with %d channels", c.op, dtype, channels)
				p, err := Compile(Output{Name: "x", Ops: []json.RawMessage{json.RawMessage(c.op)}}, in)
				if refused := c.refused != "" && channels%2 == 0; refused {
					if err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "\n") {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				src := make([]byte, 20*18*p.In.Size())
				for i := 0; i < len(src); i += dtype.Size() {
					copy(src[i:], dtype.Append(nil, float64(i%97)/97*maxValue(dtype)))
				}
				for id := range int64(20) {
					runRow(t, s, p, src, 20, 18, id)
				}
			}
		}
	}
}

func TestInputsRefused(t *testing.T) {
	crop := `[{"op":"CenterCrop","size":8}]`
	for _, c := range []struct {
		out  Output
		in   Input
		ops  string
		want string
	}{
		{Output{}, Input{DType: item.I64, Channels: 1}, crop, "uint8, uint16 and float32, not on int64"},
		{Output{}, Input{DType: item.U8, Channels: 5}, crop, "1 to 4 channels, not on 5"},
		{Output{Mask: true}, Input{DType: item.F32, Channels: 1}, crop, "a mask is uint8 or uint16 with 1 channel, not float32"},
		{Output{}, Input{DType: item.U8, Channels: 3, Mask: true}, crop, "a mask is uint8 or uint16 with 1 channel, not uint8 with 3"},
		{Output{}, Input{DType: item.U8, Channels: 4}, `[{"op":"CenterCrop","size":8},{"op":"ColorJitter","hue":0.1}]`, "operation 2: ColorJitter takes images of 1 or 3 channels, not uint8 with 4 channels"},
		{Output{}, Input{DType: item.U16, Channels: 1}, `[{"op":"Normalize","mean":[0.5],"std":[0.5]}]`, "Normalize needs floating-point pixels"},
		{Output{}, Input{DType: item.F32, Channels: 2}, `[{"op":"Normalize","mean":[0.5,0.5,0.5],"std":[1,1,1]}]`, "mean must be one number or 2, one for each channel"},
		{Output{}, Input{DType: item.F32, Channels: 1}, `[{"op":"ToDtype","dtype":"uint8"}]`, "float32 already cannot go back to uint8"},
		{Output{}, Input{DType: item.U16, Channels: 1}, `[{"op":"ToDtype","dtype":"uint8"}]`, "scale=True"},
		{Output{Mask: true}, Input{DType: item.U16, Channels: 1}, `[{"op":"ToDtype","dtype":"uint8","scale":true}]`, "do not fit into uint8"},
		{Output{}, Input{DType: item.U8, Channels: 1}, `[{"op":"RandomCrop","size":8,"padding":1,"fill":256}]`, "between 0 and 255"},
		{Output{}, Input{DType: item.U16, Channels: 1}, `[{"op":"RandomAffine","degrees":1,"fill":65536}]`, "between 0 and 65535"},
		{Output{}, Input{DType: item.U8, Channels: 1}, `[{"op":"RandomSolarize","threshold":256}]`, "at most 255"},
		{Output{}, Input{DType: item.U16, Channels: 1}, `[{"op":"RandomSolarize","threshold":65536}]`, "up to 65535"},
		{Output{}, Input{DType: item.U16, Channels: 3}, `[{"op":"RandomApply","transforms":[{"op":"ToDtype","dtype":"uint8","scale":true}]}]`, "cannot stand inside RandomApply"},
		{Output{}, Input{DType: item.F32, Channels: 1}, `[{"op":"Normalize","mean":[0],"std":[2]},{"op":"GaussianBlur","kernel_size":3}]`, "GaussianBlur works on float32 pixels; move it before ToDtype and Normalize"},
	} {
		c.out.Name, c.out.Ops = "x", opList(t, c.ops)
		c.in.W, c.in.H = 8, 8
		if _, err := Compile(c.out, c.in); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v %s: %v, want %q", c.in, c.ops, err, c.want)
		}
	}
	for _, o := range []Output{{Mode: "CMYK"}, {Depth: 12}, {Mask: true, Mode: "L"}} {
		if _, err := o.Image(0, 0); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestModes checks the decoded types of modes and depths.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		out  Output
		want item.PixelType
	}{
		{Output{}, item.RGB},
		{Output{Mask: true}, item.PixelType{DType: item.U8, Channels: 1}},
		{Output{Mask: true, Depth: 16}, item.PixelType{DType: item.U16, Channels: 1}},
		{Output{Mode: "RGBA", Depth: 8}, item.PixelType{DType: item.U8, Channels: 4}},
		{Output{Mode: "LA"}, item.PixelType{DType: item.U8, Channels: 2}},
		{Output{Mode: "L", Depth: 16}, item.PixelType{DType: item.U16, Channels: 1}},
	} {
		in, err := c.out.Image(6, 5)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile(c.out, in)
		if err != nil || p.In != c.want || p.Store.DType != c.want.DType || !p.Plain() || p.Mask != c.out.Mask {
			t.Errorf("%+v gives %+v, %v", c.out, p, err)
		}
		want := []int{5, 6, int(c.want.Channels)}
		if c.out.Mask {
			want = want[:2]
		}
		if sh := p.Shape(); !slices.Equal(sh, want) {
			t.Errorf("%+v: shape %v, want %v", c.out, sh, want)
		}
	}
	p, err := Compile(Output{Name: "plane"}, Input{DType: item.F32, W: 6, H: 5})
	if err != nil || len(p.Shape()) != 2 || p.RowBytes() != 6*5*4 {
		t.Errorf("a plane: %v, %v", p, err)
	}
}

// TestFloatArrays moves and normalises an array of floats: flips, crops with a
// fill, quarter turns, per-channel normalisation, both layouts.
func TestFloatArrays(t *testing.T) {
	s := testScratch(t)
	const w, h = 7, 5
	at := func(x, y, c int) float32 { return float32(100*c) + float32(10*y) + float32(x) - 0.25 }
	for channels := 1; channels <= 4; channels++ {
		src := make([]byte, 0, w*h*channels*4)
		for y := range h {
			for x := range w {
				for c := range channels {
					src = binary.LittleEndian.AppendUint32(src, math.Float32bits(at(x, y, c)))
				}
			}
		}
		mean, std := []float64{1, -2, 3, 4}[:channels], []float64{2, 4, 0.5, 8}[:channels]
		norm, _ := json.Marshal(map[string]any{"op": "Normalize", "mean": mean, "std": std})
		for _, layout := range []string{"NHWC", "NCHW"} {
			ops := fmt.Sprintf(`[{"op":"RandomHorizontalFlip","p":1},{"op":"RandomRotation","degrees":[90,90],"expand":true},
				{"op":"CenterCrop","size":[9,7]},%s]`, norm)
			p, err := Compile(Output{Name: "x", Layout: layout, Ops: opList(t, ops)}, Input{DType: item.F32, Channels: channels, W: w, H: h})
			if err != nil {
				t.Fatal(err)
			}
			row := runRow(t, s, p, src, w, h, 0)
			for y := range 9 {
				for x := range 7 {
					for c := range channels {
						want := -mean[c] / std[c] // of the fill
						// Flipped and turned anticlockwise, (x, y) came from (y, x).
						if sx, sy := y-1, x-1; sx >= 0 && sx < w && sy >= 0 && sy < h {
							want = (float64(at(sx, sy, c)) - mean[c]) / std[c]
						}
						i := (y*7+x)*channels + c
						if layout == "NCHW" {
							i = (c*9+y)*7 + x
						}
						got := math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
						if math.Abs(float64(got)-want) > 1e-5*100 {
							t.Fatalf("%d channels, %s: (%d, %d, %d) is %v, want %v", channels, layout, x, y, c, got, want)
						}
					}
				}
			}
		}
	}
}

// TestDtypesOfIntegers converts between u8, u16 and floats as torchvision does.
func TestDtypesOfIntegers(t *testing.T) {
	s := testScratch(t)
	u8 := []byte{0, 1, 128, 255}
	u16 := []byte{0, 0, 255, 0, 0, 128, 255, 255} // 0, 255, 32768, 65535
	for _, c := range []struct {
		in   item.DType
		ops  string
		want []float64
		out  item.DType
	}{
		{item.U8, `[{"op":"ToDtype","dtype":"uint16","scale":true}]`, []float64{0, 256, 32768, 65280}, item.U16},
		{item.U8, `[{"op":"ToDtype","dtype":"uint16"}]`, []float64{0, 1, 128, 255}, item.U16},
		{item.U16, `[{"op":"ToDtype","dtype":"uint8","scale":true}]`, []float64{0, 0, 128, 255}, item.U8},
		{item.U16, `[{"op":"ToDtype","dtype":"float32","scale":true}]`, []float64{0, 255 / 65535.0, 32768 / 65535.0, 1}, item.F32},
		{item.U16, `[{"op":"ToDtype","dtype":"float32"}]`, []float64{0, 255, 32768, 65535}, item.F32},
		{item.U16, `[{"op":"ToDtype","dtype":"uint8","scale":true},{"op":"RandomInvert","p":1},{"op":"ToDtype","dtype":"float32","scale":true}]`, []float64{1, 1, 127 / 255.0, 0}, item.F32},
		{item.U8, `[{"op":"ToDtype","dtype":"uint16"},{"op":"ToDtype","dtype":"float32","scale":true}]`, []float64{0, 1 / 65535.0, 128 / 65535.0, 255 / 65535.0}, item.F32},
	} {
		p, err := Compile(Output{Name: "x", Ops: opList(t, c.ops)}, Input{DType: c.in, Channels: 1, W: 4, H: 1})
		if err != nil {
			t.Fatal(c.ops, err)
		}
		src := u8
		if c.in == item.U16 {
			src = u16
		}
		row := runRow(t, s, p, src, 4, 1, 0)
		for i, want := range c.want {
			got := 0.0
			switch p.Store.DType {
			case item.U8:
				got = float64(row[i])
			case item.U16:
				got = float64(binary.LittleEndian.Uint16(row[2*i:]))
			case item.F32:
				got = float64(math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:])))
			}
			if p.Store.DType != c.out || math.Abs(got-want) > 1e-7 {
				t.Errorf("%s of %s: value %d is %v as %s, want %v as %s", c.ops, c.in, i, got, p.Store.DType, want, c.out)
			}
		}
	}
}

// TestMaskMovesAlike runs 10,000 draws of lists of geometric operations on an image and on its mask of 16 bits. Each
// pixel of the image must still show the class that the mask has there.
func TestMaskMovesAlike(t *testing.T) {
	const w, h, draws = 31, 26, 10000
	s := testScratch(t)
	rng := rand.New(rand.NewPCG(3, 3))
	img, mask := make([]byte, 0, w*h*3), make([]byte, 0, w*h*2)
	for range w * h { // class 0, which is the fill too, is black
		class := uint16(rng.IntN(65536))
		img = append(img, byte(class), byte(class>>8), byte(class)^byte(class>>8))
		mask = binary.LittleEndian.AppendUint16(mask, class)
	}
	lists := []string{
		`{"op":"RandomResizedCrop","size":[21,18],"scale":[0.1,1],"interpolation":"nearest"},{"op":"RandomHorizontalFlip"},{"op":"RandomVerticalFlip"}`,
		`{"op":"RandomCrop","size":[24,29],"padding":4},{"op":"RandomHorizontalFlip"},{"op":"RandomRotation","degrees":180}`,
		`{"op":"RandomCrop","size":[24,29],"padding":4,"padding_mode":"symmetric"},{"op":"RandomAffine","degrees":30,"translate":[0.2,0.2],"scale":[0.5,1.5],"shear":[-20,20,-20,20]}`,
		`{"op":"RandomApply","p":0.6,"transforms":[{"op":"RandomAffine","degrees":90},{"op":"ColorJitter","brightness":[1,1]},{"op":"RandomVerticalFlip"}]},{"op":"Resize","size":[17,19],"interpolation":"nearest"},{"op":"RandomHorizontalFlip"}`,
		`{"op":"RandomOrder","transforms":[{"op":"RandomHorizontalFlip"},{"op":"RandomRotation","degrees":[90,270]},{"op":"RandomInvert","p":0}]},{"op":"RandomChoice","transforms":[{"op":"CenterCrop","size":40},{"op":"RandomCrop","size":40,"pad_if_needed":true,"padding_mode":"edge"}]}`,
		`{"op":"RandomRotation","degrees":45,"expand":true},{"op":"RandomResizedCrop","size":16,"interpolation":"nearest"},{"op":"RandomErasing","p":0}`,
	}
	for l, list := range lists {
		ops := opList(t, "["+list+"]")
		one, err := Compile(Output{Name: "image", Ops: ops}, Input{W: w, H: h})
		if err != nil {
			t.Fatal(err)
		}
		two, err := Compile(Output{Name: "mask", Ops: ops, Follow: "image"}, Input{DType: item.U16, Channels: 1, W: w, H: h, Mask: true})
		if err != nil {
			t.Fatal(err)
		}
		still := 0
		for id := int64(l); id < draws; id += int64(len(lists)) {
			a, b := runRow(t, s, one, img, w, h, id), runRow(t, s, two, mask, w, h, id)
			for i := 0; 2*i < len(b); i++ {
				class := binary.LittleEndian.Uint16(b[2*i:])
				if a[3*i] != byte(class) || a[3*i+1] != byte(class>>8) || a[3*i+2] != byte(class)^byte(class>>8) {
					t.Fatalf("list %d, record %d: at (%d, %d) the image shows class %d, the mask has %d", l, id, i%two.W, i/two.W, int(a[3*i])|int(a[3*i+1])<<8, class)
				}
			}
			if len(b) == len(mask) && string(b) == string(mask) {
				still++
			}
			var m, n Moves
			if err := one.Move(&m, 7, 2, id, w, h); err != nil {
				t.Fatal(err)
			}
			if err := two.Move(&n, 7, 2, id, w, h); err != nil || !slices.Equal(m.Steps, n.Steps) {
				t.Fatalf("list %d, record %d: the image moves by %v, the mask by %v (%v)", l, id, m, n, err)
			}
		}
		if still > draws/len(lists)/2 {
			t.Errorf("list %d moved nothing %d times", l, still)
		}
	}
}
