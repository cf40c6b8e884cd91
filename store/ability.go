package store

import (
	"context"
	"time"
)

// Mapper is an Object that can be mapped into memory.
type Mapper interface {
	// Map makes the object's bytes addressable, read-only. It fails if the system cannot report which of them are
	// in memory. The object must then be read.
	Map() (Mapping, error)
}

// Mapping is an object's bytes as memory. Its methods are safe for concurrent use, except Close, after which the
// bytes must not be used. It stays valid when the object is closed.
type Mapping interface {
	// Bytes returns all bytes of the object. Access to bytes that are not in memory waits for the device, page by
	// page, and faults if the device fails.
	Bytes() []byte
	// Resident reports whether n bytes from off are in memory, so that access to them does not wait. It is cheap,
	// because the answer may be some hundred milliseconds old. The caller passes the current time, once for many
	// calls.
	Resident(off, n int64, now time.Time) bool
	// Close unmaps the bytes.
	Close() error
}

// Lender is an Object with parts in a memory cache that outlives it.
type Lender interface {
	// Lend returns n bytes from off without a copy, or nil if they are not in memory. It never waits. After the
	// bytes are tail bytes that may be read but have no meaning. The bytes must not be written to. They stay valid
	// until the cache is closed, except if they are in a file that another process truncates. Then access faults,
	// like that of a Mapping. The caller passes the current time, once for many calls.
	Lend(off, n, tail int64, now time.Time) []byte
}

// CachedReader is an Object that can read without waiting.
type CachedReader interface {
	// ReadCached fills as much of p from offset off as is in memory, without waiting for a device, and returns the
	// number of bytes. It fails if the system cannot do that. Bytes that are not in memory are not an error.
	ReadCached(p []byte, off int64) (int, error)
}

// DirectReader is an Object that can be read without the system's cache, so that data that is used once does not
// evict data that is used again.
type DirectReader interface {
	// ReadDirect is ReadAt without the cache. If the system cannot do it, the error wraps errors.ErrUnsupported and
	// nothing was read.
	ReadDirect(ctx context.Context, p []byte, off int64) error
}

// Identifier is a Store that other processes can identify.
type Identifier interface {
	// Identity returns the name of the store, which is the same wherever the store is opened on this machine: a
	// path without links, or a URL. fixed is true if Entry.ID is also the same each time.
	Identity() (name string, fixed bool)
}

// WholeReader is a Store that can read small objects in one request.
type WholeReader interface {
	// ReadWhole reads and describes an object of at most limit bytes. If the store cannot do that, the error wraps
	// errors.ErrUnsupported.
	ReadWhole(ctx context.Context, name string, limit int) ([]byte, Entry, error)
}

// Neighbour is a Store that can open related stores of its kind: the folder of a file, or paths next to a folder.
type Neighbour interface {
	// At returns the store of a path, in the form of Path. For an invalid path it returns an empty store.
	At(path string) Store
}

// EntryOpener is a Store that opens objects that it has listed without another request. It is for stores where each
// request is a round trip. If an object has changed or is gone, its first read fails with ErrChanged. OpenEntry
// uses this method. A decorator passes it on with its own work around it.
type EntryOpener interface {
	// OpenEntry opens the object that e, an entry of this store, describes. It does no I/O.
	OpenEntry(ctx context.Context, e Entry) (Object, error)
}

// Examiner is a Store that can examine its server.
type Examiner interface {
	// Examine reads the object that e, an entry of this store, describes in several ways and returns what the
	// server supports.
	Examine(ctx context.Context, e Entry) (Manners, error)
}

// Warmer is a Store that can open connections to its server before they are needed.
type Warmer interface {
	// Warm opens at most n connections. It does not wait, and failures are ignored: the request that needs a
	// connection reports them.
	Warm(n int)
}

// Complete is a Store that knows whether its listings are complete.
type Complete interface {
	// Complete reports whether objects that are not listed do not exist. For a web server this is known after its
	// first listing, except for names that begin with a dot.
	Complete() bool
}

// Manners describes what a server supports.
type Manners struct {
	// Ranges: it can read parts of objects. IfMatch: it can refuse to read another version than the requested one.
	// Without IfMatch the client compares the version in the answer.
	Ranges, IfMatch bool
	// Checksum is the header with a checksum of an object, "" for none.
	Checksum string
}

// Lending returns o with the Lender lender. All other abilities are those of o.
func Lending(o Object, lender Lender) Object { return &lending{o, lender} }

type lending struct {
	Object
	Lender
}

func (l *lending) Unwrap() Object { return l.Object }

// Adviser is an Object that accepts hints.
type Adviser interface {
	// Advise gives a hint how n bytes from off will be used. n = 0 means to the end. It never waits, and does not
	// change the results of reads.
	Advise(off, n int64, a Advice)
}

// Advice is a hint for an Adviser.
type Advice int

// The hints.
const (
	// Random: reads come in random order, so readahead is useless.
	Random Advice = iota
	// WillNeed: the bytes will be read soon, so the system should start to read them.
	WillNeed
	// DontNeed: the bytes will not be read again soon.
	DontNeed
)

// Advise gives a hint if o accepts hints.
func Advise(o Object, off, n int64, a Advice) {
	if h, ok := As[Adviser](o); ok {
		h.Advise(off, n, a)
	}
}

// Starter is an Object that can be read in the background: a file on a local disk, which the system reads into its
// cache. Decorators do not pass this on, because they may delay reads.
type Starter interface {
	// Start makes the system read n bytes from off in the background, and does not wait. It returns false if that
	// is not possible.
	Start(off, n int64) bool
}

// Checker is an Object that can change while it is open, for example a local file.
type Checker interface {
	// Check fails with ErrChanged if the object has changed since it was opened.
	Check(ctx context.Context) error
}

// Check verifies after reading that all reads saw one version of the object. It fails with ErrChanged if o can
// change and did.
func Check(ctx context.Context, o Object) error {
	if c, ok := As[Checker](o); ok {
		return c.Check(ctx)
	}
	return nil
}

// As finds the ability T of a Store, an Object or an Upload: in v itself, or in what v decorates, at any depth.
//
// A decorator that does not affect an ability has a method Unwrap, which returns the decorated value of the same
// type. A decorator that must see every read, for example a limit, has no Unwrap and implements the abilities that
// it can pass on.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		switch u := v.(type) {
		case interface{ Unwrap() Store }:
			v = u.Unwrap()
		case interface{ Unwrap() Object }:
			v = u.Unwrap()
		case interface{ Unwrap() Upload }:
			v = u.Unwrap()
		default:
			v = nil
		}
	}
	var none T
	return none, false
}
