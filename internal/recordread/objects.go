// Package recordread connects sources and stores. It keeps the objects of a source open and mapped, and reads records one
// call at a time for tools and for single records. The engine's reads are planned by package fetch over the same
// objects.
package recordread

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Tail is the number of bytes after an extent that its decoder may read (driver.Extent.Tail).
const Tail = 64

const (
	// maxKept is the number of objects that stay open. Objects are used in a random order, so the first ones stay:
	// closing one for another gains nothing.
	maxKept = 1024
	// maxTable limits the table of objects. Objects after it do not stay open. A source with more objects has only a
	// few records in each, so it gains nothing from open files. Its larger objects come first.
	maxTable = 1 << 20
)

// Objects reads the objects of a source. Its methods may be called from any goroutine, except Close, which is called
// last.
type Objects struct {
	// Decorate wraps the stores of the objects. It must be set before the first read.
	Decorate func(store.Store) store.Store
	// Most is the number of objects that stay open, 0 for maxKept. It must be set before the first read.
	Most int

	src   driver.Source
	retry *retry.Options
	under sync.Map // decorated stores, by store
	table []atomic.Pointer[kept]
	mu    sync.Mutex // of opening
	kept  []*kept
}

// kept is an object that stays open.
type kept struct {
	store.Object
	view store.Mapping // nil for none
	mem  []byte
	lend store.Lender // used if there is no view, nil for none
}

// Begun is a read in progress in the background, with its open object.
type Begun struct {
	f store.Object
	h *kept // of one that stays open
}

// read reads bytes, and fails if the object has changed since it was opened, because the bytes may then be from another
// version. The check reads the file's metadata, which takes half a microsecond.
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

// Resident returns the bytes of an extent in memory, or nil. It never waits: an object that was not read yet is
// unknown. The caller passes the time, once for many calls.
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
	return o.ReadBegun(ctx, Begun{}, object, p, off)
}

// Begin asks the system to start a read in the background. ReadBegun must then be called. Begin does not wait. It
// returns false if the store has no background reads, so that each read blocks a goroutine.
func (o *Objects) Begin(ctx context.Context, object, off, n int64) (b Begun, ok bool) {
	f, h, err := o.open(ctx, object)
	if err != nil {
		return Begun{}, true // the read finds that out once more, and tries again
	}
	s, ok := f.(store.Starter)
	return Begun{f, h}, ok && s.Start(off, n)
}

// ReadBegun completes a read that Begin started.
func (o *Objects) ReadBegun(ctx context.Context, b Begun, object int64, p []byte, off int64) error {
	if b.f != nil && ctx.Err() != nil { // no read is needed
		if b.h == nil {
			_ = b.f.Close()
		}
		return context.Cause(ctx)
	}
	return retry.Do(ctx, o.retry, func() error {
		f, h, err := b.f, b.h, error(nil)
		b = Begun{}
		if f == nil {
			f, h, err = o.open(ctx, object)
		}
		if err != nil {
			return err
		}
		return read(ctx, f, h, p, off)
	})
}

// open opens an object, or finds the one that is open already: h is then set.
func (o *Objects) open(ctx context.Context, object int64) (f store.Object, h *kept, err error) {
	if uint64(object) < uint64(len(o.table)) {
		if h := o.table[object].Load(); h != nil {
			return h.Object, h, nil
		}
	}
	ob := o.src.Object(object)
	if f, err = store.OpenEntry(ctx, o.decorated(ob.Store), ob.Entry); err == nil && ob.Keep {
		if h = o.keep(object, f); h != nil {
			f = h.Object // perhaps of another goroutine
		}
	}
	return f, h, err
}

// read reads from an open object, and closes it unless it stays open.
func read(ctx context.Context, f store.Object, h *kept, p []byte, off int64) error {
	if h != nil {
		return h.read(ctx, p, off)
	}
	err := f.ReadAt(ctx, p, off)
	if err == nil {
		// Bytes that were read while the file was written may be from two versions.
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

// keep makes f stay open, or returns the object that another goroutine has opened. It returns nil if enough objects are
// open; the caller then closes f.
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
	if len(o.kept) >= cmp.Or(o.Most, maxKept) {
		return nil
	}
	h := &kept{Object: f}
	// Records come in a random order. Without this hint, the system treats a record whose neighbours are in memory as
	// part of a sequence and reads ahead. That doubles the bytes if half of the data is cached.
	store.Advise(f, 0, 0, store.Random)
	if m, ok := store.As[store.Mapper](f); ok {
		if v, err := m.Map(); err == nil { // otherwise it is read
			h.view, h.mem = v, v.Bytes()
		}
	}
	h.lend, _ = store.As[store.Lender](f)
	o.kept = append(o.kept, h)
	o.table[object].Store(h)
	return h
}

// Place names an extent for messages, without I/O.
func (o *Objects) Place(e *driver.Extent) string {
	ob := o.src.Object(e.Object)
	return fmt.Sprintf("%s, bytes %d to %d", ob.Store.Path(ob.Entry.Name), e.Offset, e.Offset+e.Size)
}

// Close closes the open objects. Bytes of Resident are invalid afterwards.
func (o *Objects) Close() error {
	var first error
	for _, h := range o.kept {
		if h.view != nil {
			if err := h.view.Close(); first == nil {
				first = err
			}
		}
		if err := h.Object.Close(); first == nil {
			first = err
		}
	}
	o.kept = nil
	return first
}
