package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"syscall"
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
	// ErrIrregular: it is a pipe, a socket or a device.
	ErrIrregular = errors.New("not a regular file")
)

// IsObjectError reports whether an error is the fault of one object and says nothing about
// others: the object is missing, may not be read, is not a file, has changed, or its content
// is damaged. Sources make bad records of such objects. Every other error is a fault of the
// store, the network or the machine, or ctx has ended: it ends what is being done.
func IsObjectError(err error) bool {
	for _, class := range []error{ErrNotExist, ErrPermission, ErrChanged, ErrShort, ErrName, ErrIrregular} {
		if errors.Is(err, class) {
			return true
		}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return slices.Contains(objectErrnos, errno)
	}
	var request interface{ Transient() bool } // of a server
	var network net.Error
	return !errors.As(err, &request) && !errors.As(err, &network) && !errors.Is(err, context.Canceled)
}

// objectErrnos are the errors of the system that are about one file. EIO is among them: a
// disk has lost some sectors, or the file system the end of a file.
var objectErrnos = []syscall.Errno{
	syscall.EIO, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.ENXIO, syscall.ENODEV, syscall.ENOTDIR, syscall.EOVERFLOW, syscall.EUCLEAN,
}

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
