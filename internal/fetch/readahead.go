package fetch

import "time"

// With a remote store, a read costs more than its bytes. So a read also brings records that come later if they are
// neighbours of a record that is needed now. This pays if the memory for reading ahead holds a good part of the set.
// Records that were read ahead have their own memory until their unit is admitted. They never take the memory of
// records that are needed first.
//
// Prefetch registers records that come later and are not admitted yet. The type readahead measures whether reading them
// ahead pays.

const (
	// maxCandidates is about the number of records that may be prefetch candidates at a time. The set may have
	// mostOfSet times as many. In a larger set a record too seldom has a neighbour among the candidates.
	maxCandidates = 8192
	mostOfSet     = 8
	// maxReadahead is the largest size of a read with the records that it reads ahead. Each record that comes early
	// saves a read, and the record that is needed now should not wait for many others.
	maxReadahead = 512 << 10
	// tryMemory limits the records that were read ahead while their benefit is unknown. If it does not pay, they have
	// delayed records that are needed now.
	tryMemory = 48 << 20
	// leastReadahead is the least memory with which records are read ahead.
	leastReadahead = 8 << 20
)

// Prefetches reports whether Prefetch accepts more records.
func (f *Fetcher) Prefetches() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.prefetches()
}

func (f *Fetcher) prefetches() bool { return f.readahead.may && f.candidates < maxCandidates }

// prefetchesEnough reports whether enough records are prefetch candidates to measure whether readahead pays.
func (f *Fetcher) prefetchesEnough() bool {
	return f.readahead.may && int64(f.candidates) >= min(maxCandidates/2, f.src.Info().Len/4)
}

// readaheadMemory returns the memory for records that are read ahead. A quarter of the spare memory is left for the
// reads that bring them and for fragmentation.
func (f *Fetcher) readaheadMemory() int64 {
	spare := f.cfg.Memory - f.cfg.Urgent - f.window
	return spare - spare/4
}

// mostTransit returns the memory limit for reads under way that bring more than is needed.
func (f *Fetcher) mostTransit() int64 { return (f.cfg.Memory - f.cfg.Urgent - f.window) / 6 }

// Prefetch registers a unit that is located and will be admitted later, so that its records may be read ahead with
// their neighbours. It returns false if the limit is reached or nothing is read ahead.
func (f *Fetcher) Prefetch(u *Unit) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case u.candidate || len(u.later) > 0:
		return true
	case !f.prefetches():
		return false
	}
	u.candidate = true
	f.candidates += len(u.IDs)
	for i := range u.Extents {
		u.later = append(u.later, nil)
		e := &u.Extents[i]
		if u.Bytes[i] != nil || e.Size == 0 || e.Size > maxReadahead/2 || u.Records[u.recordOf(i)].Err != nil {
			continue
		}
		w := f.newExtent()
		*w = extent{u: u, i: i, object: e.Object, off: e.Offset, size: e.Size, ctx: u.ctx, later: true}
		u.later[i] = w
		f.view.add(w)
	}
	return true
}

// overtaken makes a unit no candidate for readahead any more. Reads that have not begun are no longer candidates. Reads
// that have begun or finished stay in u.later. The caller holds the lock.
func (f *Fetcher) overtaken(u *Unit) {
	if !u.candidate {
		return
	}
	u.candidate = false
	f.candidates -= len(u.IDs)
	for i, w := range u.later {
		if w != nil && !w.taken {
			f.view.remove(w)
			u.later[i] = nil
			f.spare(w)
		}
	}
}

// onItsWay reports whether extent i of a unit is being read ahead.
func (u *Unit) onItsWay(i int) bool {
	return i < len(u.later) && u.later[i] != nil && u.Bytes[i] == nil
}

// giveUp releases the bytes that were read ahead for a unit that is not admitted. Reads under way are released when
// they finish.
func (f *Fetcher) giveUp(u *Unit) {
	if u.admitted {
		return
	}
	f.overtaken(u)
	for i := range u.later {
		if u.later[i] != nil && u.Bytes[i] != nil {
			f.forget(u, i)
		}
	}
}

// forget undoes the readahead of extent i of a unit that is not admitted.
func (f *Fetcher) forget(u *Unit, i int) {
	f.uncharge(u, u.later[i].size)
	u.later[i] = nil
	if bl := u.blocks[i]; bl != nil {
		f.mem.release(bl)
		u.blocks[i], u.Bytes[i] = nil, nil
	}
}

// freeReadahead releases everything that was read ahead, for a unit that would not fit otherwise.
func (f *Fetcher) freeReadahead() {
	for u := range f.holding {
		for i := range u.later {
			if u.later[i] != nil && u.Bytes[i] != nil {
				f.forget(u, i)
			}
		}
	}
}

// charge adds a record to the memory of records that are read ahead. uncharge removes it.
func (f *Fetcher) charge(u *Unit, size int64) {
	f.ahead += pieceBytes(size)
	u.ahead += pieceBytes(size)
	f.holding[u] = struct{}{}
}

func (f *Fetcher) uncharge(u *Unit, size int64) {
	f.ahead -= pieceBytes(size)
	if u.ahead -= pieceBytes(size); u.ahead == 0 {
		delete(f.holding, u)
	}
}

// admitted moves the memory of the records that were read ahead to the unit's own reservation.
func (f *Fetcher) admitted(u *Unit) {
	f.overtaken(u)
	f.ahead -= u.ahead
	u.ahead = 0
	delete(f.holding, u)
}

// readaheadRoom returns the size limit for a read of w with the records that it reads ahead, 0 for none. The read has
// size bytes so far.
func (f *Fetcher) readaheadSpace(w *extent, size int64) int64 {
	// Records that are read ahead must not delay the first batch, or the end of an epoch for the next one.
	if !f.readahead.on || f.candidates == 0 || w.u.Turn != f.handed {
		return 0
	}
	most := min(maxReadahead, f.mostTransit()-f.transit)
	if most <= size {
		return 0
	}
	return most
}

