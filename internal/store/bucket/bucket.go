// Package bucket implements stores for object servers. It has the common part of S3, Google's and Azure's servers:
// names below a prefix, listings, folders that are only prefixes, uploads in parts, and uploads that outlive the
// process. The differences are in a Driver.
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

// Info describes an object on a server.
type Info struct {
	Key  string
	Size int64
	// Version changes with the content: an ETag or a generation.
	Version string
	ModTime time.Time
	// Now is the server's clock at its response, zero if unknown.
	Now time.Time
	// Archived is the storage class of an object that must be restored before it can be read, "" for others.
	Archived string
}

// readable returns an error for an object that must be restored first.
func (i *Info) readable() error {
	if i.Archived == "" {
		return nil
	}
	return fmt.Errorf("%w (%s): restore it first, or leave it out", store.ErrArchived, i.Archived)
}

// Query requests a page of a listing.
type Query struct {
	Prefix string
	// Folders merges all names with the same part before the next slash into one prefix.
	Folders bool
	// Next is Page.Next of the previous page, "" for the first page.
	Next string
	// Max is the maximum number of entries, 0 for the server's default.
	Max int
}

// Page is a page of a listing. Servers send objects and prefixes sorted by key, with few exceptions.
type Page struct {
	Objects  []Info
	Prefixes []string
	// Next is the continuation token, "" for the last page.
	Next string
}

// Condition is the condition for a put or a removal.
type Condition struct {
	// Absent: the object does not exist.
	Absent bool
	// Version: the object has this version.
	Version string
}

// Driver accesses one bucket of a server. Its methods are safe for concurrent use. Errors wrap the classes of
// package store. Transient errors have already been retried.
type Driver interface {
	// URL returns the URL of the bucket, without secrets and without a trailing slash.
	URL() string
	// Stat describes an object.
	Stat(ctx context.Context, key string) (Info, error)
	// List returns a page of a listing.
	List(ctx context.Context, q Query) (Page, error)
	// ReadAt fills p from offset off of version i, or fails.
	ReadAt(ctx context.Context, i Info, p []byte, off int64) error
	// Put writes an object of a few megabytes. If the condition is not met, the error is ErrChanged.
	Put(ctx context.Context, key string, data []byte, c Condition) (Info, error)
	// Delete removes an object. A missing object need not be an error.
	Delete(ctx context.Context, key string) error
	// Begin begins an upload in parts.
	Begin(ctx context.Context, key string) (Parts, error)
	// Concat concatenates objects. Each except the last has at least LeastPart bytes.
	Concat(ctx context.Context, key string, pieces []Info) error
	// Sweep removes invisible remains of unfinished uploads to key.
	Sweep(ctx context.Context, key string) error
	// Close releases the connections.
	Close() error
}

// Unordered is a Driver for servers that may list in any order.
type Unordered interface {
	// Unordered reports whether pages of listings are not sorted.
	Unordered() bool
}

// Whole is a Driver that can read small objects in one request.
type Whole interface {
	// ReadWhole reads and describes an object of at most limit bytes.
	ReadWhole(ctx context.Context, key string, limit int) ([]byte, Info, error)
}

// Parts is an upload in parts. Part is safe for concurrent use.
type Parts interface {
	// Part writes part n, from 1. Each except the last has at least LeastPart bytes.
	Part(ctx context.Context, n int, data []byte) error
	// Finish creates the object from parts 1 to n.
	Finish(ctx context.Context, n int) error
	// Abort removes the upload.
	Abort(ctx context.Context) error
}

// LeastPart is the minimum size of a part on all servers.
const LeastPart = 5 << 20

