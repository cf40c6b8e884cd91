// Package steplog reads the step log of a training process: when it waited for data, when it got a batch, and when a
// step and its stages ended. The process writes it to a memfd named "stoker-steps" (python/src/stoker/_step.py);
// docs/reference/protocol.md specifies it. Reading does not affect the writer: no lock, no message, no stop.
package steplog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/proc"
	"golang.org/x/sys/unix"
)

// Name is the name of the memfd.
const Name = "stoker-steps"

// Kind is the kind of event of a record.
type Kind uint32

// The kinds. The numbers are part of docs/reference/protocol.md.
const (
	// WaitBegin: the loop asks for a batch.
	WaitBegin Kind = 1
	// WaitEnd marks the end of a wait. Arg is the number of rows of the batch, 0 if that is unknown, and NoBatch if no
	// batch came.
	WaitEnd Kind = 2
	// Step: a step has ended.
	Step Kind = 3
	// StageBegin and StageEnd: a part of the step. Arg is its number.
	StageBegin Kind = 4
	StageEnd   Kind = 5
)

// NoBatch is the number of rows of a wait that ended without a batch: at the end of an
// epoch, or with an exception.
const NoBatch = 1<<32 - 1

// Record is one entry.
type Record struct {
	// NS is when, in nanoseconds of CLOCK_MONOTONIC; see Now.
	NS   int64
	Kind Kind
	Arg  uint32
}

const (
	version    = 1
	headerSize = 64
	recordSize = 16
	nameSize   = 32
	maxNames   = 64
	// maxCapacity limits the memory that a header may request from this reader.
	maxCapacity = 1 << 20
	// firstName is the number of the first stage that a program named itself.
	firstName = 32
)

var magic = [8]byte{'S', 'T', 'K', 'S', 'T', 'E', 'P', '1'}

// stageNames are the stages that every log knows.
var stageNames = [...]string{
	1: "forward", 2: "backward", 3: "optimiser", 4: "copy", 5: "copy back",
	6: "read", 7: "decode", 8: "transform", 9: "collate", 10: "hand-off",
}

// ErrNone reports that a process has no step log: it does not use Stoker's Python package, or has not marked a step
// yet.
var ErrNone = errors.New("the process keeps no step log")

// Log is the log of one process. Its methods are for one goroutine at a time.
type Log struct {
	f        io.ReaderAt
	closer   io.Closer
	capacity uint64
	pid      int
	start    int64
	next     uint64
}

