// Package libprofile measures in which libraries threads of other processes spend their CPU time: zlib, libjpeg, HDF5,
// the interpreter. The kernel records the position of a thread every 20 ms of its CPU time (perf_event_open with its
// software clock). This needs no performance counters. If kernel.perf_event_paranoid is at most 2, it needs only the
// right to trace the process. The process is neither changed nor stopped.
//
// A Sampler belongs to one goroutine.
package libprofile

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/proc"
)

const (
	// period is the CPU time between two samples of a thread; no round number, so that
	// it does not keep step with loops that have one.
	period = 19_700_000
	// maxThreads limits the number of followed threads: each takes a descriptor and two pages.
	maxThreads = 96
	// pages is the size of a thread's buffer: 256 samples, 5 s of CPU time.
	pages = 1
	// sampleBytes is the size of a sample: a header and an address.
	sampleBytes = 16
	// mapsAge is the minimum age at which a memory map is read again for an address that is not in it.
	mapsAge = 2 * time.Second
	// The offsets of the head and the tail of the ring in the kernel's perf_event_mmap_page.
	headAt, tailAt = 1024, 1032
)

// Sampler follows threads.
type Sampler struct {
	fs      proc.FS
	threads map[int]*thread
	maps    map[int]*codeMap
	why     error // the reason if no thread can be followed
}

// thread is one thread that is followed.
type thread struct {
	fd   int
	ring []byte // a page about the buffer, and the buffer
}

// codeMap has the address ranges of the code of a process.
type codeMap struct {
	parts []part // by address
	read  time.Time
}

type part struct {
	start, end uint64
	name       string
}

// New returns a Sampler of processes as fs shows them.
func New(fs proc.FS) *Sampler {
	return &Sampler{fs: fs, threads: map[int]*thread{}, maps: map[int]*codeMap{}}
}

// Err returns the reason why no thread can be sampled on this machine: the kernel does not allow it or does not
// support it. It is nil before the first attempt.
func (s *Sampler) Err() error { return s.why }

// Follow begins to follow a thread. It may be called repeatedly.
func (s *Sampler) Follow(tid int) {
	if s.why != nil || s.threads[tid] != nil || len(s.threads) >= maxThreads {
		return
	}
	t, err := open(tid)
	switch {
	case err == nil:
		s.threads[tid] = t
	case errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE):
		// The thread has exited, or the limit is reached.
	default:
		s.why = err
	}
}

func open(tid int) (*thread, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Sample: period,
		Sample_type: unix.PERF_SAMPLE_IP, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	ring, err := unix.Mmap(fd, 0, (1+pages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &thread{fd: fd, ring: ring}, nil
}

func (t *thread) close() {
	_ = unix.Munmap(t.ring)
	_ = unix.Close(t.fd)
}

// Take calls found with the address of each sample of a thread since the last time.
func (s *Sampler) Take(tid int, found func(address uint64)) {
	t := s.threads[tid]
	if t == nil {
		return
	}
	page := os.Getpagesize()
	head := binary.NativeEndian.Uint64(t.ring[headAt:])
	tail := binary.NativeEndian.Uint64(t.ring[tailAt:])
	tail = records(t.ring[page:], head, tail, found)
	binary.NativeEndian.PutUint64(t.ring[tailAt:], tail)
}

// records reads the data between tail and head in the ring of a buffer and returns the new tail. It stops at invalid
// data.
func records(buffer []byte, head, tail uint64, found func(address uint64)) uint64 {
	size := uint64(len(buffer))
	if head < tail || head-tail > size {
		return head
	}
	for head-tail >= 8 {
		at := tail % size // records are multiples of 8 bytes, and headers do not wrap
		if at+8 > size {
			return head
		}
		kind, length := binary.NativeEndian.Uint32(buffer[at:]), uint64(binary.NativeEndian.Uint16(buffer[at+6:]))
		if length < 8 || length > head-tail {
			return head
		}
		if ip := (at + 8) % size; kind == unix.PERF_RECORD_SAMPLE && length == sampleBytes && ip+8 <= size {
			found(binary.NativeEndian.Uint64(buffer[ip:]))
		}
		tail += length
	}
	return tail
}

// Retain stops following the threads for which keep returns false.
func (s *Sampler) Retain(keep func(tid int) bool) {
	for tid, t := range s.threads {
		if !keep(tid) {
			t.close()
			delete(s.threads, tid)
		}
	}
}

// Close stops following all threads.
func (s *Sampler) Close() { s.Retain(func(int) bool { return false }) }

// Forked declares that a process is a fork of another one and runs the same program, so its code has the same
// addresses.
func (s *Sampler) Forked(pid, from int) {
	if m := s.maps[from]; m != nil && s.maps[pid] == nil && len(s.maps) < maxMaps {
		s.maps[pid] = &codeMap{parts: m.parts, read: m.read}
	}
}

// maxMaps limits the number of processes whose maps are cached.
const maxMaps = 1024

// Library returns the name of the library that has the code at an address of a process, like Name, or "" if unknown.
func (s *Sampler) Library(pid int, address uint64) string {
	m := s.maps[pid]
	if m != nil {
		if name, ok := m.find(address); ok {
			return name
		}
		if time.Since(m.read) < mapsAge {
			return ""
		}
	}
	if len(s.maps) >= maxMaps {
		clear(s.maps)
	}
	m = &codeMap{read: time.Now()}
	s.maps[pid] = m
	code, err := s.fs.Mappings(pid, func(m *proc.Mapping) bool { return m.Exec })
	if err != nil {
		return ""
	}
	for _, c := range code {
		m.parts = append(m.parts, part{c.Start, c.End, Name(c.Name)})
	}
	slices.SortFunc(m.parts, func(a, b part) int {
		switch {
		case a.start < b.start:
			return -1
		case a.start > b.start:
			return 1
		}
		return 0
	})
	name, _ := m.find(address)
	return name
}

func (m *codeMap) find(address uint64) (string, bool) {
	i := sort.Search(len(m.parts), func(i int) bool { return m.parts[i].end > address })
	if i == len(m.parts) || m.parts[i].start > address {
		return "", false
	}
	return m.parts[i].name, true
}
