package cdec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/item"
)

// augKernels runs f once for each set of augmentation kernels of the machine,
// the scalar one first.
func augKernels(t *testing.T, f func(t *testing.T, set int)) {
	t.Helper()
	defer useKernels(kernelSet.Load())
	for set, name := range kernelSets() {
		use(t, name)
		t.Run(name, func(t *testing.T) { f(t, set) })
	}
}

type goldenImage struct {
	Name    string
	W, H, C int
	DType   string
	pix     []byte
}

func (g *goldenImage) dtype() item.DType {
	t, known := dtype.Parse(g.DType)
	if !known {
		return item.U8
	}
	return t
}

func (g *goldenImage) copy() Pixmap {
	return Pixmap{Pix: bytes.Clone(g.pix), W: g.W, H: g.H, C: g.C, DType: g.dtype()}
}

type goldenCase struct {
	Op, Input string
	W, H      int
	Params    struct {
		Factor, Threshold, Angle, Scale float64
		Bits, Top, Left                 int
		Kernel                          [2]int
		Sigma, Translate, Shear         [2]float64
		Center, Fill                    []float64
		Mode                            string
		Expand                          bool
		Padding                         [4]int
	}
	want []byte
}

func readGolden(t testing.TB, folder string) (map[string]*goldenImage, []*goldenCase) {
	t.Helper()
	var images []*goldenImage
	var cases []*goldenCase
	for name, dst := range map[string]any{"inputs.json": &images, "cases.json": &cases} {
		data, err := os.ReadFile("testdata/" + folder + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, dst); err != nil {
			t.Fatal(err)
		}
	}
	pixels, err := os.ReadFile("testdata/" + folder + "/pixels.bin")
	if err != nil {
		t.Fatal(err)
	}
	take := func(n int) []byte {
		b := pixels[:n]
		pixels = pixels[n:]
		return b
	}
	byName := map[string]*goldenImage{}
	for _, g := range images {
		g.pix = take(g.W * g.H * g.C * g.dtype().Size())
		byName[g.Name] = g
	}
	for _, c := range cases {
		c.want = take(c.W * c.H * byName[c.Input].C * byName[c.Input].dtype().Size())
	}
	if len(pixels) != 0 {
		t.Fatalf("%d bytes too many in pixels.bin", len(pixels))
	}
	return byName, cases
}

func (c *goldenCase) fill() (f [item.MaxChannels]float32) {
	for i := range f {
		if len(c.Params.Fill) > 0 {
			f[i] = float32(c.Params.Fill[i%len(c.Params.Fill)])
		}
	}
	return f
}

// inverse returns the map of an affine or rotate case.
func (c *goldenCase) inverse(src *goldenImage) Affine {
	p := &c.Params
	a := AffineParams{Angle: p.Angle, TX: p.Translate[0], TY: p.Translate[1], Scale: p.Scale, SX: p.Shear[0], SY: p.Shear[1]}
	if c.Op == "rotate" {
		a = AffineParams{Angle: -p.Angle, Scale: 1}
	}
	if p.Center != nil {
		a.CX, a.CY = p.Center[0]-float64(src.W)/2, p.Center[1]-float64(src.H)/2
	}
	return a.Inverse()
}

