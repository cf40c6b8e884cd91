package cdec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// pixelTypes returns the types of FormatPixels.
func pixelTypes() []item.PixelType {
	var types []item.PixelType
	for _, t := range []item.DType{item.U8, item.U16, item.F32} {
		for c := range int32(item.MaxChannels) {
			types = append(types, item.PixelType{DType: t, Channels: c + 1})
		}
	}
	return types
}

// noisyPixels fills n pixels of type t: u8 as noisy does, others from those.
func noisyPixels(rng *rand.Rand, t item.PixelType, n int) []byte {
	b := noisy(rng, n*int(t.Channels))
	out := make([]byte, 0, n*t.Size())
	for _, v := range b {
		switch t.DType {
		case item.U8:
			out = append(out, v)
		case item.U16:
			out = binary.LittleEndian.AppendUint16(out, uint16(v)<<8|uint16(rng.IntN(256)))
		default:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits((float32(v)-100)*float32(rng.Float64())))
		}
	}
	return out
}

// TestPixelKernelSetsAgree resizes and stores pixels of all types with all
// kernel sets: the same bytes, none outside of the output.
func TestPixelKernelSetsAgree(t *testing.T) {
	defer useKernels(kernelSet.Load())
	sets := kernelSets()
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(13, 4))
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	types := pixelTypes()
	outputs := []item.DType{item.U8, item.U16, item.F16, item.BF16, item.F32}
	for round := range rounds {
		w, h := 1+rng.Int32N(200), 1+rng.Int32N(150)
		if rng.IntN(40) == 0 {
			w, h = 1+rng.Int32N(20), 1+rng.Int32N(9000) // tall: sums instead of a ring
		}
		px := types[rng.IntN(len(types))]
		job := Job{Format: FormatPixels, Pixels: px, Width: w, Height: h}
		// At an odd address, with nothing after the pixels.
		job.Src = append(make([]byte, 1), noisyPixels(rng, px, int(w)*int(h))...)[1:]
		job.Geom = randomGeometry(rng, w, h)
		job.Store = px.Plain()
		job.Store.Layout = item.Layout(1 + rng.IntN(2))
		if rng.IntN(2) == 0 {
			job.Store.DType = outputs[rng.IntN(len(outputs))]
			for c := range job.Store.Scale {
				job.Store.Scale[c], job.Store.Bias[c] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
			}
		}
		var want []byte
		for _, name := range sets {
			if err := SetKernels(name); err != nil {
				t.Fatal(err)
			}
			dst, intact := guarded(outputBytes(&job.Geom, &job.Store))
			j := []Job{job}
			j[0].Dst = dst
			d.Run(j)
			switch {
			case j[0].Err != nil:
				t.Fatalf("round %d, %s, %v %dx%d %+v: %v", round, name, px, w, h, job.Geom, j[0].Err)
			case !intact():
				t.Fatalf("round %d, %s, %v %dx%d %+v %+v: wrote outside of the output", round, name, px, w, h, job.Geom, job.Store)
			case want == nil:
				want = dst
			case !bytes.Equal(want, dst):
				t.Fatalf("round %d, %s differs from scalar, %v %dx%d %+v %+v", round, name, px, w, h, job.Geom, job.Store)
			}
		}
	}
}

