package formattest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

func matElement(typ uint32, data []byte) []byte {
	if n := uint32(len(data)); n > 0 && n <= 4 {
		b := binary.LittleEndian.AppendUint32(nil, n<<16|typ)
		return append(append(b, data...), make([]byte, 4-n)...)
	}
	b := binary.LittleEndian.AppendUint32(nil, typ)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(data))), data...)
	return append(b, make([]byte, -len(data)&7)...)
}

// MATMatrix returns a variable.
func MATMatrix(name string, class byte, typ uint32, data []byte, shape ...int) []byte {
	var dims []byte
	for _, side := range shape {
		dims = binary.LittleEndian.AppendUint32(dims, uint32(side))
	}
	body := matElement(6, []byte{class, 0, 0, 0, 0, 0, 0, 0})
	body = append(body, matElement(5, dims)...)
	body = append(body, matElement(1, []byte(name))...)
	body = append(body, matElement(typ, data)...)
	return matElement(14, body)
}

// MATDeflated compresses a variable.
func MATDeflated(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	head := binary.LittleEndian.AppendUint32(nil, 15)
	return append(binary.LittleEndian.AppendUint32(head, uint32(out.Len())), out.Bytes()...)
}

// MAT returns a file of variables.
func MAT(variables ...[]byte) []byte {
	b := bytes.Repeat([]byte{' '}, 128)
	copy(b, "MATLAB 5.0 MAT-file")
	b[124], b[125], b[126], b[127] = 0, 1, 'I', 'M'
	return append(b, bytes.Join(variables, nil)...)
}

// MATPictures returns n images. Their pixels are all different.
func MATPictures(n, pixels int) []byte {
	b := make([]byte, n*pixels)
	for i := range b {
		b[i] = byte(i*7 + i/256*3 + i/pixels)
	}
	return b
}

// MATRow returns image i of 32 x 32 x 3 as it is loaded.
func MATRow(i int) []byte {
	const side, pixels = 32, 3072
	src, out := MATPictures(i+1, pixels)[i*pixels:], make([]byte, pixels)
	for y := range side {
		for x := range side {
			for c := range 3 {
				out[(y*side+x)*3+c] = src[c*side*side+x*side+y]
			}
		}
	}
	return out
}

// MATLabels returns 1 to 10 as doubles.
func MATLabels(n int) (out []byte) {
	for i := range n {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(1+i%10)))
	}
	return out
}

// MATX returns n images as the variable X.
func MATX(n int) []byte { return MATMatrix("X", 9, 2, MATPictures(n, 3072), 32, 32, 3, n) }

// MATY returns n labels as the variable y.
func MATY(n int) []byte { return MATMatrix("y", 6, 9, MATLabels(n), n, 1) }

// MATFolders writes the same data plain, compressed, and among other variables.
func MATFolders(t testing.TB) map[string]string {
	small := make([]byte, 22) // doubles stored as bytes
	for i := range small {
		small[i] = byte(1 + i%10)
	}
	return map[string]string{
		"plain": drivertest.Folder(t, map[string][]byte{"train_32x32.mat": MAT(MATX(22), MATY(22))}),
		"zlib":  drivertest.Folder(t, map[string][]byte{"test_32x32.mat": MAT(MATDeflated(t, MATX(22)), MATDeflated(t, MATY(22)))}),
		"mixed": drivertest.Folder(t, map[string][]byte{"extra_32x32.mat": MAT(
			MATMatrix("note", 4, 16, []byte("hello there"), 1, 11), MATDeflated(t, MATMatrix("y", 6, 2, small, 22, 1)),
			MATDeflated(t, MATMatrix("z", 6, 2, []byte{7}, 1, 1)), MATX(22), MATMatrix("cell", 1, 14, nil, 0, 0))}),
	}
}
