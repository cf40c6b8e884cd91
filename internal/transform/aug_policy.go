package transform

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/cdec"
)

// The operations of the automatic policies.
const (
	polIdentity = iota
	polShearX
	polShearY
	polTranslateX
	polTranslateY
	polRotate
	polBrightness
	polColor
	polContrast
	polSharpness
	polPosterize
	polSolarize
	polAutoContrast
	polEqualize
	polInvert
)

var policyNames = [...]string{
	"Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
	"Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert",
}

// policySpace is a search space: how strong each operation may be.
type policySpace struct {
	shear, rotate, color float64
	// translate is the largest translation in pixels, relative to the side of
	// the image when relative is set.
	translate float64
	relative  bool
	// posterize is the number of bits that the strongest posterize removes.
	posterize float64
}

var (
	// autoSpace is that of AutoAugment and RandAugment, wideSpace that of
	// TrivialAugmentWide.
	autoSpace = policySpace{shear: 0.3, rotate: 30, color: 0.9, translate: 150.0 / 331.0, relative: true, posterize: 4}
	wideSpace = policySpace{shear: 0.99, rotate: 135, color: 0.99, translate: 32, posterize: 6}
)

// step is element i of torch.linspace(lo, hi, n), in its float32 arithmetic.
func linspace(lo, hi float64, n, i int) float64 {
	a, b := float32(lo), float32(hi)
	if n == 1 {
		return float64(a)
	}
	d := (b - a) / float32(n-1)
	if i < n/2 {
		return float64(a + d*float32(i))
	}
	return float64(b - d*float32(n-1-i))
}

// magnitude returns the strength of an operation at step i of bins. signed reports whether its sign may be reversed.
func (s *policySpace) magnitude(op, bins, i, w, h int) (m float64, signed bool) {
	translate := func(side int) float64 {
		if s.relative {
			return s.translate * float64(side)
		}
		return s.translate
	}
	switch op {
	case polShearX, polShearY:
		return linspace(0, s.shear, bins, i), true
	case polTranslateX:
		return linspace(0, translate(w), bins, i), true
	case polTranslateY:
		return linspace(0, translate(h), bins, i), true
	case polRotate:
		return linspace(0, s.rotate, bins, i), true
	case polBrightness, polColor, polContrast, polSharpness:
		return linspace(0, s.color, bins, i), true
	case polPosterize:
		return math.RoundToEven(8 - float64(float32(i)/float32(float64(bins-1)/s.posterize))), false
	case polSolarize:
		return linspace(1, 0, bins, i), false
	}
	return 0, false
}

// strengths are those of a policy's operations, from a search space or from lists of the loader. stoker.torch passes
// the lists of the installed torch, whose linspace differs in the last bit from processor to processor.
type strengths struct {
	space *policySpace
	lists [len(policyNames)][]float64
}

func readStrengths(a *Args, space *policySpace, bins int) strengths {
	s := strengths{space: space}
	var lists map[string][]float64
	if raw := a.Raw("magnitudes"); raw != nil && json.Unmarshal(raw, &lists) != nil {
		a.fail("magnitudes", "must be lists of numbers by operation")
	}
	for name, list := range lists {
		op := slices.Index(policyNames[:], name)
		if op < 0 || len(list) != bins {
			a.fail("magnitudes", "must have %d numbers for each operation, has %d for %q", bins, len(list), clip(name))
			return s
		}
		s.lists[op] = list
	}
	return s
}

// magnitude is the strength of an operation at step i of bins.
func (s *strengths) magnitude(op, bins, i, w, h int) (m float64, signed bool) {
	m, signed = s.space.magnitude(op, bins, i, w, h)
	if list := s.lists[op]; list != nil {
		m = list[i]
	}
	return m, signed
}

// policyWarp is the map of an operation of strength m; moves is false for the
// operations that change colours.
func policyWarp(op int, m float64, w, h int) (d warp, moves bool) {
	d = warp{params: cdec.AffineParams{Scale: 1}, outW: w, outH: h}
	p := &d.params
	switch op {
	case polShearX, polShearY:
		degrees := math.Atan(m) * (180 / math.Pi)
		if op == polShearX {
			p.SX = degrees
		} else {
			p.SY = degrees
		}
		// The upper left corner is the fixed point.
		setCenter(p, &[2]float64{}, w, h)
	case polTranslateX:
		p.TX = math.Trunc(m)
	case polTranslateY:
		p.TY = math.Trunc(m)
	case polRotate:
		d = rotation(m, w, h, false, nil)
	default:
		return d, false
	}
	return d, true
}