// run runs the operation of the case with our kernels.
func (c *goldenCase) run(src *goldenImage) (Pixmap, error) {
	p := &c.Params
	img := src.copy()
	out := Pixmap{Pix: make([]byte, c.W*c.H*img.C*img.elemSize()), W: c.W, H: c.H, C: img.C, DType: img.DType}
	tmp := make([]byte, 1<<16)
	fill := c.fill()
	mode := WarpMode{Bilinear: p.Mode == "bilinear", HasFill: p.Fill != nil, Fill: fill}
	switch c.Op {
	case "brightness":
		return img, img.AdjustBrightness(p.Factor)
	case "contrast":
		return img, img.AdjustContrast(p.Factor)
	case "saturation":
		return img, img.AdjustSaturation(p.Factor)
	case "hue":
		return img, img.AdjustHue(p.Factor)
	case "grayscale":
		return img, img.Grayscale()
	case "invert":
		return img, img.Invert()
	case "posterize":
		return img, img.Posterize(p.Bits)
	case "solarize":
		return img, img.Solarize(p.Threshold)
	case "equalize":
		return img, img.Equalize()
	case "autocontrast":
		return img, img.AutoContrast()
	case "sharpness":
		return out, AdjustSharpness(out, img, p.Factor, tmp)
	case "blur":
		return out, GaussianBlur(out, img, p.Kernel[0], p.Kernel[1], p.Sigma[0], p.Sigma[1], tmp)
	case "pad_crop":
		modes := map[string]PadMode{"constant": PadConstant, "edge": PadEdge, "reflect": PadReflect, "symmetric": PadSymmetric}
		return out, Window(out, img, p.Left-p.Padding[0], p.Top-p.Padding[1], modes[p.Mode], fill[:])
	case "affine":
		return out, Warp(out, img, c.inverse(src), mode)
	case "rotate":
		turns := int(math.Mod(p.Angle+360, 360)) / 90
		if math.Mod(p.Angle, 90) == 0 && (turns%2 == 0 || p.Expand || img.W == img.H) && p.Center == nil {
			if turns == 0 {
				return img, nil
			}
			return out, Rotate90(out, img, turns)
		}
		if p.Expand {
			if w, h := RotatedSize(c.inverse(src), img.W, img.H); w != c.W || h != c.H {
				return out, fmt.Errorf("expands to %dx%d, torchvision to %dx%d", w, h, c.W, c.H)
			}
		}
		return out, Warp(out, img, c.inverse(src), mode)
	}
	return img, fmt.Errorf("unknown operation %q", c.Op)
}

// nearTie reports whether the pixel comes from half way between two pixels, so that float noise decides which of them
// is used.
func nearTie(inv Affine, c *goldenCase, src *goldenImage, x, y int) bool {
	sx, sy := inv.Apply(float64(x)-float64(c.W-1)/2, float64(y)-float64(c.H-1)/2)
	sx, sy = sx+float64(src.W-1)/2, sy+float64(src.H-1)/2
	tie := func(v float64) bool { return math.Abs(v-math.Floor(v)-0.5) < 1e-4 }
	return tie(sx) || tie(sy)
}

// TestAugmentGolden holds every kernel within one level of torchvision, with
// the same parameters. Operations that only move bytes must be equal.
func TestAugmentGolden(t *testing.T) {
	images, cases := readGolden(t, "aug")
	exact := map[string]bool{"invert": true, "posterize": true, "solarize": true, "equalize": true, "pad_crop": true}
	augKernels(t, func(t *testing.T, _ int) {
		differ := map[string][2]int{}
		for i, c := range cases {
			src := images[c.Input]
			out, err := c.run(src)
			if err != nil {
				t.Errorf("case %d, %s of %s: %v", i, c.Op, c.Input, err)
				continue
			}
			limit := 1
			nearest := (c.Op == "affine" || c.Op == "rotate") && c.Params.Mode == "nearest"
			if exact[c.Op] || nearest {
				limit = 0
			}
			n := differ[c.Op]
			n[1] += len(c.want)
			for k, want := range c.want {
				d := int(out.Pix[k]) - int(want)
				if d == 0 {
					continue
				}
				n[0]++
				x, y := k/src.C%c.W, k/src.C/c.W
				if nearest && nearTie(c.inverse(src), c, src, x, y) {
					continue
				}
				if d < -limit || d > limit {
					t.Errorf("case %d, %s of %s, %+v: at (%d, %d) is %d, torchvision has %d", i, c.Op, c.Input, c.Params, x, y, out.Pix[k], want)
					break
				}
			}
			differ[c.Op] = n
		}
		for op, n := range differ {
			if n[0] > 0 {
				t.Logf("%s: %.3f%% of %d bytes differ", op, 100*float64(n[0])/float64(n[1]), n[1])
			}
		}
	})
}

