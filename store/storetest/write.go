package storetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/store"
)

// write tests that objects appear as a whole or not at all.
func (s Suite) write(t *testing.T) {
	st, all := s.open(t)
	w, ok := store.As[store.WriteStore](st)
	if !ok {
		t.Skip("it cannot be written to")
	}
	for _, name := range BadNames {
		if u, err := w.Create(t.Context(), name); !errors.Is(err, store.ErrName) {
			t.Errorf("Create(%.20q): error is %.80v", name, err)
			if err == nil {
				_ = u.Abort()
			}
		}
		if err := w.Remove(t.Context(), name); !errors.Is(err, store.ErrName) {
			t.Errorf("Remove(%.20q): error is %.80v", name, err)
		}
	}
	u, err := w.Create(t.Context(), "new/folder/x")
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat(large(), 8)
	for at := 0; at < len(data); at += 3 << 20 {
		if n, err := u.Write(data[at:min(at+3<<20, len(data))]); err != nil || n != min(3<<20, len(data)-at) {
			t.Fatalf("%d bytes written: %v", n, err)
		}
	}
	if err := u.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.Stat(t.Context(), "new/folder/x"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("it is there before Commit: %v", err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, err := store.ReadFile(t.Context(), w, "new/folder/x", 1<<30); err != nil || !bytes.Equal(b, data) {
		t.Errorf("after Commit: %v", err)
	}
	if err := u.Abort(); err != nil {
		t.Errorf("Abort after Commit: %v", err)
	}
	if _, err := u.Write([]byte("x")); err == nil {
		t.Error("it can be written to after Commit")
	}
	if err := u.Commit(t.Context()); err == nil {
		t.Error("it can be committed twice")
	}

	// Replace an object. An open one keeps its content or reports the change.
	old := open(t, st, "b.txt")
	if err := store.WriteFile(t.Context(), w, "b.txt", []byte("new")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, old.Size())
	if err := old.ReadAt(t.Context(), got, 0); err == nil && !bytes.Equal(got, all["b.txt"]) || err != nil && !errors.Is(err, store.ErrChanged) {
		t.Errorf("an object that was replaced: %v", err)
	}
	if b, err := store.ReadFile(t.Context(), w, "b.txt", 100); err != nil || string(b) != "new" {
		t.Errorf("what replaced it: %q, %v", b, err)
	}

	u, err = w.Create(t.Context(), "b.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write([]byte("never")); err != nil {
		t.Fatal(err)
	}
	if err := u.Abort(); err != nil {
		t.Fatal(err)
	}
	if err := u.Abort(); err != nil {
		t.Fatalf("the second Abort: %v", err)
	}
	if b, err := store.ReadFile(t.Context(), w, "b.txt", 100); err != nil || string(b) != "new" {
		t.Errorf("after Abort: %q, %v", b, err)
	}
	equal(t, "what is left", names(list(t, w, "new", &store.ListOptions{Hidden: true})), []string{"new/folder/x"})

	if err := w.Remove(t.Context(), "new/folder/x"); err != nil {
		t.Error(err)
	}
	if err := w.Remove(t.Context(), "new/folder/x"); !errors.Is(err, store.ErrNotExist) || !strings.Contains(err.Error(), w.Path("new/folder/x")) {
		t.Errorf("removing it twice: error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Create(ctx, "y"); !errors.Is(err, context.Canceled) {
		t.Errorf("Create that is cancelled: error is %v", err)
	}
}

// locked checks that an upload that is being written can be neither continued nor begun.
func (s Suite) locked(t *testing.T, st store.Store, name string) {
	t.Helper()
	other, ctx := st, t.Context()
	if s.Again != nil {
		other = s.Again(t, st)
	}
	if or, ok := store.As[store.Resumer](other); ok {
		if q, err := or.Resume(ctx, name); !errors.Is(err, store.ErrLocked) {
			t.Errorf("resumed twice: error is %v", err)
			if err == nil {
				_ = q.Suspend(ctx)
			}
		}
	}
	if w, ok := store.As[store.WriteStore](other); ok {
		if q, err := w.Create(ctx, name); !errors.Is(err, store.ErrLocked) {
			t.Errorf("created while it is written: error is %v", err)
			if err == nil {
				_ = q.Abort()
			}
		}
	}
}

// resume tests uploads that are continued.
func (s Suite) resume(t *testing.T) {
	st, _ := s.open(t)
	r, ok := store.As[store.Resumer](st)
	if !ok {
		t.Skip("its uploads do not outlive the process")
	}
	ctx := t.Context()
	p, err := r.Resume(ctx, "out/x")
	if err != nil {
		t.Fatal(err)
	}
	if p.Size() != 0 {
		t.Errorf("a new upload has %d bytes", p.Size())
	}
	write := func(text string) {
		t.Helper()
		if _, err := p.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	content := func(want string) {
		t.Helper()
		got := make([]byte, p.Size())
		if err := p.ReadAt(ctx, got, 0); err != nil || string(got) != want {
			t.Errorf("the upload has %q, want %q: %v", got, want, err)
		}
	}
	write("hello world")
	content("hello world")
	if err := p.ReadAt(ctx, make([]byte, 5), 7); !errors.Is(err, store.ErrShort) || !strings.Contains(err.Error(), "bytes 7 to 12") {
		t.Errorf("reading after its end: error is %v", err)
	}
	s.locked(t, st, "out/x")
	if err := p.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Abort(); err != nil {
		t.Fatalf("Abort after Suspend: %v", err)
	}
	again := func() {
		t.Helper()
		if p, err = r.Resume(ctx, "out/x"); err != nil {
			t.Fatal(err)
		}
	}
	again()
	content("hello world")
	for _, size := range []int64{-1, 12} {
		if p.Truncate(size) == nil {
			t.Errorf("cut to %d bytes", size)
		}
	}
	if err := p.Truncate(5); err != nil {
		t.Fatal(err)
	}
	write(", you")
	content("hello, you")
	if err := p.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if b, err := store.ReadFile(ctx, st, "out/x", 100); err != nil || string(b) != "hello, you" {
		t.Errorf("after Commit: %q, %v", b, err)
	}

	// A resumed object is not visible until it is committed again.
	again()
	content("hello, you")
	if _, err := st.Stat(ctx, "out/x"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("an object that was taken back is there: %v", err)
	}
	write("!")
	if err := p.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if b, err := store.ReadFile(ctx, st, "out/x", 100); err != nil || string(b) != "hello, you!" {
		t.Errorf("after the second Commit: %q, %v", b, err)
	}
	again()
	if err := p.Abort(); err != nil {
		t.Fatal(err)
	}
	again()
	if p.Size() != 0 {
		t.Errorf("after Abort there are %d bytes", p.Size())
	}
	if err := p.Abort(); err != nil {
		t.Fatal(err)
	}
	// If folders are only prefixes, the folder no longer exists.
	if err := st.List(ctx, "out", &store.ListOptions{Hidden: true}, func(e store.Entry) error {
		t.Errorf("what is left: %q", e.Name)
		return nil
	}); err != nil && !errors.Is(err, store.ErrNotExist) {
		t.Error(err)
	}
}
