package pystack

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// tidFinder turns what Python knows of a thread into the thread's id as the
// kernel shows it to us.
type tidFinder struct {
	pid int
	// pthreadTID is the offset of the id in the C library's thread structure, once
	// found; 0 before.
	pthreadTID uint64
	// listed are the tasks as they were in the sample listedIn.
	listed   map[int]int
	listedIn uint64
}

// pthreadBytes is how far the id is searched in the C library's structure:
// glibc has it at 720 on x86_64 and at 208 on arm64, musl at 48.
const pthreadBytes = 1024

// find returns the id of a thread with the given pthread_self and native id (0
// before 3.11), or 0.
func (f *tidFinder) find(p *Process, self, native uint64) int {
	if f.listed == nil || f.listedIn != p.epoch {
		f.listed, f.listedIn = f.tasks(), p.epoch // once, however many threads are new
	}
	tasks := f.listed
	if native != 0 {
		if tid, ok := tasks[int(native)]; ok {
			return tid
		}
	}
	// 3.10 does not know the id, and after a fork some versions know the parent's:
	// it also stands in the structure of the C library.
	if self == 0 {
		return 0
	}
	b := make([]byte, pthreadBytes)
	if f.pthreadTID != 0 {
		if p.bytes(self+f.pthreadTID, b[:4]) {
			if tid, ok := tasks[int(le32(b, 0))]; ok {
				return tid
			}
		}
		return 0
	}
	if !p.bytes(self, b) {
		return 0
	}
	for _, known := range []uint64{720, 208, 48} {
		if tid, ok := tasks[int(le32(b, known))]; ok {
			f.pthreadTID = known
			return tid
		}
	}
	for off := uint64(0); off+4 <= pthreadBytes; off += 4 {
		if tid, ok := tasks[int(le32(b, off))]; ok {
			f.pthreadTID = off
			return tid
		}
	}
	return 0
}

// tasks maps the ids of the process's threads in its own PID namespace to those
// in ours. They are the same outside of containers.
func (f *tidFinder) tasks() map[int]int {
	dir := fmt.Sprintf("/proc/%d/task", f.pid)
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, err := d.Readdirnames(1 << 16)
	if err != nil {
		return nil
	}
	tasks := make(map[int]int, len(names))
	own := innerID(fmt.Sprintf("/proc/%d/status", f.pid))
	nested := own != 0 && own != f.pid
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		inner := tid
		if nested {
			inner = innerID(dir + "/" + name + "/status")
		}
		if inner > 0 {
			tasks[inner] = tid
		}
	}
	return tasks
}

// innerID returns the id of a task in its innermost PID namespace, from its
// status file; 0 where that cannot be read.
func innerID(status string) int {
	for line := range strings.Lines(readSmall(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "NSpid:" {
			id, err := strconv.Atoi(f[len(f)-1])
			if err == nil {
				return id
			}
		}
	}
	return 0
}
