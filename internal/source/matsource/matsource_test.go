package matsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
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

func opener(dir string, opt *Options) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, dir, localstore.New(dir), opt)
	})
}

func BenchmarkPlain(b *testing.B) {
	drivertest.Bench(b, opener(formattest.MATFolders(b)["plain"], nil))
}

func TestRecords(t *testing.T) {
	for name, dir := range formattest.MATFolders(t) {
		s := opener(dir, nil)(t)
		defer s.Close()
		f := s.Info().Fields
		if s.Info().Len != 22 || len(f) != 2 || f[0].Width != 32 || len(f[1].Classes) != 10 || (s.Info().Objects == 0) != (name == "zlib") {
			t.Fatalf("%s: %+v", name, s.Info())
		}
		for _, r := range drivertest.Records(t, s, 0, 9, 21) {
			// 10 means 0.
			if r.Err != nil || !bytes.Equal(r.Values[0].Bytes, formattest.MATRow(int(r.ID))) || r.Values[1].Int != (r.ID+1)%10 {
				t.Errorf("%s, record %d: %v", name, r.ID, r.Err)
			}
		}
	}
}

// Other labels stay unchanged.
func TestOtherLabels(t *testing.T) {
	zero := formattest.MATMatrix("y", 9, 2, []byte{0, 10, 3}, 3, 1)
	s := opener(drivertest.Folder(t, map[string][]byte{"a.mat": formattest.MAT(formattest.MATX(3), zero)}), &Options{File: "a.mat"})(t)
	if r := drivertest.Records(t, s, 1)[0]; r.Values[1].Int != 10 || s.Info().Fields[1].Classes != nil {
		t.Errorf("%+v, %+v", r.Values[1], s.Info().Fields[1])
	}
}

func TestBadFiles(t *testing.T) {
	good := formattest.MAT(formattest.MATX(4), formattest.MATY(4))
	packed := formattest.MAT(formattest.MATDeflated(t, formattest.MATX(4)), formattest.MATDeflated(t, formattest.MATY(4)))
	set := func(b []byte, at int, v ...byte) []byte {
		b = slices.Clone(b)
		copy(b[at:], v)
		return b
	}
	v73 := set(good, 0, []byte("MATLAB 7.3 MAT-file")...)
	half := formattest.MATLabels(4)
	copy(half, binary.LittleEndian.AppendUint64(nil, math.Float64bits(1.5)))
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"7.3", v73, "it has version 7.3, which is HDF5: write it again with save(..., '-v7')"},
		{"big-endian", set(good, 126, 'M', 'I'), "it is big-endian"},
		{"other", set(good, 124, 7, 7), "byte 124 is not the magic number of version 5"},
		{"empty", nil, "0 bytes are too few for its header"},
		{"cut", good[:5000], "byte 128: not a supported MAT file: a variable of 12344 bytes, the file ends 4864 bytes later"},
		{"tag", good[:len(good)-len(formattest.MATY(4))+4], "byte 12480: not a supported MAT file: it is cut off"},
		{"claim", set(good, 132, 0xFF, 0xFF, 0xFF, 0xFF), "a variable of 4294967295 bytes"},
		{"dimension", set(good, 160, 0xFF, 0xFF, 0xFF, 0x7F), "an array of shape [2147483647 32 3 4] needs"},
		{"negative", set(good, 160, 0xFF, 0xFF, 0xFF, 0xFF), "a dimension of -1"},
		{"values", set(good, 188, 0, 0, 0, 0x10), "needs 12288 bytes, but has"},
		{"name", set(good, 176, 1, 0, 0, 0, 0xFF, 0xFF, 0, 0), "a name of 65535 bytes, the limit is 1024"},
		{"zlib head", set(packed, 136, 0, 0), "cannot decompress it: zlib: invalid header"},
		{"zlib damaged", set(packed, 300, 1, 2, 3, 4, 5, 6, 7, 8), `variable "X": `},
		{"zlib cut", formattest.MAT(cut(formattest.MATDeflated(t, formattest.MATX(4)), 20)), "cut off"},
		{"zlib claim", formattest.MAT(formattest.MATDeflated(t, set(formattest.MATX(4)[:64], 4, 0, 0, 0, 0x7F))), "bytes decompressed, more than"},
		{"zlib short", formattest.MAT(formattest.MATDeflated(t, formattest.MATX(4)[:9000])), "variable \"X\": value at byte 9000 decompressed: the file is cut off"},
		{"double", formattest.MAT(formattest.MATMatrix("X", 6, 9, make([]byte, 8*96), 2, 4, 3, 4), formattest.MATY(4)), `variable "X": expected uint8 of height x width x 1 or 3 x number, got double of shape [2 4 3 4]`},
		{"none", formattest.MAT(formattest.MATMatrix("X", 9, 2, nil, 32, 32, 3, 0), formattest.MATY(4)), "it is empty"},
		{"only y", formattest.MAT(formattest.MATY(4)), `expected variables X and y as in SVHN's cropped digits, got ["y"]`},
		{"labels", formattest.MAT(formattest.MATX(4), formattest.MATY(3)), "X has 4 pictures and y has 3 labels"},
		{"half", formattest.MAT(formattest.MATX(4), formattest.MATMatrix("y", 6, 9, half, 4, 1)), `variable "y": label 0 is not a class number`},
		{"text", formattest.MAT(formattest.MATX(4), formattest.MATMatrix("y", 4, 16, []byte("abcd"), 4, 1)), `variable "y": expected a list of labels, got a non-numeric type`},
	} {
		dir := drivertest.Folder(t, map[string][]byte{"train_32x32.mat": c.data})
		_, err := Open(t.Context(), "DIR", localstore.New(dir), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), filepath.Join(dir, "train_32x32.mat")+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	dir := drivertest.Folder(t, map[string][]byte{"train_32x32.mat": good, "test_32x32.mat": good})
	if _, err := Open(t.Context(), "DIR", localstore.New(dir), nil); err == nil || !strings.Contains(err.Error(), "it has the splits test and train: choose one, such as 'DIR?split=test'") {
		t.Error(err)
	}
}

// cut removes the last n bytes of a compressed variable.
func cut(b []byte, n int) []byte {
	b = slices.Clone(b[:len(b)-n])
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
	return b
}

func TestIsFile(t *testing.T) {
	good := formattest.MAT(formattest.MATX(1), formattest.MATY(1))
	v73 := slices.Clone(good)
	copy(v73, "MATLAB 7.3 MAT-file")
	for name, b := range map[string][]byte{"a": good, "b": v73, "not c": good[:100], "not d": bytes.Repeat([]byte("x"), 300)} {
		dir := drivertest.Folder(t, map[string][]byte{"x": b})
		if got := IsFile(t.Context(), localstore.New(filepath.Join(dir, "x"))); got == strings.HasPrefix(name, "not") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzOpen(f *testing.F) {
	tiny, one := formattest.MATMatrix("X", 9, 2, formattest.MATPictures(3, 12), 2, 2, 3, 3), formattest.MATY(3)
	f.Add(formattest.MAT(tiny, one))
	f.Add(formattest.MAT(formattest.MATDeflated(f, tiny), formattest.MATDeflated(f, one)))
	f.Add(formattest.MAT(formattest.MATMatrix("y", 9, 2, []byte{1, 2, 3}, 3, 1), formattest.MATMatrix("cell", 1, 14, nil, 0, 0), tiny))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, "a.mat"), b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), "DIR", localstore.New(dir), &Options{File: "a.mat"})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		defer s.Close()
		for _, r := range drivertest.Records(t, s, 0, s.Info().Len-1) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	})
}
