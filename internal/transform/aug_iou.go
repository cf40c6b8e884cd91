package transform

import (
	"errors"
)

// Guided is a GeometryOp whose step depends on the boxes of the record.
type Guided interface {
	GeometryOp
	// DrawAround is Draw for boxes, as corners. inside says of each whether it is kept:
	// the others become boxes of no size, which SanitizeBoundingBoxes drops. It is nil
	// where all are.
	DrawAround(r *Rand, w, h int, boxes [][4]float32) (s Step, inside []bool)
}

// Guided says that an operation depends on the boxes of a record, which BeginAround is
// given.
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

// maxIoUDraws bounds how often an overlap is drawn anew: torchvision does so until a crop
// is found, which for some boxes never happens.
const maxIoUDraws = 100

func buildIoUCrop(a *Args) (Op, error) {
	op := &randomIoUCrop{
		minScale: a.Float("min_scale", 0.3), maxScale: a.Float("max_scale", 1),
		minRatio: a.Float("min_aspect_ratio", 0.5), maxRatio: a.Float("max_aspect_ratio", 2),
		options: a.Floats("sampler_options", []float64{0, 0.1, 0.3, 0.5, 0.7, 0.9, 1}), trials: a.Int("trials", 40),
	}
	if !(op.minScale > 0 && op.minScale <= op.maxScale && op.maxScale <= 1) {
		a.fail("min_scale", "and max_scale must be between 0 and 1, the smaller one first, they are %v and %v", op.minScale, op.maxScale)
	}
	if !(op.minRatio > 0 && op.minRatio <= op.maxRatio) {
		a.fail("min_aspect_ratio", "and max_aspect_ratio must be positive, the smaller one first, they are %v and %v", op.minRatio, op.maxRatio)
	}
	if len(op.options) == 0 {
		a.fail("sampler_options", "must be a list of at least one number")
	}
	if op.trials < 1 || op.trials > 10000 {
		a.fail("trials", "must be from 1 to 10000, it is %d", op.trials)
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

// overlap notes which boxes have their centre inside of a crop, and returns the largest
// intersection over union of one of them, -1 where there is none.
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

// drawAround draws the step of a Guided operation: for the boxes as they are behind the
// operations before it.
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