// TestPixelsAgainstDefinition compares with the definition in float64: integers
// within a level, floats within 1e-5 of the largest.
func TestPixelsAgainstDefinition(t *testing.T) {
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(5, 7))
	sizes := [][4]int{
		{60, 50, 32, 24}, {31, 77, 64, 64}, {1, 1, 9, 7}, {1, 300, 5, 3}, {97, 89, 96, 88}, {64, 64, 64, 32},
		{2, 9000, 2, 3}, {9000, 2, 3, 2}, {5, 4, 700, 7}, {4, 5, 7, 700},
	}
	for _, px := range pixelTypes() {
		for _, f := range []item.Filter{item.Bilinear, item.Bicubic} {
			for _, s := range sizes {
				w, h, ow, oh, ch := s[0], s[1], s[2], s[3], int(px.Channels)
				src := noisyPixels(rng, px, w*h)
				g := cut(0, 0, w, h)
				g.Filter, g.ResizeW, g.ResizeH, g.Window = f, int32(ow), int32(oh), item.Rect{W: int32(ow), H: int32(oh)}
				dst := make([]byte, ow*oh*px.Size())
				jobs := []Job{{Format: FormatPixels, Pixels: px, Src: src, Width: int32(w), Height: int32(h), Geom: g, Store: px.Plain(), Dst: dst}}
				d.Run(jobs)
				if jobs[0].Err != nil {
					t.Fatal(jobs[0].Err)
				}
				limit := 0.51
				switch px.DType {
				case item.U16:
					limit = 0.6 // of 65535: sums of float32
				case item.F32:
					limit = 155 * 1e-5
				}
				for c := range ch {
					want := definition(px, src, c, w, h, ow, oh, f)
					for i, v := range want {
						if got := pixelValue(px.DType, dst, i*ch+c); math.Abs(got-v) > limit {
							t.Errorf("%v, filter %d, %dx%d to %dx%d: channel %d of pixel %d is %v, want %v", px, f, w, h, ow, oh, c, i, got, v)
							break
						}
					}
				}
			}
		}
	}
}

// definition returns the resize of one channel in float64.
func definition(px item.PixelType, src []byte, c, w, h, ow, oh int, f item.Filter) []float64 {
	top := map[item.DType]float64{item.U8: 255, item.U16: 65535}[px.DType]
	cut := func(v float64) float64 {
		if top == 0 {
			return v
		}
		return min(max(v, 0), top)
	}
	ax, ay := referenceAxis(f, w, ow), referenceAxis(f, h, oh)
	mid := make([]float64, h*ow)
	for y := range h {
		for x := range ow {
			v := 0.0
			for j, k := range ax[x] {
				if k != 0 {
					v += k * pixelValue(px.DType, src, (y*w+j)*int(px.Channels)+c)
				}
			}
			if px.DType == item.U8 { // as Pillow and torchvision do
				v = cut(v)
			}
			mid[y*ow+x] = v
		}
	}
	out := make([]float64, oh*ow)
	for y := range oh {
		for x := range ow {
			for j, k := range ay[y] {
				if k != 0 {
					out[y*ow+x] += k * mid[j*ow+x]
				}
			}
			out[y*ow+x] = cut(out[y*ow+x])
		}
	}
	return out
}

// TestPixelsOfBytesAreRGBs compares FormatPixels of u8 with 3 channels with FormatRGB: equal if pixels are only
// moved, within a level if they are resized.
func TestPixelsOfBytesAreRGBs(t *testing.T) {
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(8, 9))
	for round := range 300 {
		w, h := 1+rng.Int32N(90), 1+rng.Int32N(90)
		g := randomGeometry(rng, w, h)
		src := noisy(rng, int(w)*int(h)*3)
		n := int(g.Window.W) * int(g.Window.H) * 3
		a, b := make([]byte, n), make([]byte, n)
		jobs := []Job{
			{Format: FormatRGB, Src: src, Width: w, Height: h, Geom: g, Store: plainStore, Dst: a},
			{Format: FormatPixels, Pixels: item.RGB, Src: src, Width: w, Height: h, Geom: g, Store: plainStore, Dst: b},
		}
		d.Run(jobs)
		if jobs[0].Err != nil || jobs[1].Err != nil {
			t.Fatal(jobs[0].Err, jobs[1].Err)
		}
		limit := 1
		if g.Filter == item.Nearest || g.ResizeW == g.Box.W && g.ResizeH == g.Box.H {
			limit = 0
		}
		for i := range a {
			if v := int(a[i]) - int(b[i]); v > limit || -v > limit {
				t.Fatalf("round %d, %+v: byte %d is %d and %d", round, g, i, a[i], b[i])
			}
		}
	}
}

