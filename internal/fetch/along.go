package fetch

import "time"

// Records that come later are read along with a neighbour that is needed now, where reads
// cost more than their bytes: of a set that the memory for reading ahead holds a good part
// of, one read then brings several records. What is read along waits in memory of its own
// until its unit is admitted; what is needed first has its room whatever is read along.
//
// Foresee says what comes later, beyond what is admitted, along whether it pays.

const (
	// maxForeseen is about how many records may be in view beyond those that are admitted, and
	// mostOfSet how many times as many the set may have: of a larger one a record has a
	// neighbour there too seldom.
	maxForeseen = 8192
	mostOfSet   = 8
	// maxAlong is the most that a read asks for with what it reads along: each record that
	// comes early saves a read, however many of them one brings, and what is needed now
	// should not wait for many.
	maxAlong = 512 << 10
	// tryMemory is the most that is held of what was read along while it is not known whether
	// that pays: where it does not, so much less came that is needed now.
	tryMemory = 48 << 20
	// leastAlong is the memory for what is read along below which nothing is.
	leastAlong = 8 << 20
)

// Foresees says whether Foresee has room for more.
func (f *Fetcher) Foresees() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.foresees()
}

func (f *Fetcher) foresees() bool { return f.along.may && f.foreseen < maxForeseen }

// foreseesEnough says whether so much is in view that it shows whether reading along pays.
func (f *Fetcher) foreseesEnough() bool {
	return f.along.may && int64(f.foreseen) >= min(maxForeseen/2, f.src.Info().Len/4)
}

// alongMemory is what records may take that are read along. Of the memory that reading
// ahead does not take now, a quarter is for the reads that bring them, until each record
// has a piece of its own, and for pieces that do not fit together.
func (f *Fetcher) alongMemory() int64 {
	spare := f.cfg.Memory - f.cfg.Urgent - f.window
	return spare - spare/4
}

// mostTransit is what reads that bring more than is needed may take while they are out.
func (f *Fetcher) mostTransit() int64 { return (f.cfg.Memory - f.cfg.Urgent - f.window) / 6 }

// Foresee puts a unit that is located, and will be admitted later, in view: its records may
// be read along with their neighbours. It returns false when there is no room for more, or
// nothing is read along.
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

// overtaken ends that a unit is only foreseen: what nobody reads along is not in view any
// more. What has been read along or is on its way stays in u.later. The lock is held.
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

// onItsWay says whether extent i of a unit is being read along.
func (u *Unit) onItsWay(i int) bool {
	return i < len(u.later) && u.later[i] != nil && u.Bytes[i] == nil
}

// giveUp gives back what was read along for a unit that is not admitted; what is on its way
// is given back when it is there.
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

// forget is as if extent i of a unit that is not admitted had not been read along.
func (f *Fetcher) forget(u *Unit, i int) {
	f.uncharge(u, u.later[i].size)
	u.later[i] = nil
	if bl := u.blocks[i]; bl != nil {
		f.mem.release(bl)
		u.blocks[i], u.Bytes[i] = nil, nil
	}
}

// makeRoom gives back all that was read along, for a unit that would not fit otherwise.
func (f *Fetcher) makeRoom() {
	for u := range f.holding {
		for i := range u.later {
			if u.later[i] != nil && u.Bytes[i] != nil {
				f.forget(u, i)
			}
		}
	}
}

// charge counts a record that is read along, uncharge one that is not any more.
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

// admitted takes over what was read along for a unit: from now on it is of what the unit
// has reserved.
func (f *Fetcher) admitted(u *Unit) {
	f.overtaken(u)
	f.ahead -= u.ahead
	u.ahead = 0
	delete(f.holding, u)
}

// alongRoom is how large a read for w may become that is size bytes now by what is read
// along, 0 where nothing is.
func (f *Fetcher) alongRoom(w *want, size int64) int64 {
	// Nothing is read along at the expense of the first batch, or of the end of an epoch for the
	// next one.
	if !f.along.on || f.foreseen == 0 || w.u.Turn != f.handed {
		return 0
	}
	most := min(maxAlong, f.mostTransit()-f.transit)
	if most <= size {
		return 0
	}
	return most
}

// takeAlong takes a want that comes later for a read that is size bytes with it, if there is
// memory for both.
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

// sortOut gives each record of a read that has brought more than is needed a piece of
// memory of its own: it may stay much longer than the others. The lock is held, and not
// while bytes are copied; nobody else gives what the goal is for meanwhile.
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

// giveOwn gives a record its piece of memory. One that is only foreseen keeps it until its
// unit is admitted.
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

// along finds out whether what is read along comes for nothing, as it does where a read
// costs more than its bytes. Where a link is full it does not, and only holds up what is
// needed now. So bytes are counted with it and without it, now and then.
type along struct {
	// may says that it may be at all, on that it is at present.
	may, on bool
	// slack says that reads kept up in the last count: nobody waits for what is read along.
	slack bool
	// hold is how many counts pass before it is found out again, pause what hold was after
	// it has not paid.
	hold, pause int
	// skip is how many reads still end that began before the present count.
	skip          int
	since         time.Time
	count         rate
	with, without rate // what was counted since hold was 0
}

// rate is how many bytes and reads came, and in what time.
type rate struct {
	bytes int64
	reads int
	busy  int // of those, when more could have been out
	span  time.Duration
}

const (
	// alongCount and alongReads are how long a count is at least.
	alongCount = 150 * time.Millisecond
	alongReads = 48
	// alongHold is how many counts pass before it is tried again where it has not paid, up to
	// alongMost when that happens again and again; alongStays is after how many it is left
	// out for one where it has.
	alongHold  = 16
	alongMost  = 16 * alongHold
	alongStays = 32
	// comesFree is how much of the bytes that are read along must have come for nothing:
	// bytes per second that the larger reads give in addition.
	comesFree = 0.2
)

// begin starts a count, which out reads do not belong to that are under way.
func (a *along) begin(out int) { a.skip, a.since, a.count = out, time.Time{}, rate{} }

// needsRoom says that no more is to be admitted than serves.
func (a *along) needsRoom() bool { return a.on || a.may && a.undecided() }

// undecided says that it is being found out.
func (a *along) undecided() bool { return a.hold == 0 }

// ended counts a read, with out others under way, and says whether something else is tried
// from now on. busy says that more reads could have been out.
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
	case a.slack: // nothing can be learnt of it
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

// less says whether larger reads than those of r bring enough more bytes per second.
func (r *rate) less(with *rate) bool {
	larger := float64(with.bytes) / float64(with.reads) / (float64(r.bytes) / float64(r.reads))
	faster := float64(with.bytes) / with.span.Seconds() / (float64(r.bytes) / r.span.Seconds())
	return larger > 1 && faster > 1+comesFree*(larger-1)
}
