// Package store defines the interfaces for objects that have a name, a size and a version and can be read at any
// offset. All code that reads data (sources, packs, inspect, verify) uses Store and never files. So a bucket or a
// cache is just another implementation.
//
// The interface is small. Optional abilities have their own interfaces (Mapper, CachedReader, DirectReader,
// Adviser, Starter, Checker, WriteStore, Resumer), which As finds. Decorators that do not know each other go around
// any store: a cache on the disk, a cache in memory, and counters and faults for tests.
//
// Package storetest has the tests that every store passes.
package store

import (
	"context"
	"time"
)

// Store has objects: a local folder, a single file, or a bucket. Its methods are safe for concurrent use, except
// Close, which must be the last call.
//
// Names are paths below the store's root, with slashes. CheckName defines the valid names. The name of the root is
// "". If the store is a single object, "" is that object.
type Store interface {
	// Open opens an object. Its error is or wraps ErrNotExist if the object does not exist.
	Open(ctx context.Context, name string) (Object, error)
	// List calls f for each object below dir, at any depth, sorted by name. Names are compared byte by byte as
	// whole paths: "a-b" comes before "a/b". f is called sequentially, from the calling goroutine. If f returns an
	// error, List stops and returns it. A nil opt means the defaults. If the store is a single object, List of ""
	// returns that object.
	List(ctx context.Context, dir string, opt *ListOptions, f func(Entry) error) error
	// Stat describes an object or a folder (Entry.Dir).
	Stat(ctx context.Context, name string) (Entry, error)
	// String names the store for messages: a path, or a URL without secrets.
	String() string
	// Path names an object for messages. It does no I/O.
	Path(name string) string
	// Close releases the store. Callers close the objects that they opened.
	Close() error
}

// Entry describes an object without opening it.
type Entry struct {
	Name string
	Size int64
	// Version identifies the object's content: an object with another version may have different content. It is
	// only comparable within one store. For local files it is the size and the modification time. Values that must
	// be equal on two machines with copies of the same data use Name, Size and ModTime instead.
	Version string
	// ID is the system's number for the object and its state, for example of its inode and the time of its last
	// change, or 0. It distinguishes two objects with the same name, size and time, one after the other. See
	// Identifier.
	ID uint64
	// ModTime is the modification time, zero if unknown.
	ModTime time.Time
	// Dir marks a folder. Then only Name is set.
	Dir bool
}

// ListOptions configure List.
type ListOptions struct {
	// Shallow lists only the direct content of the folder: objects, and subfolders as entries with Dir, in the
	// order of the objects in them. A listed subfolder may be empty or have only hidden objects.
	Shallow bool
	// Hidden also lists objects and folders whose own name begins with a dot. They are omitted by default.
	Hidden bool
	// Names requests only names. Size, Version and ModTime of entries may be zero, and the listing may include
	// entries that are not readable objects. This saves a request per file if a listing of names lacks the other
	// values.
	Names bool
	// Folder is true if dir is known to be a folder. It saves the store a request.
	Folder bool
	// Guess is the name of an object that is likely to exist in dir, or "". A store that must probe one object of a
	// listing to describe the others probes this one immediately.
	Guess string
	// Keep selects objects by name. Nil means all. Other objects are not probed. It may be called concurrently.
	Keep func(name string) bool
	// Bad is called, in the order of names, for a wanted object or a folder (Entry.Dir) that cannot be listed: a
	// dangling link, a pipe, a folder without permission, or a bucket key that CheckName refuses. Only Name and Dir
	// of the entry are set. The listing continues if Bad returns nil. Otherwise it fails with Bad's error. If Bad
	// is nil, the listing fails with err.
	Bad func(e Entry, err error) error
	// Threads is the maximum number of concurrent requests, 0 for the store's default.
	Threads int
}

// Object is an open object. Its methods are safe for concurrent use, except Close, which must be the last call. Its
// content is the one at the time of opening. A store that cannot guarantee this is a Checker.
type Object interface {
	// Size returns the size in bytes.
	Size() int64
	// Version returns the version, as in Entry.
	Version() string
	// ReadAt fills p from offset off, or fails: it never reads fewer bytes without an error. Bytes after the end
	// are ErrShort. When ctx is done, ReadAt returns as soon as the system allows, and no longer writes to p.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Close releases the object. Its mappings stay valid.
	Close() error
}
