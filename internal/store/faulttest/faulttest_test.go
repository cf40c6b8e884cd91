package faulttest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func memory() *storetest.Memory {
	return storetest.NewMemory(map[string][]byte{"a.npy": []byte("0123456789"), "d/b.npy": []byte("abcdefghij")})
}

func read(t *testing.T, s store.Store, name string, off, n int64) ([]byte, error) {
	t.Helper()
	o, err := s.Open(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b := make([]byte, n)
	return b, o.ReadAt(t.Context(), b, off)
}

func TestWhichOperations(t *testing.T) {
	bad := errors.New("bad")
	for _, c := range []struct {
		what  string
		fault *faulttest.Fault
		fails string // of the reads below: object and place
	}{
		{"all", faulttest.Error(bad).On(faulttest.Read), "a0 a5 b0 b5 "},
		{"by name", faulttest.Error(bad).On(faulttest.Read).Named("b.*"), "b0 b5 "},
		{"by path", faulttest.Error(bad).On(faulttest.Read).Named("d/*"), "b0 b5 "},
		{"another path", faulttest.Error(bad).On(faulttest.Read).Named("e/*"), ""},
		{"by place", faulttest.Error(bad).On(faulttest.Read).Bytes(9, 10), "a5 b5 "},
		{"twice", faulttest.Error(bad).On(faulttest.Read).Times(2), "a0 a5 "},
		{"later", faulttest.Error(bad).On(faulttest.Read).After(1).Times(1), "a5 "},
		{"other operations", faulttest.Error(bad).On(faulttest.Stat, faulttest.List), ""},
	} {
		s := faulttest.New(memory(), 1, c.fault)
		got := ""
		for _, name := range []string{"a", "d/b"} {
			for _, off := range []int64{0, 5} {
				if _, err := read(t, s, name+".npy", off, 5); errors.Is(err, bad) {
					got += name[len(name)-1:] + string('0'+byte(off)) + " "
				} else if err != nil {
					t.Error(err)
				}
			}
		}
		if got != c.fails || c.fault.Hits() != int64(len(strings.Fields(c.fails))) {
			t.Errorf("%s: %q fail, want %q; %d hits", c.what, got, c.fails, c.fault.Hits())
		}
	}
}

func TestWhile(t *testing.T) {
	var on atomic.Bool
	s := faulttest.New(memory(), 1, faulttest.Error(syscall.EIO).On(faulttest.Read).While(on.Load))
	for _, want := range []bool{false, true, false} {
		on.Store(want)
		if _, err := read(t, s, "a.npy", 0, 5); errors.Is(err, syscall.EIO) != want {
			t.Errorf("switched on: %v, %v", want, err)
		}
	}
}

func TestChance(t *testing.T) {
	run := func(seed uint64) string {
		s := faulttest.New(memory(), seed, faulttest.Error(syscall.EIO).On(faulttest.Read).Chance(0.3))
		got := make([]byte, 1000)
		for i := range got {
			got[i] = '.'
			if _, err := read(t, s, "a.npy", 0, 1); err != nil {
				got[i] = 'x'
			}
		}
		return string(got)
	}
	a := run(1)
	if n := strings.Count(a, "x"); n < 230 || n > 370 {
		t.Errorf("%d of 1000 fail", n)
	}
	if a != run(1) || a == run(2) {
		t.Error("the seed does not decide")
	}
}

func TestBytes(t *testing.T) {
	s := faulttest.New(memory(), 1, faulttest.Flip(-2).Named("a.npy"), faulttest.Truncate(6).Named("b.npy"))
	if b, err := read(t, s, "a.npy", 4, 6); err != nil || !bytes.Equal(b, []byte{'4', '5', '6', '7', '8' ^ 0x10, '9'}) {
		t.Errorf("flipped: %q, %v", b, err)
	}
	if b, err := read(t, s, "a.npy", 0, 5); err != nil || string(b) != "01234" {
		t.Errorf("bytes without a flipped bit: %q, %v", b, err)
	}
	if b, err := read(t, s, "d/b.npy", 2, 4); err != nil || string(b) != "cdef" {
		t.Errorf("before the end: %q, %v", b, err)
	}
	for _, off := range []int64{3, 8} {
		if _, err := read(t, s, "d/b.npy", off, 2+6/off*2); !errors.Is(err, store.ErrShort) || !errors.Is(err, store.ErrChanged) ||
			!strings.Contains(err.Error(), "memory:d/b.npy, bytes") {
			t.Errorf("behind the end: %v", err)
		}
	}
	o, err := s.Open(t.Context(), "d/b.npy")
	if err != nil {
		t.Fatal(err)
	}
	if o.Size() != 10 {
		t.Errorf("it says that it has %d bytes", o.Size())
	}
	if err := store.Check(t.Context(), o); !errors.Is(err, store.ErrChanged) {
		t.Errorf("checked: %v", err)
	}
	if b, err := read(t, faulttest.New(memory(), 1, faulttest.Short()), "a.npy", 0, 5); !errors.Is(err, store.ErrShort) || string(b) != "01\x00\x00\x00" {
		t.Errorf("short: %q, %v", b, err)
	}
}

func TestChanged(t *testing.T) {
	s := faulttest.New(memory(), 1, faulttest.Changed().Named("a.npy"))
	for name, want := range map[string]bool{"a.npy": true, "d/b.npy": false} {
		e, err := s.Stat(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.OpenEntry(t.Context(), s, e); errors.Is(err, store.ErrChanged) != want {
			t.Errorf("%s: %v", name, err)
		}
		o, err := s.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Check(t.Context(), o); errors.Is(err, store.ErrChanged) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulttest.New(memory(), 1, faulttest.Delay(time.Second).On(faulttest.Read), faulttest.Delay(2*time.Second).On(faulttest.Read).Times(1), faulttest.Hang().On(faulttest.Open).Named("b.npy"))
		start := time.Now()
		for range 2 {
			if _, err := read(t, s, "a.npy", 0, 1); err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(start); d != 4*time.Second {
			t.Errorf("two reads took %v", d)
		}
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Hour, func() { cancel(why) })
		if _, err := s.Open(ctx, "d/b.npy"); !errors.Is(err, why) || !strings.Contains(err.Error(), "memory:d/b.npy") {
			t.Errorf("error is %v", err)
		}
		if d := time.Since(start); d != time.Hour+4*time.Second {
			t.Errorf("it hung for %v", d)
		}
	})
}

// Faults of writing keep the old object, and the upload stays failed.
func TestWriting(t *testing.T) {
	for _, c := range []struct {
		fault *faulttest.Fault
		is    error
	}{
		{faulttest.Error(syscall.ENOSPC).On(faulttest.Create), syscall.ENOSPC},
		{faulttest.Error(syscall.ENOSPC).On(faulttest.Write).Times(1), syscall.ENOSPC},
		{faulttest.Short().On(faulttest.Write).Times(1), io.ErrShortWrite},
		{faulttest.Error(syscall.EIO).On(faulttest.Sync).Times(1), syscall.EIO},
		{faulttest.Error(syscall.EIO).On(faulttest.Commit), syscall.EIO},
	} {
		below := localstore.New(t.TempDir())
		if err := store.WriteFile(t.Context(), below, "x", []byte("old")); err != nil {
			t.Fatal(err)
		}
		w, ok := store.As[store.WriteStore](faulttest.New(below, 1, c.fault))
		if !ok {
			t.Fatal("it cannot be written to")
		}
		err := func() error {
			u, err := w.Create(t.Context(), "x")
			if err != nil {
				return err
			}
			defer u.Abort()
			_, err1 := u.Write([]byte("new"))
			err2 := u.Sync(t.Context())
			err3 := u.Commit(t.Context())
			if err3 == nil {
				t.Errorf("%s: it was committed", c.fault)
			}
			return errors.Join(err1, err2, err3)
		}()
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), below.Path("x")) {
			t.Errorf("%s: %v", c.fault, err)
		}
		if b, err := store.ReadFile(t.Context(), w, "x", 100); err != nil || string(b) != "old" {
			t.Errorf("%s: afterwards there is %q, %v", c.fault, b, err)
		}
	}
}
