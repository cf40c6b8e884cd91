package transform

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
)

func storeSpecs() []Spec {
	return []Spec{
		{"ToDtype", []string{"dtype", "scale"}, buildToDtype},
		{"Normalize", []string{"mean", "std", "inplace"}, buildNormalize},
	}
}

// storeOp changes how the pixels are written into the batch.
type storeOp interface{ fold(s *storeState) error }

// storeState is the affine map from a u8 pixel to the stored value so far.
type storeState struct {
	dtype       item.DType
	scale, bias [3]float64
}

type toDtype struct {
	dtype item.DType
	scale bool
}

func buildToDtype(a *Args) (Op, error) {
	op := &toDtype{scale: a.Bool("scale", false)}
	if !a.Has("dtype") {
		a.fail("dtype", "is missing; it is uint8, float16, bfloat16 or float32")
	}
	switch name := a.String("dtype", "uint8"); name {
	case "uint8":
		op.dtype = item.U8
	case "float16", "half":
		op.dtype = item.F16
	case "bfloat16":
		op.dtype = item.BF16
	case "float32", "float":
		op.dtype = item.F32
	default:
		a.fail("dtype", "must be uint8, float16, bfloat16 or float32, not %q", clip(name))
	}
	return op, nil
}

func (op *toDtype) fold(s *storeState) error {
	if s.dtype == item.U8 && op.dtype != item.U8 && op.scale {
		for c := range s.scale {
			s.scale[c] /= 255
		}
	}
	if s.dtype != item.U8 && op.dtype == item.U8 {
		return fmt.Errorf("ToDtype: pixels that are %s already cannot go back to uint8; leave one of the two operations out", s.dtype)
	}
	s.dtype = op.dtype
	return nil
}

type normalize struct{ mean, std [3]float64 }

func buildNormalize(a *Args) (Op, error) {
	op := &normalize{}
	a.Bool("inplace", false)
	for _, p := range []struct {
		key string
		dst *[3]float64
	}{{"mean", &op.mean}, {"std", &op.std}} {
		v := a.Floats(p.key, nil)
		if len(v) != 1 && len(v) != 3 {
			a.fail(p.key, "must be one number or three")
			return op, nil
		}
		for c := range p.dst {
			p.dst[c] = v[c%len(v)]
		}
	}
	for _, s := range op.std {
		if s == 0 {
			a.fail("std", "must not be zero")
		}
	}
	return op, nil
}

func (op *normalize) fold(s *storeState) error {
	if s.dtype == item.U8 {
		return fmt.Errorf("Normalize needs floating-point pixels; put ToDtype(\"float32\", scale=True) before it")
	}
	for c := range s.scale {
		s.scale[c] /= op.std[c]
		s.bias[c] = (s.bias[c] - op.mean[c]) / op.std[c]
	}
	return nil
}
