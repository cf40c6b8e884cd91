package idxsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func write(t testing.TB, dir string, files map[string][]byte) string {
	t.Helper()
	for name, b := range files {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func plain(t testing.TB) string {
	return write(t, filepath.Join(t.TempDir(), "FashionMNIST", "raw"), map[string][]byte{
		"train-images-idx3-ubyte": formattest.IDX(8, 30, 9, 7), "train-labels-idx1-ubyte": formattest.IDXLabels(30, 10),
	})
}

func compressed(t testing.TB) string {
	return write(t, filepath.Join(t.TempDir(), "MNIST", "raw"), map[string][]byte{
		"t10k-images-idx3-ubyte.gz": formattest.Gzip(formattest.IDX(8, 30, 9, 7)), "t10k-labels-idx1-ubyte.gz": formattest.Gzip(formattest.IDXLabels(30, 10)),
	})
}

func opener(dir string, opt *Options) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, dir, localstore.New(dir), opt)
	})
}

func BenchmarkPair(b *testing.B) { drivertest.Bench(b, opener(plain(b), nil)) }

func TestPair(t *testing.T) {
	for _, dir := range []string{plain(t), compressed(t)} {
		s := opener(dir, nil)(t)
		defer s.Close()
		f := s.Info().Fields
		if len(f) != 2 || f[0].Kind != driver.KindImage || f[0].Width != 7 || f[0].Height != 9 || f[0].Channels != 1 || len(f[1].Classes) != 10 {
			t.Fatalf("%+v", f)
		}
		if want := map[bool]string{true: "Trouser", false: "1 - one"}[strings.Contains(dir, "Fashion")]; f[1].Classes[1] != want {
			t.Errorf("class 1 of %s is %s", dir, f[1].Classes[1])
		}
		r := drivertest.Records(t, s, 12)[0]
		want := formattest.IDX(8, 30, 9, 7)[16+12*63:][:63]
		if v := r.Values[0]; r.Err != nil || v.Codec != driver.CodecRaw || v.Width != 7 || !bytes.Equal(v.Bytes, want) || r.Values[1].Int != 2 {
			t.Errorf("%+v", r)
		}
		if n := s.Name(12); !strings.Contains(n, "-images-idx3-ubyte") || !strings.Contains(n, "image 12 (byte 772") {
			t.Error(n)
		}
	}
}

// Labels of several numbers each, as in QMNIST.
func TestRowsOfLabels(t *testing.T) {
	dir := write(t, t.TempDir(), map[string][]byte{"qmnist-train-images-idx3-ubyte": formattest.IDX(8, 3, 2, 2), "qmnist-train-labels-idx2-int": formattest.IDX(12, 3, 8)})
	s := opener(dir, nil)(t)
	defer s.Close()
	r := drivertest.Records(t, s, 1)[0]
	b := formattest.IDX(12, 3, 8)[12+32:]
	if r.Values[1].Int != int64(int32(binary.BigEndian.Uint32(b))) || binary.LittleEndian.Uint32(r.Values[2].Bytes[4:]) != binary.BigEndian.Uint32(b[4:]) || len(r.Values[2].Bytes) != 32 {
		t.Errorf("%+v", r)
	}
	if f := s.Info().Fields; f[1].Classes != nil || f[2].Name != "labels" {
		t.Errorf("%+v", f) // these numbers are not digits
	}
}

func TestArrays(t *testing.T) {
	dir := write(t, t.TempDir(), map[string][]byte{"f.idx": formattest.IDX(13, 4, 2), "i.idx": formattest.IDX(11, 5)})
	s := opener(dir, &Options{File: "f.idx"})(t)
	r := drivertest.Records(t, s, 3)[0]
	b := formattest.IDX(13, 4, 2)[12+3*8:]
	if f := s.Info().Fields[0]; f.Kind != driver.KindArray || f.DType != driver.Float32 || fmt.Sprint(f.Shape) != "[2]" {
		t.Errorf("%+v", f)
	}
	if binary.LittleEndian.Uint32(r.Values[0].Bytes) != binary.BigEndian.Uint32(b) {
		t.Errorf("%+v", r)
	}
	s = opener(dir, &Options{File: "i.idx"})(t)
	r = drivertest.Records(t, s, 4)[0]
	if f := s.Info().Fields[0]; f.Kind != driver.KindInt || r.Values[0].Int != int64(int16(binary.BigEndian.Uint16(formattest.IDX(11, 5)[8+8:]))) {
		t.Errorf("%+v %+v", f, r)
	}
}

