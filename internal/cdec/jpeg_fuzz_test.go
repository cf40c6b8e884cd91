package cdec

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

func TestSizesInHeaders(t *testing.T) {
	d := newDecoder(t)
	for _, file := range photos(t, 500) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := imagefile.Probe(src)
		if err != nil {
			t.Fatalf("%s: %v", filepath.Base(file), err)
		}
		if w, h, _ := d.DecodeFull(src, nil); int(info.Width) != w || int(info.Height) != h {
			t.Errorf("%s: %dx%d, the decoder says %dx%d", filepath.Base(file), info.Width, info.Height, w, h)
		}
	}
}

// addImages adds the small images of package decode's tests to a fuzz target.
func addImages(f *testing.F, pattern string) {
	files, err := filepath.Glob("../decode/testdata/formats/" + pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no images for a start: %v", err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".rgb" {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
}

// FuzzDecodeJPEG decodes damaged JPEGs: a whole image that decodes must decode
// to the same pixels box by box, with all kernels, and nothing may be written
// outside of the output.
func FuzzDecodeJPEG(f *testing.F) {
	addImages(f, "*.jpg")
	rng := rand.New(rand.NewPCG(1, 1))
	for i, s := range allSamplings {
		if s[0]*s[1] > 8 {
			continue
		}
		src, err := EncodeJPEG(noisy(rng, 40*30*3), 40, 30, 3, EncodeOptions{HSamp: s[0], VSamp: s[1], Progressive: i%2 == 1, RestartMCUs: i % 3})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	d := newDecoder(f)
	d.SetMaxPixels(1 << 16)
	f.Fuzz(func(t *testing.T, src []byte) {
		info, err := imagefile.Probe(src)
		if err != nil || info.Codec != driver.CodecJPEG || int64(info.Width)*int64(info.Height) > 1<<16 {
			return
		}
		defer useKernels(kernelSet.Load())
		w, h := int(info.Width), int(info.Height)
		pix := make([]byte, w*h*3)
		_, _, whole := d.DecodeFull(src, pix)
		seed := rand.New(rand.NewPCG(uint64(len(src)), uint64(src[len(src)/2])))
		for i := range 3 {
			use(t, kernelSets()[i%len(kernelSets())])
			bw, bh := 1+seed.IntN(w), 1+seed.IntN(h)
			x, y := seed.IntN(w-bw+1), seed.IntN(h-bh+1)
			dst, intact := guarded(bw * bh * 3)
			jobs := []Job{{Format: FormatJPEG, Src: src, Geom: cut(x, y, bw, bh), Store: plainStore, Dst: dst}}
			d.Run(jobs)
			if !intact() {
				t.Fatal("wrote outside of the output")
			}
			if whole != nil {
				continue
			}
			if jobs[0].Err != nil {
				t.Fatalf("box %dx%d at (%d,%d): %v, but the whole image decodes", bw, bh, x, y, jobs[0].Err)
			}
			if string(dst) != string(cutPixels(pix, w, x, y, bw, bh)) {
				t.Fatalf("box %dx%d at (%d,%d): pixels differ from a full decode", bw, bh, x, y)
			}
		}
	})
}
