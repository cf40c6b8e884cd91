package dynlib

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func library(name string) *Library {
	return &Library{
		Decodes: "the picture", Name: name, Names: []string{name + ".so.9"}, Patterns: []string{name + ".so*", name + "-*.so*"},
		Folders: "STOKER_TEST_LIBRARIES", Install: []string{"apt-get install this", "pip install that"},
		Bind: func(string) (string, error) { return "1.2", nil },
	}
}

// The error for a missing library is one line with the package to install.
func TestMissing(t *testing.T) {
	check := func(what string, l *Library, want string) {
		t.Helper()
		_, err := l.Load()
		if !errors.Is(err, ErrMissing) || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	const advice = ": apt-get install this, or pip install that, or set STOKER_TEST_LIBRARIES to its folder"
	check("nowhere", library("libstoker-no"), "the picture needs libstoker-no, but libstoker-no was not found"+advice)
	dir := t.TempDir()
	t.Setenv("STOKER_TEST_LIBRARIES", dir)
	only := library("libstoker-no")
	only.Only = true
	check("not in the folder", only, "the picture needs libstoker-no, but there is no libstoker-no in "+dir+", which STOKER_TEST_LIBRARIES names"+advice)
	file := filepath.Join(dir, "libstoker-no.so.1")
	if err := os.WriteFile(file, []byte("no library"), 0o755); err != nil {
		t.Fatal(err)
	}
	check("no library", library("libstoker-no"), fmt.Sprintf("the picture needs libstoker-no, but libstoker-no cannot be used (%s: %s: file too short)%s", file, file, advice))
	refused := library("libm")
	refused.Names, refused.Bind = []string{"libm.so.6"}, func(string) (string, error) { return "", errors.New("too old") }
	check("refused", refused, "the picture needs libm, but libm cannot be used (libm.so.6: too old)"+advice)
}

// A library that was found has the path of its file and its version, even if it was found by name alone.
func TestFound(t *testing.T) {
	l := library("libm")
	l.Names = []string{"libstoker-no.so.1", "libm.so.6"}
	found, err := l.Load()
	if err != nil || found.Version != "1.2" || !filepath.IsAbs(found.Path) || !strings.Contains(filepath.Base(found.Path), "libm") {
		t.Errorf("%+v, %v", found, err)
	}
}

// Folders that a user names come first, then those of packages and of conda, then the system's.
func TestPlaces(t *testing.T) {
	user, packages, conda, last := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("CONDA_PREFIX", conda)
	t.Setenv(Packages, packages+":"+packages+"/none::"+last)
	t.Setenv("STOKER_TEST_LIBRARIES", user)
	if err := os.Mkdir(filepath.Join(conda, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	want, tried := []string{user, packages, filepath.Join(conda, "lib"), ".", last}, []string(nil)
	for _, dir := range []string{user, packages, want[2], last} {
		build(t, dir, "libstoker-place.so.1", "int place;")
	}
	l := library("libstoker-place")
	l.Names = []string{"libm.so.6"}
	l.Bind = func(path string) (string, error) {
		tried = append(tried, filepath.Dir(path))
		return "", errors.New("not this one")
	}
	if _, err := l.Load(); !slices.Equal(tried, want) || !errors.Is(err, ErrMissing) {
		t.Errorf("%v were tried, want %s (%v)", tried, want, err)
	}
}

// build compiles a library, which needs others.
func build(t *testing.T, dir, name, code string, needs ...string) string {
	t.Helper()
	src, out := filepath.Join(t.TempDir(), name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(src, []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,-soname," + name, "-o", out, src}, needs...)
	if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

const needsFolder = "STOKER_TEST_FOLDER"

// A library finds its dependencies in its own folder, as in wheels, even if it does not name that folder. The error for
// a dependency that cannot be found names it.
func TestNeeded(t *testing.T) {
	dir := t.TempDir()
	third := build(t, dir, "libstoker-third.so.3", "int third(void) { return 11; }")
	second := build(t, dir, "libstoker-second.so.2", "int third(void); int second(void) { return 1000 * third(); }", third)
	build(t, dir, "libstoker-first.so.1", "int second(void); int first(void) { return second(); }", second)
	load := func() error {
		// In a process of its own: a library that is loaded once is found by all that need it.
		cmd := exec.Command(os.Args[0], "-test.run=^TestNeedsFolder$")
		cmd.Env = append(os.Environ(), needsFolder+"="+dir)
		text, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	}
	if err := load(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(third); err != nil {
		t.Fatal(err)
	}
	err := load()
	if err == nil || !strings.Contains(err.Error(), "libstoker-third.so.3: cannot open") || !strings.Contains(err.Error(), "libstoker-first cannot be used") {
		t.Error(err)
	}
}

// TestNeedsFolder runs in the process that TestNeeded starts.
func TestNeedsFolder(t *testing.T) {
	dir := os.Getenv(needsFolder)
	if dir == "" {
		t.Skip("a part of TestNeeded")
	}
	t.Setenv("STOKER_TEST_LIBRARIES", dir)
	if _, err := library("libstoker-first").Load(); err != nil {
		t.Fatal(err)
	}
}