func noise(rng *rand.Rand, w, h, c int) Pixmap {
	p := Pixmap{Pix: make([]byte, w*h*c), W: w, H: h, C: c}
	kind := rng.IntN(3)
	for i := range p.Pix {
		switch kind {
		case 0:
			p.Pix[i] = byte(rng.Uint32())
		case 1:
			p.Pix[i] = byte(100 + rng.IntN(7))
		default:
			p.Pix[i] = byte(rng.IntN(2) * 255)
		}
	}
	return p
}

// augOperation is an operation with parameters drawn from rng. It must give the same bytes with all kernels.
type augOperation struct {
	name string
	run  func(rng *rand.Rand, p Pixmap) (Pixmap, error)
}

func augOperations() []augOperation {
	inPlace := func(f func(rng *rand.Rand, p Pixmap) error) func(*rand.Rand, Pixmap) (Pixmap, error) {
		return func(rng *rand.Rand, p Pixmap) (Pixmap, error) { return p, f(rng, p) }
	}
	like := func(p Pixmap, w, h int) Pixmap { return Pixmap{Pix: make([]byte, w*h*p.C), W: w, H: h, C: p.C} }
	return []augOperation{
		{"brightness", inPlace(func(r *rand.Rand, p Pixmap) error { return p.AdjustBrightness(r.Float64() * 3) })},
		{"contrast", inPlace(func(r *rand.Rand, p Pixmap) error { return p.AdjustContrast(r.Float64() * 3) })},
		{"saturation", inPlace(func(r *rand.Rand, p Pixmap) error { return p.AdjustSaturation(r.Float64() * 3) })},
		{"hue", inPlace(func(r *rand.Rand, p Pixmap) error { return p.AdjustHue(r.Float64() - 0.5) })},
		{"hsv", inPlace(func(r *rand.Rand, p Pixmap) error {
			if p.C != 3 {
				return nil
			}
			return p.HSV(hsvTables(r))
		})},
		{"grayscale", inPlace(func(_ *rand.Rand, p Pixmap) error { return p.Grayscale() })},
		{"invert", inPlace(func(_ *rand.Rand, p Pixmap) error { return p.Invert() })},
		{"posterize", inPlace(func(r *rand.Rand, p Pixmap) error { return p.Posterize(r.IntN(9)) })},
		{"solarize", inPlace(func(r *rand.Rand, p Pixmap) error { return p.Solarize(r.Float64() * 255) })},
		{"equalize", inPlace(func(_ *rand.Rand, p Pixmap) error { return p.Equalize() })},
		{"autocontrast", inPlace(func(_ *rand.Rand, p Pixmap) error { return p.AutoContrast() })},
		{"sharpness", func(r *rand.Rand, p Pixmap) (Pixmap, error) {
			d := like(p, p.W, p.H)
			return d, AdjustSharpness(d, p, r.Float64()*3, make([]byte, SharpnessTemp(p)))
		}},
		{"blur", func(r *rand.Rand, p Pixmap) (Pixmap, error) {
			d := like(p, p.W, p.H)
			kw, kh := 2*r.IntN(min(p.W, 14))+1, 2*r.IntN(min(p.H, 14))+1
			return d, GaussianBlur(d, p, kw, kh, 0.1+4*r.Float64(), 0.1+4*r.Float64(), make([]byte, BlurTemp(p, kw)))
		}},
		{"warp", func(r *rand.Rand, p Pixmap) (Pixmap, error) {
			d := like(p, 1+r.IntN(70), 1+r.IntN(70))
			a := AffineParams{Angle: 360 * r.Float64(), TX: 20*r.Float64() - 10, TY: 20*r.Float64() - 10, Scale: 0.3 + 2*r.Float64(), SX: 40*r.Float64() - 20, SY: 40*r.Float64() - 20}
			return d, Warp(d, p, a.Inverse(), WarpMode{Bilinear: r.IntN(2) == 0, HasFill: r.IntN(2) == 0, Fill: [item.MaxChannels]float32{1.5, 200, 255}})
		}},
		{"mix", func(r *rand.Rand, p Pixmap) (Pixmap, error) {
			d, other := like(p, p.W, p.H), noise(r, p.W, p.H, p.C)
			return d, Mix(item.U8, d.Pix, p.Pix, other.Pix, r.Float64())
		}},
	}
}

