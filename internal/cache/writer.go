package cache

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
)

const (
	// batches is the number of write batches. Values wait in them to be written. If all are full, no more values are
	// cached.
	batches = 6
	// MaxWaiting is about the size of all batches together, unless SetWaiting sets less.
	MaxWaiting = 20 << 20
	// leastWaiting is the least memory with which values are cached.
	leastWaiting = 1 << 20
	// fullWait is the pause before the next try when the cache was full.
	fullWait = 30 * time.Second
)

// Batch is a group of records to be cached.
type Batch struct {
	s       *Set
	buf     []byte
	heads   []head
	claims  []Key
	written chan struct{} // signalled after the write, if wait
	wait    bool
}

// writer appends to one segment after another, in one goroutine.
type writer struct {
	s       *Set
	free    chan *Batch
	queue   chan *Batch
	until   atomic.Int64 // nothing is cached before that time, in nanoseconds
	dead    atomic.Bool  // caching has failed for good
	kept    atomic.Int64
	waiting atomic.Int64 // bytes of all batches
	bytes   atomic.Int64

	f    *os.File
	list *os.File
	seg  int
	at   int64 // end of the records
	len  int64 // of the list
	size int64 // of the segment
}

func (w *writer) init(s *Set) {
	w.s = s
	w.waiting.Store(MaxWaiting)
	w.free, w.queue = make(chan *Batch, batches), make(chan *Batch, batches)
	for range batches {
		w.free <- &Batch{s: s, written: make(chan struct{}, 1)}
	}
}

// Begin returns a batch to fill and pass to Keep, or nil if nothing can be cached at present. With wait, it waits for
// pending writes.
func (s *Set) Begin(wait bool) *Batch {
	w := &s.w
	if w.dead.Load() || s.Waiting() == 0 || time.Now().UnixNano() < w.until.Load() {
		return nil
	}
	if wait {
		return <-w.free
	}
	select {
	case b := <-w.free:
		return b
	default:
		return nil
	}
}

// Claim reports whether the caller may add the record with a key. It returns the number of the record if it is in the
// cache, and -1 and false while another batch that has the record waits to be written.
func (b *Batch) Claim(k *Key) (n int32, ok bool) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if n := b.s.findLocked(k); n >= 0 {
		return n, false
	}
	if _, ok := b.s.claimed[*k]; ok {
		return -1, false
	}
	b.s.claimed[*k] = struct{}{}
	b.claims = append(b.claims, *k)
	return -1, true
}

// unclaim gives up the claims of a batch, whose records are in the cache now or could not be written.
func (b *Batch) unclaim() {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	for i := range b.claims {
		delete(b.s.claimed, b.claims[i])
	}
	b.claims = b.claims[:0]
}

// Room reports whether another value fits.
func (b *Batch) Room() bool { return int64(len(b.buf)) < b.s.Waiting()/batches*4/5 }

// SetWaiting sets the memory limit for values that wait to be written. With less than a megabyte, nothing is cached.
func (s *Set) SetWaiting(n int64) { s.w.waiting.Store(min(n, MaxWaiting)) }

// Waiting returns the memory limit for values that wait to be written.
func (s *Set) Waiting() int64 {
	if n := s.w.waiting.Load(); n >= leastWaiting {
		return n
	}
	return 0
}

// Add copies a value, which may be empty.
func (b *Batch) Add(m *Meta, value []byte) {
	if len(value) > maxValue {
		value, m.Codec = nil, 0
	}
	name := m.Name[max(len(m.Name)-maxName, 0):]
	h := head{Meta: *m, size: uint32(len(value)), name: uint16(len(name))}
	at := len(b.buf)
	var zero [headBytes]byte
	b.buf = append(b.buf, zero[:]...)
	b.buf = append(b.buf, value...)
	b.buf = append(b.buf, name...)
	if n := at + int(h.span()) - len(b.buf); n > 0 {
		b.buf = append(b.buf, zero[:n]...)
	}
	b.heads = append(b.heads, h)
}

// Keep writes the batch in the background. With wait, it returns after the write, so that the records are then found.
func (s *Set) Keep(b *Batch, wait bool) {
	b.wait = wait
	written := b.written
	s.w.queue <- b // the queue has space for each batch
	if wait {
		<-written
	}
}

