// Package selection decides which files of a folder are records. The loader, inspect, pack and
// plan share this decision.
//
// The extension decides if it settles the question. The first bytes decide for files without an
// extension, with an unknown one, or with one that has several meanings (.ts). A file of the
// wanted kind in a format that Stoker does not read is a bad record. Every other file is
// counted by reason.
package selection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/store"
)

// Options select the files of a folder that are records.
type Options struct {
	// Kind is the kind of files that are records. None accepts every file.
	Kind Kind
	// Also, if set, accepts more files by name.
	Also func(name string) bool
	// Only is the name of the one file to list, whatever its extension, "" for all files.
	Only string
	// Late accepts files with an undecided name. The caller reads their headers anyway.
	Late bool
	// Threads limits the folders listed at the same time, 0 for the store's choice.
	Threads int
}

// File is a file that is a record, or a folder that cannot be listed. The name of a folder ends
// in a slash.
type File struct {
	store.Entry
	// Bad is the reason why the record cannot be read, nil for a good record.
	Bad error
}

// Scan calls f with the files of st that are records, in the order of their names. It returns
// the files that it did not select. It opens a file only if its name does not decide.
func Scan(ctx context.Context, st store.Store, o Options, f func(File) error) (*Left, error) {
	s := &scan{ctx: ctx, st: st, o: o, f: f, left: &Left{st: st, kind: o.Kind}}
	err := st.List(ctx, "", &store.ListOptions{
		Folder: true, Threads: o.Threads, Shallow: o.Only != "", Keep: s.keep, Bad: s.bad,
	}, func(e store.Entry) error {
		if e.Dir {
			return nil
		}
		return s.take(e)
	})
	if err == nil {
		err = s.flush()
	}
	return s.left, err
}

// scan is the state of a call of Scan.
type scan struct {
	ctx  context.Context
	st   store.Store
	o    Options
	f    func(File) error
	left *Left
	// held are files that wait for their turn, since the first bytes of some of them decide.
	held []File
	look []int // indexes in held of the undecided files
}

// judge returns the type of a file by its name and the options.
func (s *scan) judge(name string) Type {
	switch {
	case s.o.Only != "":
		return Type{Kind: s.o.Kind, Known: name == s.o.Only}
	case name == "", s.o.Kind == None, s.o.Also != nil && s.o.Also(name):
		return Type{Kind: s.o.Kind, Known: true}
	}
	t := ByName(name)
	if s.o.Late && !t.Known {
		return Type{Kind: s.o.Kind, Known: true}
	}
	return t
}

// keep reports whether a file may be a record. Several goroutines may call it at the same time.
func (s *scan) keep(name string) bool {
	if dir := Litter(name); dir != "" {
		s.left.add(dir+"/", litterReason)
		return false
	}
	if s.o.Only != "" {
		return name == s.o.Only
	}
	if System(name) {
		s.left.add(name, systemReason)
		return false
	}
	t := s.judge(name)
	if t.Known && t.Kind != s.o.Kind {
		s.left.other(name, t)
		return false
	}
	return true
}

// bad handles a file or a folder that cannot be listed.
func (s *scan) bad(e store.Entry, err error) error {
	if !store.IsObjectError(err) {
		return err
	}
	if e.Dir {
		e.Dir = false
		e.Name += "/"
		if dir := Litter(e.Name); dir != "" {
			s.left.add(dir+"/", litterReason)
			return nil
		}
	} else if !s.judge(e.Name).Known { // for example a pipe without a media extension
		s.left.AddBad(e.Name, err)
		return nil
	}
	return s.give(File{Entry: e, Bad: err}, true)
}

const (
	// heldFiles is the number of files that are decided together.
	heldFiles = 4096
	// looks is the number of files that are read at the same time.
	looks = 32
)

func (s *scan) take(e store.Entry) error {
	t := s.judge(e.Name)
	return s.give(File{Entry: e, Bad: s.unread(e.Name, t)}, t.Known)
}

// give passes a file to f in its turn.
func (s *scan) give(file File, known bool) error {
	if known && len(s.held) == 0 {
		return s.f(file)
	}
	if !known {
		s.look = append(s.look, len(s.held))
	}
	s.held = append(s.held, file)
	if len(s.held) == heldFiles {
		return s.flush()
	}
	return nil
}

// unread returns an error for a file of the wanted kind in an unsupported format, else nil.
func (s *scan) unread(name string, t Type) error {
	if t.Unread == "" {
		return nil
	}
	return &store.Error{Op: "read", Path: s.st.Path(name), Err: fmt.Errorf("%s of a format that is not read: %s", t.Kind, t.Unread)}
}

