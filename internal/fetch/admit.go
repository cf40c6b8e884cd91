package fetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// Locate builds a unit from ids and returns it with the number of its records: as many as fit, at least one. The unit
// has position order in the order of need. Its reads end when ctx is done. Urgent units go to AdmitUrgent.
//
// If Missing is not empty, the source first has to read its index: see Learn.
func (f *Fetcher) Locate(ctx context.Context, order int64, ids []int64, urgent bool) (u *Unit, n int) {
	u = f.newUnit()
	u.ctx, u.order, u.rushed = ctx, order, urgent
	u.ids = append(u.ids[:0], ids...)
	u.readErrs = u.readErrs[:0]
	u.IDs, u.Want = u.ids, f.fieldsOf(ids)
	return u, f.Relocate(u)
}

// Relocate locates a unit again after the source has learnt more. It returns the number of records that are left in the
// unit.
func (f *Fetcher) Relocate(u *Unit) (n int) {
	f.locate(u)
	most := f.account.planned
	if u.rushed {
		most = f.account.mostUrgent
	}
	if u.need <= most/4 || len(u.IDs) == 1 || len(u.Missing) > 0 {
		return len(u.IDs)
	}
	// Limit a unit to a fourth of the memory, so that several units are under way at any time.
	need := int64(0)
	for n = 1; n < len(u.IDs); n++ {
		if need += u.needOf(n - 1); need+u.needOf(n) > most/4 {
			break
		}
	}
	u.ids = u.ids[:n]
	if len(u.readErrs) > n {
		u.readErrs = u.readErrs[:n]
	}
	f.locate(u)
	return n
}

// locate locates the records of a unit except those that are known to be bad.
func (f *Fetcher) locate(u *Unit) {
	u.Begin(u.ids, f.fields)
	for k, err := range u.readErrs {
		u.Records[k].Err = err
	}
	for k := range u.Records {
		if f.cfg.Known != nil && u.Records[k].Err == nil {
			u.Records[k].Err = f.cfg.Known(u.IDs[k])
		}
	}
	if u.err = recordread.LocateOnce(f.src, &u.Group); u.err != nil {
		u.Group.Relocate()
		for range u.IDs {
			u.Next()
		}
	}
	if f.cfg.MaxValue > 0 {
		f.refuseLarge(u)
	}
	u.measure(f)
}

func (f *Fetcher) tooLarge(e *driver.Extent) bool {
	return f.cfg.MaxValue > 0 && e.Field < 0 && e.Size > f.cfg.MaxValue
}

// refuseLarge fails the records that have a value above the size limit. It does not matter whether the value is in
// memory, so the same records fail in all epochs. Values with a place in the batch need no memory.
func (f *Fetcher) refuseLarge(u *Unit) {
	for i := range u.Extents {
		e := &u.Extents[i]
		if !f.tooLarge(e) {
			continue
		}
		if rec := &u.Records[u.recordOf(i)]; rec.Err == nil {
			rec.Err = f.TooLarge(e.Size, f.cfg.MaxValue)
		}
		e.Size = 0 // nothing is read
	}
}

// errNoIndex is the error of a record if no other reason is known.
var errNoIndex = errors.New("internal error: it cannot be located although its chunk was read")

// maxRounds limits the number of index reads in a row for a unit.
const maxRounds = 16

