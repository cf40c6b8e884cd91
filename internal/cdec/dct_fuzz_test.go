package cdec

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stokerdata/stoker/internal/imagefile"
)

// libjpegIsAVX2 is true if the library uses the 16-bit arithmetic that determines the pixels of absurd coefficients.
// Its code for other processors, such as NEON, gives other pixels for those.
const libjpegIsAVX2 = runtime.GOARCH == "amd64"

// fuzzPixels limits the size of the images that the fuzz targets decode.
const fuzzPixels = 1 << 18

// decodeEachKernel decodes a box with each kernel set and reports differences.
func decodeEachKernel(t *testing.T, d *Decoder, src []byte, x, y, w, h int) (pix []byte, err error) {
	t.Helper()
	before := Kernels()
	defer SetKernels(before)
	for i, name := range kernelNames {
		if SetKernels(name) != nil {
			continue
		}
		got, gotErr := boxOf(d, src, x, y, w, h)
		switch {
		case i == 0:
			pix, err = got, gotErr
		case (err == nil) != (gotErr == nil):
			t.Fatalf("box %dx%d at (%d,%d): %s says %v, %s says %v", w, h, x, y, kernelNames[0], err, name, gotErr)
		case err == nil && !bytes.Equal(pix, got):
			t.Fatalf("box %dx%d at (%d,%d): %s and %s give different pixels", w, h, x, y, kernelNames[0], name)
		}
	}
	return pix, err
}

// seedImages returns small JPEGs of many kinds.
func seedImages(t testing.TB) [][]byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(13, 14))
	var out [][]byte
	for i, s := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}, {3, 1}} {
		for _, channels := range []int{1, 3} {
			w, h := 3+rng.IntN(90), 3+rng.IntN(60)
			jpeg, err := EncodeJPEG(texture(rng, w, h, channels), w, h, channels, EncodeOptions{
				Quality: 20 + 13*i, HSamp: s[0], VSamp: s[1], Progressive: i%3 == 2, RestartMCUs: i % 2, Optimize: i == 4})
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, jpeg)
		}
	}
	return out
}

// TestDCTCorpus runs the findings of testdata/dct/fuzz.sh, JPEGs and dct bytes, through all kernels.
func TestDCTCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/dct/corpus/*")
	if err != nil || len(files) == 0 {
		t.Fatal("no corpus in testdata/dct/corpus", err)
	}
	d := newDecoder(t)
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		jpeg := src
		if src, err = encodeDCT(nil, jpeg); err != nil {
			src, jpeg = jpeg, nil
		}
		info, err := DCTInfo(src)
		if err != nil || info.Width*info.Height > fuzzPixels {
			continue
		}
		pix, err := decodeEachKernel(t, d, src, 0, 0, info.Width, info.Height)
		if jpeg == nil {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		want := make([]byte, len(pix))
		if _, _, err := d.DecodeFull(jpeg, want); err == nil && libjpegIsAVX2 && !bytes.Equal(pix, want) {
			t.Errorf("%s: the pixels differ from those of a full decode", file)
		}
	}
}

// FuzzDCTDecode passes arbitrary bytes to the decoder. It must not touch memory outside of its own, and all kernels
// must agree. If the bytes can be written as a JPEG, libjpeg must return the same pixels.
func FuzzDCTDecode(f *testing.F) {
	for _, jpeg := range seedImages(f) {
		src, err := encodeDCT(nil, jpeg)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src, uint64(1234567))
	}
	f.Fuzz(func(t *testing.T, src []byte, pick uint64) {
		info, err := DCTInfo(src)
		if err != nil || info.Width*info.Height > fuzzPixels {
			return
		}
		d := newDecoder(t)
		var p [8]byte
		binary.LittleEndian.PutUint64(p[:], pick)
		u := func(i int) int { return int(binary.LittleEndian.Uint16(p[2*i:])) }
		x, y := u(0)%info.Width, u(1)%info.Height
		w, h := 1+u(2)%(info.Width-x), 1+u(3)%(info.Height-y)
		box, boxErr := decodeEachKernel(t, d, src, x, y, w, h)
		whole, err := decodeEachKernel(t, d, src, 0, 0, info.Width, info.Height)
		if err != nil {
			return
		}
		if boxErr != nil {
			t.Fatalf("the whole image decodes, the box %dx%d at (%d,%d) does not: %v", w, h, x, y, boxErr)
		}
		if !bytes.Equal(box, cutPixels(whole, info.Width, x, y, w, h)) {
			t.Fatalf("box %dx%d at (%d,%d) differs from the whole image", w, h, x, y)
		}
		jpeg, err := DCTToJPEG(nil, src, nil, nil)
		if err != nil {
			return // coefficients that the Huffman code of a JPEG cannot hold
		}
		want := make([]byte, len(whole))
		if _, _, err := d.DecodeFull(jpeg, want); err != nil {
			return
		}
		if libjpegIsAVX2 && !bytes.Equal(whole, want) {
			t.Fatal("the pixels differ from those of the JPEG with the same coefficients")
		}
	})
}

// encodeBothWays encodes by rows, and by libjpeg alone: bytes and errors are equal.
func encodeBothWays(t testing.TB, jpeg []byte) ([]byte, error) {
	t.Helper()
	e, err := NewDCTEncoder()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	b, err := e.encode(jpeg, 0, byRows)
	got := bytes.Clone(b)
	want, werr := e.encode(jpeg, 0, plain)
	if (err == nil) != (werr == nil) || err != nil && err.Error() != werr.Error() {
		t.Fatalf("by rows %v, by libjpeg alone %v", err, werr)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("by rows %d bytes, by libjpeg alone %d, and not the same", len(got), len(want))
	}
	return got, err
}

// FuzzDCTEncode passes arbitrary JPEGs to the encoder. If it accepts one, the result must decode to libjpeg's pixels.
func FuzzDCTEncode(f *testing.F) {
	for _, jpeg := range seedImages(f) {
		f.Add(jpeg)
	}
	f.Fuzz(func(t *testing.T, jpeg []byte) {
		if info, err := imagefile.Probe(jpeg); err != nil || int(info.Width)*int(info.Height) > fuzzPixels {
			return
		}
		src, err := encodeBothWays(t, jpeg)
		if err != nil {
			return
		}
		info, err := DCTInfo(src)
		if err != nil {
			t.Fatal(err)
		}
		if info.Width*info.Height > fuzzPixels {
			return
		}
		d := newDecoder(t)
		want := make([]byte, info.Width*info.Height*3)
		if _, _, err := d.DecodeFull(jpeg, want); err != nil {
			return // stricter here: several scans without an end marker
		}
		got, err := decodeEachKernel(t, d, src, 0, 0, info.Width, info.Height)
		if err != nil {
			t.Fatal(err)
		}
		if libjpegIsAVX2 && !bytes.Equal(got, want) {
			t.Fatal("the pixels differ from those of a full decode")
		}
	})
}
