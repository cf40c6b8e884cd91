package store

import (
	"context"
	"time"
)

// Mapper is an Object that can be seen in memory without being read.
type Mapper interface {
	// Map makes the object's bytes addressable, read-only. It fails where the
	// system would not tell which of them are in memory; the object is then read.
	Map() (Mapping, error)
}

// Mapping is an object's bytes as memory. Its methods may be called from several
// goroutines at once, except Close, after which the bytes must not be touched. It
// stays valid when the object is closed.
type Mapping interface {
	// Bytes are all bytes of the object. Touching those that are not in memory
	// waits for the device, page by page, and faults when it fails.
	Bytes() []byte
	// Resident says whether n bytes from off are in memory, so that touching them
	// does not wait. It is cheap: an answer may be some hundred milliseconds old.
	// The caller says what time it is, once for many calls.
	Resident(off, n int64, now time.Time) bool
	// Close takes the bytes away.
	Close() error
}

// Lender is an Object parts of which lie in memory, in a cache that outlives it.
type Lender interface {
	// Lend returns n bytes from off where they lie, or nil where they are not in memory. It
	// waits for nothing, and behind them are tail bytes that may be read and mean nothing.
	// The bytes must not be written to. They stay until the cache is closed, unless they lie
	// in a file that somebody makes shorter: they then fault, as those of a Mapping do. The
	// caller says what time it is, once for many calls.
	Lend(off, n, tail int64, now time.Time) []byte
}

// CachedReader is an Object that can say what it reads without waiting.
type CachedReader interface {
	// ReadCached fills as much of p from offset off as is in memory, without
	// waiting for a device, and returns how many bytes that are. It fails where
	// the system cannot do that; that something is not in memory is no error.
	ReadCached(p []byte, off int64) (int, error)
}

// DirectReader is an Object that can be read past the system's cache, so that
// data which is used once does not take the place of data which is used again.
type DirectReader interface {
	// ReadDirect is ReadAt past the cache. Where the system cannot do it the
	// error wraps errors.ErrUnsupported, and nothing was read.
	ReadDirect(ctx context.Context, p []byte, off int64) error
}

// Identifier is a Store that can say what it is to another process.
type Identifier interface {
	// Identity is what the store is called wherever it is opened on this machine: a
	// path without links, or a URL. Fixed says that Entry.ID is the same each time.
	Identity() (name string, fixed bool)
}

// WholeReader is a Store that reads small objects that nobody has asked about yet.
type WholeReader interface {
	// ReadWhole reads an object of limit bytes at most, and describes it. Where the store
	// cannot do that the error wraps errors.ErrUnsupported.
	ReadWhole(ctx context.Context, name string, limit int) ([]byte, Entry, error)
}

// Neighbour is a Store that opens others of its kind: of a file its folder, of a folder
// what lies beside it.
type Neighbour interface {
	// At is the store of a path, as Path names it. What cannot be one has nothing in it.
	At(path string) Store
}

// EntryOpener is a Store that opens what it has described without asking again: for
// those where each question is a way to another machine and back. An object that has
// changed since, or is gone, then fails with ErrChanged at the first read. OpenEntry
// uses it; a decorator passes it on with its own work around it.
type EntryOpener interface {
	// OpenEntry opens the object that e, of this store, describes. It does no I/O.
	OpenEntry(ctx context.Context, e Entry) (Object, error)
}

// Examiner is a Store whose server can be looked at.
type Examiner interface {
	// Examine reads the object that e, of this store, describes in a few ways, and says
	// what its server can do.
	Examine(ctx context.Context, e Entry) (Manners, error)
}

// Warmer is a Store that can open connections to its server before they are needed.
type Warmer interface {
	// Warm opens n of them at most. It waits for nothing, and what fails is no failure: who
	// needs one then finds out.
	Warm(n int)
}

// Complete is a Store that can say whether its lists show all there is.
type Complete interface {
	// Complete says that what a list does not show is not there. Of a web server that is
	// known once it has shown one, and not of names that begin with a dot.
	Complete() bool
}

// Manners is what a server can do.
type Manners struct {
	// Ranges: it reads parts of objects. IfMatch: it reads of no other version than the
	// one that is asked for. Without that the answer is still held against it.
	Ranges, IfMatch bool
	// Checksum is the header in which it says a checksum of an object, "" for none.
	Checksum string
}

// Lending is o, of which lender lends. Its other abilities are those of o.
func Lending(o Object, lender Lender) Object { return &lending{o, lender} }

type lending struct {
	Object
	Lender
}

func (l *lending) Unwrap() Object { return l.Object }

// Adviser is an Object that takes hints.
type Adviser interface {
	// Advise says how n bytes from off will be used; n = 0 means up to the end.
	// It never waits, and has no effect on what reads return.
	Advise(off, n int64, a Advice)
}

// Advice is a hint of an Adviser.
type Advice int

// The hints.
const (
	// Random: reads come in no order; nothing should be read ahead of them.
	Random Advice = iota
	// WillNeed: it will be read soon; the system should begin.
	WillNeed
	// DontNeed: it will not be read again soon.
	DontNeed
)

// Advise gives a hint where o takes hints.
func Advise(o Object, off, n int64, a Advice) {
	if h, ok := As[Adviser](o); ok {
		h.Advise(off, n, a)
	}
}

// Starter is an Object whose reads go on while nobody waits for them: a file of a disk of
// this machine, which the system reads into its cache. Decorators do not pass that on, since
// they may be what a read waits for.
type Starter interface {
	// Start has the system begin to read n bytes from off on, and does not wait until they
	// are there. It says false where that cannot be.
	Start(off, n int64) bool
}

// Checker is an Object that can change while it is open, such as a local file.
type Checker interface {
	// Check fails with ErrChanged when the object is no longer what was opened.
	Check(ctx context.Context) error
}

// Check says after reading whether what was read is one version of the object:
// it fails with ErrChanged where o can change and did.
func Check(ctx context.Context, o Object) error {
	if c, ok := As[Checker](o); ok {
		return c.Check(ctx)
	}
	return nil
}

// As finds the ability T of a Store, an Object or an Upload: it is v itself, or
// what v decorates, or what that decorates.
//
// A decorator that does not change what an ability does has a method Unwrap,
// which returns the same kind of thing. One that must see every read, such as a
// limit, has none and passes on by hand what it sees or what does no harm.
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
