package pystack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/stokerdata/stoker/internal/proc"
	"golang.org/x/sys/unix"
)

// found is an interpreter that was found in a process.
type found struct {
	mem     *processMemory
	layout  *layout
	runtime uint64
	size    uint64
}

// maxMaps bounds how much of /proc/PID/maps is read. A trainer has some 3,000
// lines, 300 kB.
const maxMaps = 64 << 20

var (
	// libraryName matches libpython3.12.so.1.0 and programName python3.12: other mapped files that may be an
	// interpreter.
	libraryName = regexp.MustCompile(`^libpython[23]?\.?\d*[a-z]*\.so`)
	programName = regexp.MustCompile(`^python[0-9.]*[a-z]*( \(deleted\))?$`)
	// minorInName finds the version in the path of a file that Python has loaded: /usr/lib/python3.10/...,
	// _json.cpython-310-x86_64-linux-gnu.so.
	minorInName = regexp.MustCompile(`(?:/lib/python3\.|libpython3\.|/python3\.|\.cpython-3)(\d{1,2})\b`)
)

// findRuntime finds the interpreter of a process and its layout.
func findRuntime(pid int) (*found, error) {
	if pid <= 0 {
		return nil, &Error{PID: pid, Kind: Gone, Msg: "there is no such process"}
	}
	f, err := os.Open(proc.Live.Path(pid, "maps"))
	if err != nil {
		return nil, openError(pid, err)
	}
	candidates, minor, first, err := readMaps(f, executable(pid))
	_ = f.Close() // read only
	switch {
	case errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EPERM):
		return nil, permissionError(pid)
	case err != nil || first == 0: // kernel threads and zombies have no memory
		if !proc.Live.Exists(pid) || errors.Is(err, unix.ESRCH) {
			return nil, &Error{PID: pid, Kind: Gone, Msg: "there is no such process"}
		}
		return nil, &Error{PID: pid, Kind: NotPython, Msg: "it has no memory of its own: a kernel thread, or a process that has ended"}
	}
	mem, err := openMemory(pid, first)
	if err != nil {
		return nil, err
	}
	var why error = notPython(pid, programOf(pid))
	decided := false // by a file that is an interpreter
	for _, m := range candidates {
		img, err := imageOf(pid, m)
		if err != nil {
			continue
		}
		l, runtime, err := attach(pid, mem, img, m, minor)
		if err == nil {
			return &found{mem: mem, layout: l, runtime: runtime, size: img.size}, nil
		}
		var e *Error
		if errors.As(err, &e) && e.Kind == NoSymbols && !isPython(m.Name) {
			continue // any program may lack Python's symbols
		}
		if !decided {
			why = err
		}
		decided = decided || errors.As(err, &e) && e.Kind != NoSymbols
	}
	_ = mem.close()
	return nil, why
}

// notPython returns the error for a program that is not CPython.
func notPython(pid int, program string) *Error {
	if strings.HasPrefix(program, "pypy") {
		return &Error{PID: pid, Kind: OtherPython, Msg: fmt.Sprintf("it runs PyPy (%s), whose frames lie where only PyPy knows", program),
			Hint: "only CPython's frames can be read"}
	}
	return &Error{PID: pid, Kind: NotPython, Msg: fmt.Sprintf("it is not a Python process (%s)", program),
		Hint: "give the process that runs the training loop, not the shell or launcher that started it"}
}

// attach finds out whether a mapped file is a running interpreter.
func attach(pid int, mem memory, img *image, m proc.Mapping, minor int) (*layout, uint64, error) {
	base, ok := img.base(m.Start, m.Offset)
	if known := img.minor; known != 0 {
		minor = known
	}
	if minor != 0 && minor < oldestMinor && isPython(m.Name) {
		return nil, 0, versionError(pid, Version{Major: 3, Minor: minor})
	}
	if !ok || img.runtime == 0 {
		return nil, 0, &Error{PID: pid, Kind: NoSymbols, Msg: fmt.Sprintf("%s has neither the symbol %s nor a section .PyRuntime", m.Name, symbolRuntime),
			Hint: "use an interpreter whose dynamic symbols were kept (strip --strip-unneeded keeps them)"}
	}
	runtime := base + img.runtime
	one := reader(mem)
	described := make([]byte, debugBytes)
	if !one(runtime, described) {
		return nil, 0, &Error{PID: pid, Kind: Unknown, Msg: "its runtime state cannot be read"}
	}
	l, version, problem := describedLayout(described)
	if l == nil && version.Major != 0 {
		if problem == "" {
			return nil, 0, versionError(pid, version)
		}
		return nil, 0, &Error{PID: pid, Kind: Unknown, Msg: problem}
	}
	if l == nil {
		var hex [8]byte
		if img.version != 0 && one(base+img.version, hex[:]) {
			version = versionOf(uint64(le32(hex[:], 0)))
		} else {
			if minor == 0 {
				return nil, 0, &Error{PID: pid, Kind: Unknown, Msg: "the version of its interpreter is not known"}
			}
			version = Version{Major: 3, Minor: minor}
		}
		if l, ok = tableFor(version); !ok {
			return nil, 0, versionError(pid, version)
		}
	}
	return l, runtime, l.check(pid, one, runtime)
}

