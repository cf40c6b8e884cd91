package transform

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/item"
)

// Operations made of others. Part i draws its numbers from r.Sub(i), so the numbers of one part do not depend on the
// others, nor on whether a mask skips some of them.

// withPart runs f with the numbers of part i in r. A generator of its own would
// be an allocation for each part and record.
func withPart(r *Rand, i int, f func() error) error {
	whole := *r
	*r = whole.Sub(i)
	err := f()
	*r = whole
	return err
}

// applyPart does part i, op, to an image or a mask.
func applyPart(op Op, i int, r *Rand, img *Pixels, mask bool) error {
	return withPart(r, i, func() error { return applyTo(op, r, img, mask) })
}

func applyTo(op Op, r *Rand, img *Pixels, mask bool) error {
	switch op := op.(type) {
	case GeometryOp:
		s := op.Draw(r, img.W, img.H)
		if s.Err != nil {
			return s.Err
		}
		return img.Transform(&s)
	case PixelOp:
		if !mask {
			return op.Apply(r, img)
		}
		if m, ok := op.(MaskOp); ok {
			return m.ApplyMask(r, img)
		}
		return nil
	}
	return fmt.Errorf("%s cannot stand inside another operation", opName(op))
}

// partSize returns the size of a part's result for an image of w x h.
func partSize(op Op, w, h int) (int, int) {
	switch op := op.(type) {
	case GeometryOp:
		return op.OutSize(w, h)
	case Sizer:
		return op.OutSize(w, h)
	}
	return w, h
}

// compose does its parts one after the other, with probability p: Compose and
// RandomApply.
type compose struct {
	named
	parts  []Op
	p      float64
	pillow bool // the parts compute as Pillow does
}

var composeSpec = Spec{
	Name: "Compose", Doc: "Apply several transforms in order, where one is expected.",
	Params: []Param{inner, {Name: "pillow", Type: Bool, Default: false, Hidden: true, Help: "compute as Pillow does"}},
	Kinds:  moved, Returns: "Shape and dtype of the last transform.", Example: "T.Compose([T.RandomInvert(), T.RandomEqualize()])", image: buildCompose,
}

// buildCompose takes, besides the operations, whether they compute as Pillow does with
// pixels that it has, uint8 of 1 or 3 channels: transforms of torchvision ask for that.
func buildCompose(a *Args) (Op, error) {
	a.pillow = a.Bool("pillow") || a.pillow
	ops, err := parts(a)
	return &compose{"Compose", ops, 1, a.pillow}, err
}

var randomApplySpec = Spec{
	Name: "RandomApply", Doc: "Apply a list of transforms, at random.", More: "Last in a list it may have one transform of batches.",
	Params: []Param{inner, probability(0.5)},
	Kinds:  append(moved, "batch"), Returns: sameShape + " The transforms must keep the size.", Example: "T.RandomApply([T.GaussianBlur(9)], p=0.2)", image: buildRandomApply, batch: buildBatchApply,
}

func buildRandomApply(a *Args) (Op, error) {
	ops, err := parts(a)
	return &compose{"RandomApply", ops, a.Float("p"), a.pillow}, err
}

func (op *compose) run(r *Rand, img *Pixels, mask bool) error {
	if !r.Bool(op.p) {
		return nil
	}
	defer func(before bool) { img.Pillow = before }(img.Pillow)
	img.Pillow = op.pillow && img.Type.DType == item.U8 && grayOrRGB(img.Type) == ""
	for i, part := range op.parts {
		if err := applyPart(part, i, r, img, mask); err != nil {
			return err
		}
	}
	return nil
}

func (op *compose) Apply(r *Rand, img *Pixels) error { return op.run(r, img, false) }

// ApplyMask makes it a MaskOp.
func (op *compose) ApplyMask(r *Rand, img *Pixels) error { return op.run(r, img, true) }

// OutSize makes it a Sizer. An operation that runs only sometimes must keep the size.
func (op *compose) OutSize(w, h int) (int, int) {
	ow, oh := w, h
	for _, part := range op.parts {
		ow, oh = partSize(part, ow, oh)
	}
	if op.p < 1 && (ow != w || oh != h) {
		return 0, 0
	}
	return ow, oh
}