// Learn starts the reads of the index pieces that are missing for u. Space is signalled when Learned may be true.
func (f *Fetcher) Learn(u *Unit) {
	for len(u.readErrs) < len(u.IDs) {
		u.readErrs = append(u.readErrs, nil)
	}
	if u.rounds++; u.rounds > maxRounds {
		for i := range u.Missing {
			u.readErrs[u.Missing[i].K] = fmt.Errorf("internal error: the index of %s has no end", f.src.Info().URL)
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	pushed := 0
	for i := range u.Missing {
		m := &u.Missing[i]
		at := [2]int64{m.Object, m.Offset}
		x := f.queues.pieces[at]
		if x == nil {
			x = &indexRead{Extent: m.Extent, order: u.order}
			f.queues.pieces[at] = x
			w := f.queues.spare.take()
			*w = extent{x: x, object: m.Object, off: m.Offset, size: m.Size, ctx: f.ctx, alone: true}
			f.queues.push(w, u.rushed)
			pushed++
		}
		x.waiters = append(x.waiters, waiter{u, m.K})
		u.missing++
	}
	f.wakeFor(pushed)
}

// indexRead is a piece of the index that is being read.
type indexRead struct {
	driver.Extent
	order   int64 // of the first unit that it is for
	waiters []waiter
}

type waiter struct {
	u *Unit
	k int
}

// Learned reports whether the index pieces that Learn requested have been read.
func (f *Fetcher) Learned(u *Unit) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return u.missing == 0
}

// Attach assigns a unit to rows lo and following of owner, before or after Admit. place returns the memory for a value,
// nil for none.
func (f *Fetcher) Attach(u *Unit, owner any, lo int, place func(k, field int, n int64) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u.Owner, u.Lo, u.Hi = owner, lo, lo+len(u.IDs)
	f.account.attach(u)
	u.Place = place
	if u.complete {
		f.ready.offer(u)
	}
}

// Admit queues the reads of a unit if there is memory for it. If not, it returns false, and Space signals when to try
// again. An attached unit is admitted at the latest when everything admitted before it has been used, even if memory is
// short.
func (f *Fetcher) Admit(u *Unit) bool {
	if u.attached && u.need > 0 && len(u.later) == 0 {
		u.usePlaces()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.attached && len(u.later) > 0 {
		f.overtaken(u) // extents that are not being read ahead go straight to the batch
		u.usePlaces()
	}
	most := f.account.planned
	limit := f.ahead()
	if u.attached {
		limit = f.attachedLimit(u.need)
	}
	switch {
	case u.need > most:
		if !u.attached {
			return false // places in the batch may reduce the need later
		}
		f.refuse(u, most)
	case u.need > 0 && f.account.used > 0 && f.account.used+u.need > limit:
		return false
	case u.attached && f.readahead.needsMemory() && f.account.attached > 0 && f.account.attached+u.need > f.window.now:
		return false // records that are read ahead need the memory more
	case u.need > 0 && !f.fits(u, most):
		return false
	case !u.attached && (f.account.units >= maxUnits || f.queues.records.n >= maxExtents):
		return false
	}
	f.admitted(u)
	f.account.reserve(u, false)
	f.issue(u)
	return true
}

// fits reports whether there is memory for a unit in addition to the records that were read ahead. If the unit cannot
// fit otherwise, those records are released.
func (f *Fetcher) fits(u *Unit, most int64) bool {
	fits := func() bool { return f.account.used+f.account.transit+f.account.ahead-u.ahead+u.need <= most }
	if !fits() && (f.account.used == 0 || u.attached && f.account.attached == 0) {
		f.freeReadahead() // no other release would help
	}
	return fits()
}

// AdmitUrgent is Admit for a unit that is needed before units that are already admitted. It has its own memory, so it
// never waits for those units.
func (f *Fetcher) AdmitUrgent(u *Unit) bool {
	if u.need > 0 {
		u.usePlaces()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case u.need > f.account.mostUrgent:
		f.refuse(u, f.account.mostUrgent)
	case u.need > 0 && f.account.urgent > 0 && f.account.urgent+u.need > f.account.mostUrgent:
		return false
	}
	f.account.reserve(u, true)
	f.issue(u)
	return true
}

// refuse fails the record of a unit that is too large to be read.
func (f *Fetcher) refuse(u *Unit, limit int64) {
	for k := range u.Records { // there is one
		u.Records[k].Err = f.TooLarge(u.needOf(k), limit)
	}
	u.need = 0
}

// issue queues the reads of a unit.
func (f *Fetcher) issue(u *Unit) {
	f.account.admit(u)
	f.ledger.admit(u)
	u.Unproven = u.Unproven || f.cfg.Unproven
	u.left = 1
	pushed := 0
	for i := range u.Extents {
		e := &u.Extents[i]
		var dst []byte
		if u.blocks[i] == inPlace {
			u.blocks[i] = nil
			dst = u.Bytes[i]
		} else if u.onItsWay(i) {
			u.left++
			continue
		} else if u.Bytes[i] != nil || e.Size == 0 || u.Records[u.recordOf(i)].Err != nil {
			continue
		}
		most := int64(maxRequest)
		if u.whole {
			most = maxWhole
		}
		if dst == nil && e.Size > most {
			bl, err := f.mem.alloc(int(e.Size), e.Offset)
			if err != nil {
				u.Records[u.recordOf(i)].Err = err
				continue
			}
			bl.refs = 1
			u.blocks[i], u.Bytes[i], dst = bl, bl.b, bl.b
		}
		for at := int64(0); at < e.Size; at += most {
			n := min(e.Size-at, most)
			w := f.queues.spare.take()
			*w = extent{u: u, i: i, object: e.Object, off: e.Offset + at, size: n, ctx: u.ctx, alone: u.whole}
			if dst != nil {
				w.dst, w.alone = dst[at:at+n:at+n], true
			}
			u.left++
			f.queues.push(w, u.rushed)
			pushed++
		}
	}
	f.wakeFor(pushed)
	f.arrived(u)
}

// arrived counts one read of a unit as done. After the last one the unit is ready.
func (f *Fetcher) arrived(u *Unit) {
	if u.left--; u.left > 0 {
		return
	}
	u.complete = true
	switch {
	case u.dropped:
		f.freeLocked(u)
	case u.attached:
		f.ready.offer(u)
	case u.chunk:
		signal(f.space)
	}
}
