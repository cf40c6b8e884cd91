package localstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/store"
)

// stale makes a share of the system calls return ESTALE.
func stale(s *Store, share float64) (count *atomic.Int64) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 5))
	count = new(atomic.Int64)
	s.fault = func() error {
		mu.Lock()
		defer mu.Unlock()
		if rng.Float64() < share {
			count.Add(1)
			return unix.ESTALE
		}
		return nil
	}
	return count
}

func names(t *testing.T, s *Store) (out []string) {
	t.Helper()
	if err := s.List(t.Context(), "", nil, func(e store.Entry) error {
		out = append(out, fmt.Sprint(e.Name, " ", e.Size))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// Stale handles do not disturb listing, stat, opening and reading, as long as the files are unchanged.
func TestStaleHandles(t *testing.T) {
	root := t.TempDir()
	data := map[string][]byte{}
	for i := range 40 {
		name := fmt.Sprintf("d%d/f%02d", i%3, i)
		data[name] = bytes.Repeat([]byte{byte(i), 1, 2}, 5_000*i)
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), data[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := names(t, New(root))
	try := func(s *Store, name string, b []byte) {
		if e, err := s.Stat(t.Context(), name); err != nil || e.Size != int64(len(b)) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		o, err := s.Open(t.Context(), name)
		if err != nil {
			t.Error(err)
			return
		}
		defer o.Close()
		got := make([]byte, len(b))
		if err := o.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: %v", name, err)
		}
		if err := store.Check(t.Context(), o); err != nil {
			t.Error(err)
		}
		clear(got)
		d, _ := store.As[store.DirectReader](o)
		err = d.ReadDirect(t.Context(), got, 0)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: directly: %v", name, err)
		}
	}
	// A sequence of calls can bear many stale handles, since its calls are the same each time. With concurrent
	// calls only a few are stale, because otherwise one of the calls could fail too often in a row.
	s := New(root)
	count := stale(s, 0.15)
	for _, line := range want {
		name, _, _ := strings.Cut(line, " ")
		try(s, name, data[name])
	}
	s = New(root)
	more := stale(s, 0.01)
	for range 5 {
		if got := names(t, s); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	}
	var wg sync.WaitGroup
	for name, b := range data {
		wg.Go(func() { try(s, name, b) })
	}
	wg.Wait()
	if count.Load() < 10 || more.Load() == 0 {
		t.Errorf("%d and %d handles were stale", count.Load(), more.Load())
	}
}

// once makes the next system call return ESTALE.
func once(s *Store) {
	var done atomic.Bool
	s.fault = func() error {
		if done.Swap(true) {
			return nil
		}
		return unix.ESTALE
	}
}

// A file that was changed or removed is reported, and no byte of another file is read. A handle that stays stale
// becomes an error.
func TestStaleAndChanged(t *testing.T) {
	s := New(filepath.Join(t.TempDir(), "file"))
	const size = 3 * 4096
	write := func(b byte, at time.Time) {
		t.Helper()
		tmp := s.root + ".new"
		if err := os.WriteFile(tmp, bytes.Repeat([]byte{b}, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(tmp, at, at); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, s.root); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	write('a', now)
	o, err := s.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	got := arena.Aligned(size, alignment)
	read := func() error { once(s); return o.ReadAt(t.Context(), got, 0) }
	// The same file under the same name is read, with its new handle.
	write('a', now)
	if err := read(); err != nil || !bytes.Equal(got, bytes.Repeat([]byte("a"), size)) {
		t.Error(err)
	}
	clear(got)
	write('b', now.Add(time.Second))
	if err := read(); !errors.Is(err, store.ErrChanged) || !bytes.Equal(got, make([]byte, size)) {
		t.Errorf("%v", err)
	}
	once(s)
	if err := store.Check(t.Context(), o); !errors.Is(err, store.ErrChanged) {
		t.Errorf("%v", err)
	}
	once(s)
	d, _ := store.As[store.DirectReader](o)
	if err := d.ReadDirect(t.Context(), got, 0); !errors.Is(err, store.ErrChanged) && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if err := os.Remove(s.root); err != nil {
		t.Fatal(err)
	}
	if err := read(); !errors.Is(err, store.ErrChanged) || !errors.Is(err, store.ErrNotExist) {
		t.Errorf("%v", err)
	}
	write('a', now)
	stale(s, 1)
	if err := o.ReadAt(t.Context(), got, 0); !errors.Is(err, unix.ESTALE) {
		t.Errorf("%v", err)
	}
	if _, err := s.Stat(t.Context(), ""); !errors.Is(err, unix.ESTALE) {
		t.Errorf("%v", err)
	}
	if err := New(filepath.Dir(s.root)).List(t.Context(), "", nil, func(store.Entry) error { return nil }); err != nil {
		t.Error(err)
	}
	l := New(filepath.Dir(s.root))
	stale(l, 1)
	if err := l.List(t.Context(), "", nil, func(store.Entry) error { return nil }); !errors.Is(err, unix.ESTALE) {
		t.Errorf("%v", err)
	}
}

// The files of a large folder are looked at several at a time, and listed in order.
func TestLargeFolder(t *testing.T) {
	root := t.TempDir()
	const n = 5*atOnce + 17
	for i := range n {
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("%07d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, threads := range []int{0, 1, 3} {
		i := 0
		err := New(root).List(t.Context(), "", &store.ListOptions{Threads: threads}, func(e store.Entry) error {
			if e.Name != fmt.Sprintf("%07d", i) || e.Version == "" {
				return fmt.Errorf("file %d is %+v", i, e)
			}
			i++
			return nil
		})
		if err != nil || i != n {
			t.Errorf("%d threads: %d, %v", threads, i, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	err := New(root).List(ctx, "", &store.ListOptions{Keep: func(name string) bool {
		if name == "0004000" {
			cancel(enough)
		}
		return true
	}}, func(store.Entry) error { return nil })
	if !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}
