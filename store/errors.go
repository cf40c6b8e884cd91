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
	"time"
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
	// ErrDamaged: the bytes are not the stored ones. A checksum is wrong in each attempt.
	ErrDamaged = errors.New("its bytes are damaged")
	// ErrArchived: the object is in an archive and must be restored before it can be read.
	ErrArchived = errors.New("it is archived")
)

// The classes of errors that concern the whole store. They are never IsObjectError, because the next object fails in
// the same way. AttemptsOf has the details.
var (
	// ErrCredentials: the credentials are missing, expired or not accepted, also after they were read again.
	ErrCredentials = errors.New("the credentials are not accepted")
	// ErrThrottled: the server refused each attempt because there are too many requests.
	ErrThrottled = errors.New("the server refuses requests because there are too many")
	// ErrUnavailable: the server did not answer, or answered each attempt with a failure of its own.
	ErrUnavailable = errors.New("the server is not available")
)

// IsObjectError reports whether an error concerns only one object: it is missing, may not be read, is not a file,
// has changed, is archived, or is damaged. Sources make bad records of such objects. All other errors are failures of
// the store, the network or the machine, or ctx has ended. They end the operation. ErrPermission may also concern the
// whole store: a caller that sees it for each object should treat it so.
func IsObjectError(err error) bool {
	for _, class := range []error{ErrCredentials, ErrThrottled, ErrUnavailable} {
		if errors.Is(err, class) {
			return false
		}
	}
	for _, class := range []error{
		ErrNotExist, ErrPermission, ErrChanged, ErrShort, ErrName, ErrIrregular, ErrDamaged, ErrArchived,
	} {
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

// Attempts describes the requests to a server that an operation made before it failed.
type Attempts struct {
	// Tries is the number of requests, 0 if the operation failed before the first one.
	Tries int
	// Elapsed is the time from the first request to the failure.
	Elapsed time.Duration
	// Status is the HTTP status of the last response, 0 if there was no response.
	Status int
	// Code is the server's own name of the last error, such as ExpiredToken, "" if it sent none.
	Code string
	// Statuses counts the attempts by the status of their response. Those without a response have the status 0.
	Statuses map[int]int
}

// AttemptsOf returns the requests of a failed operation, and false if err is not the failure of a request.
func AttemptsOf(err error) (Attempts, bool) {
	var failed interface{ Attempts() Attempts }
	if !errors.As(err, &failed) {
		return Attempts{}, false
	}
	return failed.Attempts(), true
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