// TestAugmentKernelsEqual compares the bytes of the fast kernels with those of the scalar ones. The images have many
// sizes, some too small for one vector.
func TestAugmentKernelsEqual(t *testing.T) {
	for _, op := range augOperations() {
		t.Run(op.name, func(t *testing.T) {
			want := map[uint64][]byte{}
			augKernels(t, func(t *testing.T, set int) {
				for seed := range uint64(200) {
					rng := rand.New(rand.NewPCG(seed, 1))
					p := noise(rng, 1+rng.IntN(60), 1+rng.IntN(60), 1+2*rng.IntN(2))
					out, err := op.run(rng, p)
					if err != nil {
						t.Fatal(err)
					}
					if set == 0 {
						want[seed] = bytes.Clone(out.Pix)
					} else if !bytes.Equal(out.Pix, want[seed]) {
						t.Fatalf("seed %d, %dx%dx%d: not the bytes of the scalar kernels", seed, p.W, p.H, p.C)
					}
				}
			})
		})
	}
}

// hsvTables returns tables of random values.
func hsvTables(r *rand.Rand) (hues *[180]byte, saturations, values *[256]byte) {
	hues, saturations, values = new([180]byte), new([256]byte), new([256]byte)
	for i := range hues {
		hues[i] = byte(r.IntN(180))
	}
	for i := range saturations {
		saturations[i], values[i] = byte(r.IntN(256)), byte(r.IntN(256))
	}
	return hues, saturations, values
}

// TestHSVAllColours goes through every colour with every kernel, since quotients of HSV
// are rounded.
func TestHSVAllColours(t *testing.T) {
	if testing.Short() {
		t.Skip("16 million colours")
	}
	defer useKernels(kernelSet.Load())
	sets := kernelSets()
	hues, saturations, values := hsvTables(rand.New(rand.NewPCG(1, 2)))
	src, want, got := make([]byte, 65536*3), make([]byte, 65536*3), make([]byte, 65536*3)
	for r := range 256 {
		for i := range 65536 {
			src[3*i], src[3*i+1], src[3*i+2] = byte(r), byte(i>>8), byte(i)
		}
		for set, name := range sets {
			out := got
			if set == 0 {
				out = want
			}
			copy(out, src)
			use(t, name)
			if err := (Pixmap{Pix: out, W: 256, H: 256, C: 3}).HSV(hues, saturations, values); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out, want) {
				t.Fatalf("red %d: kernels %s give other colours than the scalar ones", r, name)
			}
		}
	}
}

// TestHueAllColours turns every colour, since rounding depends on all three.
func TestHueAllColours(t *testing.T) {
	if testing.Short() {
		t.Skip("16 million colours")
	}
	defer useKernels(kernelSet.Load())
	sets := kernelSets()
	p := Pixmap{Pix: make([]byte, 256*256*3), W: 256, H: 256, C: 3}
	q := Pixmap{Pix: make([]byte, 256*256*3), W: 256, H: 256, C: 3}
	for r := 0; r < 256; r += 5 {
		for i := range 65536 {
			p.Pix[3*i], p.Pix[3*i+1], p.Pix[3*i+2] = byte(r), byte(i>>8), byte(i)
		}
		copy(q.Pix, p.Pix)
		for set, img := range map[string]Pixmap{sets[0]: q, sets[len(sets)-1]: p} {
			use(t, set)
			if err := img.AdjustHue(float64(r)/255 - 0.5); err != nil {
				t.Fatal(err)
			}
		}
		if len(sets) > 1 && !bytes.Equal(p.Pix, q.Pix) {
			t.Fatalf("red %d: fast and scalar kernels differ", r)
		}
	}
}

