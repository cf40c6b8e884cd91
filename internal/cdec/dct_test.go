package cdec

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// everyKernel runs f with each kernel set that this processor has.
func everyKernel(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	before := Kernels()
	defer SetKernels(before)
	for _, name := range kernelNames {
		if SetKernels(name) == nil {
			t.Run(name, f)
		}
	}
}

// boxOf decodes a box of dct bytes.
func boxOf(d *Decoder, src []byte, x, y, w, h int) ([]byte, error) {
	dst := make([]byte, w*h*3)
	jobs := []Job{{Format: FormatDCT, Src: src, Geom: cut(x, y, w, h), Store: plainStore, Dst: dst}}
	d.Run(jobs)
	return dst, jobs[0].Err
}

// checkDCTBox compares one box of dct bytes with the pixels of the full decode.
func checkDCTBox(t *testing.T, d *Decoder, src, pix []byte, width, x, y, w, h int) bool {
	t.Helper()
	got, err := boxOf(d, src, x, y, w, h)
	if err != nil {
		t.Errorf("box %dx%d at (%d,%d): %v", w, h, x, y, err)
		return false
	}
	want := cutPixels(pix, width, x, y, w, h)
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("box %dx%d at (%d,%d): pixel (%d,%d) channel %d is %d, a full decode has %d",
				w, h, x, y, x+i/3%w, y+i/3/w, i%3, got[i], want[i])
			return false
		}
	}
	return true
}

// checkDCTBoxes compares the whole image, its edges and random boxes.
func checkDCTBoxes(t *testing.T, d *Decoder, rng *rand.Rand, jpeg []byte, boxes int) bool {
	t.Helper()
	src, err := encodeDCT(nil, jpeg)
	if err != nil {
		t.Error(err)
		return false
	}
	pix, width, height := decodeFull(t, d, jpeg)
	ok := checkDCTBox(t, d, src, pix, width, 0, 0, width, height)
	for range boxes {
		w, h := 1+rng.IntN(width), 1+rng.IntN(height)
		x, y := rng.IntN(width-w+1), rng.IntN(height-h+1)
		ok = ok && checkDCTBox(t, d, src, pix, width, x, y, w, h)
	}
	return ok
}

// texture returns an image with edges, gradients and noise.
func texture(rng *rand.Rand, w, h, channels int) []byte {
	pix := make([]byte, w*h*channels)
	fx, fy, noise := rng.IntN(9), rng.IntN(9), 1+rng.IntN(120)
	for i := range pix {
		x, y, c := i/channels%w, i/channels/w, i%channels
		v := x*fx + y*fy + 60*c + rng.IntN(noise)
		if (x/13+y/17)%3 == 0 {
			v = 255 - v
		}
		pix[i] = byte(v)
	}
	return pix
}

func TestDCTShapes(t *testing.T) {
	samplings := [][2]int{{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}, {3, 1}, {3, 3}}
	sizes := [][2]int{{1, 1}, {1, 40}, {2, 2}, {3, 5}, {5, 3}, {7, 8}, {8, 7}, {9, 9}, {16, 16}, {17, 33}, {40, 1}, {64, 64}, {65, 15}, {129, 70}, {203, 101}}
	everyKernel(t, func(t *testing.T) {
		d := newDecoder(t)
		rng := rand.New(rand.NewPCG(3, 4))
		for _, size := range sizes {
			w, h := size[0], size[1]
			for _, channels := range []int{1, 3} {
				for _, s := range samplings {
					if channels == 1 && s[0]*s[1] > 1 {
						continue
					}
					for variant := range 4 {
						jpeg, err := EncodeJPEG(texture(rng, w, h, channels), w, h, channels, EncodeOptions{
							Quality: []int{30, 75, 92, 100}[variant], HSamp: s[0], VSamp: s[1],
							Progressive: variant&1 == 1, Optimize: variant == 2, RestartMCUs: []int{0, 0, 3, 1}[variant],
						})
						if err != nil {
							if s[0]*s[1] > 8 {
								continue // more blocks in an MCU than a JPEG may have
							}
							t.Fatal(err)
						}
						if !checkDCTBoxes(t, d, rng, jpeg, 6) {
							t.Fatalf("%dx%d, %d channels, sampling %v, variant %d", w, h, channels, s, variant)
						}
					}
				}
			}
		}
	})
}

func TestDCTPhotos(t *testing.T) {
	most := 500
	if testing.Short() {
		most = 30
	}
	files := photos(t, most)
	everyKernel(t, func(t *testing.T) {
		d := newDecoder(t)
		rng := rand.New(rand.NewPCG(5, 6))
		var before, after, refused int
		for _, file := range files {
			jpeg, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			src, err := encodeDCT(nil, jpeg)
			if no := (*NotDCT)(nil); errors.As(err, &no) {
				t.Logf("%s: %v", filepath.Base(file), err)
				refused++
				continue
			}
			before += len(jpeg)
			after += len(src)
			if !checkDCTBoxes(t, d, rng, jpeg, 3) {
				t.Fatal(filepath.Base(file))
			}
		}
		ratio := float64(after) / float64(before)
		t.Logf("%d photos: %.4f times the bytes, %d refused", len(files), ratio, refused)
		if ratio > 1.15 {
			t.Errorf("dct takes %.3f times the bytes of the JPEGs; at most 1.15 is promised", ratio)
		}
	})
}

