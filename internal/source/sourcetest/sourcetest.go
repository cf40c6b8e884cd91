// Package sourcetest is for tests. It has a source with records in memory, and a wrapper that
// adds delays and errors to chosen records, temporarily or permanently.
package sourcetest

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Memory is a source with records in memory.
type Memory struct {
	info driver.Info
	// make sets the values of a record. The bytes may be shared.
	make func(id int64, v []driver.Value) error
	// Copy is true if values must be read, as from a disk (Copied).
	Copy   bool
	closed atomic.Bool
	free   func()
}

// NewMemory returns a source of n records. Its function fill sets the values of a record.
func NewMemory(n int64, fields []driver.Field, fill func(id int64, v []driver.Value) error) *Memory {
	return &Memory{
		info: driver.Info{URL: "memory:", Format: "memory", Len: n, Fields: fields, Fingerprint: fmt.Sprintf("memory-%d", n)},
		make: fill,
	}
}

// Copied changes m so that its values must be read, as from a disk, and returns m.
func (m *Memory) Copied() *Memory {
	m.Copy, m.info.Objects = true, m.info.Len
	return m
}

// Raw returns a source of n different raw images of w x h x c bytes in a field "image". A field
// "label" has the labels id mod classes.
func Raw(n int64, w, h, c, classes int) *Memory {
	size := w * h * c
	// The memory is outside the Go heap, as in real sources.
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

// Mixed returns a source of n records with fields of several kinds: image (raw, 4 x 3 pixels),
// label, n (the number of the record), caption, tokens and volume.
func Mixed(n int64) *Memory {
	fields := []driver.Field{
		{Name: "image", Kind: driver.KindImage, MaxBytes: 36, Width: 4, Height: 3, Channels: 3},
		{Name: "label", Kind: driver.KindLabel, Classes: []string{"a", "b", "c"}},
		{Name: "n", Kind: driver.KindInt},
		{Name: "caption", Kind: driver.KindText, MaxBytes: 32},
		{Name: "tokens", Kind: driver.KindTokens, DType: driver.Uint16, MaxBytes: 64},
		{Name: "volume", Kind: driver.KindVolume, DType: driver.Uint8, Shape: []int{4, 6, 8}, MaxBytes: 192},
	}
	fill := func(id int64, size int64) []byte { return bytes.Repeat([]byte{byte(id + 1)}, int(size)) }
	return NewMemory(n, fields, func(id int64, v []driver.Value) error {
		v[0] = driver.Value{Bytes: fill(id, 36), Codec: driver.CodecRaw, Width: 4, Height: 3, Channels: 3, Orientation: 1}
		v[1], v[2] = driver.Value{Int: id % 3}, driver.Value{Int: id}
		v[3] = driver.Value{Bytes: fmt.Appendf(nil, "w%d of %d", id%7, id)}
		v[4], v[5] = driver.Value{Bytes: fill(id, 2*(1+id%9))}, driver.Value{Bytes: fill(id, 192)}
		return nil
	})
}

// Info implements driver.Source.
func (m *Memory) Info() *driver.Info { return &m.info }

// Name implements driver.Source.
func (m *Memory) Name(id int64) string { return fmt.Sprintf("memory record %d", id) }

// Closed reports whether Close was called.
func (m *Memory) Closed() bool { return m.closed.Load() }

// Close frees the memory of Raw.
func (m *Memory) Close() error {
	if !m.closed.Swap(true) && m.free != nil {
		m.free()
	}
	return nil
}

// Object implements driver.Source for a Memory with Copy.
func (m *Memory) Object(n int64) driver.Object {
	b, _ := m.bytes(n)
	return driver.Object{Store: memory{m}, Entry: store.Entry{Name: strconv.FormatInt(n, 10), Size: int64(len(b)), Version: "1"}}
}

// bytes returns the joined values of a record and the end of each value.
func (m *Memory) bytes(id int64) ([]byte, []int) {
	values := make([]driver.Value, len(m.info.Fields))
	if id < 0 || id >= m.info.Len || m.make(id, values) != nil {
		return nil, nil
	}
	var b []byte
	ends := make([]int, len(values))
	for i := range values {
		b = append(b, values[i].Bytes...)
		ends[i] = len(b)
	}
	return b, ends
}

// Locate implements driver.Source.
func (m *Memory) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		if id < 0 || id >= m.info.Len {
			g.Records[k].Err = fmt.Errorf("record %d is outside of the %d records of %s", id, m.info.Len, m.info.URL)
		}
		if m.Copy && g.Records[k].Err == nil {
			_, ends := m.bytes(id)
			at := 0
			for f, end := range ends {
				g.Extents = append(g.Extents, driver.Extent{Object: id, Offset: int64(at), Size: int64(end - at), Field: int32(f), Tail: true})
				at = end
			}
		}
		g.Next()
	}
}

