package cdec

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// kernelSets returns the kernel sets that this processor supports.
func kernelSets() []string {
	var names []string
	for _, n := range kernelNames {
		if SetKernels(n) == nil {
			names = append(names, n)
		}
	}
	return names
}

// withKernels calls f once for each kernel set.
func withKernels(t *testing.T, f func(t *testing.T)) {
	defer useKernels(kernelSet.Load())
	for _, name := range kernelSets() {
		t.Run(name, func(t *testing.T) {
			if err := SetKernels(name); err != nil {
				t.Fatal(err)
			}
			f(t)
		})
	}
}

// noisy fills pixels with a gradient, edges and noise.
func noisy(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	v := 0
	for i := range b {
		switch rng.IntN(20) {
		case 0:
			v = 255 * rng.IntN(2)
		case 1:
			v = rng.IntN(256)
		}
		b[i] = byte(min(max(v+rng.IntN(9)-4, 0), 255))
	}
	return b
}

func normalize(t item.DType, l item.Layout, channels int32) item.Store {
	return item.Store{
		DType: t, Layout: l, Channels: channels,
		Scale: [item.MaxChannels]float32{1 / (255 * 0.229), 1 / (255 * 0.224), 1 / (255 * 0.225)},
		Bias:  [item.MaxChannels]float32{-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225},
	}
}

// randomGeometry draws a box, a size, a window and flips; now and then
// something extreme.
func randomGeometry(rng *rand.Rand, w, h int32) item.Geometry {
	side := func(n int32) int32 {
		switch rng.IntN(6) {
		case 0:
			return 1
		case 1:
			return n
		}
		return 1 + rng.Int32N(n)
	}
	g := item.Geometry{Filter: item.Filter(1 + rng.IntN(3)), FlipH: rng.IntN(2) == 0, FlipV: rng.IntN(2) == 0}
	g.Box.W, g.Box.H = side(w), side(h)
	g.Box.X, g.Box.Y = rng.Int32N(w-g.Box.W+1), rng.Int32N(h-g.Box.H+1)
	g.ResizeW, g.ResizeH = side(300), side(200)
	switch rng.IntN(6) {
	case 0:
		g.ResizeW, g.ResizeH = g.Box.W, g.Box.H
	case 1:
		g.ResizeW = g.Box.W
	}
	g.Window.W, g.Window.H = side(g.ResizeW), side(g.ResizeH)
	g.Window.X, g.Window.Y = rng.Int32N(g.ResizeW-g.Window.W+1), rng.Int32N(g.ResizeH-g.Window.H+1)
	return g
}

// outputBytes returns the size of the output of g in store s.
func outputBytes(g *item.Geometry, s *item.Store) int {
	return int(g.Window.W) * int(g.Window.H) * int(s.Channels) * s.DType.Size()
}

// guarded returns n bytes with a pattern before and after them, and a function that checks the pattern.
func guarded(n int) (b []byte, intact func() bool) {
	all := make([]byte, n+128)
	for i := range all {
		all[i] = 0xa5
	}
	return all[64 : 64+n : 64+n], func() bool {
		for i := range 64 {
			if all[i] != 0xa5 || all[len(all)-1-i] != 0xa5 {
				return false
			}
		}
		return true
	}
}

