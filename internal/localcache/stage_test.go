package localcache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func openStage(t *testing.T, d *data, dir, kept string) (*Staged, error) {
	t.Helper()
	return OpenStage(t.Context(), d, StageOptions{Dir: dir, Cache: kept, Buffers: 1, Largest: Largest(d), Say: func(s string) { t.Error(s) }})
}

// run reads all through a copy, and has the rest of it made.
func run(t *testing.T, d *data, s *Staged, version byte) {
	t.Helper()
	if err := readAll(t.Context(), d, s.Store, version); err != nil {
		t.Error(err)
	}
	end := make(chan struct{})
	close(end)
	obj := recordread.NewObjects(d, nil)
	obj.Decorate = s.Store
	s.Run(t.Context(), end, obj.Read)
	if err := obj.Close(); err != nil {
		t.Error(err)
	}
}

// A copy is made from reads and found by the next job. A job with another version of the data leaves it alone and
// removes only unfinished copies.
func TestStageOfVersions(t *testing.T) {
	dir, kept := t.TempDir(), t.TempDir()
	all := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	// Started and given up.
	d, _ := far(t, 0)
	s, err := openStage(t, d, dir, kept)
	if err != nil {
		t.Fatal(err)
	}
	obj := recordread.NewObjects(d, nil)
	obj.Decorate = s.Store
	if err := obj.Read(t.Context(), 1, make([]byte, 10), 100_000); err != nil {
		t.Fatal(err)
	}
	if err := obj.Close(); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Whole || st.Bytes != chunkBytes || st.Of != objects*objectBytes {
		t.Errorf("%+v", st)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	c, err := cache.At(kept, 0)
	if err != nil {
		t.Fatal(err)
	}
	if left := c.Copies(); len(left) != 1 || left[0].Whole || left[0].Bytes < chunkBytes || len(all()) != 2 {
		t.Fatalf("%+v, %q", left, all())
	}
	// The data has changed: its incomplete copy is removed.
	d, st := far(t, 1)
	s, err = openStage(t, d, dir, kept)
	if err != nil {
		t.Fatal(err)
	}
	run(t, d, s, 1)
	if !s.Stats().Whole || st.Stats().Bytes != objects*objectBytes || len(all()) != 1 {
		t.Errorf("%+v, %d bytes were read, %q", s.Stats(), st.Stats().Bytes, all())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	// The copy is found again, and nothing is read from the store.
	d, st = far(t, 1)
	if s, err = openStage(t, d, dir, kept); err != nil {
		t.Fatal(err)
	}
	run(t, d, s, 1)
	if !s.Stats().Whole || st.Stats().Bytes != 0 {
		t.Errorf("%+v, %d bytes were read", s.Stats(), st.Stats().Bytes)
	}
	// Removing the copy while it is read does not affect the bytes that are read.
	if err := c.RemoveCopy(c.Copies()[0]); err != nil {
		t.Error(err)
	}
	if err := readAll(t.Context(), d, s.Store, 1); err != nil || st.Stats().Bytes == 0 {
		t.Errorf("%v, %d bytes were read", err, st.Stats().Bytes)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// If no copy can be made, the reason is reported.
func TestNoStage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(d *data) (dir string){
		"not stored in objects": func(d *data) string { d.info.Objects = 0; return t.TempDir() },
		"is on this machine":    func(d *data) string { d.st = localstore.New(t.TempDir()); return t.TempDir() },
		"which version":         func(d *data) string { d.entries[1].Version = ""; return t.TempDir() },
		file:                    func(*data) string { return file },
	} {
		d, _ := far(t, 0)
		s, err := openStage(t, d, change(d), t.TempDir())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if s != nil {
			_ = s.Close()
		}
	}
	d, _ := far(t, 0)
	several := &twoStores{*d, counttest.New(storetest.NewMemory(nil), nil)}
	if _, err := OpenStage(t.Context(), several, StageOptions{Dir: t.TempDir(), Cache: t.TempDir(), Buffers: 1}); err == nil || !strings.Contains(err.Error(), "several places") {
		t.Errorf("%v", err)
	}
	// If the copy cannot be registered, it is made all the same.
	d, _ = far(t, 0)
	s, err := openStage(t, d, t.TempDir(), file)
	if err != nil {
		t.Fatal(err)
	}
	run(t, d, s, 0)
	if !s.Stats().Whole {
		t.Errorf("%+v", s.Stats())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestBase(t *testing.T) {
	for url, want := range map[string]string{
		"s3://bucket/train": "train", "s3://bucket": "bucket", "https://host/a b/c%20d.pack": "c_20d.pack", "memory:": "memory_",
		"s3://b/..": "data", "s3://b/.hidden": "hidden", "s3://b/" + strings.Repeat("x", 300): strings.Repeat("x", 64),
	} {
		if got := base(url); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

// twoStores is data with objects in two stores.
type twoStores struct {
	data
	other store.Store
}

func (s *twoStores) Object(n int64) (ob driver.Object) {
	ob = s.data.Object(n)
	if n == 2 {
		ob.Store = s.other
	}
	return ob
}
