package formattest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// Member is a file for a tar.
type Member = struct {
	Name string
	Body []byte
}

// Tar makes a tar file.
func Tar(t testing.TB, members ...Member) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		h := &tar.Header{Name: m.Name, Size: int64(len(m.Body)), Mode: 0o644}
		if strings.HasSuffix(m.Name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(m.Body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Sample is record i as in webdataset, with members of many sizes.
func Sample(i int) []Member {
	key := fmt.Sprintf("%06d", i)
	walk := npy.AppendHeader(nil, driver.Int16, []int64{int64(i % 7), 2})
	for k := range 4 * (i % 7) {
		walk = append(walk, byte(k+i))
	}
	pair := npy.AppendHeader(nil, driver.Uint8, []int64{3})
	size := []int{1, 511, 512, 513, 40_000, 70_000}[i%6]
	return []Member{
		{key + ".jpg", bytes.Repeat([]byte{byte(i), 0xFF}, size)},
		{key + ".cls", fmt.Appendf(nil, " %d\n", i%5)},
		{key + ".json", fmt.Appendf(nil, `{"i": %d}`, i)},
		{key + ".walk.npy", walk},
		{key + ".pair.npy", append(pair, byte(i), 1, 2)},
		{key + ".pyd", bytes.Repeat([]byte{byte(i)}, i%3)},
	}
}

// TarShards makes a folder of tar files of 10 samples each.
func TarShards(t testing.TB, n int) string {
	dir := t.TempDir()
	for s := range n {
		var all []Member
		for i := range 10 {
			all = append(all, Sample(10*s+i)...)
		}
		drivertest.Put(t, dir, fmt.Sprintf("train-%04d.tar", s), Tar(t, all...))
	}
	return dir
}