// policyStep does an operation of strength m. A mask is moved, but not changed
// otherwise.
func policyStep(op int, m float64, img *Pixels, mode cdec.WarpMode, mask bool) error {
	if d, moves := policyWarp(op, m, img.W, img.H); moves {
		return d.apply(img, mode)
	}
	if mask || op == polIdentity {
		return nil
	}
	return policyColor(op, m, img)
}

func policyColor(op int, m float64, img *Pixels) error {
	px := pixmap(img)
	switch op {
	case polBrightness:
		return px.AdjustBrightness(1 + m)
	case polColor:
		return px.AdjustSaturation(1 + m)
	case polContrast:
		return px.AdjustContrast(1 + m)
	case polSharpness:
		return sharpen(img, 1+m)
	case polPosterize:
		return px.Posterize(int(m))
	case polSolarize:
		return px.Solarize(maxValue(img.Type.DType) * m)
	case polAutoContrast:
		return px.AutoContrast()
	case polEqualize:
		return px.Equalize()
	default:
		return px.Invert()
	}
}

// signed draws the sign of a magnitude.
func drawSign(r *Rand, m float64, signed bool) float64 {
	if signed && r.Bool(0.5) {
		return -m
	}
	return m
}

// randAugment is torchvision's RandAugment.
type randAugment struct {
	named
	n, magnitude, bins int
	mode               cdec.WarpMode
	strengths          strengths
}

var (
	magnitudes = Param{Name: "magnitudes", Type: Table, Optional: true, Hidden: true, Help: "strengths of each operation"}
	binsParam  = Param{Name: "num_magnitude_bins", Type: Int, Default: 31, Range: between(2, 1<<20), Help: "number of strengths"}
)

var randAugmentSpec = Spec{
	Name: "RandAugment", Doc: "Apply random operations of one strength (RandAugment, arXiv:1909.13719).",
	Params: []Param{
		{Name: "num_ops", Type: Int, Default: 2, Range: between(0, maxOps), Help: "number of operations"},
		{Name: "magnitude", Type: Int, Default: 9, Range: between(0, 1<<20-1), Help: "strength, less than num_magnitude_bins"},
		binsParam, interpolation("nearest", "nearest", "bilinear"), fill(nil, true), magnitudes,
	},
	Kinds: moved, Returns: sameShape, Example: "T.RandAugment()", takes: grayOrRGB, image: buildRandAugment,
}

func buildRandAugment(a *Args) (Op, error) {
	n := a.Int("num_magnitude_bins")
	op := &randAugment{"RandAugment", a.Int("num_ops"), a.Int("magnitude"), n, warpArgs(a), readStrengths(a, &autoSpace, n)}
	if op.magnitude >= op.bins {
		a.fail("magnitude", "must be a whole number from 0 to num_magnitude_bins - 1 = %d, not %d", op.bins-1, op.magnitude)
	}
	return op, nil
}

func (op *randAugment) run(r *Rand, img *Pixels, mask bool) error {
	w, h := img.W, img.H
	for range op.n {
		which := r.IntN(polInvert) // all but Invert
		m, signed := op.strengths.magnitude(which, op.bins, op.magnitude, w, h)
		if err := policyStep(which, drawSign(r, m, signed), img, op.mode, mask); err != nil {
			return err
		}
	}
	return nil
}

func (op *randAugment) Apply(r *Rand, img *Pixels) error { return op.run(r, img, false) }

// ApplyMask makes it a MaskOp.
func (op *randAugment) ApplyMask(r *Rand, img *Pixels) error { return op.run(r, img, true) }

// trivialAugment is torchvision's TrivialAugmentWide.
type trivialAugment struct {
	named
	bins      int
	mode      cdec.WarpMode
	strengths strengths
}

