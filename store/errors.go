package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// The classes of errors, for errors.Is. What is in none of them is a failure of
// the system or of the network; retry.Transient says which of those may pass.
var (
	// ErrNotExist: there is no such object.
	ErrNotExist = fs.ErrNotExist
	// ErrPermission: it may not be read or written.
	ErrPermission = fs.ErrPermission
	// ErrChanged: it is not the version that was listed or opened.
	ErrChanged = errors.New("it has changed since it was listed")
	// ErrShort: it has fewer bytes than were asked for.
	ErrShort = errors.New("it ends before that")
	// ErrLocked: somebody else is writing it.
	ErrLocked = errors.New("it is being written by another process")
	// ErrName: it is no name of an object.
	ErrName = errors.New("not a name of an object")
)

// Error is the failure of an operation on an object. Its text says which object
// and, for reads, which bytes, so that nobody above has to.
type Error struct {
	// Op is the verb of "cannot ...": open, list, look at, read, write.
	Op string
	// Path is the object, as Store.Path names it.
	Path string
	// Off and Len are the bytes of a read. Len is 0 for other operations.
	Off, Len int64
	Err      error
}

// Error says what failed, where, and why.
func (e *Error) Error() string {
	if e.Len > 0 {
		return fmt.Sprintf("%s, bytes %d to %d: %v", e.Path, e.Off, e.Off+e.Len, e.Err)
	}
	return fmt.Sprintf("cannot %s %s: %v", e.Op, e.Path, e.Err)
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Cause is what an error of this package or of package os says behind the
// operation and the path, for messages that name these already.
func Cause(err error) error {
	for {
		var own *Error
		var path *fs.PathError
		var link *os.LinkError
		var call *os.SyscallError
		switch {
		case errors.As(err, &own):
			err = own.Err
		case errors.As(err, &path):
			err = path.Err
		case errors.As(err, &link):
			err = link.Err
		case errors.As(err, &call):
			err = call.Err
		default:
			return err
		}
	}
}
