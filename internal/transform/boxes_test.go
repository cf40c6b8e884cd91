package transform

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func compileList(t testing.TB, list string, w, h int) *Program {
	t.Helper()
	var ops []json.RawMessage
	if err := json.Unmarshal([]byte(list), &ops); err != nil {
		t.Fatal(err)
	}
	p, err := Compile(Output{Name: "image", Ops: ops}, Input{W: w, H: h})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// someBoxes are boxes in and around an image, as corners.
func someBoxes(rng *rand.Rand, n, w, h int) (boxes [][4]float32, points [][2]float32) {
	for range n {
		x, y := rng.Float64()*float64(w), rng.Float64()*float64(h)
		bw, bh := rng.Float64()*float64(w)/2, rng.Float64()*float64(h)/2
		boxes = append(boxes, [4]float32{float32(x - bw/2), float32(y - bh/2), float32(x + bw/2), float32(y + bh/2)})
		points = append(points, [2]float32{float32(x), float32(y)})
	}
	return boxes, points
}

func placesOf(boxes [][4]float32, points [][2]float32) *Places {
	p := &Places{Boxes: slices.Clone(boxes), Points: slices.Clone(points)}
	for i := range boxes {
		p.Kept = append(p.Kept, int32(i))
	}
	return p
}

// plain is the reference: one operation after the other on one box, by the
// formulas of torchvision's documentation, in the format that it has.
type plain struct {
	box   [4]float64 // XYWH
	point [2]float64
	w, h  float64
}

func (p *plain) clamp() {
	x0, y0 := min(max(p.box[0], 0), p.w), min(max(p.box[1], 0), p.h)
	x1, y1 := min(max(p.box[0]+p.box[2], 0), p.w), min(max(p.box[1]+p.box[3], 0), p.h)
	p.box = [4]float64{x0, y0, x1 - x0, y1 - y0}
}

func (p *plain) crop(x, y, w, h int) {
	p.box[0] -= float64(x)
	p.box[1] -= float64(y)
	p.point[0] -= float64(x)
	p.point[1] -= float64(y)
	p.w, p.h = float64(w), float64(h)
	p.clamp()
}

func (p *plain) resize(w, h int) {
	kx, ky := float64(w)/p.w, float64(h)/p.h
	p.box = [4]float64{p.box[0] * kx, p.box[1] * ky, p.box[2] * kx, p.box[3] * ky}
	p.point = [2]float64{p.point[0] * kx, p.point[1] * ky}
	p.w, p.h = float64(w), float64(h)
}

func (p *plain) flip(horizontal, vertical bool) {
	if horizontal {
		p.box[0] = p.w - p.box[0] - p.box[2]
		p.point[0] = p.w - 1 - p.point[0]
	}
	if vertical {
		p.box[1] = p.h - p.box[1] - p.box[3]
		p.point[1] = p.h - 1 - p.point[1]
	}
}

func (p *plain) affine(angle, tx, ty, scale, sx, sy float64) {
	rad := math.Pi / 180
	rot, sx, sy := angle*rad, sx*rad, sy*rad
	a, b := math.Cos(rot-sy)/math.Cos(sy), -math.Cos(rot-sy)*math.Tan(sx)/math.Cos(sy)-math.Sin(rot)
	c, d := math.Sin(rot-sy)/math.Cos(sy), -math.Sin(rot-sy)*math.Tan(sx)/math.Cos(sy)+math.Cos(rot)
	move := func(x, y float64) (float64, float64) {
		x, y = x-p.w/2, y-p.h/2
		return scale*(a*x+b*y) + p.w/2 + tx, scale*(c*x+d*y) + p.h/2 + ty
	}
	x0, y0, x1, y1 := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for i := range 4 {
		x, y := move(p.box[0]+p.box[2]*float64(i&1), p.box[1]+p.box[3]*float64(i>>1))
		x0, y0, x1, y1 = min(x0, x), min(y0, y), max(x1, x), max(y1, y)
	}
	p.box = [4]float64{x0, y0, x1 - x0, y1 - y0}
	p.point[0], p.point[1] = move(p.point[0], p.point[1])
	p.clamp()
}

// Boxes and key points follow whole lists as the plain reference does, one
// operation after the other, with the numbers that the image draws.
func TestBoxesFollow(t *testing.T) {
	list := `[
		{"op":"RandomCrop","size":[140,165],"padding":[9,3,5,2]},
		{"op":"RandomResizedCrop","size":[90,110],"scale":[0.4,1]},
		{"op":"RandomHorizontalFlip"},
		{"op":"ColorJitter","brightness":0.2},
		{"op":"RandomAffine","degrees":30,"translate":[0.1,0.2],"scale":[0.7,1.3],"shear":[-10,10,-5,5]},
		{"op":"RandomRotation","degrees":[90,90]},
		{"op":"Pad","padding":[3,4,5,6]},
		{"op":"RandomVerticalFlip"},
		{"op":"RandomRotation","degrees":25},
		{"op":"CenterCrop","size":[80,140]},
		{"op":"LetterBox","size":[96,128]},
		{"op":"ToDtype","dtype":"float32","scale":true},
		{"op":"RandomHorizontalFlip"},
		{"op":"Normalize","mean":[0.5],"std":[0.5]}]`
	const w, h = 160, 140
	prog := compileList(t, list, w, h)
	rng := rand.New(rand.NewPCG(1, 2))
	for id := range int64(200) {
		boxes, points := someBoxes(rng, 5, w, h)
		got := placesOf(boxes, points)
		if err := got.Follow(prog, nil, 3, 1, id, w, h); err != nil {
			t.Fatal(err)
		}
		for k := range boxes {
			b := XYWH.FromXYXY(boxes[k])
			p := &plain{point: [2]float64{float64(points[k][0]), float64(points[k][1])}, w: w, h: h}
			for i, v := range b {
				p.box[i] = float64(v)
			}
			for i, op := range prog.ops {
				r := newRand(3, 1, id, "image", i)
				switch op := op.(type) {
				case *randomCrop:
					s := op.Draw(&r, int(p.w), int(p.h))
					p.crop(s.X, s.Y, s.W, s.H)
				case *randomResizedCrop:
					s := op.Draw(&r, int(p.w), int(p.h))
					p.crop(s.X, s.Y, s.W, s.H)
					p.resize(s.RW, s.RH)
				case *randomFlip:
					s := op.Draw(&r, int(p.w), int(p.h))
					p.flip(s.FlipH, s.FlipV)
				case *randomAffine:
					d := op.draw(&r, int(p.w), int(p.h))
					q := d.params
					p.affine(q.Angle, q.TX, q.TY, q.Scale, q.SX, q.SY)
				case *randomRotation:
					p.affine(-r.Uniform(op.lo, op.hi), 0, 0, 1, 0, 0)
				case *pad:
					p.crop(-3, -4, int(p.w)+8, int(p.h)+10)
				case *centerCrop:
					s := op.Draw(nil, int(p.w), int(p.h))
					p.crop(s.X, s.Y, s.W, s.H)
				case *letterBox:
					ratio := min(96/p.h, 128/p.w)
					nw, nh := math.RoundToEven(p.w*ratio), math.RoundToEven(p.h*ratio)
					for i := range p.box {
						p.box[i] *= ratio
					}
					left, top := math.RoundToEven((128-nw)/2-0.1), math.RoundToEven((96-nh)/2-0.1)
					p.box[0], p.box[1] = p.box[0]+left, p.box[1]+top
					p.point = [2]float64{p.point[0]*ratio + left, p.point[1]*ratio + top}
					p.w, p.h = 128, 96
				}
			}
			have := XYWH.FromXYXY(got.Boxes[k])
			for i, want := range p.box {
				if math.Abs(float64(have[i])-want) > 1e-3 {
					t.Fatalf("record %d: box %v became %v, the reference has %v", id, boxes[k], have, p.box)
				}
			}
			for i, want := range p.point {
				if math.Abs(float64(got.Points[k][i])-want) > 1e-3 {
					t.Fatalf("record %d: point %v became %v, the reference has %v", id, points[k], got.Points[k], p.point)
				}
			}
		}
	}
}

// Operations that drop boxes list the kept ones. The format of boxes is that of the last operation with a format.
func TestSanitizeBoxes(t *testing.T) {
	prog := compileList(t, `[{"op":"CenterCrop","size":[20,30]},{"op":"SanitizeBoundingBoxes","min_size":3,"min_area":12},{"op":"RandomHorizontalFlip","p":1},
		{"op":"ConvertBoundingBoxFormat","format":"CXCYWH"}]`, 40, 40)
	boxes := [][4]float32{
		{6, 11, 9, 15},   // 3 x 4: just large enough
		{6, 11, 9, 14.9}, // its area is not
		{6, 11, 8.9, 40}, // too narrow
		{0, 0, 40, 40},   // cut by the crop
		{0, 0, 5, 40},    // nothing is left
		{30, 20, 28, 30}, // upside down
	}
	p := placesOf(boxes, nil)
	if err := p.Follow(prog, nil, 0, 0, 0, 40, 40); err != nil {
		t.Fatal(err)
	}
	if want := [][4]float32{{26, 1, 29, 5}, {0, 0, 30, 20}}; !slices.Equal(p.Boxes, want) || !slices.Equal(p.Kept, []int32{0, 3}) {
		t.Errorf("boxes %v of %v are left, they should be %v", p.Boxes, p.Kept, want)
	}
	own, err := CompileBoxes(&Output{Ops: []json.RawMessage{[]byte(`{"op":"ConvertBoundingBoxFormat","format":"XYWH"}`)}}, "image")
	if err != nil {
		t.Fatal(err)
	}
	if f := BoxFormatOf(XYXY, prog, nil); f != CXCYWH {
		t.Errorf("the format is %s", f)
	}
	if f := BoxFormatOf(XYXY, prog, own); f != XYWH {
		t.Errorf("the format with their own list is %s", f)
	}
	if !DropsBoxes(prog, nil) || DropsBoxes(nil, own) {
		t.Error("it is not known what drops boxes")
	}
	if prog := compileList(t, `[{"op":"SanitizeBoundingBoxes"}]`, 4, 4); !prog.Identity() || prog.NeedsScratch() {
		t.Error("an operation on boxes changes an image")
	}
}

func TestClampPlaces(t *testing.T) {
	prog := compileList(t, `[{"op":"ClampBoundingBoxes"},{"op":"ClampKeyPoints"},{"op":"ClampBoundingBoxes","clamping_mode":null}]`, 10, 8)
	p := placesOf([][4]float32{{-1, -2, 11, 9}, {3, 4, 5, 6}}, [][2]float32{{-1, 9}, {9.5, 3}})
	if err := p.Follow(prog, nil, 0, 0, 0, 10, 8); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Boxes, [][4]float32{{0, 0, 10, 8}, {3, 4, 5, 6}}) || !slices.Equal(p.Points, [][2]float32{{0, 7}, {9, 3}}) {
		t.Errorf("%v, %v", p.Boxes, p.Points)
	}
}

