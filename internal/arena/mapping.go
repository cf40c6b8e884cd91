package arena

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mapping is a read-only view of a file whose pages are used where they are,
// but only while they are in memory: touching a mapping of cold data reads one
// page per fault, twenty times slower than a read. Its methods may be called
// from any goroutine, except Close.
//
// The file must not be made shorter while it is mapped.
type Mapping struct {
	mem []byte
	// seen is, by region, when all of its pages were last in memory.
	seen []atomic.Int64
}

const (
	regionBytes = 1 << 20
	// recheck is how long a region is taken to stay in memory.
	recheck = 500 * time.Millisecond
)

// MapFile maps the first size bytes of a file. It fails where the system would
// not tell what is in memory: Linux says so only to those who may write the
// file.
func MapFile(fd int, size int64) (*Mapping, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if size < 1 || st.Size < size {
		return nil, fmt.Errorf("arena: mapping %d bytes of a file of %d", size, st.Size)
	}
	if int(st.Uid) != os.Geteuid() {
		if err := unix.Access(fmt.Sprintf("/proc/self/fd/%d", fd), unix.W_OK); err != nil {
			return nil, os.NewSyscallError("access", err)
		}
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &Mapping{mem: mem, seen: make([]atomic.Int64, (size+regionBytes-1)/regionBytes)}, nil
}

// Resident returns bytes [lo, hi) when they are in memory, else nil. They are
// valid until Close. The caller says what time it is, once for many calls.
func (m *Mapping) Resident(lo, hi int64, at time.Time) []byte {
	if lo < 0 || hi > int64(len(m.mem)) || lo >= hi {
		return nil
	}
	now := at.UnixNano()
	for r := lo / regionBytes; r <= (hi-1)/regionBytes; r++ {
		if last := m.seen[r].Load(); last == 0 || now-last > int64(recheck) {
			if !m.check(r) {
				return nil
			}
			m.seen[r].Store(now)
		}
	}
	return m.mem[lo:hi:hi]
}

// check asks the system whether all of a region is in memory.
func (m *Mapping) check(r int64) bool {
	region := m.mem[r*regionBytes : min((r+1)*regionBytes, int64(len(m.mem)))]
	page := os.Getpagesize()
	var vec [regionBytes / 4096]byte
	n := (len(region) + page - 1) / page
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(region))), uintptr(len(region)), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return false
	}
	for _, v := range vec[:n] {
		if v&1 == 0 {
			return false
		}
	}
	// In memory, but perhaps not yet in our page table: one call instead of a
	// fault for every few pages. Older kernels cannot, and fault.
	if m.seen[r].Load() == 0 {
		_ = unix.Madvise(region, unix.MADV_POPULATE_READ)
	}
	return true
}

// Close unmaps the file.
func (m *Mapping) Close() error {
	mem := m.mem
	m.mem = nil
	return unix.Munmap(mem)
}