func TestKernelSetsAgree(t *testing.T) {
	defer useKernels(kernelSet.Load())
	sets := kernelSets()
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(3, 4))
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	formats := []Format{FormatRGB, FormatGray, FormatRGBX}
	for round := range rounds {
		w, h := 1+rng.Int32N(400), 1+rng.Int32N(300)
		if rng.IntN(40) == 0 {
			w, h = 1+rng.Int32N(20), 1+rng.Int32N(20000) // tall: sums instead of a ring
		}
		job := Job{Format: formats[rng.IntN(3)], Width: w, Height: h}
		job.Src = noisy(rng, int(w)*int(h)*job.pixelBytes())
		job.Geom = randomGeometry(rng, w, h)
		job.Store = plainStore
		if rng.IntN(2) == 0 {
			channels := int32(3)
			if rng.IntN(4) == 0 {
				channels = 1
			}
			job.Store = normalize(item.DType(1+rng.IntN(4)), item.Layout(1+rng.IntN(2)), channels)
		}
		if rng.IntN(8) == 0 {
			job.Store.Layout, job.Store.DType = item.NCHW, item.U8
			job.Store.Scale, job.Store.Bias = plainStore.Scale, plainStore.Bias
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
				t.Fatalf("round %d, %s, %dx%d %+v: %v", round, name, w, h, job.Geom, j[0].Err)
			case !intact():
				t.Fatalf("round %d, %s, format %d %dx%d %+v %+v: wrote outside of the output", round, name, job.Format, w, h, job.Geom, job.Store)
			case want == nil:
				want = dst
			case !bytes.Equal(want, dst):
				at := 0
				for want[at] == dst[at] {
					at++
				}
				t.Fatalf("round %d, %s differs from scalar at byte %d of %d (%d, %d), format %d %dx%d %+v %+v", round, name, at, len(dst), want[at], dst[at], job.Format, w, h, job.Geom, job.Store)
			}
		}
	}
}

// sampleFilter and referenceResize are Pillow's definition in floating point.
func sampleFilter(f item.Filter, x float64) float64 {
	x = math.Abs(x)
	if f == item.Bilinear {
		return max(0, 1-x)
	}
	const a = -0.5
	switch {
	case x < 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return (((x-5)*x+8)*x - 4) * a
	}
	return 0
}

func referenceAxis(f item.Filter, in, out int) [][]float64 {
	scale := float64(in) / float64(out)
	wide := max(scale, 1)
	support := wide
	if f == item.Bicubic {
		support = 2 * wide
	}
	rows := make([][]float64, out)
	for i := range rows {
		rows[i] = make([]float64, in)
		center, sum := (float64(i)+0.5)*scale, 0.0
		lo, hi := max(0, int(center-support+0.5)), min(in, int(center+support+0.5))
		for j := lo; j < hi; j++ {
			rows[i][j] = sampleFilter(f, (float64(j)-center+0.5)/wide)
			sum += rows[i][j]
		}
		for j := lo; j < hi; j++ {
			rows[i][j] /= sum
		}
	}
	return rows
}

func TestResizeAgainstDefinition(t *testing.T) {
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(5, 6))
	sizes := [][4]int{
		{60, 50, 32, 24}, {31, 77, 64, 64}, {1, 1, 9, 7}, {1, 300, 5, 3}, {500, 3, 4, 9}, {64, 64, 64, 32}, {640, 480, 10, 7},
		{2, 9000, 2, 3}, {9000, 2, 3, 2}, {13, 3000, 7, 1}, {3000, 13, 1, 7}, {97, 89, 96, 88},
		{65500, 1, 3, 1}, {1, 65500, 1, 3}, {3, 20000, 2, 224}, {20000, 3, 224, 2}, {5, 4, 1500, 7}, {4, 5, 7, 1500},
	}
	withKernels(t, func(t *testing.T) {
		for _, f := range []item.Filter{item.Bilinear, item.Bicubic} {
			for _, s := range sizes {
				w, h, ow, oh := s[0], s[1], s[2], s[3]
				src := noisy(rng, w*h*3)
				g := cut(0, 0, w, h)
				g.Filter, g.ResizeW, g.ResizeH = f, int32(ow), int32(oh)
				g.Window = item.Rect{W: int32(ow), H: int32(oh)}
				dst := make([]byte, ow*oh*3)
				jobs := []Job{{Format: FormatRGB, Src: src, Width: int32(w), Height: int32(h), Geom: g, Store: plainStore, Dst: dst}}
				d.Run(jobs)
				if jobs[0].Err != nil {
					t.Fatal(jobs[0].Err)
				}
				worst := worstDifference(dst, src, w, h, ow, oh, f)
				// Half a level is rounding; the rest is fixed point.
				if worst > 0.65 {
					t.Errorf("filter %d, %dx%d to %dx%d: off by %.3f levels", f, w, h, ow, oh, worst)
				}
			}
		}
	})
}

