package gen

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func generator(t testing.TB, opts Options) *Generator {
	t.Helper()
	g, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func imageOf(t testing.TB, g *Generator, i int) []byte {
	t.Helper()
	data, err := g.Image(i)
	if err != nil {
		t.Fatalf("image %d: %v", i, err)
	}
	return data
}

// The bytes of a seed are a promise: benchmarks on two machines compare only if
// they read the same data. A change here changes every data set out there.
func TestGolden(t *testing.T) {
	for _, test := range []struct {
		opts  Options
		index int
		want  string
	}{
		{Options{Count: 2000, Classes: 10, Seed: 0}, 0, "2b0f47b4db5aa971"},
		{Options{Count: 2000, Classes: 10, Seed: 0}, 1999, "ccfc5766ba4337b8"},
		{Options{Count: 50, Classes: 3, Seed: 1 << 63, Width: 96, Height: 64}, 17, "27e81c4e78de3bea"},
	} {
		data := imageOf(t, generator(t, test.opts), test.index)
		if got := fmt.Sprintf("%x", sha256.Sum256(data))[:16]; got != test.want {
			t.Errorf("%+v image %d: sha256 %s, want %s", test.opts, test.index, got, test.want)
		}
	}
}

// An image depends on (seed, index) alone: not on the order, on earlier images, on the goroutine, or on the number of
// images.
func TestOrderIndependent(t *testing.T) {
	g := generator(t, Options{Count: 24, Classes: 4, Seed: 5, Width: 60, Height: 50})
	want := make([][]byte, g.Len())
	for i := range want {
		want[i] = imageOf(t, g, i)
	}
	other := generator(t, Options{Count: 24000, Classes: 4, Seed: 5, Width: 60, Height: 50})
	var wg sync.WaitGroup
	for i := len(want) - 1; i >= 0; i-- {
		wg.Go(func() {
			if data, err := other.Image(i); err != nil || !bytes.Equal(data, want[i]) {
				t.Errorf("image %d differs when made by another generator (%v)", i, err)
			}
		})
	}
	wg.Wait()
	if bytes.Equal(want[0], imageOf(t, generator(t, Options{Count: 24, Classes: 4, Seed: 6, Width: 60, Height: 50}), 0)) {
		t.Error("two seeds give the same image")
	}
}

// The mix of files is the one promised: sizes, bytes and kinds of JPEG.
func TestStatistics(t *testing.T) {
	if testing.Short() {
		t.Skip("many images, nothing concurrent")
	}
	const count = 300
	g := generator(t, Options{Count: count, Classes: 10, Seed: 1})
	var size, width, height, full, half, gray, progressive, exif, icc, portrait int
	for i := range count {
		data := imageOf(t, g, i)
		img, err := jpeg.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("image %d: %v", i, err)
		}
		b := img.Bounds()
		size, width, height = size+len(data), width+b.Dx(), height+b.Dy()
		if b.Dx() < b.Dy() {
			portrait++
		}
		switch img := img.(type) {
		case *image.Gray:
			gray++
		case *image.YCbCr:
			switch img.SubsampleRatio {
			case image.YCbCrSubsampleRatio444:
				full++
			case image.YCbCrSubsampleRatio420:
				half++
			}
		}
		count := func(n *int, mark string) {
			if bytes.Contains(data[:min(len(data), 6000)], []byte(mark)) {
				*n++
			}
		}
		count(&progressive, "\xff\xc2\x00")
		count(&exif, "Exif\x00\x00MM")
		count(&icc, "ICC_PROFILE\x00")
	}
	between := func(what string, got, lo, hi int) {
		t.Logf("%s: %d", what, got)
		if got < lo || got > hi {
			t.Errorf("%s: %d, want %d to %d", what, got, lo, hi)
		}
	}
	between("mean bytes", size/count, 100_000, 120_000)
	between("mean width", width/count, 440, 500)
	between("mean height", height/count, 375, 425)
	between("percent portrait", 100*portrait/count, 18, 36)
	between("percent 4:4:4", 100*full/count, 70, 82)
	between("percent 4:2:0", 100*half/count, 14, 27)
	between("gray", gray, 1, 15)
	between("progressive", progressive, 2, 20)
	between("with EXIF", exif, 8, 35)
	between("with a profile", icc, 60, 115)
}

