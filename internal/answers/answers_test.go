package answers

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestAnswers(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if _, ok := Load("a"); ok {
		t.Error("an answer out of nothing")
	}
	Save("a", []byte("yes"))
	Save("b", nil)
	if b, ok := Load("a"); !ok || !bytes.Equal(b, []byte("yes")) {
		t.Error(b, ok)
	}
	if b, ok := Load("b"); !ok || len(b) != 0 {
		t.Error(b, ok)
	}
	if _, ok := Load(""); ok {
		t.Error("an answer to no question")
	}
	name, _ := cacheFile("a")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	// What is cut off, damaged or the answer to another question is none.
	for n := range b {
		bad := bytes.Clone(b)
		bad[n] ^= 4
		for _, content := range [][]byte{bad, b[:n]} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, ok := Load("a"); ok {
				t.Fatalf("byte %d does not matter", n)
			}
		}
	}
	other, _ := cacheFile("c")
	if err := os.WriteFile(other, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := Load("c"); ok {
		t.Error("the answer to another question")
	}
	if entries, _ := os.ReadDir(filepath.Dir(name)); len(entries) != 3 {
		t.Errorf("%d files", len(entries))
	}
}

// What is found before anybody knows what it answers is there for who asks then, and who
// asks meanwhile waits for it.
func TestBegin(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	began, found := make(chan struct{}), make(chan struct{})
	go Begin("all", func() (string, []byte, error) {
		close(began)
		<-found
		return "all 2", []byte("yes"), nil
	})
	<-began
	Begin("all", func() (string, []byte, error) {
		t.Error("two look at the same time")
		return "", nil, nil
	})
	go close(found)
	b, err := OnceOf(t.Context(), "all", "all 2", func() ([]byte, error) {
		t.Error("it is looked for again")
		return nil, nil
	})
	if err != nil || string(b) != "yes" {
		t.Error(b, err)
	}
	Begin("all", func() (string, []byte, error) {
		t.Error("it is looked for again, though there is an answer")
		return "", nil, nil
	})
	// Of another version it says nothing, and a failure is kept nowhere.
	if b, err := OnceOf(t.Context(), "all", "all 3", func() ([]byte, error) { return []byte("no"), nil }); err != nil || string(b) != "no" {
		t.Error(b, err)
	}
	Begin("other", func() (string, []byte, error) { return "other 1", nil, os.ErrNotExist })
	if _, ok := Load("other 1"); ok {
		t.Error("a failure is kept")
	}
}
