package matsource

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func element(typ uint32, data []byte) []byte {
	if n := uint32(len(data)); n > 0 && n <= 4 {
		b := binary.LittleEndian.AppendUint32(nil, n<<16|typ)
		return append(append(b, data...), make([]byte, 4-n)...)
	}
	b := binary.LittleEndian.AppendUint32(nil, typ)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(data))), data...)
	return append(b, make([]byte, -len(data)&7)...)
}

// matrix returns a variable.
func matrix(name string, class byte, typ uint32, data []byte, shape ...int) []byte {
	var dims []byte
	for _, side := range shape {
		dims = binary.LittleEndian.AppendUint32(dims, uint32(side))
	}
	body := element(6, []byte{class, 0, 0, 0, 0, 0, 0, 0})
	body = append(body, element(5, dims)...)
	body = append(body, element(1, []byte(name))...)
	body = append(body, element(typ, data)...)
	return element(typeMatrix, body)
}

func deflated(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	head := binary.LittleEndian.AppendUint32(nil, typeDeflated)
	return append(binary.LittleEndian.AppendUint32(head, uint32(out.Len())), out.Bytes()...)
}

func mat(variables ...[]byte) []byte {
	b := bytes.Repeat([]byte{' '}, headerBytes)
	copy(b, "MATLAB 5.0 MAT-file")
	b[124], b[125], b[126], b[127] = 0, 1, 'I', 'M'
	return append(b, bytes.Join(variables, nil)...)
}

func pictures(n, pixels int) []byte {
	b := make([]byte, n*pixels)
	for i := range b {
		b[i] = byte(i*7 + i/256*3 + i/pixels)
	}
	return b
}

// row returns image i of 32 x 32 x 3 as it is loaded.
func row(i int) []byte {
	const side, pixels = 32, 3072
	src, out := pictures(i+1, pixels)[i*pixels:], make([]byte, pixels)
	for y := range side {
		for x := range side {
			for c := range 3 {
				out[(y*side+x)*3+c] = src[c*side*side+x*side+y]
			}
		}
	}
	return out
}

// labels returns 1 to 10 as doubles.
func labels(n int) (out []byte) {
	for i := range n {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(1+i%10)))
	}
	return out
}

func x(n int) []byte { return matrix("X", 9, 2, pictures(n, 3072), 32, 32, 3, n) }
func y(n int) []byte { return matrix("y", 6, 9, labels(n), n, 1) }

func folders(t testing.TB) map[string]string {
	small := make([]byte, 22) // doubles stored as bytes
	for i := range small {
		small[i] = byte(1 + i%10)
	}
	return map[string]string{
		"plain": drivertest.Folder(t, map[string][]byte{"train_32x32.mat": mat(x(22), y(22))}),
		"zlib":  drivertest.Folder(t, map[string][]byte{"test_32x32.mat": mat(deflated(t, x(22)), deflated(t, y(22)))}),
		"mixed": drivertest.Folder(t, map[string][]byte{"extra_32x32.mat": mat(
			matrix("note", 4, 16, []byte("hello there"), 1, 11), deflated(t, matrix("y", 6, 2, small, 22, 1)),
			deflated(t, matrix("z", 6, 2, []byte{7}, 1, 1)), x(22), matrix("cell", 1, 14, nil, 0, 0))}),
	}
}

func opener(dir string, opt *Options) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, dir, localstore.New(dir), opt)
	})
}

func TestConformance(t *testing.T) {
	for name, dir := range folders(t) {
		t.Run(name, func(t *testing.T) { drivertest.Run(t, opener(dir, nil)) })
	}
	gray := mat(matrix("X", 9, 2, pictures(20, 35), 5, 7, 1, 20), matrix("y", 10, 3, make([]byte, 40), 1, 20))
	t.Run("gray", func(t *testing.T) {
		drivertest.Run(t, opener(drivertest.Folder(t, map[string][]byte{"a.mat": gray}), &Options{File: "a.mat"}))
	})
}

func TestFaults(t *testing.T) {
	for name, dir := range folders(t) {
		t.Run(name, func(t *testing.T) {
			drivertest.Faults(t, localstore.New(dir), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
				return Open(ctx, "test", st, nil)
			})
		})
	}
}

func BenchmarkPlain(b *testing.B) { drivertest.Bench(b, opener(folders(b)["plain"], nil)) }

