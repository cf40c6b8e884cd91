package arena

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/stokerdata/stoker/internal/proc"
	"golang.org/x/sys/unix"
)

// Mapping is a read-only view of a file whose pages are used in place, but only while they are in memory. Touching a
// mapping of cold data reads one page per fault, twenty times slower than a read. Except for Close, its methods are
// safe for concurrent use.
//
// The file must not be made shorter while it is mapped.
type Mapping struct {
	mem     []byte
	regions []region
	page    int64
}

// region is the last known state of a part of the file.
type region struct {
	// asked is the time of the last query: positive if all pages were in memory, negative if some were not, 0 before
	// the first query.
	asked atomic.Int64
	// pages has a bit for each page that was in memory.
	pages [regionBytes / minPage / 64]atomic.Uint64
	// mapped is true if the pages are in this process's page table.
	mapped atomic.Bool
}

const (
	regionBytes = 1 << 20
	minPage     = 4096
	// recheck is the time for which the state of a region is considered valid.
	recheck = 500 * time.Millisecond
)

// MapFile maps the first size bytes of a file. It fails if the system does not report which pages are in memory.
// Linux reports that only to users who may write the file.
func MapFile(fd int, size int64) (*Mapping, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if size < 1 || st.Size < size {
		return nil, fmt.Errorf("arena: mapping %d bytes of a file of %d", size, st.Size)
	}
	if int(st.Uid) != os.Geteuid() {
		if err := unix.Access(proc.FDPath(fd), unix.W_OK); err != nil {
			return nil, os.NewSyscallError("access", err)
		}
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &Mapping{
		mem: mem, regions: make([]region, (size+regionBytes-1)/regionBytes), page: max(int64(os.Getpagesize()), minPage),
	}, nil
}

// Resident returns bytes [lo, hi) if they are in memory, otherwise nil. They are valid until Close. The caller passes
// the current time, once for many calls.
func (m *Mapping) Resident(lo, hi int64, at time.Time) []byte {
	if lo < 0 || hi > int64(len(m.mem)) || lo >= hi {
		return nil
	}
	now := at.UnixNano()
	for r := lo / regionBytes; r <= (hi-1)/regionBytes; r++ {
		g := &m.regions[r]
		asked := g.asked.Load()
		if asked == 0 || now-max(asked, -asked) > int64(recheck) {
			if !m.glance(max(lo, r*regionBytes), min(hi, (r+1)*regionBytes)) {
				return nil
			}
			if asked = m.ask(r, now); asked == 0 {
				return nil
			}
		}
		if asked < 0 && !m.has(g, max(lo-r*regionBytes, 0), min(hi-r*regionBytes, regionBytes)) {
			return nil
		}
	}
	return m.mem[lo:hi:hi]
}

// has reports whether the pages of bytes [lo, hi) of a region were in memory. The system drops pages one at a time:
// if some pages of a region are gone, small records on other pages are still in memory.
func (m *Mapping) has(g *region, lo, hi int64) bool {
	for p := lo / m.page; p <= (hi-1)/m.page; p++ {
		if g.pages[p/64].Load()>>(p%64)&1 == 0 {
			return false
		}
	}
	return true
}

// glance reports whether bytes of a region may be in memory. For data that is not in memory, this is the only check,
// because checking the whole region takes ten times as long.
func (m *Mapping) glance(lo, hi int64) bool {
	lo &^= m.page - 1
	n := (hi - lo + m.page - 1) / m.page
	var vec [regionBytes / minPage]byte
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(m.mem[lo:]))), uintptr(hi-lo), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return false
	}
	for _, v := range vec[:n] {
		if v&1 == 0 {
			return false
		}
	}
	return true
}

// ask asks the system which pages of a region are in memory and returns the new value of asked.
func (m *Mapping) ask(r, now int64) int64 {
	g := &m.regions[r]
	mem := m.mem[r*regionBytes : min((r+1)*regionBytes, int64(len(m.mem)))]
	var vec [regionBytes / minPage]byte
	n := (int64(len(mem)) + m.page - 1) / m.page
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return 0
	}
	var bits [len(g.pages)]uint64
	found := int64(0)
	for i, v := range vec[:n] {
		bits[i/64] |= uint64(v&1) << (i % 64)
		found += int64(v & 1)
	}
	for i := range bits {
		g.pages[i].Store(bits[i])
	}
	if found < n {
		now = -now
	} else if !g.mapped.Swap(true) {
		// In memory, but perhaps not yet in our page table: one call instead of
		// a fault for every few pages. Older kernels cannot, and fault.
		_ = unix.Madvise(mem, unix.MADV_POPULATE_READ)
	}
	g.asked.Store(now)
	return now
}

// Bytes returns all bytes of the file, in memory or not. They are valid until Close.
func (m *Mapping) Bytes() []byte { return m.mem }

// Close unmaps the file.
func (m *Mapping) Close() error {
	mem := m.mem
	m.mem = nil
	return unix.Munmap(mem)
}
