package formattest

import (
	"archive/zip"
	"bytes"
	"fmt"
	"testing"
)

// Zip makes a zip file.
func Zip(t testing.TB, method uint16, members ...Member) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, m := range members {
		f, err := w.CreateHeader(&zip.FileHeader{Name: m.Name, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(m.Body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// ZipSamples are n samples of an image, a class and a text.
func ZipSamples(n int) []Member {
	var all []Member
	for i := range n {
		key := fmt.Sprintf("d/%06d", i)
		all = append(all, Member{"d/", nil}, Member{key + ".jpg", bytes.Repeat([]byte{byte(i), 0xFF, byte(i / 2)}, []int{1, 700, 40_000}[i%3])},
			Member{key + ".cls", fmt.Append(nil, i%4)}, Member{key + ".txt", bytes.Repeat([]byte("a text "), i%5)})
	}
	return all
}
