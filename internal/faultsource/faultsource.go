// Package faultsource is for tests: a source whose records lie in memory, and a
// wrapper that makes any source fail, slowly, briefly or for good, at chosen
// records.
package faultsource

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/source/driver"
)

// Memory is a source whose records lie in memory.
type Memory struct {
	info driver.Info
	// Make fills in the values of a record. The bytes may be shared.
	make func(id int64, v []driver.Value) error
	// Copy makes reads copy bytes into the caller's buffer, as from a disk.
	Copy   bool
	closed atomic.Bool
	free   func()
}

// NewMemory returns a source of n records that fill makes.
func NewMemory(n int64, fields []driver.Field, fill func(id int64, v []driver.Value) error) *Memory {
	return &Memory{
		info: driver.Info{URL: "memory:", Format: "memory", Len: n, Fields: fields, Fingerprint: fmt.Sprintf("memory-%d", n)},
		make: fill,
	}
}

// Raw returns a source of n raw images of w x h x c bytes that differ, in a
// field "image", with labels id mod classes in a field "label".
func Raw(n int64, w, h, c, classes int) *Memory {
	size := w * h * c
	// Outside the Go heap, as the memory of real sources is.
	need := size + int(min(n, 4096))
	block := arena.NewBlock(arena.NewBudget(int64(need)*2+1<<20), arena.PurposeRead)
	noise, err := block.Bytes(need)
	if err != nil {
		panic(err)
	}
	x := uint64(1)
	for i := range noise {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		noise[i] = byte(x)
	}
	names := make([]string, classes)
	for i := range names {
		names[i] = fmt.Sprintf("class%d", i)
	}
	fields := []driver.Field{
		{Name: "image", Kind: driver.KindImage, MaxBytes: int64(size), Width: int32(w), Height: int32(h), Channels: int32(c)},
		{Name: "label", Kind: driver.KindLabel, Classes: names},
	}
	m := NewMemory(n, fields, func(id int64, v []driver.Value) error {
		at := int(id % 4096)
		v[0] = driver.Value{Bytes: noise[at : at+size : at+size], Codec: driver.CodecRaw, Width: int32(w), Height: int32(h), Channels: int32(c)}
		v[1] = driver.Value{Int: id % int64(classes)}
		return nil
	})
	m.free = block.Free
	return m
}

// Info describes the source.
func (m *Memory) Info() *driver.Info { return &m.info }

// Name says where a record lies.
func (m *Memory) Name(id int64) string { return fmt.Sprintf("memory record %d", id) }

// Closed says whether Close was called.
func (m *Memory) Closed() bool { return m.closed.Load() }

// Close frees the memory of Raw.
func (m *Memory) Close() error {
	if !m.closed.Swap(true) && m.free != nil {
		m.free()
	}
	return nil
}

// Read reads records.
func (m *Memory) Read(ctx context.Context, ids []int64, buf *driver.Buffer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, id := range ids {
		rec := &buf.Records[i]
		rec.ID = id
		if rec.Err = m.make(id, rec.Values); rec.Err != nil || !m.Copy {
			continue
		}
		for k := range rec.Values {
			v := &rec.Values[k]
			b, err := buf.Alloc(len(v.Bytes))
			if err != nil {
				return err
			}
			copy(b, v.Bytes)
			v.Bytes = b
		}
	}
	return nil
}

// Fault is what happens to reads that contain a record.
type Fault struct {
	// Delay is waited for first; it ends early when the read is cancelled.
	Delay time.Duration
	// Err makes the record fail, Whole the whole read instead.
	Err   error
	Whole bool
	// Panic makes the source panic.
	Panic string
	// Cut leaves that many bytes of each value of the record; -1 leaves none.
	Cut int
	// Flip inverts the byte at this offset plus one.
	Flip int
	// Times bounds how often the fault happens; 0 means always.
	Times int64

	hits atomic.Int64
}

// Hits says how often the fault happened.
func (f *Fault) Hits() int64 { return f.hits.Load() }

// Source wraps a source with faults.
type Source struct {
	driver.Source
	// Rule returns the fault of a record, nil for none.
	Rule func(id int64) *Fault
	// Reads counts the calls of Read.
	Reads atomic.Int64
}

// Wrap returns src with faults.
func Wrap(src driver.Source, rule func(id int64) *Fault) *Source {
	return &Source{Source: src, Rule: rule}
}

// Read reads records, with faults.
func (s *Source) Read(ctx context.Context, ids []int64, buf *driver.Buffer) error {
	s.Reads.Add(1)
	hit := make([]*Fault, len(ids))
	for i, id := range ids {
		f := s.Rule(id)
		if f == nil || f.Times > 0 && f.hits.Load() >= f.Times {
			continue
		}
		f.hits.Add(1)
		hit[i] = f
		if f.Delay > 0 {
			select {
			case <-time.After(f.Delay):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if f.Panic != "" {
			panic(f.Panic)
		}
		if f.Whole {
			return f.Err
		}
	}
	if err := s.Source.Read(ctx, ids, buf); err != nil {
		return err
	}
	for i, f := range hit {
		if f == nil {
			continue
		}
		rec := &buf.Records[i]
		if f.Err != nil {
			rec.Err = f.Err
		}
		if rec.Err == nil && (f.Cut != 0 || f.Flip != 0) {
			for k := range rec.Values {
				damage(&rec.Values[k], f)
			}
		}
	}
	return nil
}

func damage(v *driver.Value, f *Fault) {
	if len(v.Bytes) == 0 {
		return
	}
	b := append([]byte(nil), v.Bytes...)
	if f.Flip > 0 && f.Flip <= len(b) {
		b[f.Flip-1] ^= 0xff
	}
	if f.Cut != 0 {
		b = b[:min(max(f.Cut, 0), len(b))]
	}
	v.Bytes = b
}
