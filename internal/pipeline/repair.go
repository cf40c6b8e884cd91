package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
	"github.com/stokerdata/stoker/store"
)

// Damaged records are read again. If the bytes came from a cache or over a network, they are first read from the store
// without any cache. That happens under every policy, because a damaged cache must not fail a job. With
// on_error="repair", another copy of the pack is read next.

// repairs are the ways in which damaged records are read again.
type repairs struct {
	mu   sync.Mutex          // one record at a time: the memory is in no budget, and seldom needed
	copy driver.Source       // of repair_from, nil for none
	from *recordread.Objects // of copy

	store, other atomic.Int64
}

// Repaired counts the records whose bytes were damaged and that were read again: from the store, instead of a cache,
// and from another copy of the pack.
type Repaired struct {
	Store int64 `json:"store"`
	Copy  int64 `json:"copy"`
}

func (r *repairs) count() Repaired { return Repaired{r.store.Load(), r.other.Load()} }

// close closes the opened objects, after all reads have ended.
func (r *repairs) close() error {
	if r.copy == nil {
		return nil
	}
	return errors.Join(r.from.Close(), r.copy.Close())
}

// openCopy opens the other copy of the pack. It must be the same pack: its manifest has the checksums of all chunks.
func (p *Pipeline) openCopy(ctx context.Context) error {
	url := p.cfg.RepairFrom
	if url == "" {
		return nil
	}
	info := p.src.Info()
	if info.Format != "pack" {
		return fmt.Errorf("repair_from: %s is not a pack, and only copies of a pack can be compared", info.URL)
	}
	// The copy has the same views, unless its URL has its own.
	if base, views, err := view.CutURL(p.cfg.Source); err == nil && len(views) > 0 {
		if _, own, err := view.CutURL(url); err == nil && len(own) == 0 {
			url += p.cfg.Source[len(base):]
		}
	}
	src, err := p.openSource(ctx, url, nil)
	if err != nil {
		return fmt.Errorf("repair_from: %w", err)
	}
	if of := src.Info(); of.Format != "pack" || of.Fingerprint != info.Fingerprint || of.Len != info.Len {
		_ = src.Close() // the first error counts
		return fmt.Errorf("repair_from: %s is not a copy of %s: it has the fingerprint %q, expected %q", of.URL, info.URL, of.Fingerprint, info.Fingerprint)
	}
	p.faults.repairs.copy, p.faults.repairs.from = src, recordread.NewObjects(src, nil)
	return nil
}

// damaged reports whether other copies of a record's bytes may be intact.
func damaged(cause error) bool {
	for _, is := range []error{driver.ErrDamaged, store.ErrDamaged, cdec.ErrUnreadable, unix.EIO} {
		if errors.Is(cause, is) {
			return true
		}
	}
	return false
}

// cached reports whether the bytes of records may differ from those of their store: they were cached, or came over a
// network.
func (p *Pipeline) cached() bool {
	return localcache.Of(p.src) || p.caches.ram != nil || p.caches.disk.Cache != nil || p.caches.disk.staged != nil
}

// repair builds the row of a damaged record from other bytes. On failure it returns the reason: the cause or, with
// another copy, the causes of both.
func (w *worker) repair(b *batch, row int, id int64, cause error) error {
	p, r := w.p, &w.p.faults.repairs
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.caches.disk.Cache != nil && errors.Is(cause, cdec.ErrUnreadable) { // its chunk has been taken out of the cache meanwhile
		if err := w.again(b, row, id, p.src, p.objects); err == nil || !damaged(err) {
			return err
		}
	}
	if p.cached() && !p.src.Info().Sequential {
		err := w.again(b, row, id, p.src, p.faults.uncached.get(p))
		if err == nil {
			p.dropCached(id)
			r.store.Add(1)
			return nil
		}
		if !damaged(err) {
			return err
		}
	}
	if r.copy == nil {
		return cause
	}
	if err := w.again(b, row, id, r.copy, r.from); err != nil {
		return driver.Damaged(fmt.Errorf("%w; and the copy of repair_from: %w", cause, err))
	}
	r.other.Add(1)
	return nil
}

// again builds the row of a record that is read from other objects than usual.
func (w *worker) again(b *batch, row int, id int64, src driver.Source, objects *recordread.Objects) error {
	p := w.p
	rd := recordread.NewDirect(src, objects)
	rd.Want, rd.Unproven = p.fieldsOf(id), true
	ids := [1]int64{p.askedIn(b, row, p.number(id))}
	recs, err := rd.Read(b.stream.ctx, ids[:])
	if err != nil {
		return err
	}
	return w.fill(b, row, recs).Errs[0]
}

// dropCached removes a record's cached bytes, which differ from those of the store.
func (p *Pipeline) dropCached(id int64) {
	g := driver.Group{Want: p.arrays.set.Fields()}
	g.Begin([]int64{id}, len(p.src.Info().Fields))
	if recordread.LocateOnce(p.src, &g) != nil {
		return // it is repaired again the next time
	}
	for i := range g.Extents {
		e := &g.Extents[i]
		ob := p.src.Object(e.Object)
		path := ob.Store.Path(ob.Entry.Name)
		if p.caches.ram != nil {
			p.caches.ram.Drop(path, e.Offset, e.Size)
		}
		p.caches.disk.drop(path, ob.Entry, e.Offset, e.Size)
	}
}

// drop removes chunks of an object from the disk.
func (d *onDisk) drop(path string, e store.Entry, off, n int64) {
	switch {
	case d.staged != nil:
		d.staged.Drop(path, e.Version, e.Size, off, n)
	case d.Cache != nil:
		d.Disk.Drop(path, e.Version, e.Size, off, n)
	}
}
