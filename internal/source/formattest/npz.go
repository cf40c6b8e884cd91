package formattest

import (
	"archive/zip"
	"bytes"
	"fmt"
	"testing"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// NPZ makes a .npz file of a float32 array "x" and an int64 "y".
func NPZ(t testing.TB, i int, method uint16, x ...int64) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, a := range []struct {
		name  string
		dtype driver.DType
		shape []int64
	}{{"x.npy", driver.Float32, x}, {"y.npy", driver.Int64, []int64{1}}} {
		b := npy.AppendHeader(nil, a.dtype, a.shape)
		n := int64(a.dtype.Size())
		for _, side := range a.shape {
			n *= side
		}
		for k := range n {
			b = append(b, byte(k*3+int64(i)))
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: a.name, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// NPZFolder writes n .npz files.
func NPZFolder(t testing.TB, n int, method uint16) string {
	dir := t.TempDir()
	for i := range n {
		drivertest.Put(t, dir, fmt.Sprintf("img_%04d.npz", i), NPZ(t, i, method, 9, 5))
	}
	return dir
}
