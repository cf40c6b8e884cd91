package survey

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/gen"
	"github.com/stokerdata/stoker/internal/plan"
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
		// A driver may refuse what are no npz files; then the error names the folder.
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
