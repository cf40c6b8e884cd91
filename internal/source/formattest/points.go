package formattest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

// PLY returns a .ply file of n points with x, y, z as float, double and short, and a colour.
func PLY(format string, n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "ply\nformat %s 1.0\ncomment made by a test\nelement face 2\nproperty list uchar int vertex_indices\nproperty uchar flag\n", format)
	fmt.Fprintf(&b, "element vertex %d\nproperty float x\nproperty double y\nproperty uchar red\nproperty uchar green\nproperty uchar blue\nproperty short z\n", n)
	b.WriteString("element edge 1\nproperty int a\nend_header\n")
	put := func(v any) {
		order := binary.ByteOrder(binary.LittleEndian)
		if format == "binary_big_endian" {
			order = binary.BigEndian
		}
		if format == "ascii" {
			fmt.Fprint(&b, v, " ")
		} else {
			_ = binary.Write(&b, order, v)
		}
	}
	line := func() {
		if format == "ascii" {
			b.WriteByte('\n')
		}
	}
	for i := range 2 {
		put(uint8(3 + i))
		for k := range 3 + i {
			put(int32(k))
		}
		put(uint8(9))
		line()
	}
	for i := range n {
		put(float32(i) / 4)
		put(float64(-i))
		put(uint8(i % 256))
		put(uint8(2))
		put(uint8(255))
		put(int16(i - 5))
		line()
	}
	put(int32(7))
	line()
	return b.Bytes()
}

// KITTI returns a .bin file of n points.
func KITTI(n int) []byte {
	b := make([]byte, 16*n)
	for i := range 4 * n {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(i)))
	}
	return b
}

// PLYForms are the encodings of .ply files.
var PLYForms = []string{"ascii", "binary_little_endian", "binary_big_endian"}

// Clouds returns 12 files with different numbers of points.
func Clouds(t testing.TB, format string, make func(i int) []byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "velodyne_points")
	for i := range 12 {
		name := filepath.Join([]string{"a", "b"}[i%2], fmt.Sprintf("%02d%s", i, map[string]string{"ply": ".ply", "kitti": ".bin"}[format]))
		drivertest.Put(t, dir, name, make(i))
	}
	return dir
}
