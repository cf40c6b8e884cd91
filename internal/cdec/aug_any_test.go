package cdec

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// pixelValue returns element i of pixels as a number.
func pixelValue(t item.DType, b []byte, i int) float64 {
	switch t {
	case item.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	case item.U16:
		return float64(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return float64(b[i])
}

// TestAugmentTypesGolden holds the kernels of other pixels than RGB and gray of
// u8 to torchvision: integers within one level, floats within 1e-5.
func TestAugmentTypesGolden(t *testing.T) {
	images, cases := readGolden(t, "aug_types")
	d := newDecoder(t)
	exact := map[string]bool{"invert": true, "posterize": true, "solarize": true, "equalize": true, "pad_crop": true}
	augKernels(t, func(t *testing.T, _ int) {
		ran := map[string]int{}
		for i, c := range cases {
			src := images[c.Input]
			out, err := c.runAny(d, src)
			if err != nil {
				t.Errorf("case %d, %s of %s: %v", i, c.Op, c.Input, err)
				continue
			}
			ran[c.Op]++
			dtype := src.dtype()
			nearest := (c.Op == "affine" || c.Op == "rotate") && c.Params.Mode == "nearest"
			limit := 1.0
			switch {
			case exact[c.Op] || nearest:
				limit = 0
			case dtype == item.F32:
				limit = 1e-5
			}
			if c.Op == "posterize" && dtype == item.F32 {
				limit = 1e-7
			}
			for k := range c.W * c.H * src.C {
				got, want := pixelValue(dtype, out.Pix, k), pixelValue(dtype, c.want, k)
				x, y := k/src.C%c.W, k/src.C/c.W
				if math.Abs(got-want) <= limit || nearest && nearTie(c.inverse(src), c, src, x, y) {
					continue
				}
				if c.Op == "hue" && dtype == item.U16 && got == 65535 && want == 0 {
					continue // in float32 torchvision's white is 65536, which wraps around
				}
				t.Errorf("case %d, %s of %s: at (%d, %d) is %v, torchvision has %v; %+v", i, c.Op, c.Input, x, y, got, want, c.Params)
				break
			}
		}
		if len(ran) < 15 {
			t.Errorf("only %v were compared", ran)
		}
	})
}

// runAny is like run, but also resizes.
func (c *goldenCase) runAny(d *Decoder, src *goldenImage) (Pixmap, error) {
	if c.Op != "resize" {
		return c.run(src)
	}
	img := src.copy()
	out := Pixmap{Pix: make([]byte, len(c.want)), W: c.W, H: c.H, C: img.C, DType: img.DType}
	g := cut(0, 0, src.W, src.H)
	g.ResizeW, g.ResizeH, g.Window = int32(c.W), int32(c.H), item.Rect{W: int32(c.W), H: int32(c.H)}
	if c.Params.Mode == "bicubic" {
		g.Filter = item.Bicubic
	}
	px := item.PixelType{DType: img.DType, Channels: int32(img.C)}
	jobs := []Job{{Format: FormatPixels, Pixels: px, Src: img.Pix, Width: int32(src.W), Height: int32(src.H), Geom: g, Store: px.Plain(), Dst: out.Pix}}
	d.Run(jobs)
	return out, jobs[0].Err
}
