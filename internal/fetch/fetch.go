// Package fetch reads groups of records into off-heap buffers, ahead of the
// decoders and within the memory budget. It repeats reads that failed for a
// passing reason and knows which read is out for longest.
package fetch

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store/retry"
)

// Buffer holds one group of records as they were read.
type Buffer struct {
	// Records are those of the last Read, in the order of its ids.
	Records []driver.Record

	buf    driver.Buffer
	bump   *arena.Bump
	recs   []driver.Record
	values []driver.Value
	places Places
	first  int
	// own says that it is not in the pool but of one goroutine (NewBuffer).
	own bool
}

// Places says where in a batch values are wanted.
type Places interface {
	// Place returns the n bytes for a field of a row, nil when there are none.
	Place(row, field int, n int64) []byte
}

// Into makes the next Read put values into places where the source can; its
// first record is row first. It holds until Reset.
func (b *Buffer) Into(p Places, first int) {
	b.places, b.first = p, first
}

func (b *Buffer) place(k, field int, n int64) []byte {
	if b.places == nil {
		return nil
	}
	return b.places.Place(b.first+k, field, n)
}

// Reset makes the memory of the records free for the next Read. Their bytes
// must not be used any more.
func (b *Buffer) Reset() {
	b.Records = nil
	b.Into(nil, 0)
	b.bump.Reset()
}

// Reader reads from one source. Its methods may be called from any goroutine.
type Reader struct {
	src    driver.Source
	budget *arena.Budget
	fields int

	// Only one read at a time waits for memory, so that waiting reads cannot
	// hold what the others wait for.
	memMu sync.Mutex
	// returned is signalled when a buffer was given back.
	returned chan struct{}
	pool     chan *Buffer
	all      []*Buffer

	out     []outstanding
	busy    atomic.Int64
	records atomic.Int64
	bytes   atomic.Int64
	retries atomic.Int64

	// Backoff is the wait before the first repetition; it doubles each time.
	Backoff time.Duration
	// Attempts is how often a read is tried.
	Attempts int
}

type outstanding struct {
	since atomic.Int64 // UnixNano, 0 when idle
	id    atomic.Int64
	_     [48]byte
}

// NewReader returns a Reader for workers that call Read at the same time, each
// with its own number below workers, and buffers for groups of up to rows
// records.
func NewReader(src driver.Source, budget *arena.Budget, workers, buffers, rows int) *Reader {
	r := &Reader{
		src:      src,
		budget:   budget,
		fields:   len(src.Info().Fields),
		returned: make(chan struct{}, 1),
		pool:     make(chan *Buffer, buffers),
		out:      make([]outstanding, workers),
		Backoff:  20 * time.Millisecond,
		Attempts: 5,
	}
	for range buffers {
		b := r.newBuffer(rows)
		r.all = append(r.all, b)
		r.pool <- b
	}
	return r
}