// Store has the objects below a prefix of a bucket.
type Store struct {
	d Driver
	// root is the prefix without a trailing slash, "" for the whole bucket.
	root string
	// folder is true if the URL ended with a slash, so that the root is not an object.
	folder bool
	// limit is the maximum number of objects in a listing.
	limit int64
	// bad is the error of a store that does not exist.
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

// maxListed limits the objects in a listing, in case a server never ends one.
const maxListed = 200_000_000

// Open returns the store of the object or folder at path in the bucket that driver accesses. name is the start of
// its URL.
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

// New returns the store of the object or folder at path in a bucket. With a trailing slash the path is a folder and
// never an object.
func New(d Driver, path string) (*Store, error) {
	root := strings.TrimSuffix(path, "/")
	if err := store.CheckName(root); err != nil {
		return nil, err
	}
	return &Store{d: d, root: root, folder: root != path, limit: maxListed}, nil
}

// key returns the object's key in the bucket.
func (s *Store) key(name string) string {
	switch {
	case name == "":
		return s.root
	case s.root == "":
		return name
	}
	return s.root + "/" + name
}

// prefix returns the prefix of the keys below a folder.
func (s *Store) prefix(dir string) string {
	if k := s.key(dir); k != "" {
		return k + "/"
	}
	return ""
}

// String returns the URL of the store.
func (s *Store) String() string { return s.Path("") }

// Path returns the URL of an object.
func (s *Store) Path(name string) string {
	if k := s.key(name); k != "" {
		return s.d.URL() + "/" + k
	}
	return s.d.URL()
}

// At implements store.Neighbour. Paths outside of the bucket give an empty store.
func (s *Store) At(path string) store.Store {
	rest, ok := strings.CutPrefix(path, s.d.URL())
	if ok && (rest == "" || rest[0] == '/') {
		if at, err := New(s.d, strings.TrimPrefix(rest, "/")); err == nil {
			return at
		}
	}
	return &Store{d: s.d, bad: fmt.Errorf("%w: it is outside of %s", store.ErrNotExist, s.d.URL())}
}

// Identity implements store.Identifier.
func (s *Store) Identity() (name string, fixed bool) { return s.String(), true }

// Close releases the connections.
func (s *Store) Close() error { return s.d.Close() }

func (s *Store) unordered() bool {
	d, ok := s.d.(Unordered)
	return ok && d.Unordered()
}

func (s *Store) check(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.bad != nil {
		return s.bad
	}
	return store.CheckName(name)
}

// failed returns the error of an operation.
func (s *Store) failed(op, name string, err error) error {
	return &store.Error{Op: op, Path: s.Path(name), Err: bare(err)}
}

// bare returns a driver's error without the name of the object, so that the name is not repeated.
func bare(err error) error {
	var own *store.Error
	if errors.As(err, &own) {
		return own.Err
	}
	return err
}

// maxSize is larger than any object.
const maxSize = 1 << 50

// entry converts a server's description. Times in listings are truncated, because they are more precise than those
// of a single object.
func entry(name string, i Info) store.Entry {
	return store.Entry{Name: name, Size: i.Size, Version: i.Version, ModTime: i.ModTime.Truncate(time.Second)}
}

// info is the inverse of entry.
func (s *Store) info(e store.Entry) Info {
	return Info{Key: s.key(e.Name), Size: e.Size, Version: e.Version, ModTime: e.ModTime}
}

func sane(i Info) error {
	if i.Size < 0 || i.Size > maxSize {
		return fmt.Errorf("the server reports an invalid size of %d bytes", i.Size) // concerns one object
	}
	return nil
}

// Stat describes an object or a folder.
func (s *Store) Stat(ctx context.Context, name string) (store.Entry, error) {
	e, _, err := s.stat(ctx, name)
	if err != nil {
		return store.Entry{}, s.failed("look at", name, err)
	}
	return e, nil
}

// stat describes an object or a folder. The Info is the zero value for folders and unfinished uploads.
func (s *Store) stat(ctx context.Context, name string) (store.Entry, Info, error) {
	if err := s.check(ctx, name); err != nil {
		return store.Entry{}, Info{}, err
	}
	if name == "" && s.root != "" && !s.folder {
		// Usually one listing tells whether it is an object or a folder.
		if e, i, ok := s.top(ctx); ok {
			return e, i, nil
		}
	}
	if name != "" || s.root != "" && !s.folder {
		i, err := s.d.Stat(ctx, s.key(name))
		if err == nil {
			err = sane(i)
		}
		if err == nil {
			return entry(name, i), i, nil
		}
		if !errors.Is(err, store.ErrNotExist) {
			return store.Entry{}, i, err
		}
		if whole, ok := strings.CutSuffix(name, store.PartialSuffix); ok && store.CheckName(whole) == nil {
			got, err := s.leftOf(ctx, whole)
			if err != nil {
				return store.Entry{}, i, err
			}
			if got.some() {
				return got.entry(name), Info{}, nil
			}
		}
	}
	e, err := s.statFolder(ctx, name)
	return e, Info{}, err
}

// statFolder describes a folder: a prefix with objects below it, or an empty bucket.
func (s *Store) statFolder(ctx context.Context, name string) (store.Entry, error) {
	p, err := s.d.List(ctx, Query{Prefix: s.prefix(name), Max: 1})
	if err != nil {
		return store.Entry{}, err
	}
	if len(p.Objects) == 0 && len(p.Prefixes) == 0 && p.Next == "" && s.key(name) != "" {
		return store.Entry{}, store.ErrNotExist
	}
	return store.Entry{Name: name, Dir: true}, nil
}

// top describes the root from the first names that begin like it: an object with exactly this name, or a folder. It
// returns false if they do not decide it, or if listing is not allowed.
func (s *Store) top(ctx context.Context) (store.Entry, Info, bool) {
	p, err := s.d.List(ctx, Query{Prefix: s.root, Folders: true, Max: 2})
	if err != nil {
		return store.Entry{}, Info{}, false
	}
	for _, i := range p.Objects {
		if i.Key == s.root && i.Version != "" {
			return entry("", i), i, sane(i) == nil
		}
	}
	if slices.Contains(p.Prefixes, s.root+"/") {
		return store.Entry{Dir: true}, Info{}, true
	}
	if p.Next == "" {
		return store.Entry{}, Info{}, false
	}
	// Other names sort before the folder, such as "a-b" before "a/". They would sort after an object with the exact
	// name.
	e, err := s.statFolder(ctx, "")
	return e, Info{}, err == nil
}

// Open opens an object.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	if err := s.check(ctx, name); err != nil {
		return nil, s.failed("open", name, err)
	}
	e, i, err := s.stat(ctx, name)
	if err == nil && e.Dir {
		err = errors.New("it is a folder")
	}
	if err == nil {
		err = i.readable()
	}
	if err != nil {
		return nil, s.failed("open", name, err)
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

// OpenEntry implements store.EntryOpener. The first read detects whether the version is still the listed one.
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

// examiner is a Driver that can examine its server.
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

// read reads from an open object.
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
