package transform

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// checkAntialias refuses antialias=False: the kernels always antialias.
func checkAntialias(a *Args) {
	if !a.Bool("antialias") {
		a.fail("antialias", "must be True: resizing without antialiasing is not supported")
	}
}

// resize is torchvision's Resize.
type resize struct {
	h, w    int // w == 0: h is the length of the shorter side
	maxSize int // 0: none
	filter  item.Filter
}

var resizeSpec = Spec{
	Name: "Resize", Doc: "Scale the image.", More: "A batch needs images of one size: after a single number, add a crop.",
	Params: []Param{
		{Name: "size", Type: Int, Optional: true, Required: true, Unit: "pixels", Single: true, Counts: []int{1, 2}, Form: "(height, width)", Range: between(1, maxSide),
			Help: "new length of the shorter side, or new height and width; None scales the longer side to max_size"},
		filter(),
		{Name: "max_size", Type: Int, Optional: true, Unit: "pixels", Range: between(1, maxSide), Help: "limit for the longer side, with a single number as size"},
		antialias,
	},
	Kinds: moved, Returns: "The shorter side, or height and width, are `size`; same dtype.", Example: "T.Resize(256)", image: buildResize,
}

func buildResize(a *Args) (Op, error) {
	op := &resize{filter: a.Filter("interpolation")}
	checkAntialias(a)
	op.maxSize = a.Int("max_size")
	if !a.Has("size") {
		if op.maxSize == 0 {
			a.fail("size", "is None, which needs max_size")
		}
		return op, nil // scale the longer side to max_size
	}
	op.h, op.w = a.Size("size")
	if op.maxSize > 0 && op.w > 0 {
		a.fail("max_size", "only goes with a size that is one number")
	}
	if op.maxSize > 0 && op.maxSize <= op.h {
		a.fail("max_size", "must be larger than size = %d, not %d", op.h, op.maxSize)
	}
	return op, nil
}

func (op *resize) target(w, h int) (int, int) {
	if op.w > 0 {
		return op.w, op.h
	}
	short, long := min(w, h), max(w, h)
	newShort, newLong := op.h, op.maxSize
	if op.h == 0 {
		newShort = int(float64(op.maxSize*short) / float64(long))
	} else {
		newLong = int(float64(op.h*long) / float64(short))
		if op.maxSize > 0 && newLong > op.maxSize {
			newShort, newLong = int(float64(op.maxSize*newShort)/float64(newLong)), op.maxSize
		}
	}
	newShort, newLong = max(newShort, 1), max(newLong, 1)
	if w <= h {
		return newShort, newLong
	}
	return newLong, newShort
}

func (op *resize) Draw(_ *Rand, w, h int) Step {
	rw, rh := op.target(w, h)
	return Step{HasResize: true, RW: rw, RH: rh, Filter: op.filter}
}

func (op *resize) OutSize(w, h int) (int, int) {
	if op.w > 0 {
		return op.w, op.h
	}
	if w == 0 || h == 0 {
		return 0, 0
	}
	return op.target(w, h)
}

// centerCrop is torchvision's CenterCrop: an image that is smaller is padded
// with zeros.
type centerCrop struct{ h, w int }

var centerCropSpec = Spec{
	Name: "CenterCrop", Doc: "Cut out the centre.", More: "Smaller images are padded with 0.",
	Params: []Param{side("size of the cut")}, Kinds: moved, Returns: sized, Example: "T.CenterCrop(224)", image: buildCenterCrop,
}

func buildCenterCrop(a *Args) (Op, error) {
	h, w := a.Square("size")
	return &centerCrop{h, w}, nil
}

func (op *centerCrop) Draw(_ *Rand, w, h int) Step {
	return Step{HasCrop: true, X: centerOffset(w, op.w), Y: centerOffset(h, op.h), W: op.w, H: op.h}
}

// centerOffset returns the offset of torchvision's crop of length n from size, rounded half to even. If torchvision has
// to pad, it pads (n-size)/2 before the image, rounded down.
func centerOffset(size, n int) int {
	if n > size {
		return -((n - size) / 2)
	}
	return int(math.RoundToEven(float64(size-n) / 2))
}

func (op *centerCrop) OutSize(_, _ int) (int, int) { return op.w, op.h }

// randomCrop is torchvision's RandomCrop with constant padding; see paddedCrop
// for the other kinds.
type randomCrop struct {
	h, w                     int
	left, top, right, bottom int
	padIfNeeded              bool
	fill                     Fill
}

var randomCropSpec = Spec{
	Name: "RandomCrop", Doc: "Cut a part of fixed size out of a random position.",
	Params: []Param{
		side("size of the cut"),
		optional(border),
		{Name: "pad_if_needed", Type: Bool, Default: false, Help: "pad images that are smaller than size; otherwise they are errors"},
		fill(0.0, false),
		{Name: "padding_mode", Type: Choice, Default: "constant", Choices: []string{"constant", "edge", "reflect", "symmetric"},
			Help: "content of the border: the fill, the outermost pixel, or the image mirrored without or with that pixel"},
	},
	Kinds: moved, Returns: sized, Example: "T.RandomCrop(32, padding=4)", image: buildRandomCrop,
}