// check follows the first pointers, which are invalid if the layout is wrong.
func (l *layout) check(pid int, read func(uint64, []byte) bool, runtime uint64) error {
	unknown := &Error{PID: pid, Kind: Unknown, Msg: fmt.Sprintf("its CPython %s is built in a way that is not known (a debug build?)", l.version)}
	word := func(addr uint64) uint64 {
		var b [8]byte
		if !read(addr, b[:]) {
			return 0
		}
		return le64(b[:], 0)
	}
	interp := word(runtime + l.interpHead)
	if interp == 0 {
		return &Error{PID: pid, Kind: Starting, Msg: "its interpreter has not started yet, or has ended", Hint: "try again in a moment"}
	}
	thread := word(interp + l.interpThreads)
	if thread == 0 {
		return &Error{PID: pid, Kind: Starting, Msg: "its interpreter has no threads yet, or no more", Hint: "try again in a moment"}
	}
	if word(thread+l.threadInterp) != interp {
		return unknown
	}
	return nil
}

// readMaps returns the files that may be an interpreter, the most likely first. It also returns the minor version in
// their paths, or 0, and a mapped address, or 0.
func readMaps(r io.Reader, exe string) (candidates []proc.Mapping, minor int, first uint64, err error) {
	var libraries, programs, others []proc.Mapping
	seen := map[string]bool{}
	lines := bufio.NewScanner(io.LimitReader(r, maxMaps))
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		m, ok := proc.ParseMapping(lines.Text())
		if !ok {
			continue
		}
		if first == 0 && m.Name != "[vsyscall]" {
			first = m.Start
		}
		if !strings.HasPrefix(m.Name, "/") || seen[m.Name] {
			continue
		}
		seen[m.Name] = true // the first part of each file is the one with its headers
		if minor == 0 {
			if match := minorInName.FindStringSubmatch(m.Name); match != nil {
				minor, _ = strconv.Atoi(match[1]) // digits only
			}
		}
		switch name := path.Base(m.Name); {
		case m.Name != exe && !strings.Contains(name, "python"):
			// There are hundreds of libraries, and a regular expression is slow.
		case libraryName.MatchString(name):
			libraries = append(libraries, m)
		case m.Name == exe:
			programs = append(programs, m)
		case programName.MatchString(name) && len(others) < 8:
			others = append(others, m)
		}
	}
	return append(append(libraries, programs...), others...), minor, first, lines.Err()
}

// executable returns the path of the program that a process runs, as maps
// writes it.
func executable(pid int) string {
	name, err := os.Readlink(proc.Live.Path(pid, "exe"))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(name, "\n", `\012`)
}

// programOf names the program of a process for messages.
func programOf(pid int) string {
	if exe := executable(pid); exe != "" {
		return path.Base(exe)
	}
	return "unknown program"
}

func isPython(name string) bool {
	base := path.Base(name)
	return libraryName.MatchString(base) || programName.MatchString(base)
}

// images are the files that were read before, by their identity: the processes
// of a job run the same few.
var images = struct {
	sync.Mutex
	known map[fileIdentity]*image
}{known: map[fileIdentity]*image{}}

type fileIdentity struct {
	device, inode uint64
	size, changed int64
}

// maxImages bounds the files that are remembered.
const maxImages = 64

// imageOf reads the file of a proc.Mapping, in the file system of the process, which may be a container's.
func imageOf(pid int, m proc.Mapping) (*image, error) {
	names := []string{
		proc.Live.Path(pid, fmt.Sprintf("map_files/%x-%x", m.Start, m.End)), // right even if it was replaced; needs a capability
		proc.Live.Path(pid, "root"+strings.ReplaceAll(m.Name, `\012`, "\n")),
	}
	if m.Name == executable(pid) {
		names = append([]string{proc.Live.Path(pid, "exe")}, names...)
	}
	var err error
	for _, name := range names {
		var f *os.File
		if f, err = os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0); err != nil {
			continue
		}
		var img *image
		if img, err = imageOfFile(f); err == nil {
			_ = f.Close() // read only
			return img, nil
		}
		_ = f.Close()
	}
	return nil, err
}

func imageOfFile(f *os.File) (*image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotELF
	}
	id := fileIdentity{size: info.Size(), changed: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.device, id.inode = st.Dev, st.Ino
	}
	images.Lock()
	img := images.known[id]
	images.Unlock()
	if img != nil {
		return img, nil
	}
	img, err = readImage(f)
	if err != nil {
		return nil, err
	}
	images.Lock()
	defer images.Unlock()
	if len(images.known) >= maxImages {
		clear(images.known)
	}
	images.known[id] = img
	return img, nil
}

// openError returns the error for a file below /proc/PID that cannot be opened.
func openError(pid int, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return permissionError(pid)
	}
	return &Error{PID: pid, Kind: Gone, Msg: "there is no such process"}
}
