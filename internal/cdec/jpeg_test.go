package cdec

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// plainStore is unmodified u8 RGB.
var plainStore = item.RGB.Plain()

// cut returns the geometry that cuts out a box and changes nothing.
func cut(x, y, w, h int) item.Geometry {
	return item.Geometry{
		Box:     item.Rect{X: int32(x), Y: int32(y), W: int32(w), H: int32(h)},
		ResizeW: int32(w), ResizeH: int32(h),
		Window: item.Rect{W: int32(w), H: int32(h)}, Filter: item.Bilinear,
	}
}

func newDecoder(t testing.TB) *Decoder {
	t.Helper()
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// decodeFull returns all pixels of a JPEG.
func decodeFull(t testing.TB, d *Decoder, src []byte) (pix []byte, w, h int) {
	t.Helper()
	w, h, err := d.DecodeFull(src, nil)
	if w == 0 {
		t.Fatal(err)
	}
	pix = make([]byte, w*h*3)
	if _, _, err = d.DecodeFull(src, pix); err != nil {
		t.Fatal(err)
	}
	return pix, w, h
}

// cutPixels copies a box out of pixels of 3 bytes.
func cutPixels(pix []byte, width, x, y, w, h int) []byte {
	out := make([]byte, 0, w*h*3)
	for r := y; r < y+h; r++ {
		out = append(out, pix[(r*width+x)*3:(r*width+x+w)*3]...)
	}
	return out
}

// checkBox decodes one box and compares it with the full decode.
func checkBox(t *testing.T, d *Decoder, src, pix []byte, width, x, y, w, h int) bool {
	t.Helper()
	dst := make([]byte, w*h*3)
	jobs := []Job{{Format: FormatJPEG, Src: src, Geom: cut(x, y, w, h), Store: plainStore, Dst: dst}}
	d.Run(jobs)
	if jobs[0].Err != nil {
		t.Errorf("box %dx%d at (%d,%d): %v", w, h, x, y, jobs[0].Err)
		return false
	}
	if !bytes.Equal(dst, cutPixels(pix, width, x, y, w, h)) {
		t.Errorf("box %dx%d at (%d,%d): pixels differ from a full decode", w, h, x, y)
		return false
	}
	return true
}

func photos(t testing.TB, most int) []string {
	t.Helper()
	files, _ := filepath.Glob("../../../shared/data/photos/*.JPEG")
	if len(files) == 0 {
		t.Skip("no photographs at ../shared/data/photos beside the repository")
	}
	if len(files) > most {
		files = files[:most]
	}
	return files
}

func TestBoxesOfPhotosEqualFullDecode(t *testing.T) {
	most := 500
	if testing.Short() {
		most = 40
	}
	defer useKernels(kernelSet.Load())
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i, file := range photos(t, most) {
		use(t, kernelSets()[i%len(kernelSets())])
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pix, width, height := decodeFull(t, d, src)
		for range 4 {
			w, h := 1+rng.IntN(width), 1+rng.IntN(height)
			x, y := rng.IntN(width-w+1), rng.IntN(height-h+1)
			if !checkBox(t, d, src, pix, width, x, y, w, h) {
				t.Fatalf("%s (%dx%d)", filepath.Base(file), width, height)
			}
		}
	}
	if n := d.retries(); n != 0 {
		t.Errorf("%d boxes needed libjpeg's entropy decoder: the fast one gave up on sound files", n)
	}
}

var allSamplings = [][2]int{{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}, {3, 1}, {1, 3}, {3, 3}}

// TestBoxesOfGeneratedFiles covers samplings, sizes around the block and MCU
// limits, progressive coding, restart markers, gray, RGB and CMYK.
func TestBoxesOfGeneratedFiles(t *testing.T) {
	sizes := [][2]int{{1, 1}, {2, 3}, {5, 1}, {1, 17}, {8, 8}, {15, 16}, {16, 15}, {17, 17}, {33, 9}, {35, 50}, {64, 48}, {131, 67}}
	boxes := 80
	if testing.Short() {
		boxes = 10
	}
	defer useKernels(kernelSet.Load())
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(21, 22))
	for _, size := range sizes {
		w, h := size[0], size[1]
		for _, channels := range []int{1, 3, 4} {
			for _, s := range allSamplings {
				if s[0]*s[1] > 8 || channels != 3 && s[0]*s[1] > 1 {
					continue
				}
				for variant := range 6 {
					opts := EncodeOptions{
						Quality: []int{30, 75, 92, 100, 85, 60}[variant], HSamp: s[0], VSamp: s[1], Progressive: variant%2 == 1,
						Optimize: variant == 2, RestartMCUs: []int{0, 0, 1, 3, 0, 0}[variant], RGB: variant == 4 && channels == 3,
					}
					src, err := EncodeJPEG(noisy(rng, w*h*channels), w, h, channels, opts)
					if err != nil {
						t.Fatal(err)
					}
					pix, _, _ := decodeFull(t, d, src)
					use(t, kernelSets()[variant%len(kernelSets())])
					ok := checkBox(t, d, src, pix, w, 0, 0, w, h) && checkBox(t, d, src, pix, w, w-1, h-1, 1, 1)
					for range boxes {
						bw, bh := 1+rng.IntN(w), 1+rng.IntN(h)
						ok = ok && checkBox(t, d, src, pix, w, rng.IntN(w-bw+1), rng.IntN(h-bh+1), bw, bh)
					}
					if !ok {
						t.Fatalf("%dx%d, %d channels, sampling %v, variant %d", w, h, channels, s, variant)
					}
				}
			}
		}
	}
	if n := d.retries(); n != 0 {
		t.Errorf("%d boxes needed libjpeg's entropy decoder: the fast one gave up on sound files", n)
	}
}

