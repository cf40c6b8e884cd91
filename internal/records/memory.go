package records

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/kind"
)

// The table at the start of the memory has an entry for each value, in the order of records and
// fields. An entry is numbers of 8 bytes: the offset and size of the value, its number, the count
// of its axes, and their sides.
const (
	entryNumbers = 4 + kind.MaxRecordAxes
	entryBytes   = 8 * entryNumbers
)

const (
	// maxMemory is the largest answer. It is address space: the file grows with the used part.
	maxMemory = 64 << 30
	// growBytes is the least that the file grows by.
	growBytes = 16 << 20
	align     = 64
	// tail is the number of bytes after a value that a decoder may touch.
	tail = 64
)

var errMemory = errors.New("no memory for the records")

// memory is shared with one client. It is reused for each answer.
type memory struct {
	file *os.File
	mem  []byte
	next atomic.Int64

	mu   sync.Mutex
	size atomic.Int64
}

func newMemory() (*memory, error) {
	f, err := arena.MemFile("stoker-records", 0)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, maxMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("mapping memory for records: %w; raise the limit of address space (ulimit -v)", err)
	}
	return &memory{file: f, mem: mem}, nil
}

func (m *memory) close() {
	_ = unix.Munmap(m.mem) // it is the whole mapping
	_ = m.file.Close()
}

func (m *memory) reset() { m.next.Store(0) }

func (m *memory) used() int64 { return m.next.Load() }

// alloc returns n bytes and their offset. Several goroutines may call it.
func (m *memory) alloc(n int64) (b []byte, at int64, err error) {
	if n < 0 || n > maxMemory {
		return nil, 0, fmt.Errorf("%w: a value of %d bytes", errMemory, n)
	}
	end := m.next.Add((n + tail + align - 1) &^ (align - 1))
	at = end - (n+tail+align-1)&^(align-1)
	if end > maxMemory {
		return nil, 0, fmt.Errorf("%w: one request has more than %d GiB; ask for fewer records at a time", errMemory, maxMemory>>30)
	}
	if end > m.size.Load() {
		if err := m.grow(end); err != nil {
			return nil, 0, err
		}
	}
	return m.mem[at : at+n : at+n], at, nil
}

func (m *memory) grow(end int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if end <= m.size.Load() {
		return nil
	}
	size := (end + growBytes - 1) / growBytes * growBytes
	if err := unix.Ftruncate(int(m.file.Fd()), size); err != nil {
		return fmt.Errorf("%w: %w", errMemory, err)
	}
	m.size.Store(size)
	return nil
}

// entry writes the entry of a value at an offset.
func entry(to []byte, at int64, d *kind.Decoded) {
	le := binary.LittleEndian
	put := func(i int, x uint64) { le.PutUint64(to[8*i:], x) }
	put(0, uint64(at))
	put(1, uint64(len(d.Bytes)))
	put(2, d.Number)
	shape := d.Shape
	if len(shape) > kind.MaxRecordAxes { // the same for all records: that of the field
		shape = nil
	}
	put(3, uint64(len(shape)))
	for i, side := range shape {
		put(4+i, uint64(side))
	}
}
