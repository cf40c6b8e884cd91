// Package counters publishes the stage counters of an engine to other processes, in a memfd named "stoker-stages" for each
// of its pipelines. `stoker doctor`, `stoker bench` and `stoker profile` read them without a message to the engine and
// without any load on it. docs/reference/protocol.md specifies the bytes.
package counters

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
	"golang.org/x/sys/unix"
)

// Name is the name of the memfds.
const Name = "stoker-stages"

// Counters are the totals of a pipeline since it was opened. Times are in nanoseconds. Times of stages are summed over
// the goroutines of the stage.
type Counters struct {
	// Batches and Records were handed out; Bytes were read from the source.
	Batches, Records, Bytes uint64
	// Sample, Read, Decode, Transform and Collate are the stages' times.
	Sample, Read, Decode, Transform, Collate uint64
	// HandoffWait is the time for which the hand-off waited for a batch to send. RingFull is the time for which the
	// trainer held all batches of the ring, so the trainer is the slower side. RingEmpty is the time for which it held
	// at most the one in use, so the engine is the slower side.
	HandoffWait, RingFull, RingEmpty uint64
	// Skipped counts replaced records, Retries repeated reads, GC the garbage
	// collections of the engine.
	Skipped, Retries, GC uint64
	// Slots is the size of the ring. SlotsFree, SlotsReady and SlotsHeld count its slots by state; the rest are being
	// filled.
	Slots, SlotsFree, SlotsReady, SlotsHeld uint64
	// DecodeWorkers and ReadWorkers are the goroutines of these stages.
	DecodeWorkers, ReadWorkers uint64
	// Memory is the number of bytes of its budget that the pipeline uses.
	Memory uint64
	// BatchSize is in records per batch.
	BatchSize uint64
	// Decoded counts the records that the decode stage has finished. It is ahead of Records by the records in the ring.
	Decoded uint64
}

// numCounters is the number of u64 in Counters. A reader takes the known ones from longer data, so counters may be
// added at the end.
const numCounters = 25

func (c *Counters) fields() [numCounters]*uint64 {
	return [...]*uint64{
		&c.Batches, &c.Records, &c.Bytes,
		&c.Sample, &c.Read, &c.Decode, &c.Transform, &c.Collate,
		&c.HandoffWait, &c.RingFull, &c.RingEmpty,
		&c.Skipped, &c.Retries, &c.GC,
		&c.Slots, &c.SlotsFree, &c.SlotsReady, &c.SlotsHeld,
		&c.DecodeWorkers, &c.ReadWorkers, &c.Memory, &c.BatchSize, &c.Decoded,
		new(uint64), new(uint64), // reserved in version 1
	}
}

// Snapshot is the state of one pipeline at one time.
type Snapshot struct {
	// Engine is the process that runs the pipeline and Client the trainer that
	// it works for (0 when not known), each by its number for the engine.
	Engine, Client int
	// Opened and At are when the pipeline was opened and when the counters were
	// written, in nanoseconds of CLOCK_MONOTONIC.
	Opened, At int64
	Counters
}

// Sub returns the difference between an earlier snapshot and this one. Values that are states and not counts stay
// unchanged.
func (s Snapshot) Sub(before Snapshot) Snapshot {
	now, then := s.Counters.fields(), before.Counters.fields()
	for i := range 14 { // up to GC: counts
		if *now[i] >= *then[i] {
			*now[i] -= *then[i]
		}
	}
	decoded := s.Decoded
	if decoded >= before.Decoded {
		decoded -= before.Decoded
	}
	out := s
	for i, p := range out.Counters.fields() {
		*p = *now[i]
	}
	out.Decoded = decoded
	return out
}

const (
	version    = 1
	headerSize = 64
	seqAt      = 16
	maxSize    = headerSize + 8*1024
)

var magic = [8]byte{'S', 'T', 'K', 'S', 'T', 'A', 'G', '1'}

var le = binary.LittleEndian

// encode writes s, without its sequence number.
func (s *Snapshot) encode(b []byte) {
	copy(b, magic[:])
	le.PutUint32(b[8:], version)
	le.PutUint32(b[12:], numCounters)
	le.PutUint32(b[24:], uint32(s.Engine))
	le.PutUint32(b[28:], uint32(s.Client))
	le.PutUint64(b[32:], uint64(s.Opened))
	le.PutUint64(b[40:], uint64(s.At))
	for i, v := range s.Counters.fields() {
		le.PutUint64(b[headerSize+8*i:], *v)
	}
}

// parse decodes the output of encode.
func parse(b []byte) (Snapshot, error) {
	var s Snapshot
	if len(b) < headerSize || [8]byte(b[:8]) != magic {
		return s, errors.New("stage counters: they do not begin as such")
	}
	if v := le.Uint32(b[8:]); v != version {
		return s, fmt.Errorf("stage counters of version %d, this program reads version %d", v, version)
	}
	n := int64(le.Uint32(b[12:]))
	if n > (maxSize-headerSize)/8 || int64(len(b)) < headerSize+8*n {
		return s, fmt.Errorf("stage counters: %d of them in %d bytes", n, len(b))
	}
	s.Engine, s.Client = int(le.Uint32(b[24:])), int(le.Uint32(b[28:]))
	s.Opened, s.At = int64(le.Uint64(b[32:])), int64(le.Uint64(b[40:]))
	for i, v := range s.Counters.fields() {
		if int64(i) < n {
			*v = le.Uint64(b[headerSize+8*i:])
		}
	}
	return s, nil
}

// ReadSnapshot reads the counters while they are written: it reads again when
// the writer was at work.
func ReadSnapshot(f io.ReaderAt) (Snapshot, error) {
	b := make([]byte, maxSize)
	for range 100 {
		n, err := f.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return Snapshot{}, fmt.Errorf("stage counters: %w", err)
		}
		s, err := parse(b[:n])
		if err != nil {
			return s, err
		}
		var again [8]byte
		if n, err := f.ReadAt(again[:], seqAt); n < len(again) {
			return s, fmt.Errorf("stage counters: %w", err)
		}
		if seq := le.Uint64(b[seqAt:]); seq%2 == 0 && seq == le.Uint64(again[:]) {
			return s, nil
		}
		time.Sleep(50 * time.Microsecond)
	}
	return Snapshot{}, errors.New("stage counters: their writer does not finish; was the engine stopped?")
}

// Stages are the counters of all pipelines of one engine.
type Stages struct{ pid int }

// OpenStages looks for an engine in process pid. It fails if the descriptors of the process may not be read, and with
// os.ErrNotExist if the process runs no pipeline.
func OpenStages(pid int) (*Stages, error) {
	s := &Stages{pid}
	all, err := s.Read()
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("process %d runs no pipeline: %w", pid, os.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Read returns the counters of each pipeline that the engine runs now.
func (s *Stages) Read() ([]Snapshot, error) {
	var all []Snapshot
	var broken error
	err := proc.Live.MemoryFiles(s.pid, Name, func(f *os.File) bool {
		snapshot, err := ReadSnapshot(f)
		f.Close()
		all, broken = append(all, snapshot), err
		return err == nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("stage counters of process %d: %w", s.pid, err)
	case broken != nil:
		return nil, broken
	}
	return all, nil
}

// now is the time on the clock of the snapshots.
func now() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return ts.Nano()
}
