package proc

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FDPath returns a path by which an open descriptor of this process, or a file below it, can be opened again.
func FDPath(fd int) string { return Live.Path(Self, "fd/"+strconv.Itoa(fd)) }

// Link returns the target of /proc/PID/fd/N: a path, "socket:[inode]", "pipe:[inode]" or "anon_inode:...".
func (fs FS) Link(pid, fd int) string {
	var b [256]byte
	n, err := unix.Readlink(fs.Path(pid, "fd/"+strconv.Itoa(fd)), b[:])
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// maxDescriptors limits the number of a process's descriptors that are read.
const maxDescriptors = 1024

// Ends calls found with the inode of each pipe and socket that a process holds, and
// whether it may write there.
func (fs FS) Ends(pid int, found func(inode uint64, writes bool)) error {
	who := strconv.Itoa(pid)
	fds, err := fs.Numbers(who, "fd")
	if err != nil {
		return err
	}
	for _, fd := range fds[:min(len(fds), maxDescriptors)] {
		kind, number, ok := strings.Cut(fs.Link(pid, fd), ":[")
		if !ok || kind != "pipe" && kind != "socket" {
			continue
		}
		inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
		if err != nil {
			continue
		}
		writes := true
		if kind == "pipe" {
			// The permissions of the link are those of the descriptor.
			var st unix.Stat_t
			if unix.Lstat(fs.Path(pid, "fd/"+strconv.Itoa(fd)), &st) == nil {
				writes = st.Mode&0o200 != 0
			}
		}
		found(inode, writes)
	}
	return nil
}

// MemoryFiles opens the memory files (memfd_create) of a process that have a name, in the order of its descriptors.
// Programs publish data to others in such files. MemoryFiles calls do with each file until do returns false; do closes
// the file or keeps it. It fails if the descriptors of the process may not be read.
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
