package querycache

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/cache"
)

func TestAnswers(t *testing.T) {
	t.Setenv(cache.Variable, t.TempDir())
	if _, ok := Load("a"); ok {
		t.Error("an answer out of nothing")
	}
	for key, answer := range map[string][]byte{"a": []byte("yes"), "b": nil} {
		name, err := Save(key, answer)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
			t.Error(st, err)
		}
	}
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
	// A truncated or damaged answer and the answer to another question count as missing.
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

// A question that asks later gets the answer of Begin. A question that asks meanwhile waits for
// it.
func TestBegin(t *testing.T) {
	t.Setenv(cache.Variable, t.TempDir())
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
	b, err := Once(t.Context(), "all", "all 2", func() ([]byte, error) {
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
	// A question about another version has no answer yet, and a failure is not cached.
	if b, err := Once(t.Context(), "all", "all 3", func() ([]byte, error) { return []byte("no"), nil }); err != nil || string(b) != "no" {
		t.Error(b, err)
	}
	Begin("other", func() (string, []byte, error) { return "other 1", nil, os.ErrNotExist })
	if _, ok := Load("other 1"); ok {
		t.Error("a failure is kept")
	}
}

// The answers are in the cache folder. Nothing fails if the folder cannot be written.
func TestFolder(t *testing.T) {
	home := t.TempDir()
	t.Setenv(cache.Variable, "")
	t.Setenv("XDG_CACHE_HOME", home)
	if name, err := Save("a", nil); err != nil || filepath.Dir(name) != filepath.Join(home, "stoker", "answers") {
		t.Error(name, err)
	}
	file := filepath.Join(home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(cache.Variable, file)
	if _, err := Save("a", nil); err == nil || !strings.Contains(err.Error(), "cannot write to "+filepath.Join(file, "answers")+": ") {
		t.Error(err)
	}
	if _, ok := Load("a"); ok {
		t.Error("an answer without a folder")
	}
	if b, err := Once(t.Context(), "a", "a", func() ([]byte, error) { return []byte("found"), nil }); err != nil || string(b) != "found" {
		t.Error(b, err)
	}
	// Without a home folder, answers are not cached.
	t.Setenv(cache.Variable, "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := Save("a", nil); err == nil {
		t.Error("an answer is kept nowhere")
	}
	if b, err := Once(t.Context(), "a", "a", func() ([]byte, error) { return []byte("found"), nil }); err != nil || string(b) != "found" {
		t.Error(b, err)
	}
}

// If there are too many answers, the least recently used ones are removed.
func TestForget(t *testing.T) {
	t.Setenv(cache.Variable, t.TempDir())
	var size int64
	for i, key := range []string{"a", "b", "c"} {
		name, err := Save(key, make([]byte, 1000))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1e9+int64(i), 0)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size = st.Size()
	}
	if _, ok := Load("a"); !ok {
		t.Fatal("there is no answer")
	}
	name, _ := cacheFile("a")
	forget(filepath.Dir(name), 2*size)
	for key, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, ok := Load(key); ok != want {
			t.Errorf("%s: %v", key, ok)
		}
	}
}
