package indexcache

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/store/localstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// index is the cached fact in these tests.
type index struct {
	Name string
	At   []int64
}

func files(t *testing.T, dir string, what ...string) *Files {
	t.Helper()
	list, err := filelist.Scan(t.Context(), localstore.New(dir), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return New(list, what...)
}

// get asks for what is remembered of file 0.
func get(t *testing.T, dir string, what ...string) (out index, ok bool) {
	t.Helper()
	f := files(t, dir, what...)
	ok = f.Get(t.Context(), 0, &out)
	return out, ok
}

func TestRemembered(t *testing.T) {
	t.Setenv(cache.Variable, t.TempDir())
	dir := t.TempDir()
	path := filepath.Join(dir, "x.gz")
	write := func() {
		if err := os.WriteFile(path, make([]byte, Least), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	want := index{"x", []int64{1, 2, 1 << 40}}
	put := func(what ...string) {
		f := files(t, dir, what...)
		f.Put(t.Context(), 0, &want)
	}
	if _, ok := get(t, dir, "one"); ok {
		t.Error("something is remembered of a new file")
	}
	put("one")
	if got, ok := get(t, dir, "one"); !ok || got.Name != want.Name || !slices.Equal(got.At, want.At) {
		t.Errorf("%+v, %t", got, ok)
	}
	if _, ok := get(t, dir, "two"); ok {
		t.Error("something else is remembered")
	}
	// The same name, size and time, and another file.
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	write()
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + ".old"); err != nil {
		t.Fatal(err)
	}
	if _, ok := get(t, dir, "one"); ok {
		t.Error("another file is taken for the one that was there")
	}
	put("one")
	if err := os.Chtimes(path, time.Now(), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, ok := get(t, dir, "one"); ok {
		t.Error("the entry of a changed file is used")
	}
	put("one")
	// Damaged entries are ignored.
	folder, err := cache.Folder("")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(folder, "answers", "*"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, name := range entries {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 0x55
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := get(t, dir, "one"); ok {
		t.Error("a damaged entry is used")
	}
}

// Small files and an unusable cache folder do not cause errors.
func TestNotRemembered(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.gz"), make([]byte, Least-1), 0o644); err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	t.Setenv(cache.Variable, at)
	f := files(t, dir, "one")
	f.Put(t.Context(), 0, &index{"x", nil})
	if all, _ := os.ReadDir(at); len(all) != 0 {
		t.Errorf("a small file has the entries %v", all)
	}
	no := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(no, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(cache.Variable, no)
	if err := os.WriteFile(filepath.Join(dir, "x.gz"), make([]byte, Least), 0o644); err != nil {
		t.Fatal(err)
	}
	f = files(t, dir, "one")
	f.Put(t.Context(), 0, &index{"x", nil})
	if f.Get(t.Context(), 0, &index{}) {
		t.Error("something is there without a folder for it")
	}
}

func FuzzUnpack(f *testing.F) {
	for _, what := range []*index{{}, {"x", []int64{1, -1, 1 << 62}}} {
		b, err := Pack(what)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var out index
		_ = Unpack(b, &out)
	})
}
