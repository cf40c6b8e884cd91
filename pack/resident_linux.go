package pack

import "golang.org/x/sys/unix"

// readResident reads as much of b as is in memory, without waiting for the
// disk.
func readResident(fd int, b []byte, off int64) (int, error) {
	iov := [1][]byte{b}
	n, err := unix.Preadv2(fd, iov[:], off, unix.RWF_NOWAIT)
	if n < 0 {
		n = 0
	}
	if err == unix.EAGAIN || err == unix.EINTR {
		err = nil
	}
	return n, err
}
