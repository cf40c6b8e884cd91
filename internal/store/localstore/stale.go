package localstore

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/store"
)

// A network file system returns ESTALE if the server no longer knows a handle: it was restarted, or the file was
// replaced after the lookup. Operations by name are then repeated. An open file is opened again and must be
// unchanged.

// staleTries is the maximum number of retries in a row for ESTALE.
const staleTries = 4

// again calls f again when a signal has interrupted it or a handle was stale.
func (s *Store) again(f func() error) error {
	for tries := 0; ; {
		err := s.sys(f)
		switch {
		case err == unix.EINTR:
		case err == unix.ESTALE && tries < staleTries:
			tries++
		default:
			return err
		}
	}
}

// uninterrupted calls f again when a signal has interrupted it.
func uninterrupted(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// sys makes a system call, or fails if a test asks for it.
func (s *Store) sys(f func() error) error {
	if s.fault != nil {
		if err := s.fault(); err != nil {
			return err
		}
	}
	return f()
}

// reopen opens the file of a descriptor again and keeps the number of the descriptor, so that reads in other
// goroutines use either the old or the new file.
func (o *object) reopen(fd, flags int) error {
	var now int
	err := o.s.again(func() (err error) {
		now, err = unix.Open(o.s.Path(o.name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|flags, 0)
		return err
	})
	if err == unix.ENOENT {
		return fmt.Errorf("%w: it is gone (%w)", store.ErrChanged, store.ErrNotExist)
	}
	if err != nil {
		return err
	}
	defer unix.Close(now)
	var st unix.Stat_t
	if err := o.s.sys(func() error { return unix.Fstat(now, &st) }); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != o.size || st.Mtim.Nano() != o.mtime {
		return store.ErrChanged
	}
	return unix.Dup3(now, fd, unix.O_CLOEXEC)
}

// fresh calls f, which uses descriptor fd. If its handle is stale, it opens the file again and calls f again.
func (o *object) fresh(fd, flags int, f func() error) error {
	for tries := 0; ; tries++ {
		err := o.s.sys(f)
		if err != unix.ESTALE || tries == staleTries {
			return err
		}
		if err := o.reopen(fd, flags); err != nil && err != unix.ESTALE {
			return err
		}
	}
}
