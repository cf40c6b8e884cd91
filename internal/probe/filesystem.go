package probe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/store"
)

// mount is the file system of a path.
type mount struct {
	kind   string // "ext4"
	device string // "/dev/vda", or the server and path of a network file system
	dev    uint64
}

// mountOf finds the file system of a folder.
func mountOf(dir string) (mount, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return mount{}, err
	}
	found, _ := proc.Live.MountOf(dir)
	return mount{kind: found.Type, device: found.Source, dev: st.Dev}, nil
}

// memoryKinds are file systems whose files exist only in the page cache.
var memoryKinds = map[string]bool{"tmpfs": true, "ramfs": true, "devtmpfs": true, "hugetlbfs": true}

// networkClass returns the class of a network file system.
func networkClass(kind string) string {
	switch proc.RemoteFiles(kind) {
	case proc.RemoteServer:
		return plan.ClassNFS
	case proc.RemoteBucket:
		return plan.ClassObject
	}
	return ""
}

// class returns the kind of storage, from the kind of the file system and the kernel's description of the device. If
// a virtual machine hides the device, it uses the measured rates.
func (m mount) class(s *plan.Store) string {
	if memoryKinds[m.kind] {
		return plan.ClassRAM
	}
	if c := networkClass(m.kind); c != "" {
		return c
	}
	name := proc.Live.BlockDevice(unix.Major(m.dev), unix.Minor(m.dev))
	if strings.HasPrefix(name, "nvme") {
		return plan.ClassNVMe
	}
	virtual := name == "" || strings.HasPrefix(name, "vd") || strings.HasPrefix(name, "xvd") || strings.HasPrefix(name, "dm-") || strings.HasPrefix(name, "loop")
	if !virtual {
		switch turns, known := proc.Live.Rotational(name); {
		case turns:
			return plan.ClassHDD
		case known:
			return plan.ClassSATA
		}
	}
	// Seeks of 8 ms indicate a hard disk. 600 MB/s and 98,000 reads of 4 KiB, the limits of SATA's third generation,
	// are the upper limits of a SATA SSD.
	var iops, bandwidth float64
	for _, r := range s.Random {
		iops, bandwidth = max(iops, r.IOPS), max(bandwidth, r.Bandwidth)
	}
	switch {
	case iops == 0:
		return ""
	case iops < 1000:
		return plan.ClassHDD
	case bandwidth > 650e6 || iops > 100_000:
		return plan.ClassNVMe
	}
	return plan.ClassSATA
}

// scratch returns a new unnamed file in dir. It disappears when it is closed or when the process exits for any
// reason.
func scratch(dir string, flags int) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|flags, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "scratch")), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	// Not every file system knows O_TMPFILE. The name is there for a moment.
	f, err := os.CreateTemp(dir, ".stoker-probe-*")
	if err != nil {
		return nil, store.Cause(err)
	}
	name := f.Name()
	defer os.Remove(name)
	if flags == 0 {
		return f, nil
	}
	f.Close()
	fd, err = unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// freeSpace returns the number of bytes that the user may still write below dir.
func freeSpace(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
