package cdec

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// plainStore is u8 RGB as it is.
var plainStore = item.Store{DType: item.U8, Layout: item.NHWC, Channels: 3, Scale: [3]float32{1, 1, 1}}

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
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, file := range photos(t, most) {
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
}