// Parse implements driver.Source.
func (m *Memory) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		if rec.Err = m.make(id, rec.Values); rec.Err != nil || !m.Copy {
			continue
		}
		_, parts := g.Of(k)
		for f, b := range parts {
			rec.Values[f].Bytes = b
		}
	}
	return nil
}

// memory is the store of a Memory.
type memory struct{ m *Memory }

func (s memory) Open(ctx context.Context, name string) (store.Object, error) {
	id, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return nil, err
	}
	b, _ := s.m.bytes(id)
	return object{b}, ctx.Err()
}

func (s memory) List(context.Context, string, *store.ListOptions, func(store.Entry) error) error {
	return nil
}
func (s memory) Stat(context.Context, string) (store.Entry, error) {
	return store.Entry{}, store.ErrNotExist
}
func (s memory) String() string          { return s.m.info.URL }
func (s memory) Path(name string) string { return "memory record " + name }
func (s memory) Close() error            { return nil }

type object struct{ b []byte }

func (o object) Size() int64     { return int64(len(o.b)) }
func (o object) Version() string { return "1" }
func (o object) ReadAt(ctx context.Context, p []byte, off int64) error {
	copy(p, o.b[off:])
	return ctx.Err()
}
func (o object) Close() error { return nil }

// Fault is the behaviour when a record is read or parsed.
type Fault struct {
	// Delay is the time before the read. The wait ends early if the read is cancelled.
	Delay time.Duration
	// Err is the error of the read, nil for none.
	Err error
	// Panic is the message of a panic of the source, "" for none.
	Panic string
	// Cut truncates each value of the record to this many bytes, or to zero bytes if it is -1.
	// 0 turns it off.
	Cut int
	// Flip inverts the byte at offset Flip-1. 0 turns it off.
	Flip int
	// Times limits how often the fault happens. 0 means always.
	Times int64

	hits atomic.Int64
}

// Hits returns how often the fault happened.
func (f *Fault) Hits() int64 { return f.hits.Load() }

// Source wraps a Memory with faults. Each record is an object of its own, so its reads can be
// slow or fail.
type Source struct {
	driver.Source
	info driver.Info
	// Rule returns the fault of a record, nil for none.
	Rule func(id int64) *Fault
	// Reads counts the reads.
	Reads atomic.Int64
}

// Wrap returns src with the faults of rule.
func Wrap(src *Memory, rule func(id int64) *Fault) *Source {
	s := &Source{Source: src, info: *src.Info(), Rule: rule}
	s.info.Objects = s.info.Len
	return s
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// Object implements driver.Source. Each record is an object.
func (s *Source) Object(n int64) driver.Object {
	return driver.Object{Store: faulty{s.Source.Object(n).Store, s, n}, Entry: store.Entry{Name: strconv.FormatInt(n, 10), Size: 1, Version: "1"}}
}

// Locate implements driver.Source. Each record is one byte that must be read.
func (s *Source) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		if id < 0 || id >= s.info.Len {
			g.Records[k].Err = fmt.Errorf("record %d is outside of the %d records of %s", id, s.info.Len, s.info.URL)
		} else if g.Records[k].Err == nil {
			g.Extents = append(g.Extents, driver.Extent{Object: id, Size: 1, Field: -1})
		}
		g.Next()
	}
}

// Parse implements driver.Source and applies the faults.
func (s *Source) Parse(g *driver.Group) error {
	for _, id := range g.IDs {
		if f := s.Rule(id); f != nil && f.Panic != "" && f.hit() {
			panic(f.Panic)
		}
	}
	if err := s.Source.Parse(g); err != nil {
		return err
	}
	for k, id := range g.IDs {
		f := s.Rule(id)
		if f == nil || g.Records[k].Err != nil || f.Cut == 0 && f.Flip == 0 || !f.hit() {
			continue
		}
		for i := range g.Records[k].Values {
			damage(&g.Records[k].Values[i], f)
		}
	}
	return nil
}

// hit counts a fault. It returns false if the fault has happened Times times.
func (f *Fault) hit() bool {
	if f.Times > 0 && f.hits.Load() >= f.Times {
		return false
	}
	f.hits.Add(1)
	return true
}

// faulty is the store of one record.
type faulty struct {
	store.Store
	s  *Source
	id int64
}

func (f faulty) Open(ctx context.Context, _ string) (store.Object, error) {
	return faultyObject{f}, ctx.Err()
}

type faultyObject struct{ f faulty }

func (o faultyObject) Size() int64     { return 1 }
func (o faultyObject) Version() string { return "1" }
func (o faultyObject) Close() error    { return nil }
func (o faultyObject) ReadAt(ctx context.Context, _ []byte, _ int64) error {
	o.f.s.Reads.Add(1)
	f := o.f.s.Rule(o.f.id)
	if f == nil || f.Delay == 0 && f.Err == nil || !f.hit() {
		return ctx.Err()
	}
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.Err
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