// randomChoice does one of its parts.
type randomChoice struct {
	named
	parts []Op
	// upto[i] is the probability of the parts up to i.
	upto []float64
}

var randomChoiceSpec = Spec{
	Name: "RandomChoice", Doc: "Apply one of several transforms.", More: "Last in a list, the transforms may be of batches.",
	Params: []Param{inner, {Name: "p", Type: Float, Optional: true, Most: maxOps, Range: atLeast(0), Help: "their probabilities, divided by the sum; None is equal ones"}},
	Kinds:  append(moved, "batch"), Returns: "Shape and dtype of the transforms, which must agree.", Example: "T.RandomChoice([T.RandomInvert(1), T.RandomEqualize(1)])", image: buildRandomChoice, batch: buildBatchChoice,
}

func buildRandomChoice(a *Args) (Op, error) {
	ops, err := parts(a)
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	return &randomChoice{named(a.spec.Name), ops, shares(a, len(ops))}, nil
}

// shares reads the probabilities p of n parts, which need not sum to 1, and
// returns for each part the probability of the parts up to it.
func shares(a *Args, n int) []float64 {
	p, upto := make([]float64, n), make([]float64, n)
	for i := range p {
		p[i] = 1
	}
	if a.Has("p") {
		if p = a.Floats("p"); len(p) != n {
			a.fail("p", "has %d probabilities for %d operations", len(p), n)
			return upto
		}
	}
	sum := 0.0
	for _, x := range p {
		sum += x
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		a.fail("p", "must have a positive sum")
		return upto
	}
	acc := 0.0
	for i, x := range p {
		acc += x / sum
		upto[i] = acc
	}
	return upto
}

// pick is the part that a number of [0, 1) falls to.
func pick(upto []float64, u float64) int {
	i := 0
	for i < len(upto)-1 && u >= upto[i] {
		i++
	}
	return i
}

func (op *randomChoice) run(r *Rand, img *Pixels, mask bool) error {
	i := pick(op.upto, r.Float64())
	return applyPart(op.parts[i], i, r, img, mask)
}

func (op *randomChoice) Apply(r *Rand, img *Pixels) error { return op.run(r, img, false) }

// ApplyMask makes it a MaskOp.
func (op *randomChoice) ApplyMask(r *Rand, img *Pixels) error { return op.run(r, img, true) }

// OutSize makes it a Sizer: all parts must agree.
func (op *randomChoice) OutSize(w, h int) (int, int) {
	ow, oh := partSize(op.parts[0], w, h)
	for _, part := range op.parts[1:] {
		if pw, ph := partSize(part, w, h); pw != ow || ph != oh {
			return 0, 0
		}
	}
	return ow, oh
}

// randomOrder does its parts in a random order.
type randomOrder struct {
	named
	parts []Op
}

var randomOrderSpec = Spec{
	Name: "RandomOrder", Doc: "Apply several transforms in a random order.", Params: []Param{inner},
	Kinds: moved, Returns: "Shape and dtype of the transforms, which must agree.", Example: "T.RandomOrder([T.RandomInvert(), T.RandomEqualize()])", image: buildRandomOrder,
}

func buildRandomOrder(a *Args) (Op, error) {
	ops, err := parts(a)
	return &randomOrder{"RandomOrder", ops}, err
}

func (op *randomOrder) run(r *Rand, img *Pixels, mask bool) error {
	var buf [16]int
	order := buf[:]
	if len(op.parts) > len(buf) {
		order = make([]int, len(op.parts))
	}
	order = order[:len(op.parts)]
	r.Perm(order)
	for _, i := range order {
		if err := applyPart(op.parts[i], i, r, img, mask); err != nil {
			return err
		}
	}
	return nil
}

func (op *randomOrder) Apply(r *Rand, img *Pixels) error { return op.run(r, img, false) }

// ApplyMask makes it a MaskOp.
func (op *randomOrder) ApplyMask(r *Rand, img *Pixels) error { return op.run(r, img, true) }

// OutSize makes it a Sizer. A part that changes the size makes it depend on the
// order, except when all make the same.
func (op *randomOrder) OutSize(w, h int) (int, int) {
	choice := randomChoice{parts: op.parts}
	return choice.OutSize(w, h)
}
