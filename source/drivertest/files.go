package drivertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// Put writes a file, and makes its folders.
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

// Copied copies a folder, so that a test can change it.
func Copied(t testing.TB, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Damage changes bytes in the middle of a file. Size and time stay the same, so the change can only
// be found by reading the file.
func Damage(t testing.TB, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 1000), info.Size()/2); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// Fields returns the fields of a source on one line: "image:image[] box:array/float32[4]".
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
