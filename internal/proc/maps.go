package proc

import (
	"strconv"
	"strings"
)

// A Mapping is a line of /proc/PID/maps.
type Mapping struct {
	Start, End, Offset uint64
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
	if len(parts) == 5 {
		m.Name = strings.TrimLeft(parts[4], " ")
	}
	return m, true
}
