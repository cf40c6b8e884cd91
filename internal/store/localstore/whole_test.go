package localstore_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/store/localstore"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := localstore.WriteFile(path, text("one")); err != nil || content(t, path) != "one" {
		t.Fatal(err)
	}
	// The mode of an old file is kept.
	if err := os.Chmod(path, 0o606); err != nil {
		t.Fatal(err)
	}
	if err := localstore.WriteFile(path, text("two")); err != nil || content(t, path) != "two" {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o606 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	// A failure keeps the old file.
	bad := errors.New("bad")
	if err := localstore.WriteFile(path, func(w io.Writer) error { return errors.Join(text("half")(w), bad) }); !errors.Is(err, bad) {
		t.Errorf("error is %v", err)
	}
	if content(t, path) != "two" {
		t.Error("a failure has changed the file")
	}
	// Links are followed, also to a missing file.
	for _, target := range []string{"x", "y"} {
		link := filepath.Join(dir, "link-"+target)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if err := localstore.WriteFile(link, text("three")); err != nil || content(t, filepath.Join(dir, target)) != "three" {
			t.Errorf("%s: %v", target, err)
		}
		if st, err := os.Lstat(link); err != nil || st.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("the link is gone: %v", err)
		}
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); err != nil || got != "link-x link-y x y" {
		t.Errorf("the folder has %q, %v", got, err)
	}
}

func TestWriteFileErrors(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none", "x")
	err := localstore.WriteFile(none, text(""))
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Path != none || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
	if err := localstore.WriteFile(dir, text("")); err == nil {
		t.Error("a folder was written")
	}
	long := filepath.Join(dir, strings.Repeat("n", 255))
	if err := localstore.WriteFile(long, text("x")); err != nil || content(t, long) != "x" {
		t.Errorf("a long name: %v", err)
	}
}

// A file that is not a regular file is written to directly.
func TestWriteFileIntoPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() {
		b, _ := os.ReadFile(path)
		got <- string(b)
	}()
	if err := localstore.WriteFile(path, text("hello")); err != nil {
		t.Error(err)
	}
	if s := <-got; s != "hello" {
		t.Errorf("the pipe had %q", s)
	}
}