// TestMixFloats checks the half types against arithmetic in float64, for all
// finite values of a and both ways of rounding.
func TestMixFloats(t *testing.T) {
	toFloat := map[item.DType]func(uint16) float64{
		item.BF16: func(v uint16) float64 { return float64(math.Float32frombits(uint32(v) << 16)) },
		item.F16: func(v uint16) float64 {
			e, m := int(v>>10&31), float64(v&1023)
			f := math.Ldexp(1024+m, e-25)
			if e == 0 {
				f = math.Ldexp(m, -24)
			}
			if e == 31 {
				f = math.Inf(1)
				if m != 0 {
					f = math.NaN()
				}
			}
			if v&0x8000 != 0 {
				f = -f
			}
			return f
		},
	}
	augKernels(t, func(t *testing.T, _ int) {
		for dtype, conv := range toFloat {
			a, b, d := make([]byte, 1<<17), make([]byte, 1<<17), make([]byte, 1<<17)
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range 1 << 16 {
				a[2*i], a[2*i+1] = byte(i), byte(i>>8)
				b[2*i], b[2*i+1] = byte(rng.Uint32()), byte(rng.Uint32())
			}
			const lam = 0.3125 // exact, so that one rounding is left
			if err := Mix(dtype, d, a, b, lam); err != nil {
				t.Fatal(err)
			}
			at := func(s []byte, i int) uint16 { return uint16(s[2*i]) | uint16(s[2*i+1])<<8 }
			for i := range 1 << 16 {
				x, y, got := conv(at(a, i)), conv(at(b, i)), conv(at(d, i))
				want := float64(float32(float32(x)*lam + float32(y)*(1-lam)))
				if math.IsNaN(want) {
					if !math.IsNaN(got) {
						t.Fatalf("%s: %v and %v give %v", dtype, x, y, got)
					}
					continue
				}
				if got == want {
					continue
				}
				// Neighbours of the result must not be nearer.
				v := at(d, i)
				for _, n := range []uint16{v - 1, v + 1} {
					if f := conv(n); !math.IsInf(got, 0) && math.Abs(f-want) < math.Abs(got-want) {
						t.Fatalf("%s: %v and %v give %v, %v is nearer to %v", dtype, x, y, got, f, want)
					}
				}
			}
		}
	})
}

