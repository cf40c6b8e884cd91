package transform

import (
	"math"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// rgbBytes is the rule of operations on RGB of u8.
func rgbBytes(t item.PixelType) string {
	if t == item.RGB {
		return ""
	}
	return "uint8 with 3 channels"
}

// randomHSV is RandomHSV of Ultralytics: hue is turned, saturation and value are
// scaled.
type randomHSV struct {
	named
	gain [3]float64
}

var randomHSVSpec = Spec{
	Name: "RandomHSV", Doc: "Turn the hue and scale saturation and value at random.", More: "It is RandomHSV of Ultralytics, and works on RGB of uint8. Results are within one level of OpenCV's 8-bit HSV.",
	Params: []Param{
		{Name: "hgain", Type: Float, Default: 0.5, Range: between(0, 1), Help: "largest turn of the hue, as a fraction of a full turn"},
		{Name: "sgain", Type: Float, Default: 0.5, Range: between(0, 1), Help: "largest change of the saturation, as a fraction"},
		{Name: "vgain", Type: Float, Default: 0.5, Range: between(0, 1), Help: "largest change of the value, as a fraction"},
	},
	Kinds: painted, Returns: sameShape, Example: "T.RandomHSV(0.015, 0.7, 0.4)", takes: rgbBytes, image: buildRandomHSV,
}

func buildRandomHSV(a *Args) (Op, error) {
	op := &randomHSV{named: "RandomHSV"}
	for i, key := range []string{"hgain", "sgain", "vgain"} {
		op.gain[i] = a.Float(key)
	}
	return op, nil
}

// Apply makes it a PixelOp.
func (op *randomHSV) Apply(r *Rand, img *Pixels) error {
	var f [3]float64
	for i, g := range op.gain {
		f[i] = r.Uniform(-1, 1) * g
	}
	return applyHSV(img, f)
}

// applyHSV turns the hue by f[0] of a full turn and scales saturation and value by
// 1+f[1] and 1+f[2].
func applyHSV(img *Pixels, f [3]float64) error {
	if f == ([3]float64{}) {
		return nil
	}
	var hues [180]byte
	var saturations, values [256]byte
	for i := range hues {
		h := math.Mod(float64(i)+f[0]*180, 180)
		if h < 0 {
			h += 180
		}
		hues[i] = min(byte(h), 179)
	}
	for i := range values {
		x := float64(i)
		saturations[i] = byte(min(max(x*(1+f[1]), 0), 255))
		values[i] = byte(min(max(x*(1+f[2]), 0), 255))
	}
	return cdec.Pixmap.HSV(pixmap(img), &hues, &saturations, &values)
}
