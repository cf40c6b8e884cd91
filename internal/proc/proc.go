// Package proc reads Linux's data on processes, threads, disks, memory and control groups in /proc and /sys. No other
// package in this project reads those files. The parsers take untrusted bytes. The readers take the location of the two
// file systems, so that recorded trees of other machines can also be read.
//
// Tests compare the parsers with those of github.com/prometheus/procfs. The doctor reads these files many times a
// second for every thread of a job. That library takes 1.5 to 4 times as long and makes 16 to 180 allocations a file,
// while these parsers allocate only the path. It also lacks the limits of control groups, the calls in which threads
// wait, and the escapes of mount points.
//
// The package also reports on which CPUs a process runs and how much processes have used.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FS is the location of the two file systems.
type FS struct {
	Proc string // "/proc"
	Sys  string // "/sys"
}

// Live is this machine.
var Live = FS{Proc: "/proc", Sys: "/sys"}

// maxFile limits the size of a file that is read to 1 MiB: /proc/stat of a machine with thousands of cores fits.
const maxFile = 1 << 20

// Read reads a file below Proc into buf, which grows if necessary, and returns the bytes read. It does not use os.File,
// because files of /proc are read thousands of times: no finaliser, no poller.
func (fs FS) Read(buf []byte, path ...string) ([]byte, error) {
	return readFile(filepath.Join(fs.Proc, filepath.Join(path...)), buf)
}

// ReadSys does the same below Sys.
func (fs FS) ReadSys(buf []byte, path ...string) ([]byte, error) {
	return readFile(filepath.Join(fs.Sys, filepath.Join(path...)), buf)
}

// Self, used as a process number, means the calling process.
const Self = 0

// Process reads /proc/PID/name.
func (fs FS) Process(buf []byte, pid int, name string) ([]byte, error) {
	return readFile(fs.Path(pid, name), buf)
}

// Path is the path of a file in the folder of a process.
func (fs FS) Path(pid int, name string) string {
	who := "self"
	if pid != Self {
		who = strconv.Itoa(pid)
	}
	return fs.Proc + "/" + who + "/" + name
}

// Exists reports whether a process exists, running or not yet waited for.
func (fs FS) Exists(pid int) bool {
	_, err := os.Stat(fs.Path(pid, ""))
	return err == nil
}

// Thread reads /proc/PID/task/TID/name.
func (fs FS) Thread(buf []byte, pid, tid int, name string) ([]byte, error) {
	return readFile(fs.threadPath(pid, tid, name), buf)
}

func (fs FS) threadPath(pid, tid int, name string) string {
	return fs.Proc + "/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/" + name
}

// Numbers returns the numeric entries of a directory below Proc, such as processes or the threads of one.
func (fs FS) Numbers(path ...string) ([]int, error) {
	d, err := os.Open(filepath.Join(fs.Proc, filepath.Join(path...)))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	out := make([]int, 0, len(names))
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if n, err := strconv.Atoi(name); err == nil {
			out = append(out, n)
		}
	}
	return out, nil
}

func readFile(path string, buf []byte) ([]byte, error) {
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readAll(fd, path, buf)
}

func open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return fd, nil
		case !errors.Is(err, unix.EINTR):
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// readAll reads from the beginning of fd; most files of /proc answer one read.
func readAll(fd int, path string, buf []byte) ([]byte, error) {
	buf = buf[:cap(buf)]
	if len(buf) == 0 {
		buf = make([]byte, 4096)
	}
	n := 0
	for {
		if n == len(buf) {
			if n >= maxFile {
				return buf[:n], nil
			}
			buf = append(buf, make([]byte, len(buf))...)
		}
		m, err := unix.Pread(fd, buf[n:], int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case m == 0:
			return buf[:n], nil
		default:
			n += m
		}
	}
}

// A File stays open to be read many times, which saves looking its path up. When the process exits, reading fails with
// ESRCH, so a reused number is never mistaken for the old process.
type File struct {
	fd   int
	path string
}

// OpenThread opens /proc/PID/task/TID/name.
func (fs FS) OpenThread(pid, tid int, name string) (*File, error) {
	path := fs.threadPath(pid, tid, name)
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	return &File{fd, path}, nil
}

// ReadOnce reads with a single call, which suffices for the small files of a thread.
func (f *File) ReadOnce(buf []byte) ([]byte, error) {
	for {
		n, err := unix.Pread(f.fd, buf[:cap(buf)], 0)
		switch {
		case err == nil:
			return buf[:n], nil
		case !errors.Is(err, unix.EINTR):
			return nil, &os.PathError{Op: "read", Path: f.path, Err: err}
		}
	}
}

// Close closes the file.
func (f *File) Close() {
	unix.Close(f.fd)
}

// Gone reports whether err means that a process or thread has ended.
func Gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// Text reads a small file below Sys without the white space around it; "" if it cannot be read.
func (fs FS) Text(path ...string) string {
	data, err := fs.ReadSys(nil, path...)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(data))
}

// Setting reads /proc/sys/name without the white space around it; "" if this kernel has no such setting.
func (fs FS) Setting(name string) string {
	data, err := fs.Read(nil, "sys", name)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(data))
}

// Command returns the command line of a process, nil when it has none.
func (fs FS) Command(pid int) []string {
	data, err := fs.Process(nil, pid, "cmdline")
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
}

// fields iterates over fields separated by white space, without allocating.
type fields []byte

func (f *fields) next() []byte {
	b := *f
	i := 0
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	j := i
	for j < len(b) && !isSpace(b[j]) {
		j++
	}
	*f = b[j:]
	return b[i:j]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

func (f *fields) skip(n int) {
	for range n {
		f.next()
	}
}

// uint reads a decimal number. It returns 0 for anything else and for numbers that are too large.
func (f *fields) uint() uint64 { return parseUint(f.next()) }

func parseUint(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' || n > (1<<63)/10 {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// parseSigned reads a decimal number that may be negative.
func parseSigned(b []byte) int64 {
	if len(b) > 0 && b[0] == '-' {
		return -int64(parseUint(b[1:]) & (1<<63 - 1))
	}
	return int64(parseUint(b) & (1<<63 - 1))
}

// malformed returns the error for a file with unexpected content.
func malformed(what string, data []byte) error {
	if len(data) > 40 {
		data = data[:40]
	}
	return fmt.Errorf("%s: cannot make sense of %q", what, data)
}
