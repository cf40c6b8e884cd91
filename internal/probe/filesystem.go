package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/plan"
	"github.com/stokerdata/stoker/store"
)

// mount is the file system that a path lies on.
type mount struct {
	kind   string // "ext4"
	device string // "/dev/vda", or the server and path of a network file system
	dev    uint64
}

// mountOf finds the file system of a folder.
func mountOf(root fs.FS, dir string) (mount, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return mount{}, err
	}
	m := mount{dev: st.Dev}
	// proc(5): ID parent major:minor root mountpoint options [optional ...] - type source options
	best := -1
	for line := range strings.Lines(readText(root, "proc/self/mountinfo")) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 2 {
			continue
		}
		point := unescape(l[4])
		if !within(dir, point) || len(point) < best {
			continue
		}
		best = len(point) // of two mounts on one point the later one is seen
		m.kind, m.device = r[0], unescape(r[1])
	}
	return m, nil
}

func within(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// memoryKinds are file systems whose files are the page cache itself.
var memoryKinds = map[string]bool{"tmpfs": true, "ramfs": true, "devtmpfs": true, "hugetlbfs": true}

// networkClass says which class a network file system belongs to.
func networkClass(kind string) string {
	switch {
	case strings.HasPrefix(kind, "nfs"), kind == "cifs", kind == "smb3", kind == "9p", kind == "ceph", kind == "lustre", kind == "beegfs", kind == "glusterfs",
		kind == "fuse.glusterfs", kind == "gpfs", kind == "afs":
		return plan.ClassNFS
	case strings.HasPrefix(kind, "fuse.") && (strings.Contains(kind, "s3") || strings.Contains(kind, "gcs") || strings.Contains(kind, "blob") || strings.Contains(kind, "goofys")):
		return plan.ClassObject
	}
	return ""
}

// class says what kind of storage it is: by the kind of the file system, by what
// the kernel says of the device, and, where a virtual machine hides the
// device, by what was measured.
func (m mount) class(root fs.FS, s *plan.Store) string {
	if memoryKinds[m.kind] {
		return plan.ClassRAM
	}
	if c := networkClass(m.kind); c != "" {
		return c
	}
	name := blockDevice(root, m.dev)
	if strings.HasPrefix(name, "nvme") {
		return plan.ClassNVMe
	}
	virtual := name == "" || strings.HasPrefix(name, "vd") || strings.HasPrefix(name, "xvd") || strings.HasPrefix(name, "dm-") || strings.HasPrefix(name, "loop")
	if !virtual {
		switch readText(root, "sys/block/"+name+"/queue/rotational") {
		case "1":
			return plan.ClassHDD
		case "0":
			return plan.ClassSATA
		}
	}
	// Seeks of 8 ms make a disk; the 600 MB/s and the 98,000 reads of 4 KiB of
	// SATA's third generation end what a SATA SSD gives.
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

// blockDevice is the name of the whole disk with a device number, "" when the
// kernel does not show one.
func blockDevice(root fs.FS, dev uint64) string {
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	target, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	name := filepath.Base(target)
	if _, err := fs.Stat(root, "sys/block/"+name); err == nil {
		return name
	}
	return filepath.Base(filepath.Dir(target)) // a partition
}

// ioLimits is what the control groups of this process let through from a device:
// bytes and reads per second, 0 for no limit.
func ioLimits(root fs.FS, dev uint64) (bandwidth, iops float64) {
	// A limit is set on the whole disk.
	id := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	if name := blockDevice(root, dev); name != "" {
		if text := readText(root, "sys/block/"+name+"/dev"); text != "" {
			id = text
		}
	}
	lower := func(v *float64, text string) {
		if n, err := strconv.ParseFloat(text, 64); err == nil && n > 0 && (*v == 0 || n < *v) {
			*v = n
		}
	}
	for _, g := range groups(root, "blkio") {
		if !g.v2 {
			for name, v := range map[string]*float64{"read_bps_device": &bandwidth, "read_iops_device": &iops} {
				for line := range strings.Lines(readText(root, g.dir+"/blkio.throttle."+name)) {
					if f := strings.Fields(line); len(f) == 2 && f[0] == id {
						lower(v, f[1])
					}
				}
			}
			continue
		}
		for line := range strings.Lines(readText(root, g.dir+"/io.max")) {
			f := strings.Fields(line)
			if len(f) == 0 || f[0] != id {
				continue
			}
			for _, kv := range f[1:] {
				if n, ok := strings.CutPrefix(kv, "rbps="); ok {
					lower(&bandwidth, n)
				}
				if n, ok := strings.CutPrefix(kv, "riops="); ok {
					lower(&iops, n)
				}
			}
		}
	}
	return bandwidth, iops
}

// lineRate is the speed of the fastest network interface that is up, in bytes
// per second, 0 when none says.
func lineRate(root fs.FS) float64 {
	var best float64
	speeds, _ := fs.Glob(root, "sys/class/net/*/speed")
	for _, name := range speeds {
		if mbit, err := strconv.ParseFloat(readText(root, name), 64); err == nil && mbit > 0 {
			best = max(best, mbit*1e6/8)
		}
	}
	return best
}

// scratch returns a new file in dir without a name: when it is closed, or the
// process ends in whatever way, it is gone.
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

// freeSpace is what the user may still write below dir, in bytes.
func freeSpace(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
