// Package bucket makes a store of a server of objects. What S3, Google's and Azure's
// servers have in common is here: names below a prefix, listings, folders that are
// only prefixes, uploads in parts, and uploads that outlive the process. What is
// particular to one is a Driver.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stokerdata/stoker/store"
)

// Info is what a server says of an object.
type Info struct {
	Key  string
	Size int64
	// Version is another one for another content: an ETag, a generation.
	Version string
	ModTime time.Time
	// Now is the server's clock at its answer, zero where it did not say.
	Now time.Time
}

// Query asks for a page of a listing.
type Query struct {
	Prefix string
	// Folders asks for what is behind the next slash as one prefix.
	Folders bool
	// Next is where the last page said to go on, "" for the first.
	Next string
	// Max is how many are wanted at most, 0 for as many as the server gives.
	Max int
}

// Page is a part of a listing, both in the order of their keys.
type Page struct {
	Objects  []Info
	Prefixes []string
	// Next asks for the next page, "" when this is the last one.
	Next string
}

// Condition is what must be so for an object to be put or removed.
type Condition struct {
	// Absent: there is none.
	Absent bool
	// Version: it is this one.
	Version string
}

// Driver speaks to one bucket of a server. Its methods may be called from several
// goroutines at once. Errors wrap the classes of package store; what may pass was
// tried again before it is an error.
type Driver interface {
	// URL names the bucket, without secrets and without a slash at its end.
	URL() string
	// Stat describes an object.
	Stat(ctx context.Context, key string) (Info, error)
	// List gives a page of a listing.
	List(ctx context.Context, q Query) (Page, error)
	// ReadAt fills p from offset off of the version that i is, or fails.
	ReadAt(ctx context.Context, i Info, p []byte, off int64) error
	// Put makes an object of a few megabytes. A condition that is not so is ErrChanged.
	Put(ctx context.Context, key string, data []byte, c Condition) (Info, error)
	// Delete removes an object. That there is none may be no error.
	Delete(ctx context.Context, key string) error
	// Begin begins an object that comes in parts.
	Begin(ctx context.Context, key string) (Parts, error)
	// Concat makes an object of others, each of which but the last has LeastPart bytes
	// or more.
	Concat(ctx context.Context, key string, pieces []Info) error
	// Sweep removes what unfinished uploads to key have left that nobody sees.
	Sweep(ctx context.Context, key string) error
	// Close releases the connections.
	Close() error
}

// Whole is a Driver that reads small objects that nobody has asked about yet.
type Whole interface {
	// ReadWhole reads an object of limit bytes at most, and describes it.
	ReadWhole(ctx context.Context, key string, limit int) ([]byte, Info, error)
}

// Parts is an object that is being written. Part may be called from several
// goroutines at once.
type Parts interface {
	// Part writes the part of a number, from 1 on. All but the last have LeastPart bytes
	// or more.
	Part(ctx context.Context, n int, data []byte) error
	// Finish makes the object of parts 1 to n.
	Finish(ctx context.Context, n int) error
	// Abort leaves nothing of it.
	Abort(ctx context.Context) error
}

// LeastPart is the least that a part may have, of all servers.
const LeastPart = 5 << 20

// Store is what lies below a prefix of a bucket.
type Store struct {
	d Driver
	// root is the prefix without the slash behind it, "" for the whole bucket.
	root string
	// folder says that the URL ended in a slash: it is no object itself.
	folder bool
	// limit bounds the objects of a listing.
	limit int64
	// bad is why there is no such store.
	bad error
}

var (
	_ store.WriteStore  = (*Store)(nil)
	_ store.Resumer     = (*Store)(nil)
	_ store.Identifier  = (*Store)(nil)
	_ store.EntryOpener = (*Store)(nil)
	_ store.Neighbour   = (*Store)(nil)
	_ store.Examiner    = (*Store)(nil)
	_ store.Warmer      = (*Store)(nil)
	_ store.Complete    = (*Store)(nil)
	_ store.WholeReader = (*Store)(nil)
)

// maxListed bounds the objects of a listing: a server that never ends one is not
// believed.
const maxListed = 200_000_000

