package fetch

import "time"

// With a remote store, a read costs more than its bytes. So a read also brings records that come later if they are
// neighbours of a record that is needed now. This pays if the memory for reading ahead holds a good part of the set.
// Records that were read along have their own memory until their unit is admitted. They never take the memory of
// records that are needed first.
//
// Foresee registers records that come later and are not admitted yet. The type along measures whether reading them
// along pays.

const (
	// maxForeseen is about the number of records that may be foreseen at a time. The set may have mostOfSet times as
	// many. In a larger set a record too seldom has a foreseen neighbour.
	maxForeseen = 8192
	mostOfSet   = 8
	// maxAlong is the largest size of a read with the records that it reads along. Each record that comes early saves a
	// read, and the record that is needed now should not wait for many others.
	maxAlong = 512 << 10
	// tryMemory limits the records that were read along while their benefit is unknown. If it does not pay, they have
	// delayed records that are needed now.
	tryMemory = 48 << 20
	// leastAlong is the least memory with which records are read along.
	leastAlong = 8 << 20
)

// Foresees reports whether Foresee accepts more records.
func (f *Fetcher) Foresees() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.foresees()
}

func (f *Fetcher) foresees() bool { return f.along.may && f.foreseen < maxForeseen }

// foreseesEnough reports whether enough records are foreseen to measure whether reading along pays.
func (f *Fetcher) foreseesEnough() bool {
	return f.along.may && int64(f.foreseen) >= min(maxForeseen/2, f.src.Info().Len/4)
}

// alongMemory returns the memory for records that are read along. A quarter of the spare memory is left for the reads
// that bring them and for fragmentation.
func (f *Fetcher) alongMemory() int64 {
	spare := f.cfg.Memory - f.cfg.Urgent - f.window
	return spare - spare/4
}

// mostTransit returns the memory limit for reads under way that bring more than is needed.
func (f *Fetcher) mostTransit() int64 { return (f.cfg.Memory - f.cfg.Urgent - f.window) / 6 }

// Foresee registers a unit that is located and will be admitted later, so that its records may be read along with their
// neighbours. It returns false if the limit is reached or nothing is read along.
func (f *Fetcher) Foresee(u *Unit) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case u.foreseen || len(u.later) > 0:
		return true
	case !f.foresees():
		return false
	}
	u.foreseen = true
	f.foreseen += len(u.IDs)
	for i := range u.Extents {
		u.later = append(u.later, nil)
		e := &u.Extents[i]
		if u.Bytes[i] != nil || e.Size == 0 || e.Size > maxAlong/2 || u.Records[u.recordOf(i)].Err != nil {
			continue
		}
		w := f.newWant()
		*w = want{u: u, i: i, object: e.Object, off: e.Offset, size: e.Size, ctx: u.ctx, later: true}
		u.later[i] = w
		f.view.add(w)
	}
	return true
}

// overtaken ends the foreseen state of a unit. Reads that have not begun are no longer candidates. Reads that have
// begun or finished stay in u.later. The caller holds the lock.
func (f *Fetcher) overtaken(u *Unit) {
	if !u.foreseen {
		return
	}
	u.foreseen = false
	f.foreseen -= len(u.IDs)
	for i, w := range u.later {
		if w != nil && !w.taken {
			f.view.remove(w)
			u.later[i] = nil
			f.spare(w)
		}
	}
}

// onItsWay reports whether extent i of a unit is being read along.
func (u *Unit) onItsWay(i int) bool {
	return i < len(u.later) && u.later[i] != nil && u.Bytes[i] == nil
}

// giveUp releases the bytes that were read along for a unit that is not admitted. Reads under way are released when
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

// forget undoes the reading along of extent i of a unit that is not admitted.
func (f *Fetcher) forget(u *Unit, i int) {
	f.uncharge(u, u.later[i].size)
	u.later[i] = nil
	if bl := u.blocks[i]; bl != nil {
		f.mem.release(bl)
		u.blocks[i], u.Bytes[i] = nil, nil
	}
}

