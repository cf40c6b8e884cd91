package survey

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/gen"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

func TestLookAtFolders(t *testing.T) {
	ctx := context.Background()
	photos := filepath.Join(t.TempDir(), "photos")
	if err := genImages(ctx, photos, 12); err != nil {
		t.Fatal(err)
	}
	s, err := Look(ctx, photos)
	if err != nil {
		t.Fatal(err)
	}
	d := s.Dataset
	if s.Kind != plan.KindImage || d.Records != 12 || d.Layout != plan.LayoutFiles || d.Codec != plan.CodecKeep || d.Width < 20 || d.Height < 20 || d.Channels != 3 {
		t.Errorf("survey %+v", s)
	}
	if d.Bytes <= 0 || d.RecordBytes*12 != float64(d.Bytes) || d.RecordBytesMax < int64(d.RecordBytes) {
		t.Errorf("sizes %+v", d)
	}

	other := t.TempDir()
	for _, name := range []string{"a.npz", "b.npz"} {
		if err := os.WriteFile(filepath.Join(other, name), make([]byte, 1000), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = Look(ctx, other); err != nil {
		// A driver may refuse files that are not npz files. The error then names the folder.
		if !strings.Contains(err.Error(), other) {
			t.Error(err)
		}
	} else if s.Kind != plan.KindBytes || s.Dataset.Records != 2 || s.Dataset.RecordBytes != 1000 {
		t.Errorf("survey %+v", s)
	}

	for _, path := range []string{t.TempDir(), filepath.Join(other, "nowhere")} {
		if _, err := Look(ctx, path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The planner knows the sizes of images of every format that is read.
func TestSizesOfEveryFormat(t *testing.T) {
	for _, name := range []string{"444-progressive.jpg", "gray.png", "gray.gif", "gray.bmp", "lossy.webp", "lzw.tiff"} {
		dir := t.TempDir()
		data, err := os.ReadFile(filepath.Join("../decode/testdata/formats", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Look(context.Background(), dir)
		if err != nil || s.Dataset.Width < 1 || s.Dataset.Height < 1 || s.Dataset.Channels != 3 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

func genImages(_ context.Context, dir string, n int) error {
	g, err := gen.New(gen.Options{Count: n, Classes: 3, Seed: 1, Width: 80, Height: 60})
	if err != nil {
		return err
	}
	for i := range n {
		data, err := g.Image(i)
		if err != nil {
			return err
		}
		name := filepath.Join(dir, g.ClassName(g.Class(i)), g.Name(i)+".jpg")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// The loader, a pack, the planner and verify find the same records in a folder, regardless of other files in it.
func TestSameRecords(t *testing.T) {
	photos := filepath.Join(t.TempDir(), "photos")
	if err := genImages(t.Context(), photos, 3); err != nil {
		t.Fatal(err)
	}
	var photo string
	if err := filepath.WalkDir(photos, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			photo = path
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	jpeg, err := os.ReadFile(photo)
	if err != nil {
		t.Fatal(err)
	}
	image, text := string(jpeg), "some text"
	wav := "RIFF\x34\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x10\x00\x00\x00" + strings.Repeat("\x01", 16)
	for name, test := range map[string]struct {
		files   map[string]string
		records int64 // that can be read
		bad     int64
		classes int
	}{
		"bystanders": {map[string]string{"README.md": text, "a/1.jpg": image, "b/2.jpg": image, "a/1.json": "{}", "b/Thumbs.db": text}, 2, 0, 2},
		"content":    {map[string]string{"a": image, "b.mpo": image, "c": text, "d.ts": text, "e.png": image}, 3, 0, 0},
		"litter":     {map[string]string{"a/1.jpg": image, "__MACOSX/a/1.jpg": text, "a/@eaDir/1.jpg/T.jpg": image, "c/notes.txt": text}, 1, 0, 1},
		"mixed":      {map[string]string{"1.jpg": image, "2.jpg": image, "a.wav": wav, "clip.mp4": text}, 2, 0, 0},
		"above":      {map[string]string{"1.jpg": image, "a/2.jpg": image, "b/3.jpg": image}, 2, 0, 2},
		"unread":     {map[string]string{"a/1.jpg": image, "a/2.heic": text, "b/3.svg": text}, 1, 2, 2},
		"sound":      {map[string]string{"1.wav": wav, "2.wav": wav, "3.mid": text, "cover.jpg": image, "list.m3u": text}, 2, 1, 0},
		"damaged":    {map[string]string{"a/1.jpg": image, "a/2.jpg": text, "a/3.jpg": ""}, 1, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir, out := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "out")
			for file, content := range test.files {
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			all := test.records + test.bad
			src, err := source.Open(t.Context(), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			classes := 0
			if f := src.Info().Fields; len(f) > 1 {
				classes = len(f[1].Classes)
			}
			if src.Info().Len != all || classes != test.classes {
				t.Errorf("the loader has %d records of %d classes, want %d of %d", src.Info().Len, classes, all, test.classes)
			}
			if s, err := Look(t.Context(), dir); err != nil || s.Dataset.Records != all {
				t.Errorf("plan: %v, %v", s, err)
			}
			var sum *pack.Summary
			if src.Info().Format == source.FormatFolder {
				sum, err = pack.Write(t.Context(), dir, out, nil)
			} else {
				sum, err = pack.WriteSource(t.Context(), src, out, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			if m := sum.Manifest; m.Records != test.records || int64(len(m.Skipped)) != test.bad || m.Source.Fingerprint != src.Info().Fingerprint {
				t.Errorf("the pack has %d records, want %d; skipped %v, want %d", m.Records, test.records, m.Skipped, test.bad)
			}
			want := 0
			for _, g := range driver.GroupSkipped(src) {
				if !g.Bad {
					want++
				}
			}
			if got := len(sum.Manifest.Beside); got != want {
				t.Errorf("the pack counts %d reasons, the loader %d", got, want)
			}
			if rep, err := pack.Verify(t.Context(), out, nil); err != nil || rep.Records != test.records || len(rep.Problems) > 0 {
				t.Errorf("verify: %+v, %v", rep, err)
			}
		})
	}
}
