package localstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func list(t *testing.T, s store.Store, opt *store.ListOptions) (names []string, err error) {
	t.Helper()
	err = s.List(t.Context(), "", opt, func(e store.Entry) error {
		names = append(names, e.Name)
		return nil
	})
	return names, err
}

func TestLinksAreFollowed(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	s := localstore.New(dir)
	put(t, s, "a/x", []byte("1"))
	put(t, localstore.New(other), "y", []byte("22"))
	for link, target := range map[string]string{"a/loop": "..", "b": other, "c": filepath.Join(other, "y")} {
		if err := os.Symlink(target, s.Path(link)); err != nil {
			t.Fatal(err)
		}
	}
	names, err := list(t, s, nil)
	if err != nil || !slices.Equal(names, []string{"a/x", "b/y", "c"}) {
		t.Errorf("%q, %v", names, err)
	}
	if b, err := store.ReadFile(t.Context(), s, "c", 10); err != nil || string(b) != "22" {
		t.Errorf("%q, %v", b, err)
	}
}

// Entries that cannot be read fail the listing or go to Bad. Errors of entries that are not listed do not matter.
func TestListBad(t *testing.T) {
	s := localstore.New(t.TempDir())
	put(t, s, "a", nil)
	put(t, s, "z", nil)
	put(t, s, "closed/x", nil)
	if err := os.Symlink("nowhere", s.Path("dangling")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(s.Path("pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("unix", s.Path("socket")); err != nil {
		t.Fatal(err)
	} else {
		defer l.Close()
	}
	if err := os.Symlink("self", s.Path("self")); err != nil {
		t.Fatal(err)
	}
	want := []string{"dangling", "pipe", "self", "socket"}
	if os.Getuid() != 0 {
		if err := os.Chmod(s.Path("closed"), 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(s.Path("closed"), 0o755)
		want = slices.Insert(want, 0, "closed")
	}
	if _, err := list(t, s, nil); err == nil || !strings.Contains(err.Error(), s.Path(want[0])) {
		t.Errorf("error is %v", err)
	}
	var bad []string
	names, err := list(t, s, &store.ListOptions{Bad: func(e store.Entry, err error) error {
		if !strings.Contains(err.Error(), s.Path(e.Name)) || !store.IsObjectError(err) || e.Dir != (e.Name == "closed") {
			t.Errorf("%+v: error is %v", e, err)
		}
		bad = append(bad, e.Name)
		return nil
	}})
	if names = slices.DeleteFunc(names, func(n string) bool { return n == "closed/x" }); err != nil || !slices.Equal(names, []string{"a", "z"}) {
		t.Errorf("%q, %v", names, err)
	}
	if !slices.Equal(bad, want) {
		t.Errorf("bad are %q, want %q", bad, want)
	}
	if os.Getuid() == 0 {
		names, err := list(t, s, &store.ListOptions{Keep: func(n string) bool { return n == "z" }})
		if err != nil || !slices.Equal(names, []string{"z"}) {
			t.Errorf("%q, %v", names, err)
		}
	}
	stop := errors.New("stop")
	if _, err := list(t, s, &store.ListOptions{Bad: func(store.Entry, error) error { return stop }}); err != stop {
		t.Errorf("error is %v", err)
	}
}

// Opening a pipe without a writer does not block.
func TestPipe(t *testing.T) {
	s := localstore.New(t.TempDir())
	if err := unix.Mkfifo(s.Path("pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), "pipe"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("error is %v", err)
	}
}

func TestManyFolders(t *testing.T) {
	s := localstore.New(t.TempDir())
	var want []string
	for i := range 200 {
		for k := range 3 {
			name := fmt.Sprintf("%03d/%d/x", i, k)
			put(t, s, name, nil)
			want = append(want, name)
		}
	}
	for _, threads := range []int{0, 1, 3} {
		names, err := list(t, s, &store.ListOptions{Threads: threads})
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("%d threads: %d names, %v", threads, len(names), err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := s.List(ctx, "", nil, func(store.Entry) error {
		if n++; n == 100 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n == len(want) {
		t.Errorf("%d entries, %v", n, err)
	}
}

// A file that was cut while it is open is reported, with the range.
func TestCutFile(t *testing.T) {
	s := localstore.New(t.TempDir())
	put(t, s, "x", make([]byte, 10_000))
	o, err := s.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := os.Truncate(s.Path("x"), 5000); err != nil {
		t.Fatal(err)
	}
	read := map[string]func(context.Context, []byte, int64) error{"ReadAt": o.ReadAt}
	if d, ok := store.As[store.DirectReader](o); ok {
		read["ReadDirect"] = d.ReadDirect
	}
	for how, read := range read {
		for _, c := range []struct{ off, n int64 }{{4000, 2000}, {9000, 10}, {0, 10_000}} {
			err := read(t.Context(), make([]byte, c.n), c.off)
			if errors.Is(err, errors.ErrUnsupported) {
				continue
			}
			if !errors.Is(err, store.ErrShort) || !errors.Is(err, store.ErrChanged) || !strings.Contains(err.Error(), fmt.Sprintf("%s, bytes %d to %d", s.Path("x"), c.off, c.off+c.n)) {
				t.Errorf("%s: error is %v", how, err)
			}
		}
	}
	if err := store.Check(t.Context(), o); !errors.Is(err, store.ErrChanged) {
		t.Errorf("error is %v", err)
	}
}

// Files with a modification time in 1970 work.
func TestOldFile(t *testing.T) {
	s := localstore.New(t.TempDir())
	put(t, s, "x", []byte("one"))
	if err := os.Chtimes(s.Path("x"), time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	e, err := s.Stat(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.List(t.Context(), "", nil, func(got store.Entry) error {
		if got != e || got.Size != 3 || got.Version == "" {
			t.Errorf("listed as %+v, Stat says %+v", got, e)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// A change that keeps the size is noticed by the modification time.
func TestChangedTime(t *testing.T) {
	s := localstore.New(t.TempDir())
	put(t, s, "x", []byte("one"))
	e, err := s.Stat(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(s.Path("x"), time.Time{}, e.ModTime.Add(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenEntry(t.Context(), s, e); !errors.Is(err, store.ErrChanged) {
		t.Errorf("error is %v", err)
	}
}

func TestTooManyFiles(t *testing.T) {
	s := localstore.New(t.TempDir())
	put(t, s, "x", nil)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := old
	few.Cur = 64
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	for range 100 {
		o, err := s.Open(t.Context(), "x")
		if err != nil {
			if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
				t.Errorf("error is %v", err)
			}
			return
		}
		defer o.Close()
	}
	t.Error("more files are open than may be")
}

func TestPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may do everything")
	}
	s := localstore.New(t.TempDir())
	put(t, s, "x", nil)
	if err := os.Chmod(s.Path("x"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), "x"); !errors.Is(err, store.ErrPermission) {
		t.Errorf("error is %v", err)
	}
}

// Of many writers of one object, one at a time writes.
func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for w := range 8 {
		wg.Go(func() {
			s := localstore.New(dir)
			for range 20 {
				p, err := s.Resume(t.Context(), "x")
				if errors.Is(err, store.ErrLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				// No other writer may come between these.
				if err := p.Truncate(0); err != nil {
					t.Error(err)
				}
				for range 3 {
					if _, err := fmt.Fprintf(p, "%d\n", w); err != nil {
						t.Error(err)
					}
				}
				b := make([]byte, p.Size())
				if err := p.ReadAt(t.Context(), b, 0); err != nil || string(b) != strings.Repeat(fmt.Sprintln(w), 3) {
					t.Errorf("%q, %v", b, err)
				}
				mu.Lock()
				done++
				end := p.Suspend
				if done%3 == 0 {
					end = p.Commit
				}
				mu.Unlock()
				if err := end(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if done == 0 {
		t.Error("nobody wrote")
	}
}

// A listing of names alone does not stat files, except symbolic links.
func TestListNames(t *testing.T) {
	s := localstore.New(t.TempDir())
	put(t, s, "a", []byte("1"))
	put(t, s, "d/b", []byte("22"))
	if err := os.Symlink("d", s.Path("link")); err != nil {
		t.Fatal(err)
	}
	var got []store.Entry
	if err := s.List(t.Context(), "", &store.ListOptions{Names: true}, func(e store.Entry) error {
		got = append(got, e)
		return nil
	}); err != nil || !slices.Equal(got, []store.Entry{{Name: "a"}, {Name: "d/b"}, {Name: "link/b"}}) {
		t.Errorf("%+v, %v", got, err)
	}
}
