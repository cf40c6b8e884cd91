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

// The classes of errors, for errors.Is. All other errors are failures of the system or of the network.
// retry.Transient reports which of them may pass.
var (
	// ErrNotExist: the object does not exist.
	ErrNotExist = fs.ErrNotExist
	// ErrPermission: the object may not be read or written.
	ErrPermission = fs.ErrPermission
	// ErrChanged: the object is not the version that was listed or opened.
	ErrChanged = errors.New("it has changed since it was listed")
	// ErrShort: the object has fewer bytes than requested.
	ErrShort = errors.New("it ends before that")
	// ErrLocked: another process is writing the object.
	ErrLocked = errors.New("it is being written by another process")
	// ErrName: the name is not valid for an object.
	ErrName = errors.New("not a name of an object")
	// ErrIrregular: the object is a pipe, a socket or a device.
	ErrIrregular = errors.New("not a regular file")
)

// IsObjectError reports whether an error concerns only one object: it is missing, may not be read, is not a file,
// has changed, or is damaged. Sources make bad records of such objects. All other errors are failures of the store,
// the network or the machine, or ctx has ended. They end the operation.
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
	var request interface{ Transient() bool } // from a server
	var network net.Error
	return !errors.As(err, &request) && !errors.As(err, &network) && !errors.Is(err, context.Canceled)
}

// objectErrnos are the system errors that concern one file. EIO is one of them: a disk has lost some sectors, or
// the file system the end of a file.
var objectErrnos = []syscall.Errno{
	syscall.EIO, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.ENXIO, syscall.ENODEV, syscall.ENOTDIR, syscall.EOVERFLOW, syscall.EUCLEAN,
}

// Error is the failure of an operation on an object. Its text has the object and, for reads, the bytes, so that
// callers need not add them.
type Error struct {
	// Op is the verb of "cannot ...": open, list, look at, read, write.
	Op string
	// Path is the object, in the form of Store.Path.
	Path string
	// Off and Len are the range of a read. Len is 0 for other operations.
	Off, Len int64
	Err      error
}

// Error implements error: the operation or the bytes, the object, and the cause.
func (e *Error) Error() string {
	if e.Len > 0 {
		return fmt.Sprintf("%s, bytes %d to %d: %v", e.Path, e.Off, e.Off+e.Len, e.Err)
	}
	return fmt.Sprintf("cannot %s %s: %v", e.Op, e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Cause returns the innermost cause of an error of this package or of package os, for messages that already name
// the operation and the path.
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
