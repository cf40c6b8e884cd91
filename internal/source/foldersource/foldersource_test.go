package foldersource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func put(t testing.TB, root string, names ...string) {
	t.Helper()
	for _, name := range names {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("content of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A folder of audio files has the same classes and order as a folder of images. A single file
// of it can be read.
func TestSound(t *testing.T) {
	root := t.TempDir()
	for i := range 20 {
		put(t, root, fmt.Sprintf("%c/%02d%s", 'a'+i%3, i, []string{".wav", ".FLAC", ".mp3", ".ogg", ".opus"}[i%5]))
	}
	put(t, root, "a/cover.txt")
	open := func(ctx context.Context, st store.Store) (driver.Source, error) {
		return Open(ctx, "test", st, &Options{Sound: true})
	}
	drivertest.Run(t, func(t testing.TB) driver.Source {
		s, err := open(t.Context(), localstore.New(root))
		if err != nil {
			t.Fatal(err)
		}
		if f := s.Info().Fields; s.Info().Len != 20 || f[0].Name != "audio" || f[0].Kind != driver.KindAudio || len(f[1].Classes) != 3 {
			t.Fatalf("%+v", s.Info())
		}
		return s
	})
	s, err := Open(t.Context(), "test", localstore.New(filepath.Join(root, "b")), &Options{Sound: true, File: "01.FLAC"})
	if err != nil || s.Info().Len != 1 || len(s.Info().Fields) != 1 {
		t.Fatalf("one file: %v", err)
	}
	if rec := drivertest.Records(t, s, 0); rec[0].Err != nil || string(rec[0].Values[0].Bytes) != "content of b/01.FLAC" {
		t.Errorf("one file: %+v", rec[0])
	}
}

func paths(l *Listing) (out []string) {
	for i := range l.Len() {
		out = append(out, fmt.Sprintf("%s=%d", l.Path(i), l.Label(i)))
	}
	return out
}

// The order is that of torchvision's ImageFolder: folders by their whole path, files before the
// folders below, bytes instead of letters.
func TestOrder(t *testing.T) {
	root := t.TempDir()
	put(t, root, "b/2.jpg", "b/10.jpg", "b/sub/0.png", "b-c/1.JPEG", "a/x/deep/1.webp", "a/x-y/1.gif", "a/z.bmp", "Z/1.tif",
		"a/notes.txt", "a/.hidden.jpg", ".git/1.jpg", "a/.cache/1.jpg", "empty/readme.md", "é/1.jpg")
	l, err := Scan(t.Context(), localstore.New(root), ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Z/1.tif=0", "a/z.bmp=1", "a/x/deep/1.webp=1", "a/x-y/1.gif=1", "b/10.jpg=2", "b/2.jpg=2", "b/sub/0.png=2", "b-c/1.JPEG=3", "é/1.jpg=4"}
	// sorted(os.walk("a")) sorts "a/x-y" before "a/x/deep" but after "a/x".
	want[2], want[3] = want[3], want[2]
	if got := paths(l); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// A folder without images is not a class, and is reported.
	if !slices.Equal(l.Classes, []string{"Z", "a", "b", "b-c", "é"}) {
		t.Errorf("classes %q", l.Classes)
	}
	if got := left(l); !strings.Contains(got, "1 folders without images, which are not classes: empty/") {
		t.Errorf("left: %s", got)
	}
	for _, threads := range []int{1, 16} {
		again, err := Scan(t.Context(), localstore.New(root), ScanOptions{Threads: threads})
		if err != nil || again.Fingerprint() != l.Fingerprint() {
			t.Errorf("with %d threads: %v", threads, err)
		}
	}
}

// left returns the skipped files as text.
func left(l *Listing) string {
	var out []string
	for _, s := range l.Left.Skipped() {
		out = append(out, fmt.Sprintf("%d %s: %s", s.Count, s.Reason, strings.Join(s.Examples, " ")))
	}
	return strings.Join(out, "; ")
}

func TestFlatAndMixed(t *testing.T) {
	root := t.TempDir()
	put(t, root, "1.jpg", "2.png", "notes.txt", "labels/list.txt")
	l, err := Scan(t.Context(), localstore.New(root), ScanOptions{})
	if err != nil || l.Classes != nil || !slices.Equal(paths(l), []string{"1.jpg=-1", "2.png=-1"}) {
		t.Errorf("flat: %v, classes %v, %v", paths(l), l.Classes, err)
	}
	if got, want := left(l), "2 text, tables and other files that are not media: labels/list.txt notes.txt"; got != want {
		t.Errorf("flat: got %q, want %q", got, want)
	}
	put(t, root, "cat/3.jpg")
	l, err = Scan(t.Context(), localstore.New(root), ScanOptions{})
	if err != nil || !slices.Equal(paths(l), []string{"cat/3.jpg=0"}) {
		t.Errorf("mixed: %v, %v", paths(l), err)
	}
	want := "2 files next to the class folders, which have no class: 1.jpg 2.png; 1 folders without images, which are not classes: labels/; " +
		"2 text, tables and other files that are not media: labels/list.txt notes.txt"
	if got := left(l); got != want {
		t.Errorf("mixed: got %q, want %q", got, want)
	}
	if _, err := Open(t.Context(), root, localstore.New(root), nil); err != nil {
		t.Errorf("Open: %v", err)
	}
}

// The content decides for files with an undecided name.
func TestNamesWithoutExtension(t *testing.T) {
	root := t.TempDir()
	put(t, root, "cat/notes", "dog/1.old")
	for _, name := range []string{"cat/1", "dog/2.foo", "dog/3.jpg"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("\x89PNG\r\n\x1a\n and more"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Scan(t.Context(), localstore.New(root), ScanOptions{})
	if err != nil || !slices.Equal(paths(l), []string{"cat/1=0", "dog/2.foo=1", "dog/3.jpg=1"}) {
		t.Errorf("%v, %v", paths(l), err)
	}
	if got, want := left(l), "2 content that is not of a known format: cat/notes dog/1.old"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An audio file in an unsupported format is a bad record, and its bytes are not read. The other
// records are good.
func TestUnreadFormats(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a/1.wav", "a/2.mid", "b/3.flac", "b/cover.jpg")
	s, err := Open(t.Context(), "test", localstore.New(root), &Options{Sound: true})
	if err != nil {
		t.Fatal(err)
	}
	recs := drivertest.Records(t, s, 0, 1, 2)
	if err := recs[1].Err; s.Info().Len != 3 || err == nil || !strings.Contains(err.Error(), "a/2.mid: sound of a format that is not read: .mid") {
		t.Errorf("%d records, the second one: %v", s.Info().Len, err)
	}
	if recs[0].Err != nil || recs[2].Err != nil || string(recs[2].Values[0].Bytes) != "content of b/3.flac" {
		t.Errorf("%+v", recs)
	}
	got := driver.GroupSkipped(s)
	if len(got) != 1 || got[0].Bad || got[0].Reason != "images in a folder of sound, which folder:"+root+" reads" || !slices.Equal(got[0].Examples, []string{"b/cover.jpg"}) {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(filepath.Join(root, "a/1.wav")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "b/3.flac")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), "test", localstore.New(root), &Options{Sound: true}); err == nil || !strings.Contains(err.Error(), "a/2.mid: sound of a format that is not read: .mid") {
		t.Errorf("only files that are not read: %v", err)
	}
}

func TestLinks(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	put(t, root, "cat/1.jpg")
	put(t, other, "2.jpg")
	for to, from := range map[string]string{"cat/loop": root, "cat/up": filepath.Join(root, "cat"), "dog": other, "cat/3.jpg": filepath.Join(other, "2.jpg")} {
		if err := os.Symlink(from, filepath.Join(root, to)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Scan(t.Context(), localstore.New(root), ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.Len() {
		if strings.Count(l.Path(i), "loop") > 1 || strings.Contains(l.Path(i), "up/") {
			t.Errorf("went round in a circle: %s", l.Path(i))
		}
	}
	if got := paths(l); !slices.Contains(got, "dog/2.jpg=1") || !slices.Contains(got, "cat/3.jpg=0") {
		t.Errorf("links are not followed: %v", got)
	}
}

// A file that cannot be listed is a bad record in its place. A folder that cannot be read is
// one bad record. Labels are not affected.
func TestBadFiles(t *testing.T) {
	root := t.TempDir()
	put(t, root, "cat/1.jpg", "cat/locked/1.jpg", "dog/1.jpg", "locked/a/1.jpg", "mouse/1.txt")
	dangling := func(name string) {
		if err := os.Symlink("nowhere", filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cat/2.jpg", "dog/0.jpg", "dog/notes", "top.jpg"} {
		dangling(name)
	}
	if err := unix.Mkfifo(filepath.Join(root, "dog/2.jpg"), 0o644); err != nil {
		t.Fatal(err)
	}
	st := faulttest.New(localstore.New(root), 1, faulttest.Error(unix.EACCES).On(faulttest.List).Named("locked"))
	s, err := Open(t.Context(), root, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := []string{"cat/1.jpg 0", "cat/2.jpg 0 no such file", "cat/locked/ 0 permission denied", "dog/0.jpg 1 no such file", "dog/1.jpg 1", "dog/2.jpg 1 not a regular file", "locked/ 2 permission denied"}
	info := s.Info()
	if info.Len != int64(len(want)) || info.BadFiles != 5 || len(info.Bad) != 5 || info.Bad[1].Path != "cat/locked/" || info.Bad[1].Reason != "permission denied" {
		t.Errorf("%+v", info)
	}
	for _, wants := range [][]bool{nil, {false, true}} {
		r := recordread.NewDirect(s, recordread.NewObjects(s, nil))
		r.Want = wants
		recs, err := r.Read(t.Context(), []int64{0, 1, 2, 3, 4, 5, 6})
		if err != nil {
			t.Fatal(err)
		}
		for i, rec := range recs {
			name, text, _ := strings.Cut(want[i], " ")
			class, why, bad := strings.Cut(text, " ")
			switch {
			case s.(driver.Pather).Path(int64(i), 0) != name:
				t.Errorf("record %d is %s, want %s", i, s.(driver.Pather).Path(int64(i), 0), name)
			case bad && wants == nil:
				if rec.Err == nil || !strings.Contains(rec.Err.Error(), why) || !strings.Contains(rec.Err.Error(), filepath.Join(root, name)) {
					t.Errorf("%s: %v", want[i], rec.Err)
				}
			case rec.Err != nil || fmt.Sprint(rec.Values[1].Int) != class:
				t.Errorf("%s: class %d, %v", want[i], rec.Values[1].Int, rec.Err)
			}
		}
	}
	if left := s.(driver.Skipper).Skipped(); len(left) < 2 || left[0].Path != "dog/notes" || left[1].Path != "top.jpg" || left[1].Reason != "no such file or directory" || left[1].Beside {
		t.Errorf("left out: %+v", left)
	}
	// Without a readable file, Open fails. It also fails for an error of the store.
	root = t.TempDir()
	put(t, root, "flat.txt")
	dangling("1.jpg")
	if _, err := Open(t.Context(), root, localstore.New(root), nil); err == nil || !strings.Contains(err.Error(), filepath.Join(root, "1.jpg")) {
		t.Errorf("Open: %v", err)
	}
	dangling("2.jpg")
	if _, err := Open(t.Context(), root, localstore.New(root), nil); err == nil || !strings.HasPrefix(err.Error(), "none of 2 files can be read; the first: ") {
		t.Errorf("Open: %v", err)
	}
	put(t, root, "sub/1.jpg")
	if _, err := Scan(t.Context(), faulttest.New(localstore.New(root), 1, faulttest.Error(unix.EMFILE).On(faulttest.List).Named("sub")), ScanOptions{}); !errors.Is(err, unix.EMFILE) {
		t.Errorf("Scan: %v", err)
	}
}

func TestChangesAreNoticed(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a/1.jpg", "a/2.jpg", "a/3.jpg", "a/4.jpg")
	s, err := Open(t.Context(), root, localstore.New(root), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Remove(filepath.Join(root, "a/1.jpg")))
	must(os.Truncate(filepath.Join(root, "a/2.jpg"), 3))
	must(os.WriteFile(filepath.Join(root, "a/3.jpg"), make([]byte, 100), 0o644))
	recs := drivertest.Records(t, s, 0, 1, 2, 3)
	for i := range 3 {
		if err := recs[i].Err; !errors.Is(err, store.ErrChanged) || !strings.Contains(err.Error(), filepath.Join(root, fmt.Sprintf("a/%d.jpg", i+1))) {
			t.Errorf("record %d: %v", i, err)
		}
	}
	if err := recs[3].Err; err != nil || string(recs[3].Values[0].Bytes) != "content of a/4.jpg" {
		t.Errorf("record 3: %v", err)
	}
}

// The listing is small and does not have a pointer per file.
func BenchmarkScan(b *testing.B) {
	root := b.TempDir()
	for i := range 5000 {
		put(b, root, fmt.Sprintf("class%03d/image_%06d.jpg", i%100, i))
	}
	b.ResetTimer()
	for range b.N {
		if _, err := Scan(b.Context(), localstore.New(root), ScanOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(5000*float64(b.N)/b.Elapsed().Seconds(), "files/s")
}