func worstDifference(dst, src []byte, w, h, ow, oh int, f item.Filter) float64 {
	ax, ay := referenceAxis(f, w, ow), referenceAxis(f, h, oh)
	mid := make([]float64, h*ow*3)
	for y := range h {
		for x := range ow {
			for j, k := range ax[x] {
				if k == 0 {
					continue
				}
				for c := range 3 {
					mid[(y*ow+x)*3+c] += k * float64(src[(y*w+j)*3+c])
				}
			}
		}
	}
	for i, v := range mid { // Pillow's passes end in u8
		mid[i] = min(max(v, 0), 255)
	}
	worst := 0.0
	for y := range oh {
		for x := range ow * 3 {
			v := 0.0
			for j, k := range ay[y] {
				if k != 0 {
					v += k * mid[j*ow*3+x]
				}
			}
			worst = max(worst, math.Abs(min(max(v, 0), 255)-float64(dst[y*ow*3+x])))
		}
	}
	return worst
}

func TestStoreTypes(t *testing.T) {
	d := newDecoder(t)
	const w, h = 37, 5
	src := noisy(rand.New(rand.NewPCG(7, 8)), w*h*3)
	src[0], src[1], src[2] = 0, 128, 255
	withKernels(t, func(t *testing.T) {
		for _, layout := range []item.Layout{item.NHWC, item.NCHW} {
			for _, dtype := range []item.DType{item.U8, item.F16, item.BF16, item.F32} {
				st := normalize(dtype, layout, 3)
				dst := make([]byte, w*h*3*dtype.Size())
				if err := d.StorePixels(src, w, h, st, dst); err != nil {
					t.Fatal(err)
				}
				for i, p := range src {
					c, at := i%3, i
					if layout == item.NCHW {
						at = c*w*h + i/3
					}
					want := float32(p) * st.Scale[c]
					want += st.Bias[c]
					got, tolerance := element(dst, at, dtype), 0.0
					switch dtype {
					case item.U8:
						want = float32(math.RoundToEven(float64(min(max(want, 0), 255))))
					case item.F16:
						tolerance = math.Abs(float64(want))/2048 + 1e-7
					case item.BF16:
						tolerance = math.Abs(float64(want)) / 256
					}
					if math.Abs(float64(got-want)) > tolerance {
						t.Fatalf("%v layout %d, value %d: %v, want %v", dtype, layout, i, got, want)
					}
				}
			}
		}
	})
}

// element reads one value of a batch.
func element(b []byte, i int, t item.DType) float32 {
	switch t {
	case item.U8:
		return float32(b[i])
	case item.F32:
		return math.Float32frombits(uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24)
	case item.BF16:
		return math.Float32frombits(uint32(b[2*i])<<16 | uint32(b[2*i+1])<<24)
	}
	v := uint32(b[2*i]) | uint32(b[2*i+1])<<8
	sign, e, m := 1.0, int(v>>10&31), float64(v&0x3ff)
	if v>>15 != 0 {
		sign = -1
	}
	if e == 0 {
		return float32(sign * math.Ldexp(m, -24))
	}
	return float32(sign * math.Ldexp(1024+m, e-25))
}

func TestGather(t *testing.T) {
	withKernels(t, func(t *testing.T) {
		for _, n := range []int{1, 7, 63, 1000, 1024, 3072, 4097, 8191, 8192, 8321, 150528} {
			rng := rand.New(rand.NewPCG(9, uint64(n)))
			rows := make([][]byte, 600)
			if n > 5000 {
				rows = rows[:20]
			}
			for i := range rows {
				rows[i] = noisy(rng, n+i%3)
			}
			for name, gather := range map[string]func([]byte, [][]byte, int){"past the caches": Gather, "near": GatherNear} {
				dst, intact := guarded(len(rows) * n)
				gather(dst, rows, n)
				for i, r := range rows {
					if !bytes.Equal(dst[i*n:(i+1)*n], r[:n]) {
						t.Fatalf("%s: row %d of %d bytes differs", name, i, n)
					}
				}
				if !intact() {
					t.Fatalf("%s: %d bytes: wrote outside of the output", name, n)
				}
			}
		}
	})
}

