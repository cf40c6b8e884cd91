package transform

import (
	"fmt"
	"slices"
	"strings"
)

// BoxFormat is the meaning of the four numbers of a box.
type BoxFormat uint8

// The formats of boxes, by torchvision's names.
const (
	XYXY BoxFormat = iota
	XYWH
	CXCYWH
)

var boxFormats = []string{"XYXY", "XYWH", "CXCYWH"}

// ParseBoxFormat reads a format; upper and lower case are the same.
func ParseBoxFormat(name string) (BoxFormat, error) {
	for i, f := range boxFormats {
		if strings.EqualFold(f, name) {
			return BoxFormat(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not a format of boxes; there are %s", clip(name), strings.Join(boxFormats, ", "))
}

// String is the name of the format.
func (f BoxFormat) String() string { return boxFormats[f] }

// ToXYXY makes corners of the numbers of a box.
func (f BoxFormat) ToXYXY(b [4]float32) [4]float32 {
	switch f {
	case XYWH:
		b[2] += b[0]
		b[3] += b[1]
	case CXCYWH:
		b[0] -= b[2] / 2
		b[1] -= b[3] / 2
		b[2] += b[0]
		b[3] += b[1]
	}
	return b
}

// FromXYXY makes the numbers of a box of its corners.
func (f BoxFormat) FromXYXY(b [4]float32) [4]float32 {
	switch f {
	case XYWH:
		b[2] -= b[0]
		b[3] -= b[1]
	case CXCYWH:
		b[2] -= b[0]
		b[3] -= b[1]
		b[0] = (b[0]*2 + b[2]) / 2
		b[1] = (b[1]*2 + b[3]) / 2
	}
	return b
}

// Places are the boxes and key points of one record while they follow their image. The caller fills Boxes, as corners,
// Points and Kept. Follow changes them.
type Places struct {
	Boxes [][4]float32
	// Points are the concatenated key points of any number of fields.
	Points [][2]float32
	// Kept are the numbers of the boxes that are kept. The same boxes remain in Boxes, but all points remain in Points.
	Kept []int32

	w, h  int // of the image
	moves Moves
}

// Follow applies to the places the operations of a program on record id, an image of w x h pixels, and then own, the
// operations of the boxes themselves.
func (p *Places) Follow(prog *Program, own []BoxOp, seed uint64, epoch, id int64, w, h int) error {
	if err := prog.follow(&p.moves, p, recordKey(seed, epoch, id, prog.key), w, h); err != nil {
		return err
	}
	for _, op := range own {
		op.ApplyBoxes(p)
	}
	return nil
}

// move does steps to all places. Between two steps they are float32, as in
// torchvision.
func (p *Places) move(steps []Moved) {
	for i := range steps {
		s := &steps[i]
		for k, b := range p.Boxes {
			moved := s.Box([4]float64{float64(b[0]), float64(b[1]), float64(b[2]), float64(b[3])})
			for j, v := range moved {
				p.Boxes[k][j] = float32(v)
			}
		}
		for k, pt := range p.Points {
			x, y := s.Point(float64(pt[0]), float64(pt[1]))
			p.Points[k] = [2]float32{float32(x + s.ShiftX), float32(y + s.ShiftY)}
		}
	}
}

// BoxOp is an operation on the boxes and key points of an image. It can be in the list of the image, which it does not
// change, or in the list of the boxes, which runs after it. All workers share one value.
type BoxOp interface {
	ApplyBoxes(p *Places)
}

// CompileBoxes reads the operations of an output of boxes or key points that
// follow the output of an image, "" for none.
func CompileBoxes(out *Output, image string) ([]BoxOp, error) {
	if len(out.Ops) > maxOps {
		return nil, fmt.Errorf("output %q: %d operations, the limit is %d", out.Name, len(out.Ops), maxOps)
	}
	var ops []BoxOp
	for i, raw := range out.Ops {
		op, err := parseOp(raw, opContext{mask: true})
		if err != nil {
			return nil, fmt.Errorf("output %q: operation %d: %w", out.Name, i+1, err)
		}
		b, ok := op.(BoxOp)
		if !ok && image != "" {
			return nil, fmt.Errorf("output %q: operation %d: %s works on images, and boxes and key points follow those of %q by themselves; "+
				"leave it out of this list, which is for %s", out.Name, i+1, opWord(raw), image, boxOpNames())
		}
		if !ok {
			return nil, fmt.Errorf("output %q: operation %d: %s works on images, and there is none that it could follow; this list is for %s",
				out.Name, i+1, opWord(raw), boxOpNames())
		}
		ops = append(ops, b)
	}
	return ops, nil
}

// NeedsImage reports whether an operation on boxes needs the size of their image.
func NeedsImage(op BoxOp) bool {
	_, convert := op.(*convertBoxes)
	return !convert
}

// BoxOpName is the name of an operation of boxes.
func BoxOpName(op BoxOp) string {
	switch op.(type) {
	case clampBoxes:
		return "ClampBoundingBoxes"
	case clampPoints:
		return "ClampKeyPoints"
	case *convertBoxes:
		return "ConvertBoundingBoxFormat"
	}
	return "SanitizeBoundingBoxes"
}

func boxOpNames() string {
	return strings.Join(names(func(s *Spec) bool { return s.image != nil && !slices.Contains(s.Kinds, "image") }), ", ")
}

// BoxFormatOf returns the format of boxes after the operations of their image and their own. f is their format before.
func BoxFormatOf(f BoxFormat, prog *Program, own []BoxOp) BoxFormat {
	one := func(op Op) {
		if c, ok := op.(*convertBoxes); ok {
			f = c.format
		}
	}
	if prog != nil {
		for _, op := range prog.ops {
			one(op)
		}
	}
	for _, op := range own {
		one(op)
	}
	return f
}

// DropsBoxes reports whether one of the operations may drop boxes.
func DropsBoxes(prog *Program, own []BoxOp) bool {
	if prog != nil {
		for _, op := range prog.ops {
			if _, ok := op.(*sanitizeBoxes); ok {
				return true
			}
		}
	}
	for _, op := range own {
		if _, ok := op.(*sanitizeBoxes); ok {
			return true
		}
	}
	return false
}

// clampBoxes cuts boxes at the borders of the image.
type clampBoxes struct{ off bool }

func (op clampBoxes) ApplyBoxes(p *Places) {
	if op.off {
		return
	}
	w, h := float32(p.w), float32(p.h)
	for i, b := range p.Boxes {
		p.Boxes[i] = [4]float32{min(max(b[0], 0), w), min(max(b[1], 0), h), min(max(b[2], 0), w), min(max(b[3], 0), h)}
	}
}

// clampPoints moves key points outside of the image to its outermost pixels.
type clampPoints struct{}

func (clampPoints) ApplyBoxes(p *Places) {
	w, h := float32(p.w-1), float32(p.h-1)
	for i, b := range p.Points {
		p.Points[i] = [2]float32{min(max(b[0], 0), w), min(max(b[1], 0), h)}
	}
}

// convertBoxes says in which format boxes come into the batch: while they are
// moved they are corners.
type convertBoxes struct{ format BoxFormat }

var (
	clampBoxesSpec = Spec{
		Name: "ClampBoundingBoxes", Doc: "Cut boxes at the borders of the image.",
		Params: []Param{{Name: "clamping_mode", Type: Choice, Default: "auto", Optional: true, Choices: []string{"auto", "soft", "hard"}, Help: "None does nothing; the others are the same, because boxes are not rotated"}},
		Kinds:  places, Returns: sameShape, Example: "T.ClampBoundingBoxes()",
		image: func(a *Args) (Op, error) { return clampBoxes{a.None("clamping_mode")}, nil },
	}
	clampPointsSpec = Spec{
		Name: "ClampKeyPoints", Doc: "Move key points that are outside of the image to its outermost pixels.", Kinds: []string{"keypoints"}, Returns: sameShape, Example: "T.ClampKeyPoints()",
		image: func(*Args) (Op, error) { return clampPoints{}, nil },
	}
	convertBoxesSpec = Spec{
		Name: "ConvertBoundingBoxFormat", Doc: "Choose the format of boxes in the batch.",
		Params: []Param{{Name: "format", Type: Choice, Required: true, Choices: boxFormats, Enum: "BoundingBoxFormat", Help: "the format"}},
		Kinds:  []string{"boxes"}, Returns: sameShape, Example: `T.ConvertBoundingBoxFormat("XYXY")`, image: buildConvertBoxes,
	}
	sanitizeBoxesSpec = Spec{
		Name: "SanitizeBoundingBoxes", Doc: "Drop boxes that are too small or reach out of the image.", More: "Their labels, key points and areas are dropped, too.",
		Params: []Param{
			{Name: "min_size", Type: Float, Default: 1.0, Range: atLeast(1), Unit: "pixels", Help: "smallest width and height to keep"},
			{Name: "min_area", Type: Float, Default: 1.0, Range: atLeast(1), Unit: "pixels", Help: "smallest area to keep"},
		},
		Kinds: places, Returns: "Fewer rows; same dtype.", Example: "T.SanitizeBoundingBoxes(min_size=2)", image: buildSanitizeBoxes,
	}
)

var places = []string{"boxes", "keypoints"}

func buildConvertBoxes(a *Args) (Op, error) {
	f, err := ParseBoxFormat(a.Word("format"))
	return &convertBoxes{f}, err
}

func (*convertBoxes) ApplyBoxes(*Places) {}

// sanitizeBoxes drops boxes that are too small or reach outside the image.
type sanitizeBoxes struct{ minSize, minArea float32 }

func buildSanitizeBoxes(a *Args) (Op, error) {
	size, area := a.Float("min_size"), a.Float("min_area")
	return &sanitizeBoxes{float32(size), float32(area)}, nil
}

func (op *sanitizeBoxes) ApplyBoxes(p *Places) {
	imageW, imageH := float32(p.w), float32(p.h)
	n := 0
	for i, b := range p.Boxes {
		w, h := b[2]-b[0], b[3]-b[1]
		if w >= op.minSize && h >= op.minSize && w*h >= op.minArea && b[0] >= 0 && b[1] >= 0 && b[2] >= 0 && b[3] >= 0 &&
			b[0] <= imageW && b[2] <= imageW && b[1] <= imageH && b[3] <= imageH {
			p.Boxes[n], p.Kept[n] = b, p.Kept[i]
			n++
		}
	}
	p.Boxes, p.Kept = p.Boxes[:n], p.Kept[:n]
}
