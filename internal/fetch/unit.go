package fetch

import (
	"context"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// Turn is shared by records that are needed together. Fetcher.early keeps later records from sharing the link with
// them.
type Turn struct {
	// Epoch is the epoch of the records.
	Epoch int64
	// Awaited reports that the records belong to the first batch of a stream, so the trainer is waiting for them.
	Awaited bool
}

// Unit is a group of records on its way from Locate to Done. It belongs to the planner until Admit, to the Fetcher
// until it is ready, then to the worker.
type Unit struct {
	driver.Group
	// Owner, Lo and Hi identify the batch and the rows that the records are for, once the unit is attached.
	Owner  any
	Lo, Hi int
	// Turn is set before Admit.
	Turn
	// InMemory reports that nothing has to be read.
	InMemory bool
	// Parsed reports that the values are set without a call of Parse.
	Parsed bool

	ctx      context.Context
	order    int64
	need     int64 // bytes of memory for the bytes that have to be read
	reserved int64
	rushed   bool // reserved from the urgent part
	missing  int  // pieces of the index that are being read
	rounds   int
	left     int // reads that have not finished
	attached bool
	dropped  bool
	complete bool
	// candidate reports that the unit may be read ahead but is not admitted. The field later holds its reads by extent
	// that were read ahead or may be, and ahead their memory until the unit is admitted.
	candidate bool
	admitted  bool
	later     []*extent
	ahead     int64
	blocks    []*block // by extent
	ids       []int64  // backing array of Group.IDs
	readErrs  []error  // by record
	err       error
	whole     bool         // of a chunk that is read as a whole
	chunk     bool         // its records are copied to other units
	from      []*heldChunk // the chunk of each record
}

// Order returns the unit's position in the order of need.
func (u *Unit) Order() int64 { return u.order }

// Err returns the error of the unit as a whole: a bug in the source.
func (u *Unit) Err() error { return u.err }

// newUnit returns an empty unit.
func (f *Fetcher) newUnit() *Unit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pool.take()
}

// measure looks up which extents are in memory and sums the bytes that have to be read.
func (u *Unit) measure(f *Fetcher) {
	now := time.Now()
	u.need = 0
	u.InMemory = len(u.Missing) == 0
	n := len(u.Extents)
	if cap(u.blocks) < n {
		u.blocks = make([]*block, n)
	}
	u.blocks = u.blocks[:n]
	clear(u.blocks)
	u.Bytes = u.Bytes[:0]
	for i := range u.Extents {
		e := &u.Extents[i]
		b := f.obj.Resident(e, now)
		u.Bytes = append(u.Bytes, b)
		if b == nil && e.Size > 0 {
			u.InMemory = false
			u.need += pieceBytes(e.Size)
		}
	}
}

// needOf returns the memory that record k of a located unit needs.
func (u *Unit) needOf(k int) int64 {
	n := int64(0)
	for i := u.First[k]; i < u.First[k+1]; i++ {
		if u.Bytes[i] == nil && u.Extents[i].Size > 0 {
			n += pieceBytes(u.Extents[i].Size)
		}
	}
	return n
}

// pieceBytes returns the memory that n bytes take up, with alignment and tail.
func pieceBytes(n int64) int64 {
	if n >= placeFrom {
		n += page
	}
	return (n + arena.Tail + pieceAlign - 1) &^ (pieceAlign - 1)
}

// recordOf returns the index of the record that extent i belongs to.
func (u *Unit) recordOf(i int) int {
	lo, hi := 0, len(u.IDs)
	for lo < hi {
		mid := (lo + hi) / 2
		if int(u.First[mid+1]) > i {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// usePlaces finds the values that can be read straight into the batch.
func (u *Unit) usePlaces() {
	if u.Place == nil {
		return
	}
	for k := range u.IDs {
		for i := u.First[k]; i < u.First[k+1] && u.Records[k].Err == nil; i++ {
			e := &u.Extents[i]
			if u.Bytes[i] != nil || e.Size == 0 || e.Field < 0 || u.onItsWay(int(i)) {
				continue
			}
			if p := u.Place(k, int(e.Field), e.Size); p != nil {
				u.Bytes[i] = p
				u.need -= pieceBytes(e.Size)
				u.setPlaced(int(i))
			}
		}
	}
}

// setPlaced marks extent i as read straight to u.Bytes[i].
func (u *Unit) setPlaced(i int) { u.blocks[i] = inPlace }

// inPlace marks an extent that is read into the batch and has no block.
var inPlace = new(block)

// Memory locates records and reports whether all of them are in memory. If so, u, which the caller provides, has their
// bytes. Memory never waits.
func (f *Fetcher) Memory(u *Unit, ids []int64) bool {
	u.IDs, u.Want = ids, f.fieldsOf(ids)
	u.Begin(ids, f.fields)
	u.Unproven = f.cfg.Unproven
	if recordread.LocateOnce(f.src, &u.Group) != nil || len(u.Missing) > 0 {
		return false // reading returns the error
	}
	now := time.Now()
	for i := range u.Extents {
		e := &u.Extents[i]
		b := f.obj.Resident(e, now)
		if b == nil && e.Size > 0 || f.tooLarge(e) {
			return false
		}
		u.Bytes = append(u.Bytes, b)
	}
	return true
}

// Count records that a group was parsed and how long that took. If the group was found in memory, took includes the
// time of Memory.
func (f *Fetcher) Count(u *Unit, took time.Duration) {
	f.stats.busy.Add(int64(took))
	n := 0
	for _, b := range u.Bytes {
		n += len(b)
	}
	f.stats.records.Add(int64(len(u.IDs)))
	f.stats.bytes.Add(int64(n))
}

// Done ends the use of a unit that Pop returned.
func (f *Fetcher) Done(u *Unit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeLocked(u)
}

// freeLocked releases the memory and the chunks of a unit.
func (f *Fetcher) freeLocked(u *Unit) {
	for i, bl := range u.blocks {
		if bl != nil {
			f.mem.release(bl)
			u.blocks[i] = nil
		}
	}
	f.account.release(u)
	f.ledger.release(u)
	for i, c := range u.from {
		c.usedLocked(f)
		u.from[i] = nil
	}
	clear(u.Bytes)
	clear(u.later)
	*u = Unit{Group: u.Group, blocks: u.blocks[:0], ids: u.ids, readErrs: u.readErrs[:0], from: u.from[:0], later: u.later[:0]}
	u.Alloc, u.Place = nil, nil
	f.pool.give(u, 256)
	signal(f.ordered.memoryFree)
	signal(f.space)
}

// Drop gives up a unit that is not attached, admitted or not.
func (f *Fetcher) Drop(u *Unit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case u.complete:
		f.freeLocked(u)
	default:
		u.dropped = true // the last read frees it
		f.giveUp(u)
	}
}