var trivialAugmentSpec = Spec{
	Name: "TrivialAugmentWide", Doc: "Apply one random operation of random strength (TrivialAugment, arXiv:2103.10158).",
	Params: []Param{binsParam, interpolation("nearest", "nearest", "bilinear"), fill(nil, true), magnitudes},
	Kinds:  moved, Returns: sameShape, Example: "T.TrivialAugmentWide()", takes: grayOrRGB, image: buildTrivialAugment,
}

func buildTrivialAugment(a *Args) (Op, error) {
	n := a.Int("num_magnitude_bins")
	return &trivialAugment{"TrivialAugmentWide", n, warpArgs(a), readStrengths(a, &wideSpace, n)}, nil
}

func (op *trivialAugment) run(r *Rand, img *Pixels, mask bool) error {
	which, step := r.IntN(polInvert), r.IntN(op.bins)
	m, signed := op.strengths.magnitude(which, op.bins, step, img.W, img.H)
	return policyStep(which, drawSign(r, m, signed), img, op.mode, mask)
}

func (op *trivialAugment) Apply(r *Rand, img *Pixels) error { return op.run(r, img, false) }

// ApplyMask makes it a MaskOp.
func (op *trivialAugment) ApplyMask(r *Rand, img *Pixels) error { return op.run(r, img, true) }

// policyEntry is one of the two operations of a policy: how probable, and which
// of ten magnitudes.
type policyEntry struct {
	op        int
	p         float64
	magnitude int
}

// autoAugment is torchvision's AutoAugment.
type autoAugment struct {
	named
	policies  [][2]policyEntry
	mode      cdec.WarpMode
	strengths strengths
}

const autoBins = 10

var autoAugmentSpec = Spec{
	Name: "AutoAugment", Doc: "Apply one of 25 learnt pairs of operations (AutoAugment, arXiv:1805.09501).",
	Params: []Param{
		{Name: "policy", Type: Choice, Default: "imagenet", Choices: []string{"imagenet", "cifar10", "svhn"}, Enum: "AutoAugmentPolicy", Help: "the data that the pairs were learnt on"},
		interpolation("nearest", "nearest", "bilinear"), fill(nil, true), magnitudes,
	},
	Kinds: moved, Returns: sameShape, Example: `T.AutoAugment("cifar10")`, takes: grayOrRGB, image: buildAutoAugment,
}

func buildAutoAugment(a *Args) (Op, error) {
	list, err := parsePolicy(autoPolicies[a.Word("policy")])
	return &autoAugment{"AutoAugment", list, warpArgs(a), readStrengths(a, &autoSpace, autoBins)}, err
}

func (op *autoAugment) run(r *Rand, img *Pixels, mask bool) error {
	w, h := img.W, img.H
	for _, e := range op.policies[r.IntN(len(op.policies))] {
		if !r.Bool(e.p) {
			continue
		}
		m, signed := op.strengths.magnitude(e.op, autoBins, e.magnitude, w, h)
		if err := policyStep(e.op, drawSign(r, m, signed), img, op.mode, mask); err != nil {
			return err
		}
	}
	return nil
}

func (op *autoAugment) Apply(r *Rand, img *Pixels) error { return op.run(r, img, false) }

// ApplyMask makes it a MaskOp.
func (op *autoAugment) ApplyMask(r *Rand, img *Pixels) error { return op.run(r, img, true) }

// parsePolicy reads lines of "name probability magnitude name probability
// magnitude".
func parsePolicy(lines []string) ([][2]policyEntry, error) {
	list := make([][2]policyEntry, len(lines))
	for i, line := range lines {
		var names [2]string
		e := &list[i]
		if _, err := fmt.Sscan(line, &names[0], &e[0].p, &e[0].magnitude, &names[1], &e[1].p, &e[1].magnitude); err != nil {
			return nil, fmt.Errorf("policy %q: %w", line, err)
		}
		for k, name := range names {
			e[k].op = -1
			for op, n := range policyNames {
				if n == name {
					e[k].op = op
				}
			}
			if e[k].op < 0 {
				return nil, fmt.Errorf("policy %q: there is no %q", line, name)
			}
		}
	}
	return list, nil
}
