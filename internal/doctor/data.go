package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
)

// dataState describes the data that the job reads and the code that processes it.
type dataState struct {
	found      Data // what the job reads
	dataLooked bool
	files      map[string]int      // samples that waited for a file, by path
	fsTypes    map[string]int      // the same by kind of file system
	wheres     map[siteKey]int     // functions in which threads ran or slept
	locks      map[string]int      // samples that waited for a lock, by its file
	sources    map[string][]string // lines of the job's source files
	loops      map[place]inLoop    // results for lines that were seen on a trainer's stack
}

// noteFile records the files that threads wait for, for the evidence.
func (c *collector) noteFile(pid int, file string) {
	if file == "" || strings.HasSuffix(file, " (deleted)") {
		return
	}
	if len(c.files) < 1000 || c.files[file] > 0 {
		c.files[file]++
	}
	if data, err := c.mounts(pid); err == nil {
		if m, ok := proc.MountOf(data, file); ok {
			c.fsTypes[m.Type]++
		}
	}
}

// noteLock records the files whose locks threads wait for.
func (c *collector) noteLock(file string) {
	if file != "" && (len(c.locks) < 100 || c.locks[file] > 0) {
		c.locks[printable(file)]++
	}
}

// mounts reads the mount table, at most every ten seconds.
func (c *collector) mounts(pid int) ([]proc.Mount, error) {
	if c.sys.mounts != nil && time.Since(c.sys.mountsAt) < 10*time.Second {
		return c.sys.mounts, nil
	}
	data, err := c.fs.Process(nil, pid, "mountinfo")
	if err != nil {
		return nil, err
	}
	c.sys.mounts, c.sys.mountsAt = proc.ParseMounts(data), time.Now()
	return c.sys.mounts, nil
}

// A siteKey is a function and the activity of threads in it.
type siteKey struct {
	cause cause
	where string
	lock  bool // it waited for a lock, and not for a timer
}

// noteWhere records the function of a running or sleeping thread.
func (c *collector) noteWhere(x cause, m moment) {
	k := siteKey{x, m.view.where, m.block == blockLock || m.block == blockFlock}
	if k.where == "" || len(c.wheres) > 1000 && c.wheres[k] == 0 {
		return
	}
	c.wheres[k]++
}

// top is the site of a cause that was seen most often, and its share of it.
func (c *collector) top(x cause) (siteKey, float64) {
	var best siteKey
	n, total := 0, 0
	for k, count := range c.wheres {
		if k.cause != x {
			continue
		}
		total += count
		if count > n || count == n && k.where < best.where {
			best, n = k, count
		}
	}
	return best, float64(n) / float64(max(1, total))
}

// topWhere returns the function in which a cause was sampled most often.
func (c *collector) topWhere(x cause) string {
	best, share := c.top(x)
	if best.where == "" || share < 0.2 {
		return ""
	}
	return fmt.Sprintf("%s, %.0f%%", best.where, 100*share)
}

// topSleep returns the function that waits most for a timer or a lock.
func (c *collector) topSleep() string {
	best, share := c.top(causeLatency)
	switch {
	case best.where == "" || share < 0.2:
		return ""
	case best.lock:
		return fmt.Sprintf("%.0f%% of that is waiting for a lock in %s", 100*share, best.where)
	}
	return fmt.Sprintf("%.0f%% of that is sleeping in %s", 100*share, best.where)
}

// locked names the lock that most waiting was for, and its share of the latency.
func (c *collector) locked() (string, float64) {
	locks, all := 0, 0
	for k, n := range c.wheres {
		if k.cause == causeLatency {
			all += n
			if k.lock {
				locks += n
			}
		}
	}
	name, most := "a lock", 0
	for _, file := range sortedKeys(c.locks) {
		if c.locks[file] > most {
			name, most = "the lock of "+file, c.locks[file]
		}
	}
	return name, float64(locks) / float64(max(1, all))
}

// slowFile is the kind of file system that most waiting was for, and an example.
func (c *collector) slowFile() (kind, file string) {
	kind, file = c.slowPath()
	if len(file) > 60 {
		file = ".../" + filepath.Base(file)
	}
	return kind, file
}

// slowPath is the same with the whole path.
func (c *collector) slowPath() (kind, file string) {
	n := 0
	for _, t := range sortedKeys(c.fsTypes) {
		if c.fsTypes[t] > n {
			kind, n = t, c.fsTypes[t]
		}
	}
	n = 0
	for _, f := range sortedKeys(c.files) {
		if c.files[f] > n {
			file, n = f, c.files[f]
		}
	}
	return kind, file
}

// maxSource bounds the size of a source file that is read.
const maxSource = 1 << 20

// sourceLine returns a line of the job's source; "" if it cannot be read.
func (c *collector) sourceLine(at place) string {
	if at.line <= 0 || at.file == "" || strings.HasPrefix(at.file, "<") {
		return ""
	}
	lines, ok := c.sources[at.file]
	if !ok {
		lines = readSource(c.opt.PID, at.file)
		if c.sources == nil {
			c.sources = map[string][]string{}
		}
		c.sources[at.file] = lines
	}
	if at.line > len(lines) {
		return ""
	}
	return lines[at.line-1]
}

// readSource reads a file as a process sees it.
func readSource(pid int, file string) []string {
	if !filepath.IsAbs(file) {
		folder, err := os.Readlink(proc.Live.Path(pid, "cwd"))
		if err != nil {
			return nil
		}
		file = filepath.Join(folder, file)
	}
	for _, name := range []string{proc.Live.Path(pid, "root"+file), file} {
		if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() || st.Size() > maxSource {
			continue
		}
		if data, err := os.ReadFile(name); err == nil {
			return strings.Split(string(data), "\n")
		}
	}
	return nil
}
