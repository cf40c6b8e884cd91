package transform

import (
	"math"
	"testing"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// The distributions are tested with fixed seeds, against the moments of
// torchvision's. The bounds are five standard errors.

const draws = 20000

// moments checks mean and variance of f over many records.
func moments(t *testing.T, what string, mean, variance float64, f func(r *Rand) float64) {
	t.Helper()
	var sum, sq float64
	for id := range int64(draws) {
		r := newRand(3, 1, id, "image", 0)
		v := f(&r)
		sum += v
		sq += v * v
	}
	m := sum / draws
	v := sq/draws - m*m
	if se := math.Sqrt(variance / draws); math.Abs(m-mean) > 5*se+1e-12 {
		t.Errorf("%s: mean %.5f, want %.5f", what, m, mean)
	}
	if math.Abs(v-variance) > 0.08*variance+1e-12 {
		t.Errorf("%s: variance %.6f, want %.6f", what, v, variance)
	}
}

func uniformMoments(lo, hi float64) (mean, variance float64) {
	return (lo + hi) / 2, (hi - lo) * (hi - lo) / 12
}

func TestAffineDistribution(t *testing.T) {
	op := mustOp(t, `{"op":"RandomAffine","degrees":30,"translate":[0.1,0.2],"scale":[0.5,1.5],"shear":[-4,8,10,20]}`).(*randomAffine)
	for _, c := range []struct {
		name   string
		lo, hi float64
		get    func(w warp) float64
	}{
		{"angle", -30, 30, func(w warp) float64 { return w.params.Angle }},
		{"tx", -20, 20, func(w warp) float64 { return w.params.TX }},
		{"ty", -20, 20, func(w warp) float64 { return w.params.TY }},
		{"scale", 0.5, 1.5, func(w warp) float64 { return w.params.Scale }},
		{"shear x", -4, 8, func(w warp) float64 { return w.params.SX }},
		{"shear y", 10, 20, func(w warp) float64 { return w.params.SY }},
	} {
		m, v := uniformMoments(c.lo, c.hi)
		moments(t, c.name, m, v, func(r *Rand) float64 { return c.get(op.draw(r, 200, 100)) })
	}
	turn := mustOp(t, `{"op":"RandomRotation","degrees":[10,50]}`).(*randomRotation)
	m, v := uniformMoments(-50, -10)
	moments(t, "rotation", m, v, func(r *Rand) float64 { d := turn.draw(r, 30, 40); return d.params.Angle - 0 })
}

func TestErasingDistribution(t *testing.T) {
	op := mustOp(t, `{"op":"RandomErasing","p":1,"scale":[0.05,0.1],"ratio":[0.5,2]}`).(*randomErasing)
	const side = 1000
	draw := func(r *Rand) item.Rect {
		box, ok := op.draw(r, side, side)
		if !ok {
			t.Fatal("nothing erased")
		}
		if box.X < 0 || box.Y < 0 || box.X+box.W > side || box.Y+box.H > side {
			t.Fatalf("box %v reaches outside", box)
		}
		return box
	}
	m, v := uniformMoments(0.05, 0.1)
	moments(t, "area", m, v, func(r *Rand) float64 { b := draw(r); return float64(b.W) * float64(b.H) / (side * side) })
	m, v = uniformMoments(math.Log(0.5), math.Log(2))
	moments(t, "log ratio", m, v, func(r *Rand) float64 { b := draw(r); return math.Log(float64(b.H) / float64(b.W)) })
	// The corner is uniform over the positions at which the box fits.
	m, v = uniformMoments(0, 1)
	moments(t, "x", m, v, func(r *Rand) float64 { b := draw(r); return float64(b.X) / float64(side-b.W) })
	half := mustOp(t, `{"op":"RandomErasing"}`).(*randomErasing)
	moments(t, "p", 0.5, 0.25, func(r *Rand) float64 {
		if _, ok := half.draw(r, 224, 224); ok {
			return 1
		}
		return 0
	})
}

// TestJitterDistribution reads the drawn factors off the pixels of a flat
// image.
func TestJitterDistribution(t *testing.T) {
	s := testScratch(t)
	op := mustOp(t, `{"op":"ColorJitter","brightness":[0.5,1.5]}`).(PixelOp)
	m, v := uniformMoments(0.5, 1.5)
	moments(t, "brightness", m-0.005, v, func(r *Rand) float64 {
		img := &Pixels{Pix: []byte{100, 100, 100}, W: 1, H: 1, Type: item.RGB, scratch: s}
		if err := op.Apply(r, img); err != nil {
			t.Fatal(err)
		}
		return float64(img.Pix[0]) / 100
	})
	// With hue off, all orders of the other three are equally likely: after brightness 2 and saturation 0, the clipped
	// values show the order.
	off := mustOp(t, `{"op":"ColorJitter","brightness":0,"hue":0}`).(*colorJitter)
	for i, f := range off.factors {
		if f.on {
			t.Errorf("factor %d is on", i)
		}
	}
	order := mustOp(t, `{"op":"ColorJitter","brightness":[2,2],"saturation":[0,0]}`).(PixelOp)
	moments(t, "order", 0.5, 0.25, func(r *Rand) float64 {
		img := &Pixels{Pix: []byte{200, 0, 0}, W: 1, H: 1, Type: item.RGB, scratch: s}
		if err := order.Apply(r, img); err != nil {
			t.Fatal(err)
		}
		if img.Pix[0] == 76 { // brightness first: luma of 255
			return 1
		}
		return 0 // luma of 200, doubled: 118
	})
}

func TestChoiceDistribution(t *testing.T) {
	s := testScratch(t)
	// Posterize to 7 bits, 6 bits and 5 bits can be told from the pixel 255.
	const three = `"transforms":[{"op":"RandomPosterize","bits":7,"p":1},{"op":"RandomPosterize","bits":6,"p":1},{"op":"RandomPosterize","bits":5,"p":1}]`
	count := func(text string) [4]int {
		op := mustOp(t, text).(PixelOp)
		var n [4]int
		for id := range int64(draws) {
			r := newRand(9, 0, id, "image", 2)
			img := &Pixels{Pix: []byte{255, 255, 255}, W: 1, H: 1, Type: item.RGB, scratch: s}
			if err := op.Apply(&r, img); err != nil {
				t.Fatal(err)
			}
			n[map[byte]int{254: 0, 252: 1, 248: 2, 255: 3}[img.Pix[0]]]++
		}
		return n
	}
	near := func(text string, want ...float64) {
		for i, n := range count(text) {
			p := want[i]
			if math.Abs(float64(n)/draws-p) > 5*math.Sqrt(p*(1-p)/draws) {
				t.Errorf("%s: part %d in %.4f of the records, want %.4f", text, i, float64(n)/draws, p)
			}
		}
	}
	near(`{"op":"RandomChoice",`+three+`}`, 1.0/3, 1.0/3, 1.0/3, 0)
	near(`{"op":"RandomChoice",`+three+`,"p":[1,2,5]}`, 1.0/8, 2.0/8, 5.0/8, 0)
	near(`{"op":"RandomApply","p":0.3,"transforms":[{"op":"RandomPosterize","bits":5,"p":1}]}`, 0, 0, 0.3, 0.7)
	near(`{"op":"RandomOrder",`+three+`}`, 0, 0, 1, 0)
}

// TestPolicyDistribution counts how often RandAugment and TrivialAugmentWide run each operation with each sign, by
// comparing results.
func TestPolicyDistribution(t *testing.T) {
	s := testScratch(t)
	const w, h = 24, 20
	picture := func() *Pixels {
		img := testPixels(s, w, h, 3)
		for i := range img.Pix {
			img.Pix[i] = byte(60 + (i*i/7+i%3*40)%120)
		}
		return img
	}
	for _, c := range []struct {
		text  string
		space *policySpace
		bins  int
		steps []int
	}{
		{`{"op":"RandAugment","num_ops":1,"magnitude":20}`, &autoSpace, 31, []int{20}},
		{`{"op":"TrivialAugmentWide","num_magnitude_bins":3}`, &wideSpace, 3, []int{0, 1, 2}},
	} {
		// The probability of each result.
		want := map[string]float64{}
		for op := range polInvert {
			for _, step := range c.steps {
				m, signed := c.space.magnitude(op, c.bins, step, w, h)
				for _, sign := range []float64{1, -1} {
					if !signed {
						sign = 1
					}
					img := picture()
					if err := policyStep(op, sign*m, img, cdec.WarpMode{}, false); err != nil {
						t.Fatal(err)
					}
					want[string(img.Pix)] += 1 / float64(polInvert*2*len(c.steps))
				}
			}
		}
		op := mustOp(t, c.text).(PixelOp)
		got := map[string]int{}
		for id := range int64(draws) {
			img := picture()
			r := newRand(4, 0, id, "image", 0)
			if err := op.Apply(&r, img); err != nil {
				t.Fatal(err)
			}
			got[string(img.Pix)]++
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d different results, want %d", c.text, len(got), len(want))
		}
		for pix, p := range want {
			if f := float64(got[pix]) / draws; math.Abs(f-p) > 5*math.Sqrt(p*(1-p)/draws) {
				t.Errorf("%s: a result in %.4f of the records, want %.4f", c.text, f, p)
			}
		}
	}
}

func TestNormalTable(t *testing.T) {
	n := normalTable()
	var sum, sq, fourth float64
	for u := range 1 << 16 {
		v := float64(n.at(uint16(u)))
		sum += v
		sq += v * v
		fourth += v * v * v * v
	}
	const count = 1 << 16
	if math.Abs(sum) > 1e-9 || math.Abs(sq/count-1) > 1e-3 || math.Abs(fourth/count-3) > 2e-2 {
		t.Errorf("mean %v, variance %v, fourth moment %v", sum/count, sq/count, fourth/count)
	}
}

func TestBetaDistribution(t *testing.T) {
	for _, alpha := range []float64{0.1, 0.2, 0.8, 1, 2, 30} {
		moments(t, "beta", 0.5, 1/(4*(2*alpha+1)), func(r *Rand) float64 {
			v := betaSample(r, alpha)
			if !(v >= 0 && v <= 1) {
				t.Fatalf("Beta(%v) gave %v", alpha, v)
			}
			return v
		})
	}
}