// Classes must be learnable by something far simpler than a network: here, the
// nearest mean histogram of hues, on crops that training would see.
func TestClassesCanBeLearnt(t *testing.T) {
	if testing.Short() {
		t.Skip("many images, nothing concurrent")
	}
	const classes, count = 10, 400
	g := generator(t, Options{Count: count, Classes: classes, Seed: 3, Width: 160, Height: 140})
	features := make([][24]float64, count)
	for i := range features {
		img, err := jpeg.Decode(bytes.NewReader(imageOf(t, g, i)))
		if err != nil {
			t.Fatal(err)
		}
		features[i] = hueHistogram(img)
	}
	var means [classes][24]float64
	for i, f := range features[:count/2] {
		for k, v := range f {
			means[g.Class(i)][k] += v
		}
	}
	right := 0
	for i, f := range features[count/2:] {
		best, nearest := 0, 1e9
		for c := range means {
			d := 0.0
			for k, v := range f {
				e := v - means[c][k]/(count/2/classes)
				d += e * e
			}
			if d < nearest {
				best, nearest = c, d
			}
		}
		if best == g.Class(count/2+i) {
			right++
		}
	}
	t.Logf("%d of %d right", right, count/2)
	if right < count/2*80/100 {
		t.Errorf("the nearest mean finds %d of %d classes", right, count/2)
	}
}

// hueHistogram weighs the hues of the middle of an image by their saturation.
func hueHistogram(img image.Image) (h [24]float64) {
	b := img.Bounds()
	sum := 1.0
	for y := b.Dy() / 4; y < b.Dy()*3/4; y += 2 {
		for x := b.Dx() / 4; x < b.Dx()*3/4; x += 2 {
			r32, g32, b32, _ := img.At(x, y).RGBA()
			r, g, bl := float64(r32), float64(g32), float64(b32)
			hi, lo := max(r, g, bl), min(r, g, bl)
			if hi == lo {
				continue
			}
			hue := 0.0
			switch hi {
			case r:
				hue = 6 + (g-bl)/(hi-lo)
			case g:
				hue = 2 + (bl-r)/(hi-lo)
			default:
				hue = 4 + (r-g)/(hi-lo)
			}
			w := (hi - lo) / hi
			h[int(hue*4)%24] += w
			sum += w
		}
	}
	for i := range h {
		h[i] /= sum
	}
	return h
}

func TestWriteTree(t *testing.T) {
	g := generator(t, Options{Count: 30, Classes: 3, Seed: 5, Width: 64, Height: 48})
	dir := t.TempDir()
	var mu sync.Mutex
	var files, size int64
	err := g.WriteTree(t.Context(), dir, func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		files, size = files+1, size+n
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range g.Len() {
		data, err := os.ReadFile(filepath.Join(dir, g.Name(i)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, imageOf(t, g, i)) {
			t.Errorf("%s is not image %d", g.Name(i), i)
		}
		size -= int64(len(data))
	}
	if files != 30 || size != 0 {
		t.Errorf("reported %d files and %d bytes too many", files, size)
	}
}

func TestWriteTreeCancelled(t *testing.T) {
	g := generator(t, Options{Count: 10_000, Classes: 1, Seed: 5, Width: 64, Height: 48})
	ctx, cancel := context.WithCancel(t.Context())
	err := g.WriteTree(ctx, t.TempDir(), func(int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want a cancelled context", err)
	}
}

func TestOptions(t *testing.T) {
	for _, opts := range []Options{
		{Count: 0, Classes: 1},
		{Count: -5, Classes: 1},
		{Count: 5, Classes: 0},
		{Count: 5, Classes: 6},
		{Count: 5, Classes: 1, Width: 5, Height: 100},
		{Count: 5, Classes: 1, Width: 100, Height: 1 << 40},
		{Count: 1 << 40, Classes: 1},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

// Any options within the limits give an image.
func FuzzImage(f *testing.F) {
	f.Add(uint64(0), 1, 16, 16)
	f.Add(uint64(7), 300, 470, 400)
	f.Fuzz(func(t *testing.T, seed uint64, index, w, h int) {
		if w > 600 || h > 600 {
			t.Skip("too slow to try many of")
		}
		g, err := New(Options{Count: 1000, Classes: 7, Seed: seed, Width: w, Height: h})
		if err != nil {
			return
		}
		if _, err := jpeg.DecodeConfig(bytes.NewReader(imageOf(t, g, index&0xffffff))); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkImage(b *testing.B) {
	g := generator(b, Options{Count: 1000, Classes: 10, Seed: 1})
	size := 0
	for i := 0; b.Loop(); i++ {
		size += len(imageOf(b, g, i%1000))
	}
	b.ReportMetric(float64(size)/float64(b.N)/1e3, "kB/image")
}
