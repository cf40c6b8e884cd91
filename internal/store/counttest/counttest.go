// Package counttest counts the requests of a store, with bytes, time and errors, and knows which requests are in
// progress and which is the oldest of these.
package counttest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/store"
)

// Store counts what is read through it. Mapped memory is passed on without counting: reading it is not a request.
type Store struct {
	store.Store
	now func() time.Time

	requests atomic.Int64
	bytes    atomic.Int64
	errors   atomic.Int64
	busy     atomic.Int64
	inFlight atomic.Int64

	hint atomic.Uint32
	out  [slots]slot
}

// slots is the number of requests in progress whose details are kept. Others are only counted.
const slots = 512

// slot is a request in progress. seq is odd during a request, and changes with each one.
type slot struct {
	seq   atomic.Uint64
	since atomic.Int64 // nanoseconds since 1970
	what  atomic.Pointer[what]
	off   atomic.Int64
	n     atomic.Int64
}

type what struct{ op, name string }

// New returns s with counters. now is the clock, nil for the real one.
func New(s store.Store, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{Store: s, now: now}
}

// Stats are the counters since the beginning.
type Stats struct {
	// Requests is the number of finished calls of Open, List, Stat and reads.
	Requests int64
	// Bytes is the number of bytes of successful reads.
	Bytes int64
	// Errors is the number of failed requests.
	Errors int64
	// Busy is the total time of all requests.
	Busy time.Duration
	// InFlight is the number of requests in progress.
	InFlight int64
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	return Stats{
		Requests: s.requests.Load(), Bytes: s.bytes.Load(), Errors: s.errors.Load(),
		Busy: time.Duration(s.busy.Load()), InFlight: s.inFlight.Load(),
	}
}

// Request is a request in progress.
type Request struct {
	// Op is "open", "list", "stat" or "read".
	Op string
	// Path is the object, as in Store.Path.
	Path string
	// Off and Len are the range of a read.
	Off, Len int64
	Since    time.Time
}

// Oldest returns the oldest request in progress, false if there is none. It does no I/O and never waits.
func (s *Store) Oldest() (Request, bool) {
	var r Request
	found := false
	oldest := int64(0)
	for i := range s.out {
		o := &s.out[i]
		seq := o.seq.Load()
		if seq&1 == 0 {
			continue
		}
		since, w, off, n := o.since.Load(), o.what.Load(), o.off.Load(), o.n.Load()
		if o.seq.Load() != seq || w == nil || since == 0 || found && since >= oldest {
			continue // it ended in the meantime, or is younger
		}
		found, oldest = true, since
		r = Request{Op: w.op, Path: w.name, Off: off, Len: n, Since: time.Unix(0, since)}
	}
	if found {
		r.Path = s.Path(r.Path)
	}
	return r, found
}

// begin counts the start of a request.
func (s *Store) begin(w *what, off, n int64) (o *slot, start time.Time) {
	start = s.now()
	s.inFlight.Add(1)
	from := s.hint.Add(1)
	for i := range uint32(slots) {
		c := &s.out[(from+i)%slots]
		seq := c.seq.Load()
		if seq&1 != 0 {
			continue
		}
		// since is 0 until the other fields are written, so that Oldest never sees half of them.
		if c.seq.CompareAndSwap(seq, seq+1) {
			c.what.Store(w)
			c.off.Store(off)
			c.n.Store(n)
			c.since.Store(start.UnixNano())
			return c, start
		}
	}
	return nil, start
}

// end counts the end of a request.
func (s *Store) end(o *slot, start time.Time, n int64, err error) {
	if o != nil {
		o.since.Store(0)
		o.what.Store(nil)
		o.seq.Add(1)
	}
	s.inFlight.Add(-1)
	s.requests.Add(1)
	s.busy.Add(int64(s.now().Sub(start)))
	if err != nil {
		s.errors.Add(1)
		return
	}
	s.bytes.Add(n)
}

// Unwrap returns the store inside.
func (s *Store) Unwrap() store.Store { return s.Store }

// Open opens an object whose reads are counted.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	return s.open(name, func() (store.Object, error) { return s.Store.Open(ctx, name) })
}

// OpenEntry opens an object from its listing entry, like the store inside.
func (s *Store) OpenEntry(ctx context.Context, e store.Entry) (store.Object, error) {
	return s.open(e.Name, func() (store.Object, error) { return store.OpenEntry(ctx, s.Store, e) })
}

func (s *Store) open(name string, open func() (store.Object, error)) (store.Object, error) {
	slot, start := s.begin(&what{"open", name}, 0, 0)
	o, err := open()
	s.end(slot, start, 0, err)
	if err != nil {
		return nil, err
	}
	read := &what{"read", name}
	return store.Intercept(o, false, func(ctx context.Context, next store.Next, p []byte, off int64) error {
		slot, start := s.begin(read, off, int64(len(p)))
		err := next.Read(ctx, p, off)
		s.end(slot, start, int64(len(p)), err)
		return err
	}), nil
}

// List lists. The time of f is counted as well, though it is not the store's.
func (s *Store) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	slot, start := s.begin(&what{"list", dir}, 0, 0)
	var stop error
	err := s.Store.List(ctx, dir, opt, func(e store.Entry) error {
		stop = f(e)
		return stop
	})
	failed := err
	if stop != nil {
		failed = nil
	}
	s.end(slot, start, 0, failed)
	return err
}

// Stat describes an object.
func (s *Store) Stat(ctx context.Context, name string) (store.Entry, error) {
	slot, start := s.begin(&what{"stat", name}, 0, 0)
	e, err := s.Store.Stat(ctx, name)
	s.end(slot, start, 0, err)
	return e, err
}