// TestEveryBoxOfASmallFile decodes all boxes, to find errors at the edges of crops and skipped rows.
func TestEveryBoxOfASmallFile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(23, 24))
	const w, h = 35, 37
	for _, s := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}} {
		src, err := EncodeJPEG(noisy(rng, w*h*3), w, h, 3, EncodeOptions{Quality: 90, HSamp: s[0], VSamp: s[1]})
		if err != nil {
			t.Fatal(err)
		}
		pix, _, _ := decodeFull(t, d, src)
		for x := range w {
			for y := range h {
				for _, bw := range []int{1, 2, 3, 9, w - x} {
					for _, bh := range []int{1, 2, 5, h - y} {
						if bw <= w-x && bh <= h-y && !checkBox(t, d, src, pix, w, x, y, bw, bh) {
							t.Fatalf("sampling %v", s)
						}
					}
				}
			}
		}
	}
}

// TestDamagedJPEGs holds the policy that jpeg.c states.
func TestDamagedJPEGs(t *testing.T) {
	d := newDecoder(t)
	const w, h = 120, 90
	rng := rand.New(rand.NewPCG(25, 26))
	pixels := noisy(rng, w*h*3)
	encode := func(progressive bool) []byte {
		src, err := EncodeJPEG(pixels, w, h, 3, EncodeOptions{Quality: 90, HSamp: 2, VSamp: 2, Progressive: progressive})
		if err != nil {
			t.Fatal(err)
		}
		return src
	}
	run := func(src []byte, g item.Geometry) error {
		jobs := []Job{{Format: FormatJPEG, Src: src, Geom: g, Store: plainStore, Dst: make([]byte, outputBytes(&g, &plainStore))}}
		d.Run(jobs)
		return jobs[0].Err
	}
	whole := cut(0, 0, w, h)
	for _, progressive := range []bool{false, true} {
		src := encode(progressive)
		if err := run(src[:len(src)-2], whole); progressive == (err == nil) {
			// The scans of a progressive file end with its end marker; the data
			// of a baseline file are complete without it.
			t.Errorf("progressive %v, without end marker: %v", progressive, err)
		}
		for _, n := range []int{0, 1, 2, 3, 20, 200, len(src) / 2, len(src) * 9 / 10} {
			if err := run(src[:n], whole); !errors.Is(err, ErrCorrupt) {
				t.Errorf("progressive %v, first %d of %d bytes: %v", progressive, n, len(src), err)
			}
		}
		if err := run(append(bytes.Clone(src), "trailing bytes"...), whole); err != nil {
			t.Errorf("bytes after the end: %v", err)
		}
	}
	src := encode(false)
	if err := run(src[:len(src)*9/10], cut(0, 0, w, 10)); err != nil {
		t.Errorf("a box above the damage: %v", err)
	}
	extra := append([]byte{0xff, 0xd8, 0, 1, 2, 3}, src[2:]...)
	if err := run(extra, whole); err != nil {
		t.Errorf("bytes before a marker: %v", err)
	}
	scan := bytes.Index(src, []byte{0xff, 0xda})
	for _, marker := range []byte{0xd9, 0xd3} { // an end and a restart in the data
		bad := bytes.Clone(src)
		bad[scan+400], bad[scan+401] = 0xff, marker
		if err := run(bad, whole); !errors.Is(err, ErrCorrupt) {
			t.Errorf("marker %x in the data: %v", marker, err)
		}
	}

	frame := bytes.Index(src, []byte{0xff, 0xc0})
	for name, c := range map[string]struct {
		at   int
		to   byte
		want error
	}{
		"12 bits":       {4, 12, ErrUnsupported},
		"lossless":      {1, 0xc3, ErrUnsupported},
		"arithmetic":    {1, 0xc9, ErrUnsupported},
		"2 components":  {9, 2, ErrCorrupt},
		"no height":     {6, 0, nil},
		"no components": {9, 0, ErrCorrupt},
	} {
		bad := bytes.Clone(src)
		bad[frame+c.at] = c.to
		err := run(bad, whole)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	huge := bytes.Clone(src)
	copy(huge[frame+5:], []byte{0xff, 0x00, 0xff, 0x00})
	if err := run(huge, whole); !errors.Is(err, ErrLimit) {
		t.Errorf("65280 x 65280 pixels: %v", err)
	}
	// The decoder is as good as new after all that.
	if err := run(src, whole); err != nil {
		t.Error(err)
	}
}

// TestImagesStandAlone checks that an image without tables is not decoded with those of the previous image.
func TestImagesStandAlone(t *testing.T) {
	d := newDecoder(t)
	const w, h = 40, 30
	src, err := EncodeJPEG(noisy(rand.New(rand.NewPCG(27, 28)), w*h*3), w, h, 3, EncodeOptions{Progressive: true})
	if err != nil {
		t.Fatal(err)
	}
	without := func(marker byte) []byte {
		bad := bytes.Clone(src)
		for {
			at := bytes.Index(bad, []byte{0xff, marker})
			if at < 0 {
				return bad
			}
			bad[at+1] = 0xec // an APP12 segment, which is passed over
		}
	}
	for round := range 600 { // past several libjpeg objects
		dst := make([]byte, w*h*3)
		job := Job{Format: FormatJPEG, Src: src, Geom: cut(0, 0, w, h), Store: plainStore, Dst: dst}
		jobs := []Job{job, job, job, job}
		jobs[1].Src, jobs[2].Src = without(0xdb), without(0xc4)
		d.Run(jobs)
		if jobs[0].Err != nil || jobs[3].Err != nil {
			t.Fatal(round, jobs[0].Err, jobs[3].Err)
		}
		if jobs[1].Err == nil || jobs[2].Err == nil {
			t.Fatalf("round %d: without quantisation tables %v, without Huffman tables %v", round, jobs[1].Err, jobs[2].Err)
		}
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	d := newDecoder(t)
	var jobs []Job
	var buffers [8]Buffer
	for i := range 4 {
		w, h := 200+i, 150+i
		src, err := EncodeJPEG(noisy(rand.New(rand.NewPCG(1, 1)), w*h*3), w, h, 3, EncodeOptions{HSamp: 2, VSamp: 2})
		if err != nil {
			t.Fatal(err)
		}
		in, _ := buffers[2*i].Bytes(len(src))
		copy(in, src)
		out, _ := buffers[2*i+1].Bytes(64 * 64 * 3)
		jobs = append(jobs, Job{Format: FormatJPEG, Src: in, Geom: resizeTo(w, h, 64, 64, item.Bilinear), Store: plainStore, Dst: out})
	}
	if n := testing.AllocsPerRun(20, func() { d.Run(jobs) }); n != 0 {
		t.Errorf("%v allocations per run", n)
	}
	for i := range buffers {
		buffers[i].Free()
	}
}