func buildRandomCrop(a *Args) (Op, error) {
	op := &randomCrop{padIfNeeded: a.Bool("pad_if_needed"), fill: a.Fill("fill")}
	op.h, op.w = a.Square("size")
	mode := padModes[a.Word("padding_mode")]
	op.left, op.top, op.right, op.bottom = padding(a)
	if mode != cdec.PadConstant {
		return &paddedCrop{"RandomCrop", op, mode}, nil
	}
	return op, nil
}

// padding are the pixels to add on each side.
func padding(a *Args) (left, top, right, bottom int) {
	switch pad := a.Floats("padding"); len(pad) {
	case 1:
		return int(pad[0]), int(pad[0]), int(pad[0]), int(pad[0])
	case 2:
		return int(pad[0]), int(pad[1]), int(pad[0]), int(pad[1])
	case 4:
		return int(pad[0]), int(pad[1]), int(pad[2]), int(pad[3])
	}
	return 0, 0, 0, 0
}

func (op *randomCrop) Draw(r *Rand, w, h int) Step {
	left, pw := op.left, w+op.left+op.right
	top, ph := op.top, h+op.top+op.bottom
	if op.padIfNeeded {
		// As torchvision: as much on both sides as one side lacks.
		if d := op.h - ph; d > 0 {
			top, ph = top+d, ph+2*d
		}
		if d := op.w - pw; d > 0 {
			left, pw = left+d, pw+2*d
		}
	}
	y, x := 0, 0
	if ph > op.h {
		y = r.IntN(ph - op.h + 1)
	}
	if pw > op.w {
		x = r.IntN(pw - op.w + 1)
	}
	s := Step{HasCrop: true, X: x - left, Y: y - top, W: op.w, H: op.h, Fill: op.fill}
	if pw < op.w || ph < op.h {
		s.Err = fmt.Errorf("RandomCrop: the image is %dx%d with its padding, smaller than the crop of %dx%d; use pad_if_needed", pw, ph, op.w, op.h)
	}
	return s
}

func (op *randomCrop) OutSize(_, _ int) (int, int) { return op.w, op.h }

// randomResizedCrop is torchvision's RandomResizedCrop.
type randomResizedCrop struct {
	h, w             int
	scaleLo, scaleHi float64
	ratioLo, ratioHi float64
	logLo, logHi     float64
	filter           item.Filter
}

var randomResizedCropSpec = Spec{
	Name: "RandomResizedCrop", Doc: "Cut out a part of random area and aspect ratio, and scale it to one size.",
	Params: []Param{
		side("size of the result"),
		{Name: "scale", Type: Float, Default: []float64{0.08, 1}, Counts: []int{2}, Range: between(0, 1e6), Ordered: true, Help: "smallest and largest area of the part, as a fraction of the image"},
		{Name: "ratio", Type: Float, Default: []float64{3.0 / 4.0, 4.0 / 3.0}, Counts: []int{2}, Range: aboveUpTo(0, 1e6), Ordered: true, Help: "smallest and largest aspect ratio (width / height) of the part"},
		filter(), antialias,
	},
	Kinds: moved, Returns: sized, Example: "T.RandomResizedCrop(224)", image: buildRandomResizedCrop,
}

func buildRandomResizedCrop(a *Args) (Op, error) {
	op := &randomResizedCrop{filter: a.Filter("interpolation")}
	checkAntialias(a)
	op.h, op.w = a.Square("size")
	op.scaleLo, op.scaleHi = a.Pair("scale")
	op.ratioLo, op.ratioHi = a.Pair("ratio")
	op.logLo, op.logHi = math.Log(op.ratioLo), math.Log(op.ratioHi)
	return op, nil
}

func (op *randomResizedCrop) Draw(r *Rand, w, h int) Step {
	s := Step{HasCrop: true, HasResize: true, RW: op.w, RH: op.h, Filter: op.filter}
	area := float64(w) * float64(h)
	for range 10 {
		target := area * r.Uniform(op.scaleLo, op.scaleHi)
		aspect := math.Exp(r.Uniform(op.logLo, op.logHi))
		cw := math.RoundToEven(math.Sqrt(target * aspect))
		ch := math.RoundToEven(math.Sqrt(target / aspect))
		if cw > 0 && cw <= float64(w) && ch > 0 && ch <= float64(h) {
			s.W, s.H = int(cw), int(ch)
			s.Y = r.IntN(h - s.H + 1)
			s.X = r.IntN(w - s.W + 1)
			return s
		}
	}
	// Fall back to the largest central crop of an allowed ratio.
	s.W, s.H = w, h
	if in := float64(w) / float64(h); in < op.ratioLo {
		s.H = int(math.RoundToEven(float64(w) / op.ratioLo))
	} else if in > op.ratioHi {
		s.W = int(math.RoundToEven(float64(h) * op.ratioHi))
	}
	s.W, s.H = min(max(s.W, 1), w), min(max(s.H, 1), h)
	s.X, s.Y = (w-s.W)/2, (h-s.H)/2
	return s
}

