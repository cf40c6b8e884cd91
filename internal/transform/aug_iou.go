package transform

import (
	"errors"
)

// Guided is a GeometryOp whose step depends on the boxes of the record.
type Guided interface {
	GeometryOp
	// DrawAround is Draw for boxes, as corners. inside reports for each box whether it is kept. The others become empty
	// boxes, which SanitizeBoundingBoxes drops. inside is nil if all are kept.
	DrawAround(r *Rand, w, h int, boxes [][4]float32) (s Step, inside []bool)
}

// Guided reports whether an operation depends on the boxes of a record, which the caller passes to BeginAround.
func (p *Program) Guided() bool {
	for _, op := range p.ops {
		if _, ok := op.(Guided); ok {
			return true
		}
	}
	return false
}

var errNoBoxes = errors.New("RandomIoUCrop crops around boxes, and there are none that belong to the image")

// randomIoUCrop is torchvision's RandomIoUCrop.
type randomIoUCrop struct {
	minScale, maxScale, minRatio, maxRatio float64
	options                                []float64
	trials                                 int
}

// maxIoUDraws bounds the draws of an overlap. torchvision repeats them until it finds a crop, and for some boxes it
// never does.
const maxIoUDraws = 100

var iouCropSpec = Spec{
	Name: "RandomIoUCrop", Doc: "Cut out a random part that overlaps with a box by at least a random fraction.",
	More: "Boxes whose centre is outside become empty: add SanitizeBoundingBoxes, and a transform that fixes the size, after it. The batch must have the boxes of the image.",
	Params: []Param{
		{Name: "min_scale", Type: Float, Default: 0.3, Range: aboveUpTo(0, 1), Help: "smallest fraction of width and height to keep"},
		{Name: "max_scale", Type: Float, Default: 1.0, Range: aboveUpTo(0, 1), Help: "largest fraction"},
		{Name: "min_aspect_ratio", Type: Float, Default: 0.5, Range: above(0), Help: "smallest width / height of the part"},
		{Name: "max_aspect_ratio", Type: Float, Default: 2.0, Range: above(0), Help: "largest width / height of the part"},
		{Name: "sampler_options", Type: Float, Optional: true, Most: 64,
			Help: "overlaps (intersection over union) to draw from; 1 or more is no crop; None is (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1)"},
		{Name: "trials", Type: Int, Default: 40, Range: between(1, 10000), Help: "number of crops to try for an overlap before another one is drawn"},
	},
	Kinds: moved, Returns: "Height and width differ per record; same dtype.", Example: "T.RandomIoUCrop()", image: buildIoUCrop,
}

func buildIoUCrop(a *Args) (Op, error) {
	op := &randomIoUCrop{
		minScale: a.Float("min_scale"), maxScale: a.Float("max_scale"),
		minRatio: a.Float("min_aspect_ratio"), maxRatio: a.Float("max_aspect_ratio"),
		options: a.Floats("sampler_options"), trials: a.Int("trials"),
	}
	if op.options == nil {
		op.options = []float64{0, 0.1, 0.3, 0.5, 0.7, 0.9, 1}
	}
	if op.minScale > op.maxScale {
		a.fail("min_scale", "must be at most max_scale = %v, not %v", op.maxScale, op.minScale)
	}
	if op.minRatio > op.maxRatio {
		a.fail("min_aspect_ratio", "must be at most max_aspect_ratio = %v, not %v", op.maxRatio, op.minRatio)
	}
	return op, nil
}

// String is its name.
func (op *randomIoUCrop) String() string { return "RandomIoUCrop" }

// Draw cannot be done without boxes.
func (op *randomIoUCrop) Draw(*Rand, int, int) Step { return Step{Err: errNoBoxes} }

// OutSize is not known.
func (op *randomIoUCrop) OutSize(int, int) (int, int) { return 0, 0 }

// DrawAround makes it Guided.
func (op *randomIoUCrop) DrawAround(r *Rand, w, h int, boxes [][4]float32) (Step, []bool) {
	if len(boxes) == 0 {
		return Step{}, nil
	}
	inside := make([]bool, len(boxes))
	for range maxIoUDraws {
		least := op.options[r.IntN(len(op.options))]
		if least >= 1 {
			break
		}
		for range op.trials {
			cw, ch := int(float64(w)*r.Uniform(op.minScale, op.maxScale)), int(float64(h)*r.Uniform(op.minScale, op.maxScale))
			if cw < 1 || ch < 1 {
				continue
			}
			if ratio := float64(cw) / float64(ch); ratio < op.minRatio || ratio > op.maxRatio {
				continue
			}
			x, y := int(float64(w-cw)*r.Float64()), int(float64(h-ch)*r.Float64())
			crop := [4]float32{float32(x), float32(y), float32(x + cw), float32(y + ch)}
			if best := overlap(boxes, crop, inside); best >= 0 && best >= least {
				return Step{HasCrop: true, X: x, Y: y, W: cw, H: ch}, inside
			}
		}
	}
	return Step{}, nil
}

// overlap notes which boxes have their centre inside of a crop, and returns the largest intersection over union of one
// of them, -1 if there is none.
func overlap(boxes [][4]float32, crop [4]float32, inside []bool) float64 {
	best := -1.0
	area := func(b [4]float32) float64 { return float64(b[2]-b[0]) * float64(b[3]-b[1]) }
	for i, b := range boxes {
		cx, cy := 0.5*(b[0]+b[2]), 0.5*(b[1]+b[3])
		inside[i] = crop[0] < cx && cx < crop[2] && crop[1] < cy && cy < crop[3]
		if !inside[i] {
			continue
		}
		both := [4]float32{max(b[0], crop[0]), max(b[1], crop[1]), min(b[2], crop[2]), min(b[3], crop[3])}
		common := 0.0
		if both[2] > both[0] && both[3] > both[1] {
			common = area(both)
		}
		best = max(best, common/(area(b)+area(crop)-common))
	}
	return best
}

// BeginAround is Begin for a program that is Guided: boxes are those of the record, as
// corners in the pixels of its image. They are not changed, and used until the next call.
func (r *Run) BeginAround(p *Program, seed uint64, epoch, id int64, w, h int, boxes [][4]float32) error {
	r.around, r.aroundW, r.aroundH = boxes, w, h
	err := r.Begin(p, seed, epoch, id, w, h)
	return err
}

// drawAround draws the step of a Guided operation, for the boxes after the preceding operations.
func (r *Run) drawAround(op Guided) Step {
	p := &r.places
	p.Boxes, p.Points, p.Kept = append(p.Boxes[:0], r.around...), p.Points[:0], p.Kept[:0]
	for i := range p.Boxes {
		p.Kept = append(p.Kept, int32(i))
	}
	if err := r.p.followOps(r.p.ops[:r.next], &p.moves, p, r.base, r.aroundW, r.aroundH); err != nil {
		return Step{Err: err}
	}
	s, _ := op.DrawAround(&r.rnd, r.v.w, r.v.h, p.Boxes)
	return s
}