// Open finds the log of process pid through its descriptors, without an agreement in advance. It fails with ErrNone if
// there is none, and with os.ErrPermission if the descriptors of the process may not be read.
func Open(pid int) (*Log, error) {
	// A process writes its number in its own PID namespace into its log.
	own := pid
	if s, err := proc.Live.Status(pid); err == nil && s.Inner > 0 {
		own = s.Inner
	}
	var log *Log
	found := ErrNone
	err := proc.Live.MemoryFiles(pid, Name, func(f *os.File) bool {
		l, err := New(f)
		// A forked child may have its parent's log open.
		if err == nil && l.pid == own {
			log, l.closer = l, f
			return false
		}
		f.Close()
		if err != nil {
			found = err
		}
		return true
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("step log of process %d: %w", pid, err)
	case log == nil:
		return nil, fmt.Errorf("process %d: %w", pid, found)
	}
	return log, nil
}

// New reads the header of a log.
func New(f io.ReaderAt) (*Log, error) {
	var h [headerSize]byte
	if n, err := f.ReadAt(h[:], 0); n < len(h) {
		return nil, fmt.Errorf("step log: %d of %d bytes of its header: %w", n, len(h), err)
	}
	if [8]byte(h[:8]) != magic {
		return nil, errors.New("step log: it does not begin as one")
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v != version {
		return nil, fmt.Errorf("step log of version %d, this program reads version %d", v, version)
	}
	capacity := binary.LittleEndian.Uint32(h[12:])
	if capacity == 0 || capacity > maxCapacity || capacity&(capacity-1) != 0 {
		return nil, fmt.Errorf("step log with room for %d records, which is not a power of two up to %d", capacity, maxCapacity)
	}
	return &Log{
		f: f, capacity: uint64(capacity), pid: int(binary.LittleEndian.Uint32(h[24:])),
		start: int64(binary.LittleEndian.Uint64(h[32:])),
	}, nil
}

// PID returns the number of the process in its own namespace.
func (l *Log) PID() int { return l.pid }

// Start is when the log was made, in nanoseconds of CLOCK_MONOTONIC.
func (l *Log) Start() int64 { return l.start }

// Head returns how many records were ever written.
func (l *Log) Head() (uint64, error) {
	var b [8]byte
	if n, err := l.f.ReadAt(b[:], 16); n < len(b) {
		return 0, fmt.Errorf("step log: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// Read returns the records from number since on and the number to continue with. The log has only the last records:
// lost counts the ones that were overwritten before they could be read.
func (l *Log) Read(since uint64) (records []Record, next, lost uint64, err error) {
	head, err := l.Head()
	if err != nil {
		return nil, since, 0, err
	}
	if head < since {
		return nil, since, 0, fmt.Errorf("step log: it counts %d records, there were %d", head, since)
	}
	first := since
	if head-first > l.capacity {
		first = head - l.capacity
	}
	if first == head {
		return nil, head, first - since, nil
	}
	ring, err := l.ring(first, head)
	if err != nil {
		return nil, since, 0, err
	}
	read := first
	// Records that the writer has overwritten meanwhile are newer than they seem.
	after, err := l.Head()
	if err != nil {
		return nil, since, 0, err
	}
	if after > l.capacity && after-l.capacity >= first {
		first = min(after-l.capacity+1, head) // + 1: the one being written
	}
	records = make([]Record, 0, head-first)
	last := int64(0)
	for i := first; i < head; i++ {
		b := ring[(i-read)*recordSize:]
		r := Record{
			NS: int64(binary.LittleEndian.Uint64(b)), Kind: Kind(binary.LittleEndian.Uint32(b[8:])),
			Arg: binary.LittleEndian.Uint32(b[12:]),
		}
		// On processors that reorder writes a record may be seen after the
		// count that includes it: it is read next time.
		if r.NS < last || r.NS <= 0 {
			return records, i, first - since, nil
		}
		last = r.NS
		records = append(records, r)
	}
	return records, head, first - since, nil
}

// ring reads the bytes of records first to head, which may wrap around.
func (l *Log) ring(first, head uint64) ([]byte, error) {
	b := make([]byte, 0, (head-first)*recordSize)
	for first < head {
		at := first % l.capacity
		n := min(head-first, l.capacity-at)
		part := b[len(b) : uint64(len(b))+n*recordSize]
		if got, err := l.f.ReadAt(part, int64(headerSize+at*recordSize)); got < len(part) {
			return nil, fmt.Errorf("step log: %d of %d bytes: %w", got, len(part), err)
		}
		b = b[:len(b)+len(part)]
		first += n
	}
	return b, nil
}

// Next returns the records since the last call of Next, the first time all
// that there are.
func (l *Log) Next() (records []Record, lost uint64, err error) {
	records, l.next, lost, err = l.Read(l.next)
	return records, lost, err
}

// Stages returns the names of the stages by their numbers.
func (l *Log) Stages() map[uint32]string {
	names := map[uint32]string{}
	for i, name := range stageNames {
		if name != "" {
			names[uint32(i)] = name
		}
	}
	var h [headerSize]byte
	if n, _ := l.f.ReadAt(h[:], 0); n < len(h) {
		return names
	}
	table := make([]byte, nameSize*min(binary.LittleEndian.Uint32(h[40:]), maxNames))
	if n, _ := l.f.ReadAt(table, int64(headerSize+l.capacity*recordSize)); n < len(table) {
		return names
	}
	for i := 0; i*nameSize < len(table); i++ {
		name := strings.TrimRight(string(table[i*nameSize:(i+1)*nameSize]), "\x00")
		if name != "" && utf8.ValidString(name) {
			names[firstName+uint32(i)] = clean(name)
		}
	}
	return names
}

// clean removes characters that would move a terminal's cursor.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name)
}

// Close lets go of the log.
func (l *Log) Close() error {
	if l.closer == nil {
		return nil
	}
	return l.closer.Close()
}

// Now is the time on the clock of the records.
func Now() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano()).Nanoseconds()
}
