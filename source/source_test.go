package source_test

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// makeFolder makes a folder of n small JPEGs in three classes.
func makeFolder(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		m := image.NewRGBA(image.Rect(0, 0, 20+i%7, 30+i%5))
		for y := range m.Rect.Dy() {
			for x := range m.Rect.Dx() {
				m.Set(x, y, color.RGBA{uint8(x * i), uint8(y * 8), uint8(i), 255})
			}
		}
		sub := filepath.Join(dir, "photos", []string{"cat", "dog", "zebra"}[i%3])
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(sub, fmt.Sprintf("%04d.jpg", i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := jpeg.Encode(f, m, nil); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return filepath.Join(dir, "photos")
}

func opener(url string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return source.Open(ctx, url, nil)
	})
}

func makePack(t testing.TB, dir string, opt *pack.Options) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "pack")
	if _, err := pack.Write(t.Context(), dir, out, opt); err != nil {
		t.Fatal(err)
	}
	return out
}

func BenchmarkFolder(b *testing.B) { drivertest.Bench(b, opener(makeFolder(b, 200))) }

func BenchmarkPack(b *testing.B) {
	drivertest.Bench(b, opener(makePack(b, makeFolder(b, 200), &pack.Options{Images: pack.ImagesKeep})))
}

// A pack has the same records as its folder, under the same numbers.
func TestPackEqualsFolder(t *testing.T) {
	dir := makeFolder(t, 50)
	a, b := opener(dir)(t), opener(makePack(t, dir, &pack.Options{Images: pack.ImagesKeep}))(t)
	defer a.Close()
	defer b.Close()
	if a.Info().Len != b.Info().Len {
		t.Fatalf("%d and %d records", a.Info().Len, b.Info().Len)
	}
	read := func(s driver.Source, id int64) driver.Record {
		rec := drivertest.Records(t, s, id)[0]
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		return rec
	}
	for id := range a.Info().Len {
		x, y := read(a, id), read(b, id)
		if string(x.Values[0].Bytes) != string(y.Values[0].Bytes) || x.Values[1].Int != y.Values[1].Int {
			t.Errorf("record %d differs", id)
		}
		f, _ := driver.As[driver.Finder](b)
		if path, _, _ := strings.Cut(f.Find(t.Context(), id), " ("); !strings.HasSuffix(a.Name(id), path) {
			t.Errorf("record %d is %s and %s", id, a.Name(id), b.Name(id))
		}
	}
}

// A manifest of something else does not make a folder a pack.
func TestForeignManifest(t *testing.T) {
	dir := makeFolder(t, 3)
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(`{"name": "my photos"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	s := opener(dir)(t)
	defer s.Close()
	if s.Info().Format != "folder" || s.Info().Len != 3 {
		t.Errorf("opened as %s with %d records", s.Info().Format, s.Info().Len)
	}
}

func TestOpenURLs(t *testing.T) {
	dir := makeFolder(t, 3)
	for _, url := range []string{dir, "file:" + dir, "file://" + dir, "file://localhost" + dir, "FILE:" + dir, dir + "/"} {
		s, err := source.Open(t.Context(), url, nil)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		s.Close()
	}
	for url, want := range map[string]string{
		"":                                    "no dataset given",
		"ftp://host/train":                    "scheme ftp: are not supported; 'stoker formats' lists",
		"file://server/photos":                "names the machine server",
		"file://" + dir + "?x=1":              "take no parameters",
		filepath.Join(dir, "absent"):          "no such file or directory",
		filepath.Join(dir, "cat", "0000.jpg"): "its format is not known; 'stoker formats' lists the formats",
		t.TempDir():                           "no image in",
		"http://127.0.0.1:1/train.bin#eot=7":  `"eot=7" after the # is not a view: parameters of the format are written http://127.0.0.1:1/train.bin#?eot=7`,
	} {
		if _, err := source.Open(t.Context(), url, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", url, err, want)
		}
	}
}
