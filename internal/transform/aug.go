package transform

import (
	"encoding/json"
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// named gives an operation its name for messages.
type named string

func (n named) String() string { return string(n) }

// pixmap is img as the kernels want it.
func pixmap(img *Pixels) cdec.Pixmap {
	return cdec.Pixmap{Pix: img.Pix, W: img.W, H: img.H, C: int(img.Type.Channels), DType: img.Type.DType, Pillow: img.Pillow}
}

// replace runs an operation that cannot work in place: f writes an image of
// w x h pixels, which then becomes the current one.
func replace(img *Pixels, w, h int, f func(dst, src cdec.Pixmap) error) error {
	next, err := img.Next(w, h)
	if err != nil {
		return err
	}
	dst := pixmap(img)
	dst.Pix, dst.W, dst.H = next, w, h
	if err := f(dst, pixmap(img)); err != nil {
		return err
	}
	img.Swap(w, h)
	return nil
}

// retype changes the type of an image: f writes its pixels as those of dst.
func retype(img *Pixels, t item.PixelType, f func(dst, src cdec.Pixmap) error) error {
	src := pixmap(img)
	img.Type = t
	dst, err := img.Next(img.W, img.H)
	if err != nil {
		return err
	}
	out := pixmap(img)
	out.Pix = dst
	if err := f(out, src); err != nil {
		return err
	}
	img.Swap(img.W, img.H)
	return nil
}

// simple is an operation without parameters that happens with probability p.
type simple struct {
	named
	p  float64
	do func(cdec.Pixmap) error
}

func simpleOp(do func(cdec.Pixmap) error) builder {
	return func(a *Args) (Op, error) { return &simple{named(a.spec.Name), a.Float("p"), do}, nil }
}

var (
	randomGrayscaleSpec = Spec{Name: "RandomGrayscale", Doc: "Convert to gray with equal channels, at random.", Params: []Param{probability(0.1)},
		Kinds: painted, Returns: sameShape, Example: "T.RandomGrayscale()", takes: grayOrRGB, image: simpleOp(cdec.Pixmap.Grayscale)}
	invertSpec = Spec{Name: "RandomInvert", Doc: "Invert the colours, at random.", Params: []Param{probability(0.5)},
		Kinds: painted, Returns: sameShape, Example: "T.RandomInvert()", image: simpleOp(cdec.Pixmap.Invert)}
	autocontrastSpec = Spec{Name: "RandomAutocontrast", Doc: "Stretch each channel to the full range, at random.", Params: []Param{probability(0.5)},
		Kinds: painted, Returns: sameShape, Example: "T.RandomAutocontrast()", takes: grayOrRGB, image: simpleOp(cdec.Pixmap.AutoContrast)}
	equalizeSpec = Spec{Name: "RandomEqualize", Doc: "Equalize the histogram of each channel, at random.", Params: []Param{probability(0.5)},
		Kinds: painted, Returns: sameShape, Example: "T.RandomEqualize()", image: simpleOp(cdec.Pixmap.Equalize)}
)

func (op *simple) Apply(r *Rand, img *Pixels) error {
	if !r.Bool(op.p) {
		return nil
	}
	return op.do(pixmap(img))
}

// fillArg returns a fill of one number or one for each channel. torchvision treats None differently from 0 at
// borders. A mask takes a single number only.
func fillArg(a *Args) cdec.WarpMode {
	if a.None("fill") {
		return cdec.WarpMode{}
	}
	return cdec.WarpMode{HasFill: true, Fill: a.Fill("fill")}
}

// warpArgs returns interpolation and fill of an operation that warps.
func warpArgs(a *Args) cdec.WarpMode {
	m := fillArg(a)
	m.Bilinear = a.Word("interpolation") == "bilinear" && !a.mask
	return m
}

// centerArg returns the point (x, y) of an optional centre.
func centerArg(a *Args) *[2]float64 {
	if v := a.Floats("center"); v != nil {
		return &[2]float64{v[0], v[1]}
	}
	return nil
}

// parts reads the operations inside a composite one.
func parts(a *Args) ([]Op, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(a.Raw("transforms"), &raw); err != nil || len(raw) == 0 {
		a.fail("transforms", "must be %s", a.spec.param("transforms").Expects())
		return nil, nil
	}
	if len(raw) > maxOps {
		a.fail("transforms", "has %d operations, the limit is %d", len(raw), maxOps)
		return nil, nil
	}
	ops := make([]Op, len(raw))
	for i, r := range raw {
		op, err := a.ParseOp(r)
		if err != nil {
			return nil, err
		}
		if _, ok := op.(storeOp); ok {
			return nil, fmt.Errorf("%s cannot stand inside %s: the type of a batch is the same for all records", opWord(r), a.spec.Name)
		}
		if _, ok := op.(Guided); ok {
			return nil, fmt.Errorf("%s cannot stand inside %s", opWord(r), a.spec.Name)
		}
		if _, ok := op.(BoxOp); ok {
			return nil, fmt.Errorf("%s cannot stand inside %s: it is done to all records", opWord(r), a.spec.Name)
		}
		if t, ok := op.(Retyper); ok && t.OutPixels(a.pixels) != a.pixels {
			return nil, fmt.Errorf("%s to %s cannot stand inside %s: the shape of a batch is the same for all records", opWord(r), t.OutPixels(a.pixels), a.spec.Name)
		}
		ops[i] = op
	}
	return ops, nil
}

// opWord is the name in the JSON of an operation.
func opWord(raw json.RawMessage) string {
	var o struct {
		Op string `json:"op"`
	}
	_ = json.Unmarshal(raw, &o) // it was parsed before
	return o.Op
}