// Kept returns the number of records and bytes that this process has cached so far.
func (s *Set) Kept() (records, bytes int64) { return s.w.kept.Load(), s.w.bytes.Load() }

func (w *writer) run() {
	for b := range w.queue {
		w.write(b)
		b.unclaim()
		if int64(cap(b.buf)) > w.s.Waiting()/batches*3/2 {
			b.buf = nil
		}
		b.buf, b.heads = b.buf[:0], b.heads[:0]
		if b.wait {
			b.written <- struct{}{}
		}
		w.free <- b
	}
	w.seal()
}

func (w *writer) close() { close(w.queue) }

// write appends a batch to the segment, records first, then their list.
func (w *writer) write(b *Batch) {
	if w.dead.Load() || len(b.heads) == 0 {
		return
	}
	err := w.append(b)
	switch {
	case err == nil:
	case errors.Is(err, errFull):
		w.until.Store(time.Now().Add(fullWait).UnixNano())
	default:
		w.dead.Store(true)
		w.s.sayOnce(err)
		w.seal()
	}
}

func (w *writer) append(b *Batch) error {
	heads, buf := b.heads, b.buf
	for len(heads) > 0 {
		n, bytes := 0, int64(0)
		for n < len(heads) && w.f != nil && w.at+bytes+heads[n].span() <= w.size-tail && w.len+int64(n+1)*headBytes <= listReserve(w.size) {
			bytes += heads[n].span()
			n++
		}
		if n == 0 && w.f != nil && w.at == headBytes {
			bytes, n = heads[0].span(), 1 // larger than the space: not cached
		} else if n == 0 {
			if err := w.next(heads[0].span()); err != nil {
				return err
			}
			continue
		} else if err := w.put(heads[:n], buf[:bytes]); err != nil {
			return err
		}
		heads, buf = heads[n:], buf[bytes:]
	}
	return nil
}

func (w *writer) put(heads []head, buf []byte) error {
	list := make([]byte, len(heads)*headBytes)
	at := int64(0)
	for i := range heads {
		h := &heads[i]
		h.offset = w.at + at
		value := buf[at+headBytes:]
		h.sum = xxh3.Hash(value[:int(h.size)+int(h.name)])
		h.put(list[i*headBytes:])
		copy(buf[at:], list[i*headBytes:(i+1)*headBytes])
		at += h.span()
	}
	if _, err := w.f.WriteAt(buf, w.at); err != nil {
		return err
	}
	if _, err := w.list.WriteAt(list, w.len); err != nil {
		return err
	}
	s := w.s
	s.mu.Lock()
	for i := range heads {
		s.addLocked(&heads[i], w.seg, w.len+int64(i)*headBytes, checked)
		w.bytes.Add(int64(heads[i].size))
	}
	s.mu.Unlock()
	w.kept.Add(int64(len(heads)))
	w.at += at
	w.len += int64(len(list))
	return nil
}

// next completes the segment and starts a new one.
func (w *writer) next(need int64) error {
	w.seal()
	limit, _ := w.s.dir.Limit()
	want := max(min(limit/64, MaxSegment), 8<<20, need+headBytes+tail)
	f, size, err := w.s.dir.reserve(w.s.id, want+listReserve(want))
	if err != nil {
		return err
	}
	seg, ok := w.s.segment(f.Name(), true)
	if !ok {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return errFull
	}
	list, err := os.OpenFile(listName(f.Name()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		var first [headBytes]byte
		copy(first[:], firstLine)
		_, err = f.WriteAt(first[:], 0)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return err
	}
	w.f, w.list, w.seg, w.size, w.at, w.len = f, list, seg, size, headBytes, 0
	return nil
}

// seal releases the unused space of the segment.
func (w *writer) seal() {
	if w.f == nil {
		return
	}
	if w.len == 0 {
		_ = os.Remove(w.f.Name())
		_ = os.Remove(w.list.Name())
	} else {
		_ = w.f.Truncate(w.at + tail)
	}
	_ = w.list.Close()
	_ = w.f.Close() // ends the lock
	w.f, w.list = nil, nil
}
