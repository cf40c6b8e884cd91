// Package pread reads at places of open files. No read ends because of a signal.
package pread

import (
	"io"

	"golang.org/x/sys/unix"
)

// Once reads some of b, at least a byte, or nothing at the end of the file.
func Once(fd int, b []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(fd, b, off)
		if err == nil {
			return n, nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

// Into is Once for several consecutive pieces of memory.
func Into(fd int, to [][]byte, off int64) (int, error) {
	for {
		n, err := unix.Preadv(fd, to, off)
		if err == nil {
			return n, nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

// Full fills b. If the file ends before that, the error is io.ErrUnexpectedEOF.
func Full(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := Once(fd, b, off)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}