// Get waits for a free buffer. Done gives it back.
func (r *Reader) Get(ctx context.Context) (*Buffer, error) {
	select {
	case b := <-r.pool:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *Reader) newBuffer(rows int) *Buffer {
	b := &Buffer{
		bump:   arena.NewBump(r.budget, arena.PurposeRead),
		recs:   make([]driver.Record, rows),
		values: make([]driver.Value, rows*r.fields),
	}
	b.buf.Alloc, b.buf.Place = b.bump.Alloc, b.place
	return b
}

// Done gives a buffer back after use, and wakes a read that waits for memory.
// One of NewBuffer stays with its goroutine but keeps no memory, which nobody
// could take back from there.
func (r *Reader) Done(b *Buffer) {
	b.Reset()
	if b.own {
		b.bump.Release()
	} else {
		r.pool <- b
	}
	select {
	case r.returned <- struct{}{}:
	default:
	}
}

// Free gives the memory of all buffers back, when nobody uses them any more.
func (r *Reader) Free() {
	for _, b := range r.all {
		b.bump.Release()
	}
}

// trim gives the memory of the buffers that are not in use back to the budget.
func (r *Reader) trim() {
	for range cap(r.pool) {
		select {
		case b := <-r.pool:
			b.bump.Release()
			r.pool <- b
		default:
			return
		}
	}
}

// Read reads the records ids into b, as worker number worker. Failures of single
// records are in their Err; Read itself fails when ctx is done, when the source
// fails as a whole, or when a single record does not fit the budget.
func (r *Reader) Read(ctx context.Context, worker int, b *Buffer, ids []int64) error {
	start := time.Now()
	o := &r.out[worker]
	b.prepare(len(ids), r.fields)
	o.id.Store(ids[0])
	o.since.Store(start.UnixNano())
	err := r.read(ctx, b, ids)
	r.count(b, ids, start)
	o.since.Store(0)
	return err
}

// ReadMemory reads the records ids into b when all of them are in memory, without
// waiting for anything, and says whether they were. It is for sources that are a
// driver.MemoryReader; b may be one of NewBuffer.
func (r *Reader) ReadMemory(b *Buffer, ids []int64) (ok bool) {
	src, is := r.src.(driver.MemoryReader)
	if !is {
		return false
	}
	defer func() {
		if recover() != nil {
			ok = false // Read says what is wrong
		}
		if !ok && b.own {
			b.bump.Release()
		}
	}()
	start := time.Now()
	b.prepare(len(ids), r.fields)
	if !src.ReadMemory(ids, &b.buf) {
		return false
	}
	r.count(b, ids, start)
	return true
}

// NewBuffer returns a buffer beside those that Get hands out, for ReadMemory. It
// belongs to one goroutine, which calls Done after each use.
func (r *Reader) NewBuffer(rows int) *Buffer {
	b := r.newBuffer(rows)
	b.own = true
	return b
}

// count notes a read that is done.
func (r *Reader) count(b *Buffer, ids []int64, start time.Time) {
	read := 0
	for i, id := range ids {
		b.Records[i].ID = id
		for k := range b.Records[i].Values {
			read += len(b.Records[i].Values[k].Bytes)
		}
	}
	r.busy.Add(int64(time.Since(start)))
	r.records.Add(int64(len(ids)))
	r.bytes.Add(int64(read))
}

// prepare zeroes the records of a read of n.
func (b *Buffer) prepare(n, fields int) {
	b.bump.Reset()
	b.Records = b.recs[:n]
	clear(b.values[:n*fields])
	for i := range b.Records {
		b.Records[i] = driver.Record{Values: b.values[i*fields : (i+1)*fields : (i+1)*fields]}
	}
	b.buf.Records = b.Records
}

func (r *Reader) read(ctx context.Context, b *Buffer, ids []int64) error {
	wait := r.Backoff
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.prepare(len(ids), r.fields)
		err := r.call(ctx, b, ids)
		if b.bump.Failed() && ctx.Err() == nil {
			err = r.readWhenThereIsMemory(ctx, b, ids)
		}
		failed := err
		if failed == nil {
			failed = firstTransient(b.Records)
		}
		if failed == nil || ctx.Err() != nil || !retry.Transient(failed) {
			return err
		}
		if attempt >= r.Attempts {
			return err
		}
		r.retries.Add(1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait *= 2
	}
}

// call reads from the source; a panic of the source becomes an error.
func (r *Reader) call(ctx context.Context, b *Buffer, ids []int64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error while reading: %v\n%s", p, debug.Stack())
		}
	}()
	return r.src.Read(ctx, ids, &b.buf)
}

// readWhenThereIsMemory repeats a read that did not fit the budget, each time
// after another group gave its memory back, until no other group has any.
func (r *Reader) readWhenThereIsMemory(ctx context.Context, b *Buffer, ids []int64) error {
	b.bump.Release()
	r.memMu.Lock()
	defer r.memMu.Unlock()
	for {
		r.trim()
		others := r.budget.UsedFor(arena.PurposeRead)
		b.prepare(len(ids), r.fields)
		err := r.call(ctx, b, ids)
		if !b.bump.Failed() {
			return err
		}
		if others == 0 {
			return &MemoryError{Limit: r.budget.Limit() - r.budget.Used() + r.budget.UsedFor(arena.PurposeRead), Records: len(ids)}
		}
		b.bump.Release()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.returned:
		case <-time.After(10 * time.Millisecond):
			// Another read may have failed for memory, which signals nothing.
		}
	}
}

// MemoryError says that a group of records does not fit the budget even when
// nothing else is held.
type MemoryError struct {
	Limit   int64
	Records int
}

// Error says how much there was.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("does not fit the %d MiB that the memory budget leaves for reading; raise memory", e.Limit>>20)
}

func firstTransient(recs []driver.Record) error {
	for i := range recs {
		if err := recs[i].Err; err != nil && retry.Transient(err) {
			return err
		}
	}
	return nil
}

// Workers returns the number of workers.
func (r *Reader) Workers() int { return len(r.out) }

// Oldest returns the first record of the read that is out for longest, and for
// how long; false when none is.
func (r *Reader) Oldest() (id int64, since time.Duration, ok bool) {
	oldest := int64(0)
	for i := range r.out {
		s := r.out[i].since.Load()
		if s != 0 && (oldest == 0 || s < oldest) {
			oldest, id, ok = s, r.out[i].id.Load(), true
		}
	}
	if !ok {
		return 0, 0, false
	}
	return id, time.Since(time.Unix(0, oldest)), true
}

// Counters are what a Reader did so far.
type Counters struct {
	Busy                    time.Duration
	Records, Bytes, Retries int64
}

// Counters returns what was done so far.
func (r *Reader) Counters() Counters {
	return Counters{time.Duration(r.busy.Load()), r.records.Load(), r.bytes.Load(), r.retries.Load()}
}
