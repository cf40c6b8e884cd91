package cachedsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/foldersource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const images = 40

// photos makes a folder of JPEGs. One is damaged, and one has the extension of a PNG.
func photos(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for i := range images {
		write(t, root, i, 0)
	}
	return root
}

func write(t testing.TB, root string, i, more int) {
	t.Helper()
	w, h := 20+3*i, 30+2*i
	pix := make([]byte, 3*w*h)
	for k := range pix {
		pix[k] = byte((k/3%w)*(i+3+more) + k%3*40)
	}
	b, err := cdec.EncodeJPEG(pix, w, h, 3, cdec.EncodeOptions{Quality: 80, HSamp: 1 + i%2, VSamp: 1, Progressive: i%5 == 4})
	if err != nil {
		t.Fatal(err)
	}
	switch i {
	case 7:
		b = b[:len(b)/2]
	case 8:
		b = []byte("\x89PNG\r\n\x1a\n and nothing else")
	}
	name := filepath.Join(root, fmt.Sprintf("%c/%02d.jpg", 'a'+i%3, i))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func folder(t testing.TB, root string) driver.Source {
	t.Helper()
	src, err := foldersource.Open(context.Background(), root, localstore.New(root), nil)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func cached(t testing.TB, root, dir string) *Source {
	t.Helper()
	var c *Source
	Open(folder(t, root), Options{Dir: dir, Wait: true, Say: func(s string) { t.Errorf("said: %s", s) }, Opened: func(s *Source) { c = s }})
	if c == nil {
		t.Fatal("the source has no cache")
	}
	return c
}

// readAll reads all records and returns them as JPEG files, and counts the dct ones.
func readAll(t testing.TB, src driver.Source) (out [][]byte, dct int) {
	t.Helper()
	obj := recordread.NewObjects(src, nil)
	defer obj.Close()
	r := recordread.NewDirect(src, obj)
	for id := int64(0); id < src.Info().Len; id += 8 {
		var ids []int64
		for i := id; i < min(id+8, src.Info().Len); i++ {
			ids = append(ids, i)
		}
		recs, err := r.Read(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		for i := range recs {
			if recs[i].Err != nil {
				t.Fatal(recs[i].Err)
			}
			v := recs[i].Values[0]
			b := v.Bytes
			if v.Codec == driver.CodecDCT {
				dct++
				if b, err = cdec.DCTToJPEG(nil, b, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			out = append(out, bytes.Clone(b))
		}
	}
	return out, dct
}

// same compares the pixels, or the bytes if they cannot be decoded.
func same(t testing.TB, got, want [][]byte) {
	t.Helper()
	d, err := cdec.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i := range want {
		a, b := make([]byte, 1<<20), make([]byte, 1<<20)
		_, _, aerr := d.DecodeFull(got[i], a)
		_, _, berr := d.DecodeFull(want[i], b)
		if (aerr == nil) != (berr == nil) || aerr == nil && !bytes.Equal(a, b) || aerr != nil && !bytes.Equal(got[i], want[i]) {
			t.Errorf("record %d differs: %v, %v", i, aerr, berr)
		}
	}
}

func TestConformance(t *testing.T) {
	root, dir := photos(t), t.TempDir()
	drivertest.Run(t, func(t testing.TB) driver.Source { return cached(t, root, dir) })
}

// Records have the pixels of the files while they are added to the cache, and when they come from
// the cache of the same or another process. This also holds after files have changed.
func TestKept(t *testing.T) {
	root, dir := photos(t), t.TempDir()
	src := folder(t, root)
	want, _ := readAll(t, src)
	c := cached(t, root, dir)
	for round := range 3 {
		got, dct := readAll(t, c)
		same(t, got, want)
		if dct != images-2 {
			t.Errorf("round %d: %d records are dct", round, dct)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if st := c.Stats(); st.Kept != images || st.Misses < images || st.Hits == 0 {
		t.Errorf("%+v", st)
	}
	d, _ := cache.At(dir, 0)
	if n := Cached(src, d); n != images-2 {
		t.Errorf("%d are cached", n)
	}
	c = cached(t, root, dir)
	got, dct := readAll(t, c)
	same(t, got, want)
	if st := c.Stats(); dct != images-2 || st.Kept != 0 || st.Hits != images-2 || st.Misses != 2 || st.Damaged != 0 {
		t.Errorf("again: %d, %+v", dct, st)
	}
	c.Close()

	// A file replaced by another of the same size and time is a new record.
	name := filepath.Join(root, "a/00.jpg")
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(want[0])
	for i := len(b) - 12; i < len(b)-4; i++ {
		b[i] ^= 0x15
	}
	if err := os.WriteFile(name+".new", b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name+".new", st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	// A file changed in place is a new record.
	write(t, root, 3, 1)
	if err := os.Chtimes(filepath.Join(root, "a/03.jpg"), time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	want, _ = readAll(t, folder(t, root))
	c = cached(t, root, dir)
	defer c.Close()
	got, _ = readAll(t, c)
	same(t, got, want)
	if st := c.Stats(); st.Misses != 4 {
		t.Errorf("after two files have changed: %+v", st)
	}
}

// A file that changes while the source is open is read, or fails, as without a cache. This also holds for files of
// the same size and time, written in place or renamed, and nothing of them is cached under the old name.
func TestChanged(t *testing.T) {
	replace := func(name string, b []byte) error {
		if err := os.WriteFile(name+".new", b, 0o644); err != nil {
			return err
		}
		return os.Rename(name+".new", name)
	}
	for what, change := range map[string]func(name string, b []byte) error{
		"in place": func(name string, b []byte) error { return os.WriteFile(name, b, 0o644) },
		"renamed":  replace,
		"gone":     func(name string, _ []byte) error { return os.Remove(name) },
	} {
		for _, restored := range []bool{false, true} {
			if restored && what == "gone" {
				continue
			}
			root, dir := photos(t), t.TempDir()
			c := cached(t, root, dir)
			readAll(t, c)
			name, id := filepath.Join(root, "a/03.jpg"), int64(0)
			for c.Name(id) != name {
				id++
			}
			st, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for i := len(b) - 200; i < len(b)-4; i += 7 {
				b[i] ^= 0x15
			}
			if !restored {
				b = append(b[:len(b)-2], "more\xff\xd9"...)
			}
			if err := change(name, b); err != nil {
				t.Fatal(err)
			}
			if restored {
				if err := os.Chtimes(name, time.Time{}, st.ModTime()); err != nil {
					t.Fatal(err)
				}
			}
			obj := recordread.NewObjects(c, nil)
			for range 2 {
				recs, err := recordread.NewDirect(c, obj).Read(t.Context(), []int64{id, id + 1})
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case !restored && !errors.Is(recs[0].Err, store.ErrChanged):
					t.Errorf("%s: %v", what, recs[0].Err)
				case restored && (recs[0].Err != nil || !bytes.Equal(recs[0].Values[0].Bytes, b)):
					t.Errorf("%s, restored: the old bytes, %v", what, recs[0].Err)
				case recs[1].Err != nil || recs[1].Values[0].Codec != driver.CodecDCT:
					t.Errorf("%s: another record is not cached any more: %v", what, recs[1].Err)
				}
			}
			if err := obj.Close(); err != nil {
				t.Error(err)
			}
			if st := c.Stats(); st.Kept != images || st.Damaged != 0 {
				t.Errorf("%s: %+v", what, st)
			}
			c.Close()
		}
	}
}

func BenchmarkStale(b *testing.B) {
	c := cached(b, photos(b), b.TempDir())
	defer c.Close()
	var g driver.Group
	g.Begin([]int64{3}, len(c.info.Fields))
	e := c.located(&g)[0]
	for b.Loop() {
		if c.stale(3, &e) {
			b.Fatal("nothing has changed")
		}
	}
}

// Records that are damaged in the cache, or missing, are read from the files and cached again.
func TestDamaged(t *testing.T) {
	for name, spoil := range map[string]func(segment string) error{
		"a flipped bit": func(segment string) error {
			b, err := os.ReadFile(segment)
			if err == nil {
				b[2000] ^= 1
				err = os.WriteFile(segment, b, 0o600)
			}
			return err
		},
		"segments gone": os.Remove,
	} {
		root, dir := photos(t), t.TempDir()
		want, _ := readAll(t, folder(t, root))
		c := cached(t, root, dir)
		readAll(t, c)
		c.Close()
		segments, _ := filepath.Glob(filepath.Join(dir, "records", "*", "*.seg"))
		if len(segments) != 1 {
			t.Fatalf("%d segments", len(segments))
		}
		c = cached(t, root, dir)
		if err := spoil(segments[0]); err != nil {
			t.Fatal(err)
		}
		got, _ := readAll(t, c)
		same(t, got, want)
		if c.Stats().Damaged == 0 {
			t.Errorf("%s: %+v", name, c.Stats())
		}
		c.Close()
		c = cached(t, root, dir)
		got, _ = readAll(t, c)
		same(t, got, want)
		c.Close()
	}
}

// If nothing can be cached everything else works, and the reason is reported once.
func TestNoCache(t *testing.T) {
	root := photos(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var said []string
	src := Open(folder(t, root), Options{Dir: file, Say: func(s string) { said = append(said, s) }})
	defer src.Close()
	if _, ok := src.(*Source); ok || len(said) != 1 || !strings.Contains(said[0], "there is no cache") {
		t.Errorf("%T, %q", src, said)
	}
	if got, _ := readAll(t, src); len(got) != images {
		t.Errorf("%d records", len(got))
	}
}

// All records of a group are cached, even if they are more than a batch holds.
func TestLargeGroup(t *testing.T) {
	root := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 8 {
		pix := make([]byte, 300*300*3)
		for k := range pix {
			pix[k] = byte(rng.Uint32())
		}
		jpeg, err := cdec.EncodeJPEG(pix, 300, 300, 3, cdec.EncodeOptions{Quality: 90, HSamp: 1, VSamp: 1})
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(root, "a", fmt.Sprintf("%d.jpg", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, jpeg, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := cached(t, root, t.TempDir())
	c.Keep(3 << 20)
	_, _ = readAll(t, c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if st := c.Stats(); st.Kept != 8 {
		t.Errorf("%+v", st)
	}
}

func TestWrapped(t *testing.T) {
	root := t.TempDir()
	for i := range 6 { // that are not damaged
		write(t, root, i, 0)
	}
	drivertest.Wrapped(t, drivertest.Wrapping{
		Open: func(t testing.TB) driver.Source { return folder(t, root) },
		Wrap: func(t testing.TB, base driver.Source) driver.Source {
			return Open(base, Options{Dir: t.TempDir(), Wait: true, Say: func(s string) { t.Errorf("said: %s", s) }})
		},
		Lacks:   map[string]string{"Chunker": "cached records are not in the chunks of the source"},
		Refuses: []string{"Epochs", "Varied", "Cutter"}, // a record in the cache never differs, and is an image
	})
}
