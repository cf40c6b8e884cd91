package fetch

// With a remote store, a read costs more than its bytes. So a read also brings records that come later if they are
// neighbours of a record that is needed now. This pays if the memory for reading ahead holds a good part of the set.
// Records that were read ahead have their own memory until their unit is admitted. They never take the memory of
// records that are needed first.
//
// Prefetch registers records that come later and are not admitted yet. The type readahead measures whether reading them
// ahead pays.

// candidates counts what Prefetch has registered. Guarded by Fetcher.mu.
type candidates struct {
	n       int                // records that may be read ahead
	holding map[*Unit]struct{} // units that are not admitted and have account.ahead
}

func (c *candidates) init() { c.holding = map[*Unit]struct{}{} }

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

func (f *Fetcher) prefetches() bool { return f.readahead.may && f.candidates.n < maxCandidates }

// prefetchesEnough reports whether enough records are prefetch candidates to measure whether readahead pays.
func (f *Fetcher) prefetchesEnough() bool {
	return f.readahead.may && int64(f.candidates.n) >= min(maxCandidates/2, f.src.Info().Len/4)
}

// readaheadMemory returns the memory for records that are read ahead. A quarter of the spare memory is left for the
// reads that bring them and for fragmentation.
func (f *Fetcher) readaheadMemory() int64 {
	spare := f.account.planned - f.window.now
	return spare - spare/4
}

// mostTransit returns the memory limit for reads under way that bring more than is needed.
func (f *Fetcher) mostTransit() int64 { return (f.account.planned - f.window.now) / 6 }

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
	f.ledger.register(u)
	f.candidates.n += len(u.IDs)
	for i := range u.Extents {
		u.later = append(u.later, nil)
		e := &u.Extents[i]
		if u.Bytes[i] != nil || e.Size == 0 || e.Size > maxReadahead/2 || u.Records[u.recordOf(i)].Err != nil {
			continue
		}
		w := f.queues.spare.take()
		*w = extent{u: u, i: i, object: e.Object, off: e.Offset, size: e.Size, ctx: u.ctx, later: true}
		u.later[i] = w
		f.queues.view.add(w)
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
	f.ledger.unregister(u)
	f.candidates.n -= len(u.IDs)
	for i, w := range u.later {
		if w != nil && !w.taken {
			f.queues.view.remove(w)
			u.later[i] = nil
			f.queues.recycle(w)
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
	for u := range f.candidates.holding {
		for i := range u.later {
			if u.later[i] != nil && u.Bytes[i] != nil {
				f.forget(u, i)
			}
		}
	}
}

// charge adds a record to the memory of records that are read ahead. uncharge removes it.
func (f *Fetcher) charge(u *Unit, size int64) {
	f.account.hold(u, size)
	f.candidates.holding[u] = struct{}{}
}

func (f *Fetcher) uncharge(u *Unit, size int64) {
	if f.account.drop(u, size); u.ahead == 0 {
		delete(f.candidates.holding, u)
	}
}

// admitted moves the memory of the records that were read ahead to the unit's own reservation.
func (f *Fetcher) admitted(u *Unit) {
	f.overtaken(u)
	f.account.dropAll(u)
	delete(f.candidates.holding, u)
}

// readaheadSpace returns the size limit for a read of w with the records that it reads ahead, 0 for none. The read has
// size bytes so far.
func (f *Fetcher) readaheadSpace(w *extent, size int64) int64 {
	// Records that are read ahead must not delay the first batch, or the end of an epoch for the next one.
	if !f.readahead.on || f.candidates.n == 0 || w.u.Turn != f.ready.turn {
		return 0
	}
	most := min(maxReadahead, f.mostTransit()-f.account.transit)
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
	if f.account.ahead+n > most || f.account.used+f.account.ahead+n+f.account.transit+pieceBytes(size) > f.account.planned {
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