// TestDCTPackingKernelsAgree encodes with each kernel set.
func TestDCTPackingKernelsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	var jpegs, want [][]byte
	for i := range 60 {
		w, h := 1+rng.IntN(200), 1+rng.IntN(120)
		jpeg, err := EncodeJPEG(texture(rng, w, h, 3), w, h, 3, EncodeOptions{Quality: 1 + rng.IntN(100), HSamp: 1 + i%2, VSamp: 1 + i/2%2})
		if err != nil {
			t.Fatal(err)
		}
		jpegs = append(jpegs, jpeg)
	}
	everyKernel(t, func(t *testing.T) {
		for i, jpeg := range jpegs {
			got, err := encodeDCT(nil, jpeg)
			if err != nil {
				t.Fatal(err)
			}
			if len(want) <= i {
				want = append(want, got)
			} else if !bytes.Equal(got, want[i]) {
				t.Errorf("image %d: other bytes", i)
			}
		}
	})
}

// TestDCTEncodersAgree encodes valid, unusual and damaged images by rows and by libjpeg alone.
func TestDCTEncodersAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, jpeg := range seedImages(t) {
		if _, err := encodeBothWays(t, jpeg); err != nil {
			t.Error(err)
		}
		for range 60 {
			bad := bytes.Clone(jpeg)
			for range 1 + rng.IntN(3) {
				bad[rng.IntN(len(bad))] = byte(rng.Uint32())
			}
			_, _ = encodeBothWays(t, bad)
			_, _ = encodeBothWays(t, jpeg[:rng.IntN(len(jpeg))])
		}
	}
	for _, file := range photos(t, 40) {
		jpeg, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = encodeBothWays(t, jpeg)
	}
}

func TestDCTToJPEG(t *testing.T) {
	d := newDecoder(t)
	rng := rand.New(rand.NewPCG(7, 8))
	exif := append([]byte("Exif\x00\x00"), "MM\x00*..."...)
	icc := bytes.Repeat([]byte("profile "), 20000)
	for _, s := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}} {
		for _, channels := range []int{1, 3} {
			w, h := 1+rng.IntN(150), 1+rng.IntN(150)
			jpeg, err := EncodeJPEG(texture(rng, w, h, channels), w, h, channels, EncodeOptions{Quality: 88, HSamp: s[0], VSamp: s[1], Progressive: w%2 == 0})
			if err != nil {
				t.Fatal(err)
			}
			src, err := encodeDCT(nil, jpeg)
			if err != nil {
				t.Fatal(err)
			}
			back, err := DCTToJPEG(nil, src, exif, icc)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(back, exif) || !bytes.Contains(back, icc[:60000]) {
				t.Error("EXIF or ICC is missing")
			}
			want, _, _ := decodeFull(t, d, jpeg)
			got, _, _ := decodeFull(t, d, back)
			if !bytes.Equal(want, got) {
				t.Errorf("%dx%d, %d channels, sampling %v: the JPEG written back has other pixels", w, h, channels, s)
			}
			again, err := encodeDCT(nil, back)
			if err != nil || !bytes.Equal(again, src) {
				t.Errorf("%dx%d, %d channels, sampling %v: coefficients changed on the way (%v)", w, h, channels, s, err)
			}
		}
	}
}

func TestDCTRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	encode := func(channels int, opts EncodeOptions) []byte {
		jpeg, err := EncodeJPEG(texture(rng, 70, 50, channels), 70, 50, channels, opts)
		if err != nil {
			t.Fatal(err)
		}
		return jpeg
	}
	plain, progressive := encode(3, EncodeOptions{}), encode(3, EncodeOptions{Progressive: true})
	lastScan := bytes.LastIndex(progressive, []byte{0xff, 0xda})
	withoutScan := append(bytes.Clone(progressive[:lastScan]), 0xff, 0xd9)
	arithmetic := bytes.Clone(plain)
	arithmetic[bytes.Index(plain, []byte{0xff, 0xc0})+1] = 0xc9
	precision := bytes.Clone(plain)
	precision[bytes.Index(plain, []byte{0xff, 0xc0})+4] = 12
	for _, c := range []struct {
		name string
		jpeg []byte
		want DCTReason
	}{
		{"empty", nil, NotDCTJPEG},
		{"PNG", []byte("\x89PNG\r\n\x1a\n0000"), NotDCTJPEG},
		{"CMYK", encode(4, EncodeOptions{}), NotDCTColor},
		{"RGB", encode(3, EncodeOptions{RGB: true}), NotDCTColor},
		{"cut off", plain[:len(plain)*2/3], NotDCTIncomplete},
		{"cut off by a little", plain[:len(plain)-10], NotDCTIncomplete},
		{"cut in the header", plain[:100], NotDCTJPEG},
		{"missing scan", withoutScan, NotDCTIncomplete},
		{"arithmetic", arithmetic, NotDCTArithmetic},
		{"12 bits", precision, NotDCTPrecision},
	} {
		_, err := encodeDCT(nil, c.jpeg)
		no := (*NotDCT)(nil)
		if !errors.As(err, &no) || no.Reason != c.want {
			t.Errorf("%s: got %v, want the reason %q", c.name, err, c.want)
		}
	}
	// JPEGs that libjpeg tolerates without any loss are accepted.
	for _, jpeg := range [][]byte{plain[:len(plain)-2], append(bytes.Clone(plain), "behind the end"...)} {
		if _, err := encodeDCT(nil, jpeg); err != nil {
			t.Errorf("refused: %v", err)
		}
	}
}

