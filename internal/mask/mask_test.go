package mask

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// blobs returns a mask that looks like a segmentation: discs over a background.
func blobs(rng *rand.Rand, w, h, size, classes int) *Mask {
	m := &Mask{Width: w, Height: h, Size: size, Pix: make([]byte, size*w*h)}
	for range 12 {
		cx, cy, r := rng.IntN(w), rng.IntN(h), rng.IntN(max(w, h)/3+1)
		c := rng.IntN(classes)
		for y := range h {
			for x := range w {
				if (x-cx)*(x-cx)+(y-cy)*(y-cy) < r*r {
					m.Pix[size*(y*w+x)] = byte(c)
					if size == 2 {
						m.Pix[size*(y*w+x)+1] = byte(c >> 8)
					}
				}
			}
		}
	}
	return m
}

func noise(rng *rand.Rand, w, h, size int) *Mask {
	m := &Mask{Width: w, Height: h, Size: size, Pix: make([]byte, size*w*h)}
	for i := range m.Pix {
		m.Pix[i] = byte(rng.IntN(3))
	}
	return m
}

func pngOf(t testing.TB, m *Mask) []byte {
	t.Helper()
	var img image.Image
	if m.Size == 1 {
		img = &image.Gray{Pix: m.Pix, Stride: m.Width, Rect: image.Rect(0, 0, m.Width, m.Height)}
	} else {
		g := image.NewGray16(image.Rect(0, 0, m.Width, m.Height))
		for i := range m.Width * m.Height {
			g.Pix[2*i], g.Pix[2*i+1] = m.Pix[2*i+1], m.Pix[2*i]
		}
		img = g
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Every codec returns every part of a mask unchanged.
func TestCodecsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		size := 1 + i%2
		w, h := 1+rng.IntN(300), 1+rng.IntN(80)
		m := blobs(rng, w, h, size, []int{3, 200, 60000}[i%3])
		if size == 1 && i%3 == 2 {
			m = blobs(rng, w, h, 1, 255)
		}
		if i%7 == 0 {
			m = noise(rng, w, h, size)
		}
		box := item.Rect{W: 1 + int32(rng.IntN(w)), H: 1 + int32(rng.IntN(h))}
		box.X, box.Y = int32(rng.IntN(w-int(box.W)+1)), int32(rng.IntN(h-int(box.H)+1))
		var want []byte
		for y := int(box.Y); y < int(box.Y+box.H); y++ {
			at := size * (y*w + int(box.X))
			want = append(want, m.Pix[at:at+size*int(box.W)]...)
		}
		wide := want
		if size == 1 {
			wide = nil
			for _, c := range want {
				wide = append(wide, c, 0)
			}
		}
		for codec, b := range map[driver.Codec][]byte{driver.CodecRaw: m.Pix, driver.CodecRuns: AppendRuns(nil, m), driver.CodecPNG: pngOf(t, m)} {
			v := driver.Value{Bytes: b, Codec: codec, Width: int32(w), Height: int32(h)}
			got := make([]byte, len(want))
			if err := Box(got, size, &v, box); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("mask %d, codec %d, %+v of %d x %d: %v", i, codec, box, w, h, err)
			}
			got = make([]byte, len(wide))
			if err := Box(got, 2, &v, box); err != nil || !bytes.Equal(got, wide) {
				t.Fatalf("mask %d, codec %d as uint16: %v", i, codec, err)
			}
		}
	}
}