func TestAugmentErrors(t *testing.T) {
	img := Pixmap{Pix: make([]byte, 3*20*10), W: 20, H: 10, C: 3}
	out := Pixmap{Pix: make([]byte, 3*20*10), W: 20, H: 10, C: 3}
	tmp := make([]byte, 4096)
	for name, err := range map[string]error{
		"short":      Pixmap{Pix: make([]byte, 5), W: 20, H: 10, C: 3}.Invert(),
		"channels":   Pixmap{Pix: make([]byte, 1000), W: 20, H: 10, C: 5}.Invert(),
		"colours":    Pixmap{Pix: make([]byte, 800), W: 20, H: 10, C: 4}.AdjustHue(0.1),
		"type":       Pixmap{Pix: make([]byte, 1600), W: 20, H: 10, C: 1, DType: item.I64}.Invert(),
		"short u16":  Pixmap{Pix: make([]byte, 399), W: 20, H: 10, C: 1, DType: item.U16}.Invert(),
		"brightness": img.AdjustBrightness(-1),
		"nan":        img.AdjustContrast(math.NaN()),
		"hue":        img.AdjustHue(0.6),
		"bits":       img.Posterize(9),
		"threshold":  img.Solarize(256),
		"even":       GaussianBlur(out, img, 4, 3, 1, 1, tmp),
		"kernel":     GaussianBlur(out, img, 3, 21, 1, 1, tmp),
		"sigma":      GaussianBlur(out, img, 3, 3, 0, 1, tmp),
		"temp":       GaussianBlur(out, img, 3, 3, 1, 1, tmp[:10]),
		"turns":      Rotate90(out, img, 1),
		"reflect":    Window(out, img, -20, 0, PadReflect, nil),
		"symmetric":  Window(out, img, 0, 11, PadSymmetric, nil),
		"warp":       Warp(out, img, Affine{math.Inf(1)}, WarpMode{}),
		"mix":        Mix(item.F32, img.Pix[:8], img.Pix[:4], img.Pix[:8], 0.5),
		"int":        Mix(item.I64, img.Pix[:8], img.Pix[:8], img.Pix[:8], 0.5),
		"lambda":     Mix(item.U8, img.Pix, img.Pix, img.Pix, 1.5),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzAugmentWindow finds reads and writes outside the images (run it with the sanitizers) and checks constant
// padding against its definition.
func FuzzAugmentWindow(f *testing.F) {
	f.Add(5, 4, 7, 6, -1, -1, 0)
	f.Add(5, 4, 3, 2, 9, 9, 0)
	f.Add(5, 4, 13, 12, -4, -3, 2)
	f.Fuzz(func(t *testing.T, sw, sh, dw, dh, left, top, mode int) {
		for _, v := range []int{sw, sh, dw, dh} {
			if v < 1 || v > 64 {
				return
			}
		}
		src := noise(rand.New(rand.NewPCG(1, 1)), sw, sh, 3)
		dst := Pixmap{Pix: make([]byte, dw*dh*3), W: dw, H: dh, C: 3}
		if err := Window(dst, src, left, top, PadMode(mode), []float32{1, 2, 3}); err != nil || mode != 0 {
			return
		}
		for y := range dh {
			for x := range dw {
				want := []byte{1, 2, 3}
				if sx, sy := x+left, y+top; sx >= 0 && sx < sw && sy >= 0 && sy < sh {
					want = src.Pix[(sy*sw+sx)*3:][:3]
				}
				if got := dst.Pix[(y*dw+x)*3:][:3]; !bytes.Equal(got, want) {
					t.Fatalf("(%d, %d) is %v, want %v", x, y, got, want)
				}
			}
		}
	})
}

func BenchmarkAugment(b *testing.B) {
	const side = 224
	rng := rand.New(rand.NewPCG(1, 1))
	src := Pixmap{Pix: make([]byte, side*side*3), W: side, H: side, C: 3}
	for i := range src.Pix {
		src.Pix[i] = byte(100 + rng.IntN(100))
	}
	dst := Pixmap{Pix: make([]byte, len(src.Pix)), W: side, H: side, C: 3}
	tmp := make([]byte, 1<<16)
	turn := AffineParams{Angle: 17, Scale: 1.1, SX: 5}
	inv := turn.Inverse()
	hues, saturations, values := hsvTables(rng)
	for _, op := range []struct {
		name string
		run  func() error
	}{
		{"brightness", func() error { return src.AdjustBrightness(1.01) }},
		{"contrast", func() error { return src.AdjustContrast(1.01) }},
		{"saturation", func() error { return src.AdjustSaturation(1.01) }},
		{"hue", func() error { return src.AdjustHue(0.03) }},
		{"hsv", func() error { return src.HSV(hues, saturations, values) }},
		{"grayscale", func() error { copy(dst.Pix, src.Pix); return dst.Grayscale() }},
		{"invert", src.Invert},
		{"posterize", func() error { return dst.Posterize(6) }},
		{"solarize", func() error { return dst.Solarize(128) }},
		{"equalize", func() error { copy(dst.Pix, src.Pix); return dst.Equalize() }},
		{"autocontrast", func() error { copy(dst.Pix, src.Pix); return dst.AutoContrast() }},
		{"sharpness", func() error { return AdjustSharpness(dst, src, 1.7, tmp) }},
		{"blur3", func() error { return GaussianBlur(dst, src, 3, 3, 1, 1, tmp) }},
		{"blur23", func() error { return GaussianBlur(dst, src, 23, 23, 1.5, 1.5, tmp) }},
		{"affine-nearest", func() error { return Warp(dst, src, inv, WarpMode{HasFill: true}) }},
		{"affine-bilinear", func() error { return Warp(dst, src, inv, WarpMode{HasFill: true, Bilinear: true}) }},
		{"rotate90", func() error { return Rotate90(dst, src, 1) }},
		{"pad-crop-reflect", func() error { return Window(dst, src, -16, -9, PadReflect, nil) }},
		{"mixup-u8", func() error { return Mix(item.U8, dst.Pix, dst.Pix, src.Pix, 0.7) }},
	} {
		for _, set := range kernelSets() {
			use(b, set)
			b.Run(op.name+"/"+set, func(b *testing.B) {
				for b.Loop() {
					if err := op.run(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(side*side), "ns/px")
			})
		}
	}
}