// Open returns the store of what lies at path in the bucket that driver reaches; name is
// how its URL begins.
func Open(name, path string, driver func() (Driver, error)) (*Store, error) {
	d, err := driver()
	if err == nil {
		var s *Store
		if s, err = New(d, path); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("cannot open %s: %w", name, err)
}

// New returns the store of what lies at path in a bucket. With a slash behind it the
// path is a folder and never an object.
func New(d Driver, path string) (*Store, error) {
	root := strings.TrimSuffix(path, "/")
	if err := store.CheckName(root); err != nil {
		return nil, err
	}
	return &Store{d: d, root: root, folder: root != path, limit: maxListed}, nil
}

// key is the object's name in the bucket.
func (s *Store) key(name string) string {
	switch {
	case name == "":
		return s.root
	case s.root == "":
		return name
	}
	return s.root + "/" + name
}

// prefix is what the keys below a folder begin with.
func (s *Store) prefix(dir string) string {
	if k := s.key(dir); k != "" {
		return k + "/"
	}
	return ""
}

// String is the URL of the store.
func (s *Store) String() string { return s.Path("") }

// Path is the URL of an object.
func (s *Store) Path(name string) string {
	if k := s.key(name); k != "" {
		return s.d.URL() + "/" + k
	}
	return s.d.URL()
}

// At implements store.Neighbour. What lies in another place is not there.
func (s *Store) At(path string) store.Store {
	rest, ok := strings.CutPrefix(path, s.d.URL())
	if ok && (rest == "" || rest[0] == '/') {
		if at, err := New(s.d, strings.TrimPrefix(rest, "/")); err == nil {
			return at
		}
	}
	return &Store{d: s.d, bad: fmt.Errorf("%w: it lies outside of %s", store.ErrNotExist, s.d.URL())}
}

// Identity implements store.Identifier.
func (s *Store) Identity() (name string, fixed bool) { return s.String(), true }

// Close releases the connections.
func (s *Store) Close() error { return s.d.Close() }

func (s *Store) check(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.bad != nil {
		return s.bad
	}
	return store.CheckName(name)
}

// failed makes the error of an operation.
func (s *Store) failed(op, name string, err error) error {
	return &store.Error{Op: op, Path: s.Path(name), Err: bare(err)}
}

// bare is an error of a driver without the name of the object, which is said once.
func bare(err error) error {
	var own *store.Error
	if errors.As(err, &own) {
		return own.Err
	}
	return err
}

// maxSize is more than any object has.
const maxSize = 1 << 50

// entry is what a store says of an object. Servers give times in listings more
// exactly than of one object.
func entry(name string, i Info) store.Entry {
	return store.Entry{Name: name, Size: i.Size, Version: i.Version, ModTime: i.ModTime.Truncate(time.Second)}
}

// info is the same back.
func (s *Store) info(e store.Entry) Info {
	return Info{Key: s.key(e.Name), Size: e.Size, Version: e.Version, ModTime: e.ModTime}
}

func sane(i Info) error {
	if i.Size < 0 || i.Size > maxSize {
		return fmt.Errorf("the server says that it has %d bytes", i.Size)
	}
	return nil
}

// Stat describes an object or a folder.
func (s *Store) Stat(ctx context.Context, name string) (store.Entry, error) {
	e, err := s.stat(ctx, name)
	if err != nil {
		return store.Entry{}, s.failed("look at", name, err)
	}
	return e, nil
}

func (s *Store) stat(ctx context.Context, name string) (store.Entry, error) {
	if err := s.check(ctx, name); err != nil {
		return store.Entry{}, err
	}
	if name == "" && s.root != "" && !s.folder {
		// A listing says whether it is an object or a folder, most often one alone.
		if e, ok := s.top(ctx); ok {
			return e, nil
		}
	}
	if name != "" || s.root != "" && !s.folder {
		i, err := s.d.Stat(ctx, s.key(name))
		if err == nil {
			err = sane(i)
		}
		if err == nil {
			return entry(name, i), nil
		}
		if !errors.Is(err, store.ErrNotExist) {
			return store.Entry{}, err
		}
		if whole, ok := strings.CutSuffix(name, store.PartialSuffix); ok && store.CheckName(whole) == nil {
			got, err := s.leftOf(ctx, whole)
			if err != nil {
				return store.Entry{}, err
			}
			if got.some() {
				return got.entry(name), nil
			}
		}
	}
	// A prefix with something below it is a folder, and so is an empty bucket.
	p, err := s.d.List(ctx, Query{Prefix: s.prefix(name), Max: 1})
	if err != nil {
		return store.Entry{}, err
	}
	if len(p.Objects) == 0 && len(p.Prefixes) == 0 && p.Next == "" && s.key(name) != "" {
		return store.Entry{}, store.ErrNotExist
	}
	return store.Entry{Name: name, Dir: true}, nil
}

// top describes the root by the first names that begin like it, which are an object of
// that very name, where there is one, and most often the folder. It gives false where
// this says nothing, also because one may not list.
func (s *Store) top(ctx context.Context) (store.Entry, bool) {
	p, err := s.d.List(ctx, Query{Prefix: s.root, Folders: true, Max: 2})
	if err != nil {
		return store.Entry{}, false
	}
	for _, i := range p.Objects {
		if i.Key == s.root && i.Version != "" {
			return entry("", i), sane(i) == nil
		}
	}
	if slices.Contains(p.Prefixes, s.root+"/") {
		return store.Entry{Dir: true}, true
	}
	if p.Next == "" {
		return store.Entry{}, false
	}
	// Others stand before the folder, such as "a-b" before "a/", and would behind an object.
	p, err = s.d.List(ctx, Query{Prefix: s.prefix(""), Max: 1})
	return store.Entry{Dir: true}, err == nil && len(p.Objects)+len(p.Prefixes) > 0
}

// Open opens an object.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	if err := s.check(ctx, name); err != nil {
		return nil, s.failed("open", name, err)
	}
	e, err := s.stat(ctx, name)
	switch {
	case err != nil:
		return nil, s.failed("open", name, err)
	case e.Dir:
		return nil, s.failed("open", name, errors.New("it is a folder"))
	}
	if whole, ok := strings.CutSuffix(name, store.PartialSuffix); ok && e.Version == leftVersion {
		got, err := s.leftOf(ctx, whole)
		if err != nil {
			return nil, s.failed("open", name, err)
		}
		return &leftObject{s: s, name: name, left: got}, nil
	}
	return &object{s: s, name: name, i: s.info(e)}, nil
}

