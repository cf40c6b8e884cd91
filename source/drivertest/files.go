package drivertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// Put writes a file, and the folders that it lies in.
func Put(t testing.TB, dir, name string, b []byte) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Folder makes a folder of files.
func Folder(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		Put(t, dir, name, b)
	}
	return dir
}

// Copied makes a copy of a folder, which a test may change.
func Copied(t testing.TB, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Fields says in a line which fields a source has: "image:image[] box:array/float32[4]".
func Fields(s driver.Source) string {
	var out []string
	for _, f := range s.Info().Fields {
		kind := string(f.Kind)
		if f.DType != "" {
			kind += "/" + string(f.DType)
		}
		out = append(out, fmt.Sprintf("%s:%s%v", f.Name, kind, f.Shape))
	}
	return strings.Join(out, " ")
}