// TestDCTGrayWithFactors: the sampling factors of a single component mean nothing.
func TestDCTGrayWithFactors(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	d := newDecoder(t)
	jpeg, err := EncodeJPEG(texture(rng, 83, 61, 1), 83, 61, 1, EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(jpeg, []byte{0xff, 0xc0}) + 11
	for _, factors := range []byte{0x22, 0x21, 0x14} {
		jpeg[at] = factors
		checkDCTBoxes(t, d, rng, jpeg, 5)
	}
}

// TestDCTLongSides goes to libjpeg's limit in each direction.
func TestDCTLongSides(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	everyKernel(t, func(t *testing.T) {
		d := newDecoder(t)
		for i, size := range [][2]int{{65500, 9}, {9, 65500}, {65499, 3}, {3, 65499}} {
			w, h := size[0], size[1]
			jpeg, err := EncodeJPEG(texture(rng, w, h, 3), w, h, 3, EncodeOptions{HSamp: 1 + i/2, VSamp: 1 + i/2})
			if err != nil {
				t.Fatal(err)
			}
			if !checkDCTBoxes(t, d, rng, jpeg, 5) {
				t.Fatalf("%dx%d", w, h)
			}
		}
	})
}

// TestImagesShareNoTables: a JPEG without Huffman tables uses the standard ones (motion JPEG), regardless of the
// previous images.
func TestImagesShareNoTables(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	encode := func(opts EncodeOptions) []byte {
		jpeg, err := EncodeJPEG(texture(rng, 80, 60, 3), 80, 60, 3, opts)
		if err != nil {
			t.Fatal(err)
		}
		return jpeg
	}
	other, bare := encode(EncodeOptions{Optimize: true}), encode(EncodeOptions{})
	for {
		at := bytes.Index(bare, []byte{0xff, 0xc4})
		if at < 0 {
			break
		}
		bare = append(bytes.Clone(bare[:at]), bare[at+2+int(bare[at+2])<<8+int(bare[at+3]):]...)
	}
	want, w, h := decodeFull(t, newDecoder(t), bare)
	d := newDecoder(t)
	decodeFull(t, d, other)
	if got, _, _ := decodeFull(t, d, bare); !bytes.Equal(got, want) {
		t.Error("a JPEG without tables decodes differently after another image")
	}
	decodeFull(t, d, other)
	checkBox(t, d, bare, want, w, 3, 5, w-9, h-7)
	checkDCTBoxes(t, d, rng, bare, 4)
}

func TestDCTInfo(t *testing.T) {
	jpeg, err := EncodeJPEG(make([]byte, 300*200*3), 300, 200, 3, EncodeOptions{HSamp: 2, VSamp: 2})
	if err != nil {
		t.Fatal(err)
	}
	src, err := encodeDCT([]byte("before"), jpeg)
	if err != nil || string(src[:6]) != "before" {
		t.Fatal("encodeDCT does not append", err)
	}
	got, err := DCTInfo(src[6:])
	if err != nil {
		t.Fatal(err)
	}
	want := DCTImage{Width: 300, Height: 200, Components: 3, Sampling: [3][2]int{{2, 2}, {1, 1}, {1, 1}},
		TileWidth: 64, TilesPerRow: 5, TileRows: 13, HeaderBytes: got.HeaderBytes}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for n := range got.HeaderBytes {
		if _, err := DCTInfo(src[6 : 6+n]); err == nil {
			t.Fatalf("a header cut off after %d bytes was read", n)
		}
	}
}

// encodeDCT appends the dct form of a JPEG to dst, with an encoder for this one.
func encodeDCT(dst, jpeg []byte) ([]byte, error) {
	e, err := NewDCTEncoder()
	if err != nil {
		return dst, err
	}
	defer e.Close()
	b, err := e.Encode(jpeg)
	return append(dst, b...), err
}
