package proc

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FDPath is a path by which an open descriptor of this process can be opened
// again, or what lies below it reached.
func FDPath(fd int) string { return Live.Path(Self, "fd/"+strconv.Itoa(fd)) }

// Link returns what /proc/PID/fd/N points to: a path, "socket:[inode]",
// "pipe:[inode]" or "anon_inode:...".
func (fs FS) Link(pid, fd int) string {
	var b [256]byte
	n, err := unix.Readlink(fs.Path(pid, "fd/"+strconv.Itoa(fd)), b[:])
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// Memory files are what programs publish for others to read (memfd_create).
// MemoryFiles opens those of a process that have a name, in the order of its
// descriptors, and calls do with each until that returns false; do closes it or
// keeps it. It fails where the descriptors of the process may not be seen.
func (fs FS) MemoryFiles(pid int, name string, do func(*os.File) bool) error {
	fds, err := fs.Numbers(strconv.Itoa(pid), "fd")
	if err != nil {
		return err
	}
	for _, fd := range fds {
		target := fs.Link(pid, fd)
		if found, ok := strings.CutPrefix(target, "/memfd:"); !ok || found != name && !strings.HasPrefix(found, name+" ") {
			continue
		}
		f, err := os.Open(fs.Path(pid, "fd/"+strconv.Itoa(fd)))
		if os.IsNotExist(err) {
			continue // closed meanwhile
		}
		if err != nil {
			return err
		}
		if !do(f) {
			return nil
		}
	}
	return nil
}
