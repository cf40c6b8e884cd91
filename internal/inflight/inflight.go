// Package inflight notes which records an engine works on, in a file that outlives the process. After a crash the client
// reads there which records may be to blame.
//
// The file is an array of little-endian int64: the number of a record plus 1, or 0 for none.
package inflight

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Table is the file. Its methods may be called from any goroutine.
type Table struct {
	fd   int
	file *os.File // of New
	mu   sync.Mutex
	size int64
}

// Open takes over the descriptor of an empty file.
func Open(fd int) *Table { return &Table{fd: fd} }

// Row is the part of one worker. One goroutine at a time may use it. The zero Row notes nothing.
type Row struct {
	mem []byte
}

// Row returns a new row for up to n records at a time.
func (t *Table) Row(n int) (*Row, error) {
	if t == nil {
		return &Row{}, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	page := int64(unix.Getpagesize())
	bytes := (int64(n)*8 + page - 1) / page * page
	if err := unix.Ftruncate(t.fd, t.size+bytes); err != nil {
		return nil, fmt.Errorf("the file of records in flight cannot be made longer: %w", err)
	}
	mem, err := unix.Mmap(t.fd, t.size, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("the file of records in flight cannot be mapped: %w", err)
	}
	t.size += bytes
	return &Row{mem}, nil
}

// Set notes record id at place k of the row. Places that the row lacks are ignored.
func (r *Row) Set(k int, id int64) {
	if 8*k < len(r.mem) {
		binary.LittleEndian.PutUint64(r.mem[8*k:], uint64(id+1))
	}
}

// Clear removes the first n records.
func (r *Row) Clear(n int) { clear(r.mem[:min(8*n, len(r.mem))]) }

// Close removes all records and gives the memory back.
func (r *Row) Close() {
	clear(r.mem)
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
		r.mem = nil
	}
}