func TestCopyCRC32C(t *testing.T) {
	withKernels(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(10, 1))
		lengths := []int{0, 1, 7, 63, 64, 127, 128, 1000, 8191, 8192, 8193, 8320, 65536, 114_321, 1 << 20, 3<<20 + 77}
		for range 40 {
			lengths = append(lengths, rng.IntN(40_000))
		}
		for _, n := range lengths {
			src := noisy(rng, n+n%5)[n%5:]
			begun := rng.Uint32()
			dst, intact := guarded(n)
			if got, want := CopyCRC32C(dst, src, begun), crc32.Update(begun, castagnoli, src); got != want {
				t.Errorf("%d bytes: %08x, should be %08x", n, got, want)
			}
			if !bytes.Equal(dst, src) || !intact() {
				t.Errorf("%d bytes: the copy differs, or there is more of it than was asked for", n)
			}
		}
	})
}

func TestJobsAreChecked(t *testing.T) {
	d := newDecoder(t)
	src := make([]byte, 10*10*3)
	ok := Job{Format: FormatRGB, Src: src, Width: 10, Height: 10, Geom: cut(0, 0, 10, 10), Store: plainStore, Dst: make([]byte, 300)}
	for name, change := range map[string]func(*Job){
		"box outside":      func(j *Job) { j.Geom = cut(1, 0, 10, 10) },
		"box negative":     func(j *Job) { j.Geom.Box.X = -1 },
		"box empty":        func(j *Job) { j.Geom.Box.W = 0 },
		"resize zero":      func(j *Job) { j.Geom.ResizeW = 0 },
		"resize huge":      func(j *Job) { j.Geom.ResizeW = 1 << 30 },
		"window outside":   func(j *Job) { j.Geom.Window.Y = 1 },
		"filter":           func(j *Job) { j.Geom.Filter = 9 },
		"dtype":            func(j *Job) { j.Store.DType = item.I64 },
		"layout":           func(j *Job) { j.Store.Layout = 0 },
		"channels":         func(j *Job) { j.Store.Channels = 4 },
		"short output":     func(j *Job) { j.Dst = j.Dst[:299] },
		"short source":     func(j *Job) { j.Src = j.Src[:299] },
		"image too large":  func(j *Job) { j.Width, j.Height = 65000, 65000 },
		"format":           func(j *Job) { j.Format = 99 },
		"short stride":     func(j *Job) { j.Stride = 29 },
		"empty JPEG":       func(j *Job) { j.Format, j.Src = FormatJPEG, nil },
		"JPEG of one byte": func(j *Job) { j.Format, j.Src = FormatJPEG, []byte{0xff} },
	} {
		j := []Job{ok, ok, ok}
		change(&j[1])
		d.Run(j)
		if j[0].Err != nil || j[2].Err != nil {
			t.Errorf("%s: neighbours failed: %v, %v", name, j[0].Err, j[2].Err)
		}
		if j[1].Err == nil || len(j[1].Err.Error()) < 10 {
			t.Errorf("%s: error %v", name, j[1].Err)
		}
	}
}

func ExampleDecoder_Run() {
	d, err := NewDecoder()
	if err != nil {
		panic(err)
	}
	defer d.Close()
	jobs := []Job{{
		Format: FormatGray, Src: []byte{10, 20, 30, 40}, Width: 2, Height: 2,
		Geom: item.Geometry{
			Box: item.Rect{W: 2, H: 2}, ResizeW: 1, ResizeH: 1, Window: item.Rect{W: 1, H: 1}, Filter: item.Bilinear,
		},
		Store: item.RGB.Plain(),
		Dst:   make([]byte, 3),
	}}
	d.Run(jobs)
	fmt.Println(jobs[0].Dst, jobs[0].Err)
	// Output: [25 25 25] <nil>
}
