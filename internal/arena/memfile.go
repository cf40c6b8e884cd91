package arena

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memfd is unix.MemfdCreate. Tests make it fail.
var memfd = unix.MemfdCreate

// MemFile returns a file of size bytes in memory, which has no name. A size other than 0 cannot change later.
// If the system refuses memfd_create, as some sandboxes do, the file is in /dev/shm or the folder of temporary files.
func MemFile(name string, size int64) (*os.File, error) {
	fd, err := memfd(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return tempFile(name, size, os.NewSyscallError("memfd_create", err))
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, size); err != nil {
		f.Close()
		return nil, sizeError(size, os.NewSyscallError("ftruncate", err))
	}
	if size == 0 {
		return f, nil
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
	}
	return f, nil
}

// tempFile replaces MemFile without memfd_create, which fails with cause. The pages are allocated now, because the
// process would get SIGBUS later if the file system had no space.
func tempFile(name string, size int64, cause error) (*os.File, error) {
	errs := cause
	for _, dir := range []string{"/dev/shm", os.TempDir()} {
		f, err := os.CreateTemp(dir, "."+name+"-*")
		if err == nil {
			_ = os.Remove(f.Name())
			if size > 0 {
				err = unix.Fallocate(int(f.Fd()), 0, 0, size)
			}
			if err == nil {
				return f, nil
			}
			f.Close()
			err = sizeError(size, fmt.Errorf("allocating %d bytes in %s: %w", size, dir, err))
		}
		errs = fmt.Errorf("%w; %w", errs, err)
	}
	return nil, fmt.Errorf("%w: allow memfd_create in the sandbox, or set TMPDIR to a folder with free space", errs)
}

// sizeError adds a hint if files may not be so large.
func sizeError(size int64, err error) error {
	if errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("%w: the limit of file sizes is below the %d bytes that are needed; raise it with ulimit -f unlimited", err, size)
	}
	return err
}