// flush decides the waiting files and passes the records to f.
func (s *scan) flush() error {
	drop := make([]bool, len(s.held))
	types, errs, err := byContent(s.ctx, s.st, len(s.look), func(i int) store.Entry { return s.held[s.look[i]].Entry })
	if err != nil {
		return err
	}
	for i, at := range s.look {
		t, file := types[i], &s.held[at]
		switch {
		case errs[i] != nil: // it may be a record
			file.Bad = errs[i]
		case t.Kind != s.o.Kind:
			s.left.other(file.Name, t)
			drop[at] = true
		default:
			file.Bad = s.unread(file.Name, t)
		}
	}
	for i := range s.held {
		if !drop[i] {
			if err := s.f(s.held[i]); err != nil {
				return err
			}
		}
	}
	s.held, s.look = s.held[:0], s.look[:0]
	return nil
}

// byContent returns the types of n files by their first bytes. It reads several files at the
// same time.
func byContent(ctx context.Context, st store.Store, n int, of func(i int) store.Entry) (types []Type, errs []error, err error) {
	types, errs = make([]Type, n), make([]error, n)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(looks)
	for i := range n {
		g.Go(func() error {
			head, err := read(gctx, st, of(i))
			types[i], errs[i] = ByContent(head), err
			if err != nil && !store.IsObjectError(err) {
				return err
			}
			return context.Cause(gctx)
		})
	}
	return types, errs, g.Wait()
}

// OfFile returns the type of a single file by its first bytes. The kind is None if they cannot be read.
func OfFile(ctx context.Context, st store.Store) Type {
	head, err := read(ctx, st, store.Entry{})
	if err != nil {
		return Type{}
	}
	return ByContent(head)
}

// headBytes is the number of first bytes that decide the type of a file.
const headBytes = 1024

func read(ctx context.Context, st store.Store, e store.Entry) ([]byte, error) {
	o, err := st.Open(ctx, e.Name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b := make([]byte, min(o.Size(), headBytes))
	return b, o.ReadAt(ctx, b, 0)
}

// The first censusNames names of a folder decide its kind. At most censusLooks files are read
// to decide.
const (
	censusNames = 1000
	censusLooks = 32
)

// Census finds the kind of a folder: the kind of most of its media files, by the first names of
// the listing. It counts once for all formats.
type Census struct {
	done bool
	kind Kind
}

// Of returns the kind of the folder st, None for a folder without media. Pictures with the
// names of covers and thumbnails do not count if there are other media. If two kinds have
// equally many files, Of returns the later one in the list of kinds, since recordings often
// have pictures next to them. Of reads files with undecided names only if they could change the
// result.
func (c *Census) Of(ctx context.Context, st store.Store) Kind {
	if !c.done {
		c.done, c.kind = true, census(ctx, st)
	}
	return c.kind
}

func census(ctx context.Context, st store.Store) Kind {
	var n [kinds]int
	var open []string
	seen, covers := 0, 0
	enough := errors.New("enough")
	err := st.List(ctx, "", &store.ListOptions{
		Names: true, Threads: 1, Bad: filelist.LeaveOut,
	}, func(e store.Entry) error {
		if seen++; seen > censusNames {
			return enough
		}
		if e.Dir || Litter(e.Name) != "" || System(e.Name) {
			return nil
		}
		switch t := ByName(e.Name); {
		case !t.Known:
			open = append(open, e.Name)
		case t.Kind == Image && isCover(e.Name):
			covers++
		default:
			n[t.Kind]++
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return None
	}
	n[None] = 0
	best := most(&n)
	if len(open) > 0 && len(open) >= n[best] {
		some := min(len(open), censusLooks)
		types, _, err := byContent(ctx, st, some, func(i int) store.Entry { return store.Entry{Name: open[i*len(open)/some]} })
		if err != nil {
			return None
		}
		for _, t := range types {
			n[t.Kind] += len(open) / some
		}
		n[None] = 0
		best = most(&n)
	}
	if n[best] == 0 && covers > 0 {
		return Image
	}
	return best
}

func most(n *[kinds]int) Kind {
	best := None
	for k := range kinds {
		if n[k] > 0 && n[k] >= n[best] {
			best = k
		}
	}
	return best
}

// isCover reports whether a picture has the name of a cover or a thumbnail.
func isCover(name string) bool {
	base := strings.ToLower(path.Base(name))
	base = strings.TrimSuffix(base, path.Ext(base))
	for _, c := range []string{"cover", "folder", "front", "back", "poster", "fanart", "banner", "albumart", "thumb", "preview"} {
		if strings.Trim(strings.TrimPrefix(base, c), "s_-. 0123456789") == "" && strings.HasPrefix(base, c) {
			return true
		}
	}
	return strings.HasPrefix(base, "albumart") || strings.HasSuffix(base, "_thumb") || strings.HasSuffix(base, "-thumb")
}

// Names is Scan into a list of files.
func Names(ctx context.Context, st store.Store, o Options) (*filelist.List, *Left, error) {
	l := &filelist.List{Store: st}
	left, err := Scan(ctx, st, o, func(f File) error {
		l.Add(f.Entry)
		if f.Bad != nil {
			return l.Bad.Note(l.Len()-1, f.Bad)
		}
		return nil
	})
	return l, left, err
}