// takeReadahead reserves memory for a later extent that joins a read, if there is enough. size is the size of the read
// with that extent.
func (f *Fetcher) takeReadahead(w *extent, size int64) bool {
	n := pieceBytes(w.size)
	most := f.readaheadMemory()
	if f.readahead.undecided() && !f.readahead.slack {
		most = min(most, tryMemory)
	}
	if f.ahead+n > most || f.used+f.ahead+n+f.transit+pieceBytes(size) > f.cfg.Memory-f.cfg.Urgent {
		return false
	}
	f.charge(w.u, w.size)
	return true
}

// sortOut copies each record of a read that brought more than was needed to its own memory, because some stay much
// longer than others. The caller holds the lock, which is released during the copies. Meanwhile no other read delivers
// for this request.
func (f *Fetcher) sortOut(fl *attempt) error {
	g := fl.request
	g.done = true
	g.pieces = make([]*block, len(g.extents))
	for k, w := range g.extents {
		bl, err := f.mem.alloc(int(w.size), w.off)
		if err != nil {
			for _, bl := range g.pieces[:k] {
				f.mem.release(bl)
			}
			g.pieces, g.done = nil, false
			return err
		}
		bl.refs = 1
		g.pieces[k] = bl
	}
	f.mu.Unlock()
	for k, w := range g.extents {
		at := w.off - fl.off
		copy(g.pieces[k].b, fl.bl.b[at:at+w.size])
	}
	f.mu.Lock()
	g.done = false
	return nil
}

// giveOwn gives a record its own memory. A candidate keeps it until its unit is admitted.
func (f *Fetcher) giveOwn(w *extent, bl *block) {
	u := w.u
	u.Bytes[w.i], u.blocks[w.i] = bl.b, bl
	switch {
	case u.admitted:
		f.arrived(u)
	case u.dropped:
		f.forget(u, w.i)
	}
}

// readahead measures whether reading ahead is free. It is free if a read costs more than its bytes. On a full link it
// delays records that are needed now. So the bytes per second are counted with it and without it from time to time.
type readahead struct {
	// may reports that readahead is allowed. on reports that it is active at present.
	may, on bool
	// slack reports that the reads kept up during the last count, so no worker waits for records that are read ahead.
	slack bool
	// hold is the number of counts before the next measurement. pause is the last value of hold after a measurement
	// without benefit.
	hold, pause int
	// skip is the number of reads that began before the present count and have not ended.
	skip          int
	since         time.Time
	count         rate
	with, without rate // counted since hold was 0
}

// rate is the number of bytes and reads in a time span.
type rate struct {
	bytes int64
	reads int
	busy  int // of those, when more could have been out
	span  time.Duration
}

const (
	// readaheadCount and readaheadReads are the minimum time and number of reads of a count.
	readaheadCount = 150 * time.Millisecond
	readaheadReads = 48
	// readaheadHold is the number of counts before the next try when readahead did not pay. It grows up to
	// readaheadMost when that happens again. readaheadStays is the number of counts before the next check when it did
	// pay.
	readaheadHold  = 16
	readaheadMost  = 16 * readaheadHold
	readaheadStays = 32
	// comesFree is the fraction of the bytes read ahead by which the bytes per second must grow.
	comesFree = 0.2
)

// begin starts a count. The out reads that are under way are excluded from it.
func (a *readahead) begin(out int) { a.skip, a.since, a.count = out, time.Time{}, rate{} }

// needsMemory reports that the admitted units should stay within the window, to leave memory for readahead.
func (a *readahead) needsMemory() bool { return a.on || a.may && a.undecided() }

// undecided reports that a measurement is in progress.
func (a *readahead) undecided() bool { return a.hold == 0 }

// ended counts a read while out others are under way. It reports whether the next count tries the other setting. busy
// reports that more reads could have been under way.
func (a *readahead) ended(now time.Time, size int64, out int, busy bool) bool {
	if a.skip > 0 {
		a.skip--
		return false
	}
	if a.since.IsZero() {
		a.since = now
		return false
	}
	a.count.bytes += size
	a.count.reads++
	if busy {
		a.count.busy++
	}
	a.count.span = now.Sub(a.since)
	if a.count.span < readaheadCount || a.count.reads < readaheadReads {
		return false
	}
	c := a.count
	a.begin(0)
	a.slack = c.busy <= c.reads*3/4
	switch {
	case a.slack: // nothing can be learnt from it
		if a.hold == 0 {
			a.on, a.with, a.without = true, rate{}, rate{}
		}
		return false
	case a.hold > 0:
		a.hold--
		return false
	case a.on:
		a.with = c
	default:
		a.without = c
	}
	if a.with.reads == 0 || a.without.reads == 0 {
		a.on = !a.on
		a.begin(out)
		return true
	}
	if a.on = a.without.less(&a.with); a.on {
		a.pause, a.hold = 0, readaheadStays
	} else {
		a.pause = min(max(2*a.pause, readaheadHold), readaheadMost)
		a.hold = a.pause
	}
	a.with, a.without = rate{}, rate{}
	return false
}

// less reports whether the larger reads of with bring enough more bytes per second than the reads of r.
func (r *rate) less(with *rate) bool {
	larger := float64(with.bytes) / float64(with.reads) / (float64(r.bytes) / float64(r.reads))
	faster := float64(with.bytes) / with.span.Seconds() / (float64(r.bytes) / r.span.Seconds())
	return larger > 1 && faster > 1+comesFree*(larger-1)
}
