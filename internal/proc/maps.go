package proc

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// A Mapping is a line of /proc/PID/maps.
type Mapping struct {
	Start, End, Offset uint64
	Exec               bool   // holds code
	Shared             bool   // what is written is seen by others
	Device             string // of the file, "major:minor" in hexadecimal digits
	Inode              uint64 // of the file; 0 where there is none
	// Name is the file, as the kernel writes it, "[stack]" and the like, or "".
	Name string
}

// ParseMapping reads a line of /proc/PID/maps. The file is read line by line,
// since a trainer has thousands of them.
func ParseMapping(line string) (Mapping, bool) {
	addresses, rest, ok := strings.Cut(line, " ")
	if !ok {
		return Mapping{}, false
	}
	from, to, ok := strings.Cut(addresses, "-")
	parts := strings.SplitN(rest, " ", 5) // perms offset dev inode name
	if !ok || len(parts) < 4 {
		return Mapping{}, false
	}
	var m Mapping
	for _, number := range []struct {
		to   *uint64
		text string
	}{{&m.Start, from}, {&m.End, to}, {&m.Offset, parts[1]}} {
		n, err := strconv.ParseUint(number.text, 16, 64)
		if err != nil {
			return Mapping{}, false
		}
		*number.to = n
	}
	if rights := parts[0]; len(rights) == 4 {
		m.Exec, m.Shared = rights[2] == 'x', rights[3] == 's'
	}
	m.Device = parts[2]
	m.Inode, _ = strconv.ParseUint(parts[3], 10, 64)
	if len(parts) == 5 {
		m.Name = strings.TrimLeft(parts[4], " ")
	}
	return m, true
}

// maxMappings bounds how many lines of a memory map are read.
const maxMappings = 1 << 16

// Mappings reads the memory map of a process and returns what keep wants of it.
func (fs FS) Mappings(pid int, keep func(*Mapping) bool) ([]Mapping, error) {
	f, err := os.Open(fs.Path(pid, "maps"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Mapping
	lines := bufio.NewScanner(f)
	for n := 0; n < maxMappings && lines.Scan(); n++ {
		if m, ok := ParseMapping(lines.Text()); ok && keep(&m) {
			out = append(out, m)
		}
	}
	return out, lines.Err()
}
