package drivertest

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// BadFiles is a folder of files that are records each, or several records each, for the
// tests of what becomes of one that is bad.
type BadFiles struct {
	// Folder has good files alone, two or more.
	Folder string
	// Name is the name of another file of that kind, which the folder does not have.
	Name string
	// Content is that of a good file. The first half of such a file is bad.
	Content []byte
	// Strip removes the parts of a value that depend on the other files, nil for nothing.
	Strip func(v *driver.Value)
	// Late says that the contents of files may be looked at only when records are read, and
	// Opaque that they are not looked at at all: only files that cannot be listed are bad then.
	Late, Opaque bool
	Open         OpenStore
}

// Run adds one bad file to the folder, in each way that files are bad. Opening succeeds, the
// records of the good files are what they were, and one record more has an error that names
// the file. If all files are bad, opening fails and names the first one. A fault of the
// machine ends opening. A folder that cannot be read is a bad record, too, or is skipped.
func (b BadFiles) Run(t *testing.T) {
	noise := make([]byte, 4096)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	write := func(data []byte) func(string) error {
		return func(p string) error { return os.WriteFile(p, data, 0o644) }
	}
	good := write(b.Content)
	base := path.Base(b.Name)
	clean := b.read(t, localstore.New(b.Folder), "", false)
	for _, c := range []struct {
		name    string
		make    func(p string) error
		content bool
		fault   *faulttest.Fault
		run     error // that ends it
	}{
		{name: "cut", make: write(b.Content[:len(b.Content)/2]), content: true},
		{name: "cut in its head", make: write(b.Content[:6]), content: true},
		{name: "empty", make: write(nil), content: true},
		{name: "random", make: write(noise), content: true},
		{name: "a dangling link", make: func(p string) error { return os.Symlink("nowhere", p) }},
		{name: "a link to itself", make: func(p string) error { return os.Symlink(path.Base(p), p) }},
		{name: "a pipe", make: func(p string) error { return unix.Mkfifo(p, 0o644) }},
		{name: "a socket", make: func(p string) error {
			// The paths of sockets are short.
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			if err == nil {
				t.Cleanup(func() { l.Close() })
				err = os.Symlink(l.Addr().String(), p)
			}
			return err
		}},
		{name: "without permission", make: good, content: true, fault: faulttest.Error(syscall.EACCES).On(faulttest.Open).Named(base)},
		{name: "on a bad sector", make: good, content: true, fault: faulttest.Error(syscall.EIO).On(faulttest.Read).Named(base)},
		{name: "without memory", make: good, content: true, fault: faulttest.Error(syscall.ENOMEM).On(faulttest.Open).Named(base), run: syscall.ENOMEM},
		{name: "without descriptors", make: good, content: true, fault: faulttest.Error(syscall.EMFILE).On(faulttest.Open).Named(base), run: syscall.EMFILE},
	} {
		if c.content && (b.Opaque || b.Late && c.fault != nil) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			dir := Copied(t, b.Folder)
			p := filepath.Join(dir, b.Name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), c.make(p)); err != nil {
				t.Fatal(err)
			}
			st := store.Store(localstore.New(dir))
			if c.fault != nil {
				st = faulttest.New(st, 1, c.fault)
			}
			if c.run != nil {
				s, err := b.Open(t.Context(), st)
				if err == nil {
					s.Close()
				}
				if !errors.Is(err, c.run) {
					t.Errorf("opening: %v", err)
				}
				return
			}
			got := b.read(t, st, b.Name, b.Late && c.content)
			if len(got) != len(clean)+1 {
				t.Fatalf("%d records, want %d and a bad one", len(got), len(clean))
			}
			bad := 0
			for i, r := range got {
				switch {
				case r.err != nil:
					if bad++; !strings.Contains(r.err.Error(), p) || strings.Contains(r.err.Error(), "\n") {
						t.Errorf("record %d: %v", i, r.err)
					}
				case i-bad >= len(clean) || !same(r.values, clean[i-bad].values):
					t.Errorf("record %d has wrong content", i)
				}
			}
			if bad != 1 {
				t.Errorf("%d bad records", bad)
			}
		})
	}
	t.Run("all", b.all)
	t.Run("a closed folder", func(t *testing.T) { b.closed(t, len(clean)) })
}

// all checks that opening fails if all files are bad, and names the first one.
func (b BadFiles) all(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{b.Name, strings.TrimSuffix(b.Name, path.Ext(b.Name)) + "z" + path.Ext(b.Name)} {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.Symlink("nowhere", p)); err != nil {
			t.Fatal(err)
		}
		s, err := b.Open(t.Context(), localstore.New(dir))
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, b.Name)) {
			t.Errorf("%d files: %v", i+1, err)
		}
	}
}

// closed checks a folder that cannot be read next to the good files.
func (b BadFiles) closed(t *testing.T, clean int) {
	dir := Copied(t, b.Folder)
	closed := path.Join(path.Dir(b.Name), "locked")
	Put(t, dir, path.Join(closed, path.Base(b.Name)), b.Content)
	st := faulttest.New(localstore.New(dir), 1, faulttest.Error(syscall.EACCES).On(faulttest.List).Named("locked"))
	s, err := b.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if sk, ok := s.(driver.Skipper); ok && slices.ContainsFunc(sk.Skipped(), func(l driver.Skipped) bool { return l.Path == closed+"/" && !l.Beside }) {
		return
	}
	got := b.read(t, st, closed, false)
	bad := 0
	for _, r := range got {
		if r.err != nil {
			bad++
		}
	}
	if bad != 1 || len(got) != clean+1 {
		t.Errorf("%d records, %d bad", len(got), bad)
	}
}

// result is the outcome of reading a record.
type result struct {
	values copied
	err    error
}

// read reads all records. bad is the one file that is known to be bad, "" for none; late says
// that it may not be known yet.
func (b BadFiles) read(t *testing.T, st store.Store, bad string, late bool) []result {
	t.Helper()
	s, err := b.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{s, recordread.NewObjects(s, nil)}
	defer o.Close()
	info := s.Info()
	switch {
	case late && info.BadFiles == 0:
	case bad == "" && (info.BadFiles != 0 || info.Bad != nil):
		t.Errorf("%d files are bad: %v", info.BadFiles, info.Bad)
	case bad != "" && (info.BadFiles != 1 || len(info.Bad) != 1 || strings.TrimSuffix(info.Bad[0].Path, "/") != bad || info.Bad[0].Reason == "" || strings.Contains(info.Bad[0].Reason, st.Path(""))):
		t.Errorf("%d files are bad: %v, want %s", info.BadFiles, info.Bad, bad)
	}
	r := recordread.NewDirect(s, o.obj)
	var all []result
	for id := range info.Len {
		recs, err := r.Read(t.Context(), []int64{id})
		if err != nil {
			t.Fatal(err)
		}
		if recs[0].Err != nil {
			all = append(all, result{err: recs[0].Err})
			_ = s.Name(id) // of what cannot be read
			continue
		}
		values := copyRecord(&recs[0])
		for i := range values {
			if b.Strip != nil {
				b.Strip(&values[i])
			}
		}
		all = append(all, result{values: values})
	}
	return all
}
