package pystack

import (
	"strconv"

	"github.com/stokerdata/stoker/internal/proc"
)

// tidFinder converts Python's data on a thread into the kernel's thread id.
type tidFinder struct {
	pid int
	// pthreadTID is the offset of the id in the C library's thread structure, once
	// found; 0 before.
	pthreadTID uint64
	// listed are the tasks in the sample listedIn.
	listed   map[int]int
	listedIn uint64
}

// pthreadBytes is the number of bytes in the C library's structure that are searched for the id. glibc has it at 720 on
// x86_64 and at 208 on arm64, musl at 48.
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
	// 3.10 does not know the id, and after a fork some versions have the parent's. The structure of the C library also
	// has the id.
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

// tasks maps the ids of the process's threads in its own PID namespace to those in ours. They are equal outside
// containers.
func (f *tidFinder) tasks() map[int]int {
	who := strconv.Itoa(f.pid)
	tids, err := proc.Live.Numbers(who, "task")
	if err != nil {
		return nil
	}
	tasks := make(map[int]int, len(tids))
	own, _ := proc.Live.Status(f.pid)
	nested := own.Inner != 0 && own.Inner != f.pid
	var buf []byte
	for _, tid := range tids {
		inner := tid
		if nested {
			if buf, err = proc.Live.Thread(buf, f.pid, tid, "status"); err != nil {
				continue // ended meanwhile
			}
			inner = proc.ParseStatus(buf).Inner
		}
		if inner > 0 {
			tasks[inner] = tid
		}
	}
	return tasks
}
