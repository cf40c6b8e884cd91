// Package direct stands between sources and stores: it keeps the objects of a
// source open and mapped, and reads records one call at a time, for tools and for
// single records. The engine's reads are planned by package fetch, over the same
// objects.
package direct

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/retry"
)

// Tail is how far behind an extent its decoder may look (driver.Extent.Tail).
const Tail = 64

const (
	// maxKept is how many objects stay open. Objects are used in a random order,
	// so the first ones stay: to close one for another gains nothing.
	maxKept = 1024
	// maxTable bounds the table of objects: those behind it do not stay open. A source
	// of more objects has one or a few records in each, and gains nothing by that; what
	// it has of others comes first.
	maxTable = 1 << 20
)

// Objects are the objects of a source as they are read. Its methods may be
// called from any goroutine, except Close, which is called last.
type Objects struct {
	// Decorate, when it is set before the first read, puts decorators around the
	// stores that objects lie in.
	Decorate func(store.Store) store.Store

	src   driver.Source
	retry *retry.Options
	under sync.Map // decorated stores, by store
	table []atomic.Pointer[kept]
	mu    sync.Mutex // of opening
	open  []*kept
}

// kept is an object that stays open.
type kept struct {
	store.Object
	view store.Mapping // nil where there is none
	mem  []byte
	lend store.Lender // where there is no view, nil for none
}

// read reads, and fails when the object has changed since it was opened: what was
// read may then be of another version. That costs a look at the file's metadata,
// half a microsecond beside a read that waits for a disk.
func (h *kept) read(ctx context.Context, p []byte, off int64) error {
	if err := h.ReadAt(ctx, p, off); err != nil {
		return err
	}
	return store.Check(ctx, h.Object)
}

// NewObjects returns the objects of src, whose reads are repeated when they
// fail for a passing reason; nil means the defaults.
func NewObjects(src driver.Source, opt *retry.Options) *Objects {
	o := &Objects{src: src, retry: opt}
	o.table = make([]atomic.Pointer[kept], min(src.Info().Objects, maxTable))
	return o
}

// Resident returns the bytes of an extent where they lie in memory, or nil. It
// never waits: an object that nothing was read from yet is not known. The caller
// says what time it is, once for many calls.
func (o *Objects) Resident(e *driver.Extent, now time.Time) []byte {
	if uint64(e.Object) >= uint64(len(o.table)) {
		return nil
	}
	h := o.table[e.Object].Load()
	switch {
	case h == nil:
		return nil
	case h.view == nil && h.lend != nil && e.Offset >= 0 && e.Size > 0:
		tail := int64(0)
		if e.Tail {
			tail = Tail
		}
		return h.lend.Lend(e.Offset, e.Size, tail, now)
	case h.view == nil:
		return nil
	}
	n := e.Size
	if e.Tail {
		n += Tail
	}
	if e.Offset < 0 || n <= 0 || e.Offset > int64(len(h.mem))-n || !h.view.Resident(e.Offset, n, now) {
		return nil
	}
	return h.mem[e.Offset : e.Offset+e.Size : e.Offset+e.Size]
}

// Read fills p from an offset of an object. It waits for the store, at most
// until ctx is done. Errors name the object and the bytes.
func (o *Objects) Read(ctx context.Context, object int64, p []byte, off int64) error {
	return retry.Do(ctx, o.retry, func() error { return o.read(ctx, object, p, off) })
}

func (o *Objects) read(ctx context.Context, object int64, p []byte, off int64) error {
	if uint64(object) < uint64(len(o.table)) {
		if h := o.table[object].Load(); h != nil {
			return h.read(ctx, p, off)
		}
	}
	ob := o.src.Object(object)
	f, err := store.OpenEntry(ctx, o.decorated(ob.Store), ob.Entry)
	if err != nil {
		return err
	}
	if ob.Keep {
		if h := o.keep(object, f); h != nil {
			return h.read(ctx, p, off)
		}
	}
	err = f.ReadAt(ctx, p, off)
	if err == nil {
		// What was read while the file was written may be of two versions.
		err = store.Check(ctx, f)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// decorated returns the store that is read instead of s.
func (o *Objects) decorated(s store.Store) store.Store {
	if o.Decorate == nil {
		return s
	}
	d, ok := o.under.Load(s)
	if !ok {
		d, _ = o.under.LoadOrStore(s, o.Decorate(s))
	}
	return d.(store.Store)
}

// keep makes f stay open, or the one that another goroutine has opened. It
// returns nil when enough are open: f is then the caller's to close.
func (o *Objects) keep(object int64, f store.Object) *kept {
	if uint64(object) >= uint64(len(o.table)) {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if h := o.table[object].Load(); h != nil {
		_ = f.Close()
		return h
	}
	if len(o.open) >= maxKept {
		return nil
	}
	h := &kept{Object: f}
	// Records come in a random order. Without the hint the system takes one
	// whose neighbours are in memory for part of a sequence, and reads ahead what
	// nobody has asked for: twice the bytes where half the data is cached.
	store.Advise(f, 0, 0, store.Random)
	if m, ok := store.As[store.Mapper](f); ok {
		if v, err := m.Map(); err == nil { // otherwise it is read
			h.view, h.mem = v, v.Bytes()
		}
	}
	h.lend, _ = store.As[store.Lender](f)
	o.open = append(o.open, h)
	o.table[object].Store(h)
	return h
}

// Place names an extent for messages, without I/O.
func (o *Objects) Place(e *driver.Extent) string {
	ob := o.src.Object(e.Object)
	return fmt.Sprintf("%s, bytes %d to %d", ob.Store.Path(ob.Entry.Name), e.Offset, e.Offset+e.Size)
}

// Close closes what is open. Bytes of Resident are invalid afterwards.
func (o *Objects) Close() error {
	var first error
	for _, h := range o.open {
		if h.view != nil {
			if err := h.view.Close(); first == nil {
				first = err
			}
		}
		if err := h.Object.Close(); first == nil {
			first = err
		}
	}
	o.open = nil
	return first
}