// Class numbers are the numbers in the file, with any number of bits.
func TestFromFile(t *testing.T) {
	palette := image.NewPaletted(image.Rect(0, 0, 3, 1), color.Palette{color.RGBA{9, 8, 7, 255}, color.Black, color.White})
	copy(palette.Pix, []byte{2, 0, 1})
	same := image.NewRGBA(image.Rect(0, 0, 2, 1))
	same.Set(0, 0, color.RGBA{7, 7, 7, 255})
	same.Set(1, 0, color.RGBA{255, 255, 255, 255})
	colours := image.NewRGBA(image.Rect(0, 0, 2, 1))
	colours.Set(0, 0, color.RGBA{7, 8, 7, 255})
	for name, test := range map[string]struct {
		img  image.Image
		want []byte
	}{"palette": {palette, []byte{2, 0, 1}}, "gray in three channels": {same, []byte{7, 255}}, "colours": {colours, nil}} {
		var b bytes.Buffer
		if err := png.Encode(&b, test.img); err != nil {
			t.Fatal(err)
		}
		m, err := FromFile(b.Bytes())
		if test.want == nil {
			if err == nil {
				t.Errorf("%s: taken for a mask", name)
			}
			continue
		}
		if err != nil || !bytes.Equal(m.Pix, test.want) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	for depth, scale := range map[uint8]uint8{1: 255, 2: 85, 4: 17} {
		m, err := fromImage(&image.Gray{Pix: []byte{0, scale, scale}, Stride: 3, Rect: image.Rect(0, 0, 3, 1)}, scale)
		if err != nil || !bytes.Equal(m.Pix, []byte{0, 1, 1}) {
			t.Errorf("%d bits: %v, %v", depth, m, err)
		}
	}
	if _, err := FromFile([]byte("\xff\xd8\xff\xe0")); err != ErrLossy {
		t.Error(err)
	}
	gray := []byte("P6 2 1 9 \x01\x01\x01\x08\x08\x08")
	if m, err := FromFile(gray); err != nil || !bytes.Equal(m.Pix, []byte{1, 8}) || gray[10] != 1 {
		t.Errorf("a gray PPM: %v, %v", m, err)
	}
	if m, err := FromFile([]byte("P6 1 1 9 \x01\x02\x01")); !errors.Is(err, errColours) {
		t.Errorf("a PPM of colours: %v, %v", m, err)
	}
}

func TestTooWide(t *testing.T) {
	m := &Mask{Width: 2, Height: 1, Size: 2, Pix: []byte{1, 0, 1, 1}}
	for codec, b := range map[driver.Codec][]byte{driver.CodecRaw: m.Pix, driver.CodecRuns: AppendRuns(nil, m)} {
		if err := Box(make([]byte, 2), 1, &driver.Value{Bytes: b, Codec: codec, Width: 2, Height: 1}, item.Rect{W: 2, H: 1}); err == nil {
			t.Errorf("codec %d: class number 257 as uint8", codec)
		}
	}
}

func FuzzRuns(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for size := 1; size <= 2; size++ {
		f.Add(AppendRuns(nil, blobs(rng, 40, 20, size, 9)))
		f.Add(AppendRuns(nil, noise(rng, 5, 33, size)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w, h, size, err := RunsInfo(b)
		if err != nil || w*h > 1<<20 {
			return
		}
		v := driver.Value{Bytes: b, Codec: driver.CodecRuns, Width: int32(w), Height: int32(h)}
		whole := make([]byte, size*w*h)
		if Box(whole, size, &v, item.Rect{W: v.Width, H: v.Height}) != nil {
			return
		}
		again := AppendRuns(nil, &Mask{Width: w, Height: h, Size: size, Pix: whole})
		v.Bytes = again
		got := make([]byte, len(whole))
		if err := Box(got, size, &v, item.Rect{W: v.Width, H: v.Height}); err != nil || !bytes.Equal(got, whole) {
			t.Fatal("what was decoded does not come back", err)
		}
	})
}

func BenchmarkBox(b *testing.B) {
	m := blobs(rand.New(rand.NewPCG(1, 2)), 512, 512, 1, 150)
	for name, v := range map[string]driver.Value{
		"raw": {Bytes: m.Pix, Codec: driver.CodecRaw}, "runs": {Bytes: AppendRuns(nil, m), Codec: driver.CodecRuns}, "png": {Bytes: pngOf(b, m), Codec: driver.CodecPNG},
	} {
		v.Width, v.Height = 512, 512
		for part, box := range map[string]item.Rect{"whole": {W: 512, H: 512}, "crop": {X: 100, Y: 200, W: 224, H: 224}} {
			b.Run(name+"/"+part, func(b *testing.B) {
				dst := make([]byte, box.W*box.H)
				b.SetBytes(int64(len(dst)))
				for b.Loop() {
					if err := Box(dst, 1, &v, box); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(v.Bytes)), "stored")
			})
		}
	}
}

// TestMasksOfAllFormats compares masks of all formats with the numbers that Pillow reads.
func TestMasksOfAllFormats(t *testing.T) {
	names, err := filepath.Glob("../decode/testdata/formats/*.mask")
	if err != nil || len(names) < 30 {
		t.Fatalf("%d masks: %v", len(names), err)
	}
	for _, name := range names {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(strings.TrimSuffix(name, ".mask"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := FromFile(b)
		if err == nil {
			m, err = m.Resized(2)
		}
		if err != nil || !bytes.Equal(m.Pix, want[8:]) {
			t.Errorf("%s: other numbers than Pillow's, %v", filepath.Base(name), err)
		}
	}
}