// OpenEntry implements store.EntryOpener: the first read finds out whether it is still
// the version that was listed.
func (s *Store) OpenEntry(ctx context.Context, e store.Entry) (store.Object, error) {
	if err := s.check(ctx, e.Name); err != nil {
		return nil, s.failed("open", e.Name, err)
	}
	if e.Version == leftVersion {
		o, err := s.Open(ctx, e.Name)
		if err == nil && (o.Size() != e.Size || o.Version() != e.Version) {
			err = s.failed("open", e.Name, store.ErrChanged)
		}
		return o, err
	}
	return &object{s: s, name: e.Name, i: s.info(e)}, nil
}

// ReadWhole implements store.WholeReader.
func (s *Store) ReadWhole(ctx context.Context, name string, limit int) ([]byte, store.Entry, error) {
	err := s.check(ctx, name)
	d, ok := s.d.(Whole)
	if err == nil && !ok {
		err = errors.ErrUnsupported
	}
	var b []byte
	var i Info
	if err == nil {
		b, i, err = d.ReadWhole(ctx, s.key(name), limit)
	}
	if err == nil && int64(len(b)) != i.Size {
		err = store.ErrShort
	}
	if err != nil {
		return nil, store.Entry{}, s.failed("read", name, err)
	}
	return b, entry(name, i), nil
}

// Complete implements store.Complete.
func (s *Store) Complete() bool { return true }

// Warm implements store.Warmer.
func (s *Store) Warm(n int) {
	if w, ok := s.d.(store.Warmer); ok {
		w.Warm(n)
	}
}

// examiner is a Driver that can look at its server.
type examiner interface {
	Examine(ctx context.Context, i Info) (store.Manners, error)
}

// Examine implements store.Examiner.
func (s *Store) Examine(ctx context.Context, e store.Entry) (store.Manners, error) {
	x, ok := s.d.(examiner)
	if !ok {
		return store.Manners{}, s.failed("look at", e.Name, errors.ErrUnsupported)
	}
	m, err := x.Examine(ctx, s.info(e))
	if err != nil {
		return m, s.failed("look at", e.Name, err)
	}
	return m, nil
}

// object is an open object: a name and a version.
type object struct {
	s    *Store
	name string
	i    Info
}

func (o *object) Size() int64     { return o.i.Size }
func (o *object) Version() string { return o.i.Version }
func (o *object) Close() error    { return nil }

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	return o.s.read(ctx, o.name, o.i, p, off)
}

// read reads of an object that is open.
func (s *Store) read(ctx context.Context, name string, i Info, p []byte, off int64) error {
	err := context.Cause(ctx)
	switch {
	case err != nil:
	case off < 0 || off > i.Size || int64(len(p)) > i.Size-off:
		err = fmt.Errorf("%w: it has %d bytes", store.ErrShort, i.Size)
	case len(p) == 0:
		return nil
	default:
		err = bare(s.d.ReadAt(ctx, i, p, off))
		if errors.Is(err, store.ErrNotExist) && !errors.Is(err, store.ErrChanged) {
			err = fmt.Errorf("%w: it is gone (%w)", store.ErrChanged, err)
		}
	}
	if err != nil {
		return &store.Error{Op: "read", Path: s.Path(name), Off: off, Len: int64(len(p)), Err: err}
	}
	return nil
}
