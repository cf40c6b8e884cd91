package arena

import (
	"bufio"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FreeMemory returns the bytes of memory that this process may still take: what
// the system has available, or less where a control group (version 1 or 2)
// allows less. Memory of the page cache counts as free: the kernel gives it up.
func FreeMemory() (int64, error) { return freeMemory(os.DirFS("/")) }

func freeMemory(root fs.FS) (int64, error) {
	free, err := memAvailable(root)
	if err != nil {
		return 0, err
	}
	for _, g := range controlGroups(root) {
		free = min(free, g.free(root))
	}
	return max(free, 0), nil
}

func memAvailable(root fs.FS) (int64, error) {
	v, err := keyedValue(root, "proc/meminfo", "MemAvailable:")
	if err != nil {
		if v, err = keyedValue(root, "proc/meminfo", "MemFree:"); err != nil {
			return 0, err
		}
	}
	return v << 10, nil
}

// controlGroup is a directory with the memory limit of a group.
type controlGroup struct {
	dir                     string
	limit, usage, cacheStat string // file names, and the key in memory.stat
}

// controlGroups lists the groups of this process and their ancestors, as far
// as they can be seen.
func controlGroups(root fs.FS) []controlGroup {
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var out []controlGroup
	for _, line := range strings.Split(string(data), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		g := controlGroup{limit: "memory.max", usage: "memory.current", cacheStat: "inactive_file"}
		var mounts []string
		switch {
		case parts[1] == "": // version 2
			mounts = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}
		case hasWord(parts[1], "memory"):
			mounts = []string{"sys/fs/cgroup/memory"}
			g = controlGroup{limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", cacheStat: "total_inactive_file"}
		default:
			continue
		}
		for _, m := range mounts {
			// In a container the path may be one of the host; then only the
			// mount itself is there and is our group.
			for p := filepath.Clean("/" + parts[2]); ; p = filepath.Dir(p) {
				g.dir = filepath.Join(m, p)
				out = append(out, g)
				if p == "/" {
					break
				}
			}
		}
	}
	return out
}

func hasWord(list, word string) bool {
	for _, w := range strings.Split(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// free returns what the group may still take; without a limit, or where it
// cannot be read, everything.
func (g controlGroup) free(root fs.FS) int64 {
	limit, err := readInt(root, filepath.Join(g.dir, g.limit))
	if err != nil || limit > 1<<60 {
		return math.MaxInt64
	}
	usage, err := readInt(root, filepath.Join(g.dir, g.usage))
	if err != nil {
		return limit
	}
	cache, err := keyedValue(root, filepath.Join(g.dir, "memory.stat"), g.cacheStat)
	if err != nil {
		cache = 0
	}
	return max(limit-usage+cache, 0)
}

var errNoValue = errors.New("value not found")

func readInt(root fs.FS, name string) (int64, error) {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// keyedValue finds "key value ..." in a file of lines.
func keyedValue(root fs.FS, name, key string) (int64, error) {
	f, err := root.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) >= 2 && fields[0] == key {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, errNoValue
}

// Resident returns the bytes of memory of this process that are resident, and
// those of them that it shares with no file or other process.
func Resident() (rss, private int64) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(string(data))
	if len(f) < 3 {
		return 0, 0
	}
	total, _ := strconv.ParseInt(f[1], 10, 64)
	shared, _ := strconv.ParseInt(f[2], 10, 64)
	page := int64(os.Getpagesize())
	return total * page, (total - shared) * page
}