func TestRecords(t *testing.T) {
	for name, dir := range folders(t) {
		s := opener(dir, nil)(t)
		defer s.Close()
		f := s.Info().Fields
		if s.Info().Len != 22 || len(f) != 2 || f[0].Width != 32 || len(f[1].Classes) != 10 || (s.Info().Objects == 0) != (name == "zlib") {
			t.Fatalf("%s: %+v", name, s.Info())
		}
		for _, r := range drivertest.Records(t, s, 0, 9, 21) {
			// 10 means 0.
			if r.Err != nil || !bytes.Equal(r.Values[0].Bytes, row(int(r.ID))) || r.Values[1].Int != (r.ID+1)%10 {
				t.Errorf("%s, record %d: %v", name, r.ID, r.Err)
			}
		}
	}
}

// Other labels stay unchanged.
func TestOtherLabels(t *testing.T) {
	zero := matrix("y", 9, 2, []byte{0, 10, 3}, 3, 1)
	s := opener(drivertest.Folder(t, map[string][]byte{"a.mat": mat(x(3), zero)}), &Options{File: "a.mat"})(t)
	if r := drivertest.Records(t, s, 1)[0]; r.Values[1].Int != 10 || s.Info().Fields[1].Classes != nil {
		t.Errorf("%+v, %+v", r.Values[1], s.Info().Fields[1])
	}
}

func TestBadFiles(t *testing.T) {
	good := mat(x(4), y(4))
	packed := mat(deflated(t, x(4)), deflated(t, y(4)))
	set := func(b []byte, at int, v ...byte) []byte {
		b = slices.Clone(b)
		copy(b[at:], v)
		return b
	}
	v73 := set(good, 0, []byte("MATLAB 7.3 MAT-file")...)
	half := labels(4)
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
		{"tag", good[:len(good)-len(y(4))+4], "byte 12480: not a supported MAT file: it is cut off"},
		{"claim", set(good, 132, 0xFF, 0xFF, 0xFF, 0xFF), "a variable of 4294967295 bytes"},
		{"dimension", set(good, 160, 0xFF, 0xFF, 0xFF, 0x7F), "an array of shape [2147483647 32 3 4] needs"},
		{"negative", set(good, 160, 0xFF, 0xFF, 0xFF, 0xFF), "a dimension of -1"},
		{"values", set(good, 188, 0, 0, 0, 0x10), "needs 12288 bytes, but has"},
		{"name", set(good, 176, 1, 0, 0, 0, 0xFF, 0xFF, 0, 0), "a name of 65535 bytes, the limit is 1024"},
		{"zlib head", set(packed, 136, 0, 0), "cannot decompress it: zlib: invalid header"},
		{"zlib damaged", set(packed, 300, 1, 2, 3, 4, 5, 6, 7, 8), `variable "X": `},
		{"zlib cut", mat(cut(deflated(t, x(4)), 20)), "cut off"},
		{"zlib claim", mat(deflated(t, set(x(4)[:64], 4, 0, 0, 0, 0x7F))), "bytes decompressed, more than"},
		{"zlib short", mat(deflated(t, x(4)[:9000])), "variable \"X\": value at byte 9000 decompressed: the file is cut off"},
		{"double", mat(matrix("X", 6, 9, make([]byte, 8*96), 2, 4, 3, 4), y(4)), `variable "X": expected uint8 of height x width x 1 or 3 x number, got double of shape [2 4 3 4]`},
		{"none", mat(matrix("X", 9, 2, nil, 32, 32, 3, 0), y(4)), "it is empty"},
		{"only y", mat(y(4)), `expected variables X and y as in SVHN's cropped digits, got ["y"]`},
		{"labels", mat(x(4), y(3)), "X has 4 pictures and y has 3 labels"},
		{"half", mat(x(4), matrix("y", 6, 9, half, 4, 1)), `variable "y": label 0 is not a class number`},
		{"text", mat(x(4), matrix("y", 4, 16, []byte("abcd"), 4, 1)), `variable "y": expected a list of labels, got a non-numeric type`},
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
	good := mat(x(1), y(1))
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
	tiny, one := matrix("X", 9, 2, pictures(3, 12), 2, 2, 3, 3), y(3)
	f.Add(mat(tiny, one))
	f.Add(mat(deflated(f, tiny), deflated(f, one)))
	f.Add(mat(matrix("y", 9, 2, []byte{1, 2, 3}, 3, 1), matrix("cell", 1, 14, nil, 0, 0), tiny))
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