func TestPixelJobsRefused(t *testing.T) {
	d := newDecoder(t)
	px := item.PixelType{DType: item.U16, Channels: 2}
	good := Job{Format: FormatPixels, Pixels: px, Src: make([]byte, 10*8*4), Width: 10, Height: 8, Geom: cut(0, 0, 10, 8), Store: px.Plain(), Dst: make([]byte, 10*8*4)}
	for name, change := range map[string]func(j *Job){
		"":         func(*Job) {},
		"type":     func(j *Job) { j.Pixels.DType = item.I64 },
		"none":     func(j *Job) { j.Pixels.Channels, j.Store.Channels = 0, 0 },
		"five":     func(j *Job) { j.Pixels.Channels, j.Store.Channels = 5, 5 },
		"channels": func(j *Job) { j.Store.Channels = 1 },
		"short":    func(j *Job) { j.Src = j.Src[:len(j.Src)-1] },
		"room":     func(j *Job) { j.Dst = j.Dst[:len(j.Dst)-1] },
		"box":      func(j *Job) { j.Geom = cut(1, 0, 10, 8) },
		"stride":   func(j *Job) { j.Stride = 39 },
		"size":     func(j *Job) { j.Width = 1 << 30 },
		"out":      func(j *Job) { j.Store.DType = item.I64 },
		"rgb":      func(j *Job) { j.Format, j.Store.DType = FormatRGB, item.U16 },
	} {
		jobs := []Job{good}
		change(&jobs[0])
		d.Run(jobs)
		if (jobs[0].Err == nil) != (name == "") {
			t.Errorf("%s: %v", name, jobs[0].Err)
		}
	}
}

func TestConvert(t *testing.T) {
	gray := Pixmap{Pix: []byte{1, 2, 3, 255}, W: 2, H: 2, C: 1}
	rgb := Pixmap{Pix: make([]byte, 12), W: 2, H: 2, C: 3}
	wide := Pixmap{Pix: make([]byte, 8), W: 2, H: 2, C: 1, DType: item.U16}
	back := Pixmap{Pix: make([]byte, 4), W: 2, H: 2, C: 1, DType: item.U8}
	for _, p := range [][2]Pixmap{{rgb, gray}, {wide, gray}, {back, wide}} {
		if err := Convert(p[0], p[1]); err != nil {
			t.Fatal(err)
		}
	}
	if want := []byte{1, 1, 1, 2, 2, 2, 3, 3, 3, 255, 255, 255}; !bytes.Equal(rgb.Pix, want) {
		t.Errorf("gray became %v", rgb.Pix)
	}
	if want := []byte{0, 1, 0, 2, 0, 3, 0, 255}; !bytes.Equal(wide.Pix, want) || !bytes.Equal(back.Pix, gray.Pix) {
		t.Errorf("u8 became %v and %v", wide.Pix, back.Pix)
	}
	for i, p := range [][2]Pixmap{{gray, rgb}, {rgb, wide}, {Pixmap{Pix: make([]byte, 16), W: 2, H: 2, C: 1, DType: item.F32}, gray}, {Pixmap{Pix: make([]byte, 3), W: 2, H: 2, C: 1}, gray}} {
		if Convert(p[0], p[1]) == nil {
			t.Errorf("conversion %d was done", i)
		}
	}
}

func BenchmarkPixels(b *testing.B) {
	for _, px := range []item.PixelType{{DType: item.U8, Channels: 4}, {DType: item.U16, Channels: 1}, {DType: item.F32, Channels: 3}} {
		b.Run(fmt.Sprint(px), func(b *testing.B) {
			g := cut(0, 0, 500, 375)
			g.ResizeW, g.ResizeH, g.Window = 224, 224, item.Rect{W: 224, H: 224}
			src := noisyPixels(rand.New(rand.NewPCG(1, 1)), px, 500*375)
			benchJob(b, Job{Format: FormatPixels, Pixels: px, Src: src, Width: 500, Height: 375, Geom: g, Store: px.Plain()})
		})
	}
}
