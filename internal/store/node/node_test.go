package node

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("STOKER_TEST_HOLDS") != "" {
		f, err := Open("test", "held")
		if err != nil || !f.TryLock() {
			os.Exit(1)
		}
		os.Stdout.WriteString("held\n")
		select {}
	}
	os.Exit(m.Run())
}

// All processes with the key read the content, others do not. Incomplete content is ignored.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	t.Setenv(Env, dir)
	a, err := Open("test", "a secret")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := Open("test", "a secret")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	other, err := Open("test", "another")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if a.Read() != nil {
		t.Error("there is something before it was written")
	}
	if !a.TryLock() || b.TryLock() || b.Lock(t.Context(), 20*time.Millisecond) || !other.TryLock() {
		t.Error("a lock is held by two, or by none")
	}
	for _, text := range []string{"a long text", "short"} {
		if err := a.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := string(b.Read()); got != text {
			t.Errorf("%q, should be %q", got, text)
		}
	}
	if other.Read() != nil {
		t.Error("it is under another key, too")
	}
	a.Unlock()
	if !b.Lock(t.Context(), time.Minute) {
		t.Error("the lock was not given back")
	}
	if err := b.Write(make([]byte, maxBytes+1)); err == nil {
		t.Error("it takes any length")
	}
	for name, bytes := range map[string]string{"torn": "\x05\x00\x00\x00\x00\x00\x00\x00sho", "other": "\x05\x00\x00\x00\x00\x00\x00\x00short", "long": "\xff\xff\xff\xffxxxxyyyy"} {
		if err := b.f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := b.f.WriteAt([]byte(bytes), 0); err != nil {
			t.Fatal(err)
		}
		if got := a.Read(); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o600 || strings.Contains(e.Name(), "secret") {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

// A folder that other users may read is not used, nor a link, nor a file in its place.
func TestFolders(t *testing.T) {
	open := func(dir string) error {
		t.Helper()
		t.Setenv(Env, dir)
		f, err := Open("test", "x")
		if err == nil {
			_ = f.Close()
		}
		return err
	}
	shared := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := open(shared); err != nil {
		t.Error(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(shared, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{shared, link, "off", filepath.Join(t.TempDir(), "not", "there")} {
		if err := open(dir); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := os.Chmod(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(shared, "*"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), names[0]); err != nil {
		t.Fatal(err)
	}
	if err := open(shared); !errors.Is(err, ErrNone) {
		t.Errorf("a link is followed: %v", err)
	}
}

// A killed process holds no lock.
func TestKilled(t *testing.T) {
	t.Setenv(Env, filepath.Join(t.TempDir(), "run"))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "STOKER_TEST_HOLDS=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 5)
	if _, err := out.Read(said); err != nil {
		t.Fatal(err)
	}
	f, err := Open("test", "held")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.TryLock() {
		t.Error("it is not held")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !f.Lock(ctx, time.Minute) {
		t.Error("it is held still")
	}
}
