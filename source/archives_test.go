package source_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// memberNames are names that a member may have, with the name that it has when it is unpacked.
var memberNames = [][2]string{
	{"/a/0.jpg", "a/0.jpg"}, {"b/1.jpg", "b/1.jpg"}, {"../../c/2.jpg", "c/2.jpg"}, {"./a/3.jpg", "a/3.jpg"},
	{"//b//4.jpg", "b/4.jpg"}, {`c\5.jpg`, "c/5.jpg"}, {`D:\a\6.jpg`, "a/6.jpg"}, {"a/../b/7.jpg", "b/7.jpg"}, {"a/..", ""},
}

func tarOf(t *testing.T, out *bytes.Buffer, body []byte) {
	w := tar.NewWriter(out)
	for _, name := range memberNames {
		if err := w.WriteHeader(&tar.Header{Name: name[0], Size: int64(len(body)), Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(body)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func zipOf(t *testing.T, out *bytes.Buffer, body []byte) {
	w := zip.NewWriter(out)
	for _, name := range memberNames {
		f, err := w.CreateRaw(&zip.FileHeader{
			Name: name[0], CRC32: crc32.ChecksumIEEE(body), CompressedSize64: uint64(len(body)), UncompressedSize64: uint64(len(body)),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write(body)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMemberNames checks that all archives have one rule for the names of their members.
func TestMemberNames(t *testing.T) {
	body, err := os.ReadFile(filepath.Join(makeFolder(t, 1), "cat", "0000.jpg"))
	if err != nil {
		t.Fatal(err)
	}
	var plain, gz, zipped bytes.Buffer
	tarOf(t, &plain, body)
	zipOf(t, &zipped, body)
	w := gzip.NewWriter(&gz)
	_, _ = w.Write(plain.Bytes())
	_ = w.Close()
	for name, b := range map[string][]byte{"x.tar": plain.Bytes(), "x.tar.gz": gz.Bytes(), "x.zip": zipped.Bytes()} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := source.Open(t.Context(), file, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if classes := s.Info().Fields[1].Classes; !slices.Equal(classes, []string{"a", "b", "c"}) {
			t.Errorf("%s: the classes are %q", name, classes)
		}
		paths, _ := driver.As[driver.Pather](s)
		for id := range s.Info().Len {
			if got := paths.Path(id, 0); got != memberNames[id][1] {
				t.Errorf("%s: %q became %q, want %q", name, memberNames[id][0], got, memberNames[id][1])
			}
		}
		want := "[{its name is not that of a file 1 [a/..] true}]"
		if got := fmt.Sprint(driver.GroupSkipped(s)); s.Info().Len != 8 || got != want {
			t.Errorf("%s: %d records, skipped %s, want %s", name, s.Info().Len, got, want)
		}
		s.Close()
	}
}