func (op *randomResizedCrop) OutSize(_, _ int) (int, int) { return op.w, op.h }

// randomFlip is RandomHorizontalFlip and RandomVerticalFlip.
type randomFlip struct {
	p        float64
	vertical bool
}

var (
	horizontalFlipSpec = Spec{
		Name: "RandomHorizontalFlip", Doc: "Swap left and right at random.", Params: []Param{probability(0.5)}, Kinds: moved, Returns: sameShape,
		Example: "T.RandomHorizontalFlip()", image: func(a *Args) (Op, error) { return &randomFlip{p: a.Float("p")}, nil },
	}
	verticalFlipSpec = Spec{
		Name: "RandomVerticalFlip", Doc: "Swap top and bottom at random.", Params: []Param{probability(0.5)}, Kinds: moved, Returns: sameShape,
		Example: "T.RandomVerticalFlip()", image: func(a *Args) (Op, error) { return &randomFlip{p: a.Float("p"), vertical: true}, nil },
	}
)

func (op *randomFlip) Draw(r *Rand, _, _ int) Step {
	flip := r.Bool(op.p)
	return Step{FlipH: flip && !op.vertical, FlipV: flip && op.vertical}
}

func (op *randomFlip) OutSize(w, h int) (int, int) { return w, h }

// pad is torchvision's Pad with a constant; the other modes are a paddedCrop.
type pad struct {
	left, top, right, bottom int
	fill                     Fill
}

var padSpec = Spec{
	Name: "Pad", Doc: "Add a border to the image.",
	Params: []Param{
		required(border), fill(0.0, false),
		{Name: "padding_mode", Type: Choice, Default: "constant", Choices: []string{"constant"}, Help: "content of the border; RandomCrop has the other modes"},
	},
	Kinds: moved, Returns: "Height and width grow by `padding`; same dtype.", Example: "T.Pad(4)", image: buildPad,
}

func buildPad(a *Args) (Op, error) {
	op := &pad{fill: a.Fill("fill")}
	op.left, op.top, op.right, op.bottom = padding(a)
	return op, nil
}

func (op *pad) Draw(_ *Rand, w, h int) Step {
	w, h = op.OutSize(w, h)
	return Step{HasCrop: true, X: -op.left, Y: -op.top, W: w, H: h, Fill: op.fill}
}

func (op *pad) OutSize(w, h int) (int, int) {
	if w == 0 || h == 0 {
		return 0, 0
	}
	return w + op.left + op.right, h + op.top + op.bottom
}

// letterBox scales an image so that it just fits and puts it on a background, like LetterBox of Ultralytics. Sizes are
// rounded half to even, and boxes are scaled by the ratio before the rounding.
type letterBox struct {
	h, w            int
	fill            Fill
	center, scaleup bool
	filter          item.Filter
}

// letterFill is the gray that detectors of the YOLO family are trained with.
const letterFill = 114

var letterBoxSpec = Spec{
	Name: "LetterBox", Doc: "Scale the image so that it just fits, and put it on a background.",
	More: "It works as LetterBox of Ultralytics does, but scaling down is antialiased.",
	Params: []Param{
		side("size of the result"),
		optional(colour("fill", "colour of the background; None is gray, 114 of 255, and 0 for masks", nil)),
		{Name: "center", Type: Bool, Default: true, Help: "put the image in the middle; otherwise into the upper left corner"},
		{Name: "scaleup", Type: Bool, Default: true, Help: "also enlarge small images"},
	},
	Kinds: moved, Returns: sized, Example: "T.LetterBox(640)", image: buildLetterBox,
}

func buildLetterBox(a *Args) (Op, error) {
	op := &letterBox{center: a.Bool("center"), scaleup: a.Bool("scaleup"), filter: item.Bilinear}
	op.h, op.w = a.Square("size")
	switch {
	case a.Has("fill"):
		op.fill = a.Fill("fill")
	case !a.mask:
		gray := letterFill / 255.0 * maxValue(a.pixels.DType)
		for c := range op.fill {
			op.fill[c] = float32(gray)
		}
	}
	if a.mask {
		op.filter = item.Nearest
	}
	return op, nil
}

func (op *letterBox) Draw(_ *Rand, w, h int) Step {
	r := min(float64(op.h)/float64(h), float64(op.w)/float64(w))
	if !op.scaleup {
		r = min(r, 1)
	}
	s := Step{HasResize: true, Scale: r, Filter: op.filter, HasPad: true, PadW: op.w, PadH: op.h, Fill: op.fill}
	s.RW, s.RH = max(int(math.RoundToEven(float64(w)*r)), 1), max(int(math.RoundToEven(float64(h)*r)), 1)
	if op.center {
		s.PadX = int(math.RoundToEven(float64(op.w-s.RW)/2 - 0.1))
		s.PadY = int(math.RoundToEven(float64(op.h-s.RH)/2 - 0.1))
	}
	return s
}

func (op *letterBox) OutSize(_, _ int) (int, int) { return op.w, op.h }
