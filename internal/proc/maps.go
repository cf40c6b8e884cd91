package proc

import (
	"bufio"
	"bytes"
	"os"
)

// A Mapping is a line of /proc/PID/maps.
type Mapping struct {
	Start, End, Offset uint64
	Exec               bool   // holds code
	Shared             bool   // writes are visible to others
	Device             string // of the file, "major:minor" in hexadecimal digits; "" for none
	Inode              uint64 // of the file; 0 for none
	// Name is the file as the kernel writes it, a name such as "[stack]", or "".
	Name string
}

// ParseMapping reads a line of /proc/PID/maps. The file is read line by line,
// since a trainer has thousands of them.
func ParseMapping(line string) (Mapping, bool) { return parseMapping([]byte(line), "") }

// parseMapping parses one line. last is the name in the previous line, which lines of the same file share.
func parseMapping(line []byte, last string) (m Mapping, ok bool) {
	var place, rights, offset, device, inode []byte
	for _, part := range []*[]byte{&place, &rights, &offset, &device, &inode} {
		*part, line, _ = bytes.Cut(line, []byte(" "))
		if len(*part) == 0 {
			return Mapping{}, false
		}
	}
	from, to, ok := bytes.Cut(place, []byte("-"))
	if !ok {
		return Mapping{}, false
	}
	for _, number := range []struct {
		to   *uint64
		text []byte
	}{{&m.Start, from}, {&m.End, to}, {&m.Offset, offset}} {
		if *number.to, ok = parseHex(number.text); !ok {
			return Mapping{}, false
		}
	}
	if len(rights) == 4 {
		m.Exec, m.Shared = rights[2] == 'x', rights[3] == 's'
	}
	m.Inode = parseUint(inode)
	if m.Inode != 0 {
		m.Device = string(device)
	}
	if name := bytes.TrimLeft(line, " "); string(name) == last {
		m.Name = last
	} else {
		m.Name = string(name)
	}
	return m, true
}

// parseHex reads a hexadecimal number.
func parseHex(b []byte) (n uint64, ok bool) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		if n >= 1<<60 {
			return 0, false
		}
		n = n<<4 | uint64(c)
	}
	return n, len(b) > 0
}

// maxMappings bounds how many lines of a memory map are read.
const maxMappings = 1 << 16

// Mappings reads the memory map of a process and returns the entries for which keep returns true.
func (fs FS) Mappings(pid int, keep func(*Mapping) bool) ([]Mapping, error) {
	f, err := os.Open(fs.Path(pid, "maps"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Mapping
	lines := bufio.NewScanner(f)
	last := ""
	for n := 0; n < maxMappings && lines.Scan(); n++ {
		m, ok := parseMapping(lines.Bytes(), last)
		if !ok {
			continue
		}
		if last = m.Name; keep(&m) {
			out = append(out, m)
		}
	}
	return out, lines.Err()
}