// makeRoom releases everything that was read along, for a unit that would not fit otherwise.
func (f *Fetcher) makeRoom() {
	for u := range f.holding {
		for i := range u.later {
			if u.later[i] != nil && u.Bytes[i] != nil {
				f.forget(u, i)
			}
		}
	}
}

// charge adds a record to the memory of records that are read along. uncharge removes it.
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

// admitted moves the memory of the records that were read along to the unit's own reservation.
func (f *Fetcher) admitted(u *Unit) {
	f.overtaken(u)
	f.ahead -= u.ahead
	u.ahead = 0
	delete(f.holding, u)
}

// alongRoom returns the size limit for a read of w with the records that it reads along, 0 for none. The read has size
// bytes so far.
func (f *Fetcher) alongRoom(w *want, size int64) int64 {
	// Records that are read along must not delay the first batch, or the end of an epoch for the next one.
	if !f.along.on || f.foreseen == 0 || w.u.Turn != f.handed {
		return 0
	}
	most := min(maxAlong, f.mostTransit()-f.transit)
	if most <= size {
		return 0
	}
	return most
}

// takeAlong reserves memory for a later want that joins a read, if there is enough. size is the size of the read with
// that want.
func (f *Fetcher) takeAlong(w *want, size int64) bool {
	n := pieceBytes(w.size)
	most := f.alongMemory()
	if f.along.undecided() && !f.along.slack {
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
// for this goal.
func (f *Fetcher) sortOut(fl *flight) error {
	g := fl.goal
	g.done = true
	g.pieces = make([]*block, len(g.wants))
	for k, w := range g.wants {
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
	for k, w := range g.wants {
		at := w.off - fl.off
		copy(g.pieces[k].b, fl.bl.b[at:at+w.size])
	}
	f.mu.Lock()
	g.done = false
	return nil
}

// giveOwn gives a record its own memory. A foreseen record keeps it until its unit is admitted.
func (f *Fetcher) giveOwn(w *want, bl *block) {
	u := w.u
	u.Bytes[w.i], u.blocks[w.i] = bl.b, bl
	switch {
	case u.admitted:
		f.arrived(u)
	case u.dropped:
		f.forget(u, w.i)
	}
}

// along measures whether reading along is free. It is free if a read costs more than its bytes. On a full link it
// delays records that are needed now. So the bytes per second are counted with it and without it from time to time.
type along struct {
	// may reports that reading along is allowed. on reports that it is active at present.
	may, on bool
	// slack reports that the reads kept up during the last count, so no worker waits for records that are read along.
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
	// alongCount and alongReads are the minimum time and number of reads of a count.
	alongCount = 150 * time.Millisecond
	alongReads = 48
	// alongHold is the number of counts before the next try when reading along did not pay. It grows up to alongMost
	// when that happens again. alongStays is the number of counts before the next check when it did pay.
	alongHold  = 16
	alongMost  = 16 * alongHold
	alongStays = 32
	// comesFree is the fraction of the bytes read along by which the bytes per second must grow.
	comesFree = 0.2
)

// begin starts a count. The out reads that are under way are excluded from it.
func (a *along) begin(out int) { a.skip, a.since, a.count = out, time.Time{}, rate{} }

// needsRoom reports that the admitted units should stay within the window, to leave memory for reading along.
func (a *along) needsRoom() bool { return a.on || a.may && a.undecided() }

// undecided reports that a measurement is in progress.
func (a *along) undecided() bool { return a.hold == 0 }

// ended counts a read while out others are under way. It reports whether the next count tries the other setting. busy
// reports that more reads could have been under way.
func (a *along) ended(now time.Time, size int64, out int, busy bool) bool {
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
	if a.count.span < alongCount || a.count.reads < alongReads {
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
		a.pause, a.hold = 0, alongStays
	} else {
		a.pause = min(max(2*a.pause, alongHold), alongMost)
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