func TestSplits(t *testing.T) {
	small, one := formattest.IDX(8, 2, 1, 1), formattest.IDXLabels(2, 2)
	dir := write(t, t.TempDir(), map[string][]byte{
		"train-images-idx3-ubyte": small, "train-labels-idx1-ubyte": one,
		"train-images-idx3-ubyte.gz": formattest.Gzip(small), // torchvision leaves it next to the decompressed file
		"t10k-images.idx3-ubyte":     formattest.IDX(8, 3, 1, 1), "t10k-labels.idx1-ubyte": formattest.IDXLabels(3, 2),
		"alone-images-idx3-ubyte": small,
	})
	_, err := Open(t.Context(), "DIR", localstore.New(dir), nil)
	if err == nil || !strings.Contains(err.Error(), "DIR: it has the splits t10k and train: choose one, such as 'DIR?split=t10k'") {
		t.Error(err)
	}
	if _, err = Open(t.Context(), "DIR", localstore.New(dir), &Options{Split: "val"}); err == nil || !strings.Contains(err.Error(), `no split "val", only t10k and train`) {
		t.Error(err)
	}
	for _, c := range []struct {
		opt  Options
		n    int64
		kind driver.Kind
	}{
		{Options{Split: "train"}, 2, driver.KindImage}, {Options{Split: "test"}, 3, driver.KindImage}, {Options{Split: "t10k"}, 3, driver.KindImage},
		{Options{File: "t10k-images.idx3-ubyte"}, 3, driver.KindImage}, {Options{File: "train-images-idx3-ubyte.gz"}, 2, driver.KindImage},
		{Options{File: "t10k-labels.idx1-ubyte"}, 3, driver.KindInt}, {Options{File: "alone-images-idx3-ubyte"}, 2, driver.KindArray},
	} {
		s, err := Open(t.Context(), "DIR", localstore.New(dir), &c.opt)
		if err != nil {
			t.Errorf("%+v: %v", c.opt, err)
			continue
		}
		if in := s.Info(); in.Len != c.n || in.Fields[0].Kind != c.kind {
			t.Errorf("%+v: %+v", c.opt, in)
		}
		s.Close()
	}
	if got := splitName([]string{"emnist-letters-test", "emnist-letters-train"}, "train"); got != "emnist-letters-train" {
		t.Error(got)
	}
	if got := splitName([]string{"emnist-digits-train", "emnist-letters-train"}, "train"); got != "train" {
		t.Error(got)
	}
}

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		folder, split string
		n             int
		last          string
	}{
		{"/data/MNIST/raw", "train", 10, "9 - nine"}, {"/data/fashion-mnist", "train", 10, "Ankle boot"}, {"/x/KMNIST/raw", "t10k", 10, "wo"},
		{"/x", "emnist-letters-test", 27, "z"}, {"/x", "emnist-byclass-test", 62, "z"}, {"/x", "emnist-balanced-train", 47, "t"}, {"/x", "qmnist-test", 10, "9 - nine"},
	} {
		got := classes(c.folder, c.split)
		if len(got) != c.n || got[len(got)-1] != c.last {
			t.Errorf("%s, %s: %v", c.folder, c.split, got)
		}
	}
	for _, folder := range []string{"/data/digits/raw", "/mnist/a/b", "/data/EMNIST/raw"} {
		if got := classes(folder, "train"); got != nil {
			t.Errorf("%s: %v", folder, got)
		}
	}
}

