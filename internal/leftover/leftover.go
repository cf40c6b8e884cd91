// Package leftover lists what this process would leave if it exited now: unfinished output, temporary folders and
// processes that it has started. A program that must exit while it computes removes them and names the rest.
package leftover

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var (
	mu sync.Mutex
	// paths has a remark about each path that stays on the disk, and "" for each that Clear removes.
	paths  = map[string]string{}
	groups = map[int]bool{}
)

// MkdirTemp is os.MkdirTemp with a function that removes the folder.
func MkdirTemp(dir, pattern string) (name string, remove func() error, err error) {
	if name, err = os.MkdirTemp(dir, pattern); err != nil {
		return "", nil, err
	}
	done := Add(name, "")
	return name, func() error {
		defer done()
		return os.RemoveAll(name)
	}, nil
}

// Add lists a path until done is called. A path with a remark stays on the disk.
func Add(path, remark string) (done func()) { return add(paths, path, remark) }

// Group lists a process group, which Clear kills, until done is called.
func Group(pid int) (done func()) { return add(groups, pid, true) }

func add[K comparable, V any](to map[K]V, key K, value V) (done func()) {
	mu.Lock()
	defer mu.Unlock()
	to[key] = value
	return func() {
		mu.Lock()
		defer mu.Unlock()
		delete(to, key)
	}
}

// Clear kills the listed processes, removes the listed paths within limit, and returns a line about each path that
// remains.
func Clear(limit time.Duration) []string {
	mu.Lock()
	left := maps.Clone(paths)
	for pid := range groups {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
	mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for path, remark := range left {
			if remark == "" {
				_ = os.RemoveAll(path)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
	var lines []string
	last := "" // the last one that is named
	for _, path := range slices.Sorted(maps.Keys(left)) {
		switch _, err := os.Lstat(path); {
		case left[path] != "":
			lines = append(lines, path+": "+left[path])
		case !os.IsNotExist(err) && !within(path, last):
			last = path
			lines = append(lines, path+" is left: delete it")
		}
	}
	return lines
}

func within(path, dir string) bool { return dir != "" && strings.HasPrefix(path, dir+"/") }
