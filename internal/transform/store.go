package transform

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/item"
)

// storeOp changes how the pixels are written into the batch.
type storeOp interface{ fold(s *storeState) error }

// storeState is the affine map from a finished pixel to the stored value so
// far.
type storeState struct {
	pixels      item.PixelType // of the finished pixels
	dtype       item.DType
	scale, bias [item.MaxChannels]float64
}

func newStoreState(t item.PixelType) storeState {
	return storeState{pixels: t, dtype: t.DType, scale: [item.MaxChannels]float64{1, 1, 1, 1}}
}

// plain reports whether pixels are stored without conversion.
func (s *storeState) plain() bool {
	return *s == newStoreState(s.pixels)
}

func (s *storeState) store() item.Store {
	st := s.pixels.Plain()
	st.DType = s.dtype
	for c := range s.scale {
		st.Scale[c], st.Bias[c] = float32(s.scale[c]), float32(s.bias[c])
	}
	return st
}

type toDtype struct {
	dtype item.DType
	scale bool
}

// toDtypes are the types that operations convert to.
var toDtypes = []item.DType{item.U8, item.U16, item.F16, item.BF16, item.F32}

func isInteger(t item.DType) bool { return t == item.U8 || t == item.U16 }

var toDtypeSpec = Spec{
	Name: "ToDtype", Doc: "Convert to another dtype.", More: "Audio and volumes become float32, float16 or bfloat16, and it comes last in their list.",
	Params: []Param{
		{Name: "dtype", Type: Choice, Default: "float32", Choices: DTypes(), Enum: "dtype", Help: "the dtype, or NumPy's or torch's type"},
		{Name: "scale", Type: Bool, Default: false, Help: "make floats from 0 to 1 of integers; between integers, add or drop the lower 8 bits"},
	},
	Kinds: []string{"image", "mask", "array", "frames", "audio", "volume"}, Returns: "Same shape; the dtype is `dtype`.", Example: `T.ToDtype("float32", scale=True)`,
	image: buildToDtype, sound: buildSoundDType, volume: buildVolumeDType,
}

func buildToDtype(a *Args) (Op, error) {
	op := &toDtype{scale: a.Bool("scale") && !a.mask}
	op.dtype, _ = dtype.Parse(a.Word("dtype"))
	from := a.pixels.DType
	if a.asIs {
		op.dtype, op.scale = from, false
		return op, nil
	}
	if op.scale && from != op.dtype && isInteger(from) && isInteger(op.dtype) {
		return &rescale{"ToDtype", op.dtype}, nil
	}
	return op, nil
}

// rescale is ToDtype between integers, with scale: the other operations then
// see pixels of the new type.
type rescale struct {
	named
	dtype item.DType
}

// OutPixels makes it a Retyper.
func (op *rescale) OutPixels(t item.PixelType) item.PixelType {
	t.DType = op.dtype
	return t
}

func (op *rescale) Apply(_ *Rand, img *Pixels) error {
	return retype(img, op.OutPixels(img.Type), cdec.Convert)
}

func (op *toDtype) fold(s *storeState) error {
	switch {
	case !isInteger(s.dtype) && isInteger(op.dtype):
		return fmt.Errorf("ToDtype: pixels that are %s already cannot go back to %s; leave one of the two operations out", s.dtype, op.dtype)
	case isInteger(s.dtype) && !isInteger(op.dtype) && op.scale:
		for c := range s.scale {
			s.scale[c] /= maxValue(s.dtype)
		}
	case s.dtype == item.U16 && op.dtype == item.U8:
		return fmt.Errorf("ToDtype: values of uint16 do not fit into uint8; scale=True, which a mask has not, keeps their upper 8 bits")
	}
	s.dtype = op.dtype
	return nil
}

// normalize is torchvision's Normalize. The values of a mask are class numbers,
// which it leaves alone.
type normalize struct {
	mean, std [item.MaxChannels]float64
	mask      bool
}

var normalizeSpec = Spec{
	Name: "Normalize", Doc: "Subtract `mean` and divide by `std`.", More: "Put `ToDtype(\"float32\", scale=True)` before it: it needs floats. Masks stay as they are.",
	Params: []Param{
		required(colour("mean", "the mean of each channel; one number for audio", nil)),
		{Name: "std", Type: Float, Required: true, Single: true, Counts: []int{1, 2, 3, 4}, Form: "one for each channel", NonZero: true, Help: "the standard deviation, likewise"},
		inplace,
	},
	Kinds: []string{"image", "array", "frames", "audio"}, Returns: "Same shape; a dtype of floats.", Example: "T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))",
	image: buildNormalize, sound: buildNormalizeValues,
}

func buildNormalize(a *Args) (Op, error) {
	op := &normalize{mask: a.mask}
	for _, p := range []struct {
		key string
		dst *[item.MaxChannels]float64
	}{{"mean", &op.mean}, {"std", &op.std}} {
		v := a.Floats(p.key)
		if n := int(a.pixels.Channels); len(v) != 1 && len(v) != n && !(a.mask && len(v) > 0 && len(v) <= item.MaxChannels) {
			a.fail(p.key, "must be %s", a.perChannel())
			return op, nil
		}
		for c := range p.dst {
			p.dst[c] = v[c%len(v)]
		}
	}
	return op, nil
}

func (op *normalize) fold(s *storeState) error {
	if op.mask {
		return nil
	}
	if isInteger(s.dtype) {
		return fmt.Errorf("Normalize needs floating-point pixels; put ToDtype(\"float32\", scale=True) before it")
	}
	for c := range s.scale {
		s.scale[c] /= op.std[c]
		s.bias[c] = (s.bias[c] - op.mean[c]) / op.std[c]
	}
	return nil
}