func TestBoxFormats(t *testing.T) {
	for _, c := range []struct {
		format BoxFormat
		box    [4]float32
	}{{XYXY, [4]float32{2, 3, 8, 13}}, {XYWH, [4]float32{2, 3, 6, 10}}, {CXCYWH, [4]float32{5, 8, 6, 10}}} {
		if got := c.format.ToXYXY(c.box); got != [4]float32{2, 3, 8, 13} {
			t.Errorf("%s: the corners of %v are %v", c.format, c.box, got)
		}
		if got := c.format.FromXYXY([4]float32{2, 3, 8, 13}); got != c.box {
			t.Errorf("%s: %v", c.format, got)
		}
		if f, err := ParseBoxFormat(strings.ToLower(c.format.String())); err != nil || f != c.format {
			t.Errorf("%s: %v, %v", c.format, f, err)
		}
	}
}

func TestBoxOpsRefused(t *testing.T) {
	for list, want := range map[string]string{
		`{"op":"RandomCrop","size":3}`:                         `follow those of "image" by themselves`,
		`{"op":"ConvertBoundingBoxFormat"}`:                    "format is missing",
		`{"op":"ConvertBoundingBoxFormat","format":"LTRB"}`:    `"XYXY", "XYWH" or "CXCYWH"`,
		`{"op":"SanitizeBoundingBoxes","min_size":0}`:          "at least 1",
		`{"op":"SanitizeBoundingBoxes","min":1}`:               "no parameter",
		`{"op":"ClampBoundingBoxes","clamping_mode":"gentle"}`: `"auto", "soft" or "hard"`,
	} {
		_, err := CompileBoxes(&Output{Name: "boxes", Ops: []json.RawMessage{json.RawMessage(list)}}, "image")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", list, err)
		}
	}
	_, err := Compile(Output{Name: "image", Ops: []json.RawMessage{[]byte(`{"op":"RandomApply","transforms":[{"op":"SanitizeBoundingBoxes"}]}`)}}, Input{W: 4, H: 4})
	if err == nil || !strings.Contains(err.Error(), "cannot stand inside") {
		t.Error(err)
	}
}

