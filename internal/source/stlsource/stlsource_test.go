package stlsource

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func opener(dir string, opt *Options) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, dir, localstore.New(dir), opt)
	})
}

func BenchmarkFile(b *testing.B) { drivertest.Bench(b, opener(formattest.STL(b), nil)) }

func TestRecords(t *testing.T) {
	s := opener(formattest.STL(t), nil)(t)
	defer s.Close()
	if f := s.Info().Fields; s.Info().Len != 22 || len(f) != 2 || len(f[1].Classes) != 10 || f[1].Classes[3] != "cat" {
		t.Fatalf("%+v", s.Info())
	}
	for _, r := range drivertest.Records(t, s, 0, 13, 21) {
		if r.Err != nil || !bytes.Equal(r.Values[0].Bytes, formattest.STLRow(int(r.ID))) || r.Values[1].Int != r.ID%10 {
			t.Errorf("record %d: %v", r.ID, r.Err)
		}
	}
}

func TestBadFiles(t *testing.T) {
	zero := formattest.STLLabels(2)
	zero[1] = 0
	for want, files := range map[string]map[string][]byte{
		"train_X.bin: it has 50000 bytes, which is not a multiple of the image size 27648": {"train_X.bin": formattest.STLPictures(2)[:50000]},
		"train_X.bin: it has 0 bytes":                  {"train_X.bin": nil},
		"train_y.bin has 3 labels and ":                {"train_X.bin": formattest.STLPictures(2), "train_y.bin": formattest.STLLabels(3)},
		"train_y.bin, byte 1: invalid class number 0":  {"train_X.bin": formattest.STLPictures(2), "train_y.bin": zero},
		"splits test and train: choose one":            {"train_X.bin": formattest.STLPictures(2), "test_X.bin": formattest.STLPictures(2)},
		"class_names.txt: it has 2000000 bytes, the l": {"train_X.bin": formattest.STLPictures(2), "train_y.bin": formattest.STLLabels(2), "class_names.txt": make([]byte, 2000000)},
		"it has no file of STL-10":                     {"x_X.bin": formattest.STLPictures(2)},
	} {
		dir := drivertest.Folder(t, files)
		if _, err := Open(t.Context(), "DIR", localstore.New(dir), nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Three names for ten classes are not used, and other files are ignored.
func TestNames(t *testing.T) {
	dir := drivertest.Folder(t, map[string][]byte{"train_X.bin": formattest.STLPictures(5), "train_y.bin": formattest.STLLabels(5), "test_X.bin": formattest.STLPictures(1), "class_names.txt": []byte("a\nb\nc\n")})
	s := opener(dir, &Options{File: "train_X.bin"})(t)
	if f := s.Info().Fields; f[1].Classes != nil {
		t.Errorf("%+v", f)
	}
	if s := opener(dir, &Options{Split: "test"})(t); len(s.Info().Fields) != 1 || s.Info().Len != 1 {
		t.Errorf("%+v", s.Info())
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(formattest.STLPictures(1), formattest.STLLabels(1), []byte(formattest.STLClasses))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, x, y, names []byte) {
		for name, b := range map[string][]byte{"train_X.bin": x, "train_y.bin": y, "class_names.txt": names} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(t.Context(), "DIR", localstore.New(dir), nil)
		if err != nil {
			return
		}
		defer s.Close()
		if r := drivertest.Records(t, s, s.Info().Len-1)[0]; r.Err != nil || len(r.Values[0].Bytes) != pixels {
			t.Fatal(r.Err)
		}
	})
}
