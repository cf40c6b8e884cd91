package formattest

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

// NIfTI returns a NIfTI-1 file of int16 voxels z*10000 + y*100 + x + plus.
func NIfTI(order binary.ByteOrder, slope float32, plus int, shape ...int) []byte {
	b := make([]byte, 352)
	order.PutUint32(b, 348)
	order.PutUint16(b[40:], uint16(len(shape)))
	for i, n := range shape { // x comes first
		order.PutUint16(b[40+2*(len(shape)-i):], uint16(n))
	}
	order.PutUint16(b[70:], 4)
	order.PutUint16(b[72:], 16)
	for i := range 4 {
		order.PutUint32(b[76+4*i:], math.Float32bits(float32(i+1)))
	}
	order.PutUint32(b[108:], math.Float32bits(352))
	order.PutUint32(b[112:], math.Float32bits(slope))
	order.PutUint32(b[116:], math.Float32bits(slope*3))
	copy(b[344:], "n+1\x00")
	n := 1
	for _, side := range shape {
		n *= side
	}
	for i := range n {
		x, y, z := i%shape[len(shape)-1], i/shape[len(shape)-1]%shape[len(shape)-2], 0
		if len(shape) > 2 {
			z = i / (shape[len(shape)-1] * shape[len(shape)-2])
		}
		b = append(b, 0, 0)
		order.PutUint16(b[len(b)-2:], uint16(int16(z*1000+y*100+x+plus)))
	}
	return b
}

// Numbered writes n files, with names that are numbers.
func Numbered(t testing.TB, n int, file func(i int) (string, []byte)) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		ext, b := file(i)
		drivertest.Put(t, dir, fmt.Sprintf("%02d%s", i, ext), b)
	}
	return dir
}

// MixedNIfTI returns file i: the files differ in byte order, and some are compressed.
func MixedNIfTI(i int) (string, []byte) {
	order := binary.ByteOrder(binary.LittleEndian)
	if i%3 == 1 {
		order = binary.BigEndian
	}
	b := NIfTI(order, 0, i, 7, 8, 9)
	if i%2 == 1 {
		return ".nii.gz", Gzip(b)
	}
	return ".nii", b
}