// The image of LetterBox is at the position that its boxes have, on its background.
func TestLetterBox(t *testing.T) {
	s := testScratch(t)
	for _, c := range []struct {
		w, h       int
		args       string
		x, y, W, H int // where the image comes to lie
	}{
		{40, 20, ``, 0, 8, 32, 16},
		{20, 40, ``, 8, 0, 16, 32},
		{30, 10, ``, 0, 10, 32, 11},
		{30, 11, ``, 0, 10, 32, 12},
		{10, 8, `,"scaleup":false`, 11, 12, 10, 8},
		{40, 20, `,"center":false`, 0, 0, 32, 16},
		{32, 32, ``, 0, 0, 32, 32},
	} {
		prog := compileList(t, fmt.Sprintf(`[{"op":"LetterBox","size":32%s}]`, c.args), c.w, c.h)
		src := make([]byte, 3*c.w*c.h)
		for i := range src {
			src[i] = 200
		}
		row := runRow(t, s, prog, src, c.w, c.h, 0)
		for y := range 32 {
			for x := range 32 {
				want := byte(114)
				if x >= c.x && x < c.x+c.W && y >= c.y && y < c.y+c.H {
					want = 200
				}
				if got := row[3*(32*y+x)]; got != want {
					t.Fatalf("%d x %d%s: the pixel at (%d, %d) is %d, not %d", c.w, c.h, c.args, x, y, got, want)
				}
			}
		}
		p := placesOf([][4]float32{{0, 0, float32(c.w), float32(c.h)}}, nil)
		if err := p.Follow(prog, nil, 0, 0, 0, c.w, c.h); err != nil {
			t.Fatal(err)
		}
		want := [4]float64{float64(c.x), float64(c.y), float64(c.x + c.W), float64(c.y + c.H)}
		for i, v := range p.Boxes[0] {
			if math.Abs(float64(v)-want[i]) > 0.5 {
				t.Errorf("%d x %d%s: the box is %v, the image is at %v", c.w, c.h, c.args, p.Boxes[0], want)
				break
			}
		}
	}
}
