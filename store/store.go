// Package store is where bytes come from and go to: objects with a name, a size
// and a version that are read at any place. What reads data (sources, packs,
// inspect, verify) is written against Store and never against files, so that a
// bucket or a cache is one more implementation and nothing above can tell.
//
// The interface is small. What only some stores can do stands in interfaces of
// its own (Mapper, CachedReader, DirectReader, Adviser, Starter, Checker, WriteStore,
// Resumer), which As finds. Around any store go decorators that know nothing of
// each other: retry, limit, count, and fault for tests. The order in which they
// are put on says who sees what: count.New(retry.New(s)) counts a read that was
// tried three times once, retry.New(count.New(s)) three times.
//
// Package storetest has the tests that every store passes.
package store

import (
	"context"
	"time"
)

// Store is a place where objects lie: a folder of local files or one of them,
// later a bucket. Its methods may be called from several goroutines at once,
// except Close, which is called once and last.
//
// Names are paths below the store's root, with slashes (CheckName says which are
// allowed). The name of the root is "": of a store that is one object it is the
// name of that object.
type Store interface {
	// Open opens an object. Its error is or wraps ErrNotExist where there is
	// none.
	Open(ctx context.Context, name string) (Object, error)
	// List calls f for each object below dir, at any depth, in the order of their
	// names, which are compared byte by byte as whole paths: "a-b" stands before
	// "a/b". It calls f from this goroutine, one call at a time, and stops with
	// the error of f. A nil opt means the defaults. Of a store that is one
	// object, List of "" gives that one.
	List(ctx context.Context, dir string, opt *ListOptions, f func(Entry) error) error
	// Stat describes an object, or a folder (Entry.Dir).
	Stat(ctx context.Context, name string) (Entry, error)
	// String names the store for messages: a path, or a URL without secrets.
	String() string
	// Path names an object for messages. It does no I/O.
	Path(name string) string
	// Close releases the store. Objects that are open are closed by those who
	// opened them.
	Close() error
}

// Entry describes an object without opening it.
type Entry struct {
	Name string
	Size int64
	// Version says what the object's content is: an object with another version
	// has, or may have, another content. It is of use only within one store: of
	// local files it is size and time of change. What has to be equal on two
	// machines with copies of the same data is made from Name, Size and ModTime.
	Version string
	// ID is the number that the system knows the object by, such as that of its inode,
	// 0 where there is none. Two objects that took turns under one name have others,
	// also when sizes and times are equal; see Identifier.
	ID uint64
	// ModTime is the time of the last change, zero where a store has none.
	ModTime time.Time
	// Dir marks a folder, of which only Name is set.
	Dir bool
}

// ListOptions change what List gives.
type ListOptions struct {
	// Shallow lists what lies directly in the folder: objects, and folders as
	// entries with Dir, which stand where the objects in them would. There may
	// be nothing in such a folder, or only what is hidden.
	Shallow bool
	// Hidden lists also objects and folders whose own name begins with a dot,
	// which are otherwise left out.
	Hidden bool
	// Names asks for names alone: an entry's Size, Version and ModTime may be zero,
	// and what is no object that can be read may be among them. It saves looking
	// at each file where a listing of names does not come with the rest.
	Names bool
	// Folder says that dir is known to be a folder, which a store needs not ask about then.
	Folder bool
	// Guess is the name of an object that is likely to lie in dir: a store that asks about
	// one of those that it finds, to learn of the others, asks about that one at once. "" for
	// none.
	Guess string
	// Keep says by its name which object is wanted; nil means all. The others
	// are not looked at. It is called from several goroutines at once.
	Keep func(name string) bool
	// Bad is called, in the order of names, for an object that is wanted, or a folder
	// (Entry.Dir), that cannot be listed: a link to nothing, a pipe, a folder that may not
	// be read, a key of a bucket that CheckName refuses. Only Name and Dir of the entry
	// are set. The listing goes on if Bad returns nil, and otherwise fails with its error.
	// Without Bad the listing fails with err.
	Bad func(e Entry, err error) error
	// Threads bounds the requests that are out at once, 0 for the store's choice.
	Threads int
}

// Object is an open object. Its methods may be called from several goroutines at
// once, except Close, which is called once and last. It has the bytes that it had
// when it was opened; a store that cannot keep it so is a Checker.
type Object interface {
	// Size is the size in bytes.
	Size() int64
	// Version is that of Entry.
	Version() string
	// ReadAt fills p from offset off, or fails: it never gives fewer bytes
	// without an error. Bytes behind the end are ErrShort. When ctx is done it
	// returns as soon as the system allows, and p is not written to any more.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Close releases the object. Its mappings stay.
	Close() error
}
