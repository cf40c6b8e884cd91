package cachedsource_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/pathsource"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// photo writes a JPEG.
func photo(t *testing.T, name string, seed int) {
	t.Helper()
	w, h := 24+2*seed, 32
	pix := make([]byte, 3*w*h)
	for i := range pix {
		pix[i] = byte(i * (seed + 3))
	}
	b, err := cdec.EncodeJPEG(pix, w, h, 3, cdec.EncodeOptions{Quality: 80, HSamp: 1, VSamp: 1})
	if err != nil {
		t.Fatal(err)
	}
	put(t, name, b)
}

func put(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// ways makes the ways in which eight photos can be read, by name. Those called "b" read half of them.
func ways(t *testing.T) map[string]string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	paths := bytes.NewBufferString(pathsource.Magic)
	var near, absolute, elsewhere bytes.Buffer
	for _, b := range []*bytes.Buffer{&near, &absolute, &elsewhere} {
		b.WriteString("path,label\n")
	}
	farm := filepath.Join(t.TempDir(), "links")
	if err := os.MkdirAll(farm, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		rel := fmt.Sprintf("photos/%c/%d.jpg", 'a'+i%2, i)
		name := filepath.Join(root, rel)
		photo(t, name, i)
		put(t, filepath.Join(root, fmt.Sprintf("masks/%c/%d.txt", 'a'+i%2, i)), []byte("about it"))
		fmt.Fprintf(paths, "%s\x00", name)
		fmt.Fprintf(&near, "%s,%d\n", rel, i)
		fmt.Fprintf(&absolute, "%s,%d\n", name, i)
		if err := os.Symlink(name, filepath.Join(farm, fmt.Sprintf("other%d.jpg", i))); err != nil {
			t.Fatal(err)
		}
	}
	other := t.TempDir()
	put(t, filepath.Join(root, "near.csv"), near.Bytes())
	put(t, filepath.Join(other, "absolute.csv"), absolute.Bytes())
	put(t, filepath.Join(other, "paths"), paths.Bytes())
	if err := os.Symlink(filepath.Join(root, "photos"), filepath.Join(other, "link")); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"a folder": filepath.Join(root, "photos"), "a link to it": filepath.Join(other, "link"), "b one class": filepath.Join(root, "photos/b"),
		"a CSV": filepath.Join(root, "near.csv"), "a CSV of paths elsewhere": filepath.Join(other, "absolute.csv"),
		"a path list": "paths:" + filepath.Join(other, "paths"), "links to files": farm,
		"pairs":             "pairs:" + root + "?image=photos/**/*.jpg&text=masks/**/*.txt",
		"pairs in a folder": "pairs:" + root + "/photos?image=**/*.jpg",
	}
}

// read opens a data set with a cache, reads all of it, and returns the images with what the cache did.
func read(t *testing.T, url, dir string) ([][]byte, cachedsource.Stats) {
	t.Helper()
	var c *cachedsource.Source
	src, err := source.Open(t.Context(), url, &source.Options{Cache: &cachedsource.Options{
		Dir: dir, Wait: true, Files: true, Say: func(s string) { t.Errorf("%s: %s", url, s) }, Opened: func(s *cachedsource.Source) { c = s },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if c == nil {
		t.Fatalf("%s has no cache", url)
	}
	obj := recordread.NewObjects(src, nil)
	defer obj.Close()
	r := recordread.NewDirect(src, obj)
	var out [][]byte
	for id := range src.Info().Len {
		recs, err := r.Read(t.Context(), []int64{id})
		if err == nil {
			err = recs[0].Err
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range src.Info().Fields {
			v := &recs[0].Values[i]
			switch {
			case f.Kind == driver.KindImage && v.Codec != driver.CodecDCT:
				t.Errorf("%s: record %d is not in the cache's form", url, id)
			case f.Kind == driver.KindImage:
				b, err := cdec.DCTToJPEG(nil, v.Bytes, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, bytes.Clone(b))
			case f.Name == "text" && string(v.Bytes) != "about it":
				t.Errorf("%s: record %d: %q", url, id, v.Bytes)
			}
		}
	}
	return out, c.Stats()
}

// A file is in the cache once, whoever reads it.
func TestOneEntryForAFile(t *testing.T) {
	all := ways(t)
	var st unix.Statfs_t
	if unix.Statfs(all["a folder"], &st) != nil || st.Fsid == (unix.Fsid{}) {
		delete(all, "links to files") // their inodes do not identify files
	}
	for first, url := range all {
		dir := t.TempDir()
		want, st := read(t, url, dir)
		if st.Kept != int64(len(want)) {
			t.Fatalf("%s: %+v", first, st)
		}
		for second, url := range all {
			got, st := read(t, url, dir)
			missing := int64(0)
			if first[0] == 'b' && second[0] != 'b' && len(got) == 8 {
				missing = int64(len(got) - len(want))
			}
			if st.Kept > missing {
				t.Errorf("%s after %s: %d records were cached again", second, first, st.Kept)
			}
		}
		d, err := cache.At(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, e := range d.List() {
			total += e.Records
		}
		if total != 8 {
			t.Errorf("after %s: the cache has %d records of 8 files: %+v", first, total, d.List())
		}
	}
}

// Files that replace others are other files, also with the times of an archive, the sizes and the inodes of before.
func TestReplacedFiles(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	one := filepath.Join(root, "one")
	make := func(name string, seed int) {
		for i := range 8 {
			file := filepath.Join(one, fmt.Sprintf(name, i))
			photo(t, file, seed+i)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			put(t, file, append(b, bytes.Repeat([]byte{0}, 4096-len(b))...))
			if err := os.Chtimes(file, time.Time{}, time.Unix(1e9, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	make("%d.jpg", 0)
	_, _ = read(t, one, dir)
	if err := os.RemoveAll(one); err != nil {
		t.Fatal(err)
	}
	make("new%d.jpg", 5)
	if _, st := read(t, one, dir); st.Kept != 8 || st.Hits != 0 {
		t.Errorf("%+v", st)
	}
}
