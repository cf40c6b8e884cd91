package formattest

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

// FlowNumbers returns the numbers of file i.
func FlowNumbers(i, n int) []float32 {
	out := make([]float32, n)
	for k := range out {
		out[k] = float32(i) + float32(k)/7
	}
	return out
}

// Flo returns a .flo file.
func Flo(width, height int, v []float32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("PIEH"), uint32(width))
	b = binary.LittleEndian.AppendUint32(b, uint32(height))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// PFM writes the last row first.
func PFM(kind string, width, height int, big bool, v []float32) []byte {
	var order binary.AppendByteOrder = binary.LittleEndian
	scale := "-1.0"
	if big {
		order, scale = binary.BigEndian, "1"
	}
	b := fmt.Appendf(nil, "%s\n%d %d\n%s\n", kind, width, height, scale)
	row := len(v) / height
	for y := height - 1; y >= 0; y-- {
		for _, x := range v[y*row : (y+1)*row] {
			b = order.AppendUint32(b, math.Float32bits(x))
		}
	}
	return b
}

// Maps writes twelve files of a format in folders.
func Maps(t testing.TB, format string, file func(i int) []byte) string {
	dir := t.TempDir()
	for i := range 12 {
		name := filepath.Join([]string{"", "a", "b/c"}[i%3], fmt.Sprintf("%02d.%s", i, format))
		drivertest.Put(t, dir, name, file(i))
	}
	return dir
}

// Flows returns .flo file i.
func Flows(i int) []byte { return Flo(5, 3, FlowNumbers(i, 30)) }
