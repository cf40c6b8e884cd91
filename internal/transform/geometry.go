package transform

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

func geometrySpecs() []Spec {
	return []Spec{
		{"Resize", []string{"size", "interpolation", "max_size", "antialias"}, nil, buildResize},
		{"CenterCrop", []string{"size"}, nil, buildCenterCrop},
		{"RandomCrop", []string{"size", "padding", "pad_if_needed", "fill", "padding_mode"}, nil, buildRandomCrop},
		{"RandomIoUCrop", []string{"min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio", "sampler_options", "trials"}, nil, buildIoUCrop},
		{"RandomResizedCrop", []string{"size", "scale", "ratio", "interpolation", "antialias"}, nil, buildRandomResizedCrop},
		{"LetterBox", []string{"size", "fill", "center", "scaleup"}, nil, buildLetterBox},
		{"Pad", []string{"padding", "fill", "padding_mode"}, nil, buildPad},
		{"RandomHorizontalFlip", []string{"p"}, nil, func(a *Args) (Op, error) { return &randomFlip{p: a.Prob("p", 0.5)}, nil }},
		{"RandomVerticalFlip", []string{"p"}, nil, func(a *Args) (Op, error) { return &randomFlip{p: a.Prob("p", 0.5), vertical: true}, nil }},
	}
}

// checkAntialias refuses antialias=False: the kernels always antialias.
func checkAntialias(a *Args) {
	if !a.Bool("antialias", true) {
		a.fail("antialias", "must be true: resizing without antialias is not offered")
	}
}

// resize is torchvision's Resize.
type resize struct {
	h, w    int // w == 0: h is the length of the shorter side
	maxSize int // 0: none
	filter  item.Filter
}

func buildResize(a *Args) (Op, error) {
	op := &resize{filter: a.Filter("interpolation", item.Bilinear)}
	checkAntialias(a)
	op.maxSize = a.Int("max_size", 0)
	if a.Has("max_size") && (op.maxSize < 1 || op.maxSize > maxSide) {
		a.fail("max_size", "must be from 1 to %d, not %d", maxSide, op.maxSize)
	}
	if !a.Has("size") && op.maxSize > 0 {
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

func buildCenterCrop(a *Args) (Op, error) {
	h, w := a.Square("size")
	return &centerCrop{h, w}, nil
}

func (op *centerCrop) Draw(_ *Rand, w, h int) Step {
	return Step{HasCrop: true, X: centerOffset(w, op.w), Y: centerOffset(h, op.h), W: op.w, H: op.h}
}

// centerOffset is where torchvision begins a crop of length n out of size: it
// rounds half to even, and when it has to pad, it pads (n-size)/2 rounded down
// in front.
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

func buildRandomCrop(a *Args) (Op, error) {
	op := &randomCrop{padIfNeeded: a.Bool("pad_if_needed", false), fill: a.Fill("fill")}
	op.h, op.w = a.Square("size")
	mode := padModes[a.Choice("padding_mode", "constant", "constant", "edge", "reflect", "symmetric")]
	op.left, op.top, op.right, op.bottom = padding(a)
	if mode != cdec.PadConstant {
		return &paddedCrop{"RandomCrop", op, mode}, nil
	}
	return op, nil
}

// padding are the pixels to add on each side.
func padding(a *Args) (left, top, right, bottom int) {
	pad := a.Floats("padding", []float64{0})
	for _, p := range pad {
		if p != math.Trunc(p) || p < 0 || p > maxSide {
			a.fail("padding", "must be whole numbers from 0 to %d", maxSide)
			return 0, 0, 0, 0
		}
	}
	switch len(pad) {
	case 1:
		return int(pad[0]), int(pad[0]), int(pad[0]), int(pad[0])
	case 2:
		return int(pad[0]), int(pad[1]), int(pad[0]), int(pad[1])
	case 4:
		return int(pad[0]), int(pad[1]), int(pad[2]), int(pad[3])
	}
	a.fail("padding", "must be one number, two (left and right, top and bottom) or four (left, top, right, bottom)")
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

func buildRandomResizedCrop(a *Args) (Op, error) {
	op := &randomResizedCrop{filter: a.Filter("interpolation", item.Bilinear)}
	checkAntialias(a)
	op.h, op.w = a.Square("size")
	op.scaleLo, op.scaleHi = a.Pair("scale", 0.08, 1)
	op.ratioLo, op.ratioHi = a.Pair("ratio", 3.0/4.0, 4.0/3.0)
	if op.scaleLo < 0 {
		a.fail("scale", "must not be negative")
	}
	if op.ratioLo <= 0 {
		a.fail("ratio", "must be positive")
	}
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

func buildPad(a *Args) (Op, error) {
	op := &pad{fill: a.Fill("fill")}
	if !require(a, "padding", "one number, two or four") {
		return op, nil
	}
	op.left, op.top, op.right, op.bottom = padding(a)
	a.Choice("padding_mode", "constant", "constant")
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

// letterBox scales an image so that it just fits and puts it on a background, as
// LetterBox of Ultralytics does: sizes are rounded half to even, and boxes are
// scaled by the ratio before that.
type letterBox struct {
	h, w            int
	fill            Fill
	center, scaleup bool
	filter          item.Filter
}

// letterFill is the gray that detectors of the YOLO family are trained with.
const letterFill = 114

func buildLetterBox(a *Args) (Op, error) {
	op := &letterBox{center: a.Bool("center", true), scaleup: a.Bool("scaleup", true), filter: item.Bilinear}
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