func TestBadFiles(t *testing.T) {
	good, many := formattest.IDX(8, 30, 9, 7), formattest.IDX(8, 30, 9, 7)
	copy(many[4:], []byte{0xFF, 0xFF, 0xFF, 0xFF})
	huge := append([]byte{0, 0, 14, 4}, bytes.Repeat([]byte{0xFF}, 16)...)
	wide := append([]byte{0, 0, 8, 3, 0, 0, 0, 1}, bytes.Repeat([]byte{0, 0xFF, 0xFF, 0xFF}, 2)...)
	flipped := formattest.Gzip(good)
	flipped[len(flipped)-8] ^= 1 // the checksum
	bomb := formattest.Gzip(many[:200])
	for _, c := range []struct {
		name   string
		images []byte
		want   string
	}{
		{"cut", good[:1000], "has 1890 bytes, but 984 follow the header: the file is cut off"},
		{"longer", append(slices.Clone(good), 0), "has 1890 bytes, but 1891 follow the header"},
		{"many", many, "of shape [4294967295 9 7] has"},
		{"huge", huge, "on axis"},
		{"wide", wide, "has 281474943156225 bytes"},
		{"type", append([]byte{0, 0, 7, 3}, good[4:]...), "element type 0x07 at byte 2"},
		{"axes", append([]byte{0, 0, 8, 9}, good[4:]...), "9 axes at byte 3"},
		{"short", good[:9], "it ends in its header"},
		{"empty", nil, "two zero bytes"},
		{"none", formattest.IDX(8, 0, 9, 7), "is empty: its shape is [0 9 7]"},
		{"gzip cut", formattest.Gzip(good)[:200], "the file is cut off"},
		{"gzip head", formattest.Gzip(good)[:12], "the file is cut off"},
		{"gzip flipped", flipped, "invalid checksum"},
		{"gzip longer", formattest.Gzip(append(slices.Clone(good), 1, 2)), "it continues after byte 1906 (decompressed)"},
		{"gzip short", formattest.Gzip(good[:1000]), "decompressed, byte 1000 of 1906: the file is cut off"},
		{"gzip claim", bomb, "more than a compressed file of"},
		{"labels", formattest.IDX(8, 31, 9, 7), "has 31 images and"},
	} {
		dir := write(t, t.TempDir(), map[string][]byte{"train-images-idx3-ubyte": c.images, "train-labels-idx1-ubyte": formattest.IDXLabels(30, 10)})
		_, err := Open(t.Context(), "DIR", localstore.New(dir), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), filepath.Join(dir, "train-images-idx3-ubyte")) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	dir := write(t, t.TempDir(), map[string][]byte{"train-images-idx3-ubyte": good, "train-labels-idx1-ubyte": formattest.IDX(13, 30)})
	if _, err := Open(t.Context(), "DIR", localstore.New(dir), nil); err == nil || !strings.Contains(err.Error(), "train-labels-idx1-ubyte, got a float32 array of shape [30]") {
		t.Error(err)
	}
}

func TestIsFile(t *testing.T) {
	for name, b := range map[string][]byte{"a": formattest.IDX(8, 3), "b": formattest.Gzip(formattest.IDX(13, 3, 2)), "not c": formattest.IDX(8, 3)[:10], "not d": nil, "not e": {0, 0, 8, 1, 0, 0, 0, 0}, "not f": formattest.Gzip([]byte("text"))} {
		dir := write(t, t.TempDir(), map[string][]byte{"x": b})
		if got := IsFile(t.Context(), localstore.New(filepath.Join(dir, "x"))); got == strings.HasPrefix(name, "not") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// No header makes the source read outside of the file, and an opened file can be read.
func FuzzOpen(f *testing.F) {
	f.Add(formattest.IDX(8, 3, 2, 2), formattest.IDXLabels(3, 3))
	f.Add(formattest.Gzip(formattest.IDX(8, 3, 2, 2)), formattest.Gzip(formattest.IDXLabels(3, 3)))
	f.Add(formattest.IDX(13, 3, 2), formattest.IDX(12, 3, 2))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, images, labels []byte) {
		write(t, dir, map[string][]byte{"x-images-idx3-ubyte": images, "x-labels-idx1-ubyte": labels})
		for _, file := range []string{"", "x-labels-idx1-ubyte"} {
			s, err := Open(t.Context(), "DIR", localstore.New(dir), &Options{File: file})
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Fatal(err)
				}
				continue
			}
			n := s.Info().Len
			for _, r := range drivertest.Records(t, s, 0, n/2, n-1) {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			s.Close()
		}
	})
}
